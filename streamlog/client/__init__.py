"""The Python client: producer, consumer by assignment, admin; each asynchronous, and synchronous on its own thread.

    from streamlog.client import AsyncProducer, AsyncConsumer, AsyncAdmin      # async with
    from streamlog.client import Producer, Consumer, Admin                     # with

    async with AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
        sent = await producer.send("logs", b"a line")

Settings go by Kafka's names, as arguments (`linger_ms=5`) or as a mapping (`{"linger.ms": 5}`). Errors are those of
streamlog.errors. The clients are written over the ports, so a simulation runs the very same code.

    connections, metadata, backoff     the ways to the nodes, and what is known of the cluster
    producer                           send; topic_table, producer_batch, partitioner: where records gather
        delivery, leader_stream        how batches reach their leaders; partition_queue, wire_batch: in order, once
    consumer                           assign, poll; consumer_records: what is handed out
        fetcher, fetch_link            where partitions are read; partition_reader, offset_finder
    admin                              over any_node; admin_requests, admin_answers, admin_values
    sync_*                             the synchronous fronts
"""

from streamlog.client.admin import AsyncAdmin
from streamlog.client.assigned_consumer import EARLIEST, LATEST
from streamlog.client.consumer import AsyncConsumer
from streamlog.client.consumer_records import ConsumerBatch, ConsumerRecord
from streamlog.client.offset_finder import AtTime
from streamlog.client.partitioner import Partitioner, murmur2
from streamlog.client.producer import AsyncProducer
from streamlog.client.producer_batch import AppendedRange, ManyFuture, RecordFuture, RecordMetadata
from streamlog.client.sync_admin import Admin
from streamlog.client.sync_consumer import Consumer
from streamlog.client.sync_producer import Producer, SentMany, SentRecord

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
    "ManyFuture",
    "Partitioner",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
    "SentMany",
    "SentRecord",
    "murmur2",
]
