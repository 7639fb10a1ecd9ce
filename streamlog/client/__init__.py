"""The Python client: producer, consumer, admin; each asynchronous, and synchronous on its own thread.

    from streamlog.client import AsyncProducer, AsyncConsumer, AsyncAdmin      # async with
    from streamlog.client import Producer, Consumer, Admin                     # with

    async with AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
        sent = await producer.send("logs", b"a line")

Settings go by Kafka's names, as arguments (`linger_ms=5`) or as a mapping (`{"linger.ms": 5}`). Errors are those of
streamlog.errors. The clients are written over the ports, so a simulation runs the very same code.

    connections, metadata, backoff     the ways to the nodes, and what is known of the cluster
    producer                           send; topic_table, producer_batch, partitioner: where records gather
        transactions                   of a producer with transactional.id
        delivery, leader_stream        how batches reach their leaders; partition_queue, wire_batch: in order, once
    consumer                           subscribe, assign, poll, commit; consumer_records: what is handed out
        assigned_consumer              its half that reads
        fetcher, fetch_link            where partitions are read; partition_reader, offset_finder
        rebalancing, group_member      which partitions its group gives it; group_offsets, coordinator, poll_watch
    admin                              over any_node; admin_requests, admin_answers, admin_values
        admin_groups                   its half for groups; group_values
        admin_transactions             its half for transactions; transaction_values
    sync_*                             the synchronous fronts

A name is loaded when it is first used: who needs one part, as a node does, starts without the rest.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streamlog.client.admin import AsyncAdmin
    from streamlog.client.assigned_consumer import EARLIEST, LATEST
    from streamlog.client.consumer import AsyncConsumer
    from streamlog.client.consumer_records import ConsumerBatch, ConsumerRecord
    from streamlog.client.group_offsets import OffsetAndMetadata
    from streamlog.client.offset_finder import AtTime
    from streamlog.client.partitioner import Partitioner, murmur2
    from streamlog.client.producer import AsyncProducer
    from streamlog.client.producer_batch import AppendedRange, ManyFuture, RecordFuture, RecordMetadata
    from streamlog.client.sync_admin import Admin
    from streamlog.client.sync_consumer import Consumer
    from streamlog.client.sync_producer import Producer, SentMany, SentRecord
    from streamlog.client.transactions import GroupMetadata, PreparedTransaction

__all__ = [
    "EARLIEST",
    "LATEST",
    "Admin",
    "AppendedRange",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AtTime",
    "Consumer",
    "ConsumerBatch",
    "ConsumerRecord",
    "GroupMetadata",
    "ManyFuture",
    "OffsetAndMetadata",
    "Partitioner",
    "PreparedTransaction",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
    "SentMany",
    "SentRecord",
    "murmur2",
]

_HOMES: Final = {
    "EARLIEST": "assigned_consumer",
    "LATEST": "assigned_consumer",
    "Admin": "sync_admin",
    "AppendedRange": "producer_batch",
    "AsyncAdmin": "admin",
    "AsyncConsumer": "consumer",
    "AsyncProducer": "producer",
    "AtTime": "offset_finder",
    "Consumer": "sync_consumer",
    "ConsumerBatch": "consumer_records",
    "ConsumerRecord": "consumer_records",
    "GroupMetadata": "transactions",
    "ManyFuture": "producer_batch",
    "OffsetAndMetadata": "group_offsets",
    "Partitioner": "partitioner",
    "PreparedTransaction": "transactions",
    "Producer": "sync_producer",
    "RecordFuture": "producer_batch",
    "RecordMetadata": "producer_batch",
    "SentMany": "sync_producer",
    "SentRecord": "sync_producer",
    "murmur2": "partitioner",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # asked for once
    return value
