"""The Python client: producer, consumer, admin; each asynchronous, and synchronous on its own thread.

    from streamlog.client import AsyncProducer, AsyncConsumer, AsyncAdmin      # async with
    from streamlog.client import Producer, Consumer, Admin                     # with

    async with AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
        sent = await producer.send("logs", b"a line")

Settings go by Kafka's names, as arguments (`linger_ms=5`) or as a mapping (`{"linger.ms": 5}`). Errors are those of
streamlog.errors. The clients are written over the ports, so a simulation runs the very same code.

    producer        send, send_many; partitioner, batches, delivery
    consumer        subscribe, assign, poll; fetching, positions
    groups          membership, rebalances, committed offsets
    transactions    begin, commit, abort
    tracing         OpenTelemetry spans (`streamlog[otel]`)
    admin           topics, configs, nodes, groups, transactions
    serialization   keys and values of other types than bytes
    schemas         by the schemas of a registry (`streamlog[schema]`)
    connection      channels, metadata, coordinators, backoff; the thread of the synchronous clients
    settings        a client's settings, from arguments and mappings
    log_lines       what is logged, and of waits; `durations`: seconds in messages

A name is loaded when it is first used: a program that needs one part, such as a node, starts without the rest.

The client logs by Python's `logging`, each module to the logger of its own name, below `streamlog.client`. It prints
nothing: a program that wants the messages configures logging, as by `logging.basicConfig()`.
"""

import importlib
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streamlog.client.admin.async_admin import AsyncAdmin
    from streamlog.client.admin.sync_admin import Admin
    from streamlog.client.consumer.async_consumer import AsyncConsumer
    from streamlog.client.consumer.consumer_records import ConsumerBatch, ConsumerRecord
    from streamlog.client.consumer.offset_finder import AtTime, Last
    from streamlog.client.consumer.start_positions import EARLIEST, LATEST
    from streamlog.client.consumer.sync_consumer import Consumer
    from streamlog.client.groups.group_offsets import OffsetAndMetadata
    from streamlog.client.producer.async_producer import AsyncProducer
    from streamlog.client.producer.batches.producer_batch import AppendedRange, ManyFuture, RecordFuture, RecordMetadata
    from streamlog.client.producer.partitioner import Partitioner, murmur2
    from streamlog.client.producer.sent_records import SentMany, SentRecord
    from streamlog.client.producer.sync_producer import Producer
    from streamlog.client.transactions.transaction_manager import GroupMetadata, PreparedTransaction
    from streamlog.model import TopicPartition

# Without a handler Python would print warnings to standard error.
logging.getLogger(__name__).addHandler(logging.NullHandler())

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
    "Last",
    "ManyFuture",
    "OffsetAndMetadata",
    "Partitioner",
    "PreparedTransaction",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
    "SentMany",
    "SentRecord",
    "TopicPartition",
    "murmur2",
]

_HOMES: Final = {
    "EARLIEST": "consumer.start_positions",
    "LATEST": "consumer.start_positions",
    "TopicPartition": "consumer.start_positions",
    "Admin": "admin.sync_admin",
    "AppendedRange": "producer.batches.producer_batch",
    "AsyncAdmin": "admin.async_admin",
    "AsyncConsumer": "consumer.async_consumer",
    "AsyncProducer": "producer.async_producer",
    "AtTime": "consumer.offset_finder",
    "Consumer": "consumer.sync_consumer",
    "ConsumerBatch": "consumer.consumer_records",
    "ConsumerRecord": "consumer.consumer_records",
    "GroupMetadata": "transactions.transaction_manager",
    "Last": "consumer.offset_finder",
    "ManyFuture": "producer.batches.producer_batch",
    "OffsetAndMetadata": "groups.group_offsets",
    "Partitioner": "producer.partitioner",
    "PreparedTransaction": "transactions.transaction_manager",
    "Producer": "producer.sync_producer",
    "RecordFuture": "producer.batches.producer_batch",
    "RecordMetadata": "producer.batches.producer_batch",
    "SentMany": "producer.sent_records",
    "SentRecord": "producer.sent_records",
    "murmur2": "producer.partitioner",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # later uses do not call this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
