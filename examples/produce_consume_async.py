"""Write and read with asyncio: a producer and a consumer run side by side.

python examples/produce_consume_async.py --bootstrap-server 127.0.0.1:9092
"""

from __future__ import annotations

import argparse
import asyncio

from streamlog.client import LATEST, AsyncAdmin, AsyncConsumer, AsyncProducer
from streamlog.errors import TopicAlreadyExistsError

COUNT = 1_000


async def produce(bootstrap_server: str, topic: str) -> None:
    # Records that are sent within 5 ms share a batch, which is compressed as a whole.
    async with AsyncProducer(bootstrap_servers=bootstrap_server, linger_ms=5, compression_type="zstd") as producer:
        for number in range(COUNT):
            # Waits while buffer.memory is full: a program that is faster than its cluster slows down.
            await producer.enqueue(topic, b"%d" % number, key=b"key-%d" % (number % 7), headers={"source": b"example"})
        await producer.flush()  # raises what went wrong with any of them


async def consume(consumer: AsyncConsumer) -> None:
    total = read = 0
    while read < COUNT:
        for record in await consumer.poll(timeout_s=5):
            total += int(record.value or b"0")
            read += 1
    print(f"read {read} records, their sum is {total}")


async def run(bootstrap_server: str, topic: str) -> None:
    async with AsyncAdmin(bootstrap_servers=bootstrap_server) as admin:
        try:
            await admin.create_topic(topic, partitions=3)
        except TopicAlreadyExistsError:
            pass
    async with AsyncConsumer(bootstrap_servers=bootstrap_server) as consumer:
        await consumer.assign_topics([topic], start=LATEST)
        for partition in consumer.assignment:
            await consumer.position(partition)  # the end is looked up before the first record is written
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(consume(consumer))
            tasks.create_task(produce(bootstrap_server, topic))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write and read with asyncio.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="host:port of any node")
    parser.add_argument("--topic", default="numbers")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.bootstrap_server, arguments.topic))


if __name__ == "__main__":
    main()
