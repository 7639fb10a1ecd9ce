"""Read a topic, transform each record, write another topic: each input record has its effect exactly once.

    python examples/exactly_once_worker.py --bootstrap-server 127.0.0.1:9092 --source orders --target invoices

The output records and the input's offsets are committed in one transaction. If the worker crashes, its open transaction
is aborted, and the next owner of the partitions starts at the last committed offsets. Several workers share the
partitions, each with a --transactional-id of its own, which it keeps over restarts.

Read the target with isolation_level="read_committed", which leaves out the records of aborted transactions.
"""

from __future__ import annotations

import argparse
import asyncio

from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer, ConsumerRecord, GroupMetadata
from streamlog.errors import TransactionAbortableError
from streamlog.model import PartitionId, TopicPartition

BATCH_RECORDS = 500


def transform(record: ConsumerRecord) -> bytes:
    return (record.value or b"").upper()


async def run_transaction(
    producer: AsyncProducer, consumer: AsyncConsumer, records: list[ConsumerRecord], group: str, target: str
) -> None:
    next_offsets = {TopicPartition(one.topic, PartitionId(one.partition)): one.offset + 1 for one in records}
    async with producer.transaction():  # commits at the end of the block, aborts on an exception
        for record in records:
            await producer.enqueue(target, transform(record), key=record.key)
        # Refused if this worker has lost its partitions to another member since it read the records.
        member = GroupMetadata(group, consumer.member_id or "", consumer.member_epoch or 0)
        await producer.send_offsets(next_offsets, member)


async def seek_to_committed(consumer: AsyncConsumer) -> None:
    for partition, committed in (await consumer.committed(consumer.assignment)).items():
        if partition in consumer.assignment:
            consumer.seek(partition, EARLIEST if committed is None else committed.offset)


async def run(arguments: argparse.Namespace) -> None:
    servers = arguments.bootstrap_server
    async with (
        AsyncProducer(bootstrap_servers=servers, transactional_id=arguments.transactional_id) as producer,
        AsyncConsumer(
            bootstrap_servers=servers,
            group_id=arguments.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
    ):
        await producer.init_transactions()  # fences an earlier process with this id, and aborts what it left open
        consumer.subscribe([arguments.source])
        done = 0
        while arguments.max_records is None or done < arguments.max_records:
            records = await consumer.poll(BATCH_RECORDS, timeout_s=1)
            if not records:
                continue
            try:
                await run_transaction(producer, consumer, records, arguments.group, arguments.target)
            except TransactionAbortableError as error:  # any other error ends the worker: start it again
                print(f"transaction aborted, its records are read again: {error}", flush=True)
                await seek_to_committed(consumer)
            else:
                done += len(records)
                print(f"committed {len(records)} records", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Transform a topic into another one, exactly once.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="host:port of any node")
    parser.add_argument("--source", default="orders")
    parser.add_argument("--target", default="invoices")
    parser.add_argument("--group", default="invoicing")
    parser.add_argument("--transactional-id", default="invoicing-1")
    parser.add_argument("--max-records", type=int, help="stop after so many; without it: at Ctrl-C")
    arguments = parser.parse_args()
    try:
        asyncio.run(run(arguments))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
