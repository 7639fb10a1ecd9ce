"""The same cells, of confluent-kafka, aiokafka and nats-py, configured as ours: acks=all, idempotent, equal batches."""

from __future__ import annotations

import asyncio
import time
from itertools import cycle, islice
from typing import Any

from bench.growth.loads import percentiles_ms
from bench.peers.our_clients import BATCH_BYTES, LINGER_MS
from bench.peers.workload import Workload

READY_S = 60.0


def confluent_send(servers: str, topic: str, work: Workload, codec: str) -> float:
    from confluent_kafka import Producer

    settings = {"linger.ms": LINGER_MS, "batch.size": BATCH_BYTES, "compression.type": codec}
    limits = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 32 << 10}
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **settings, **limits})
    producer.list_topics(topic, timeout=READY_S)
    keys = cycle([None] if work.keys is None else work.keys)
    failed: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    begin = time.perf_counter()
    for key, value in zip(keys, islice(cycle(work.values), work.count), strict=False):
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
    took = time.perf_counter() - begin
    if failed:
        raise RuntimeError(f"{len(failed)} records failed: {failed[0]}")
    return work.count / took


def confluent_single(servers: str, topic: str, value: bytes, count: int) -> tuple[float, float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    took = []
    for number in range(count + 1):
        begin = time.perf_counter()
        producer.produce(topic, value)
        producer.flush()
        if number:
            took.append(time.perf_counter() - begin)
    return percentiles_ms(took)


def confluent_iterate(servers: str, topic: str, group: str, count: int) -> float:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        begin, read, end = 0.0, 0, time.monotonic() + READY_S
        while read < count:
            for message in consumer.consume(500, 0.1):
                message.value()
                begin = begin or time.perf_counter()
                read += 1
            if time.monotonic() > end:
                raise RuntimeError(f"{read} of {count} records were read within {READY_S:g} s")
        return (read - 1) / (time.perf_counter() - begin)
    finally:
        consumer.close()


async def aiokafka_iterate(servers: str, topic: str, group: str, count: int) -> float:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest")
    await consumer.start()
    try:
        begin, read = 0.0, 0
        async with asyncio.timeout(READY_S):
            async for _ in consumer:
                begin = begin or time.perf_counter()
                read += 1
                if read == count:
                    break
        return (count - 1) / (time.perf_counter() - begin)
    finally:
        await consumer.stop()


async def aiokafka_closed_loops(servers: str, topic: str, partitions: int, loops: int, seconds: float) -> float:
    from aiokafka import AIOKafkaProducer

    value, sent = bytes(100), 0
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True, linger_ms=0)
    await producer.start()
    try:

        async def loop(number: int, end: float) -> None:
            nonlocal sent
            for partition in cycle(range(number, partitions, loops)):
                await producer.send_and_wait(topic, value, partition=partition)
                if time.perf_counter() > end:
                    return
                sent += 1

        begin = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(loops):
                tasks.create_task(loop(number, begin + seconds))
        return sent / seconds
    finally:
        await producer.stop()


async def nats_create(servers: list[str], stream: str) -> None:
    import nats
    from nats.js.api import StreamConfig

    connection = await nats.connect(servers)
    try:
        end = time.monotonic() + READY_S
        while True:  # the servers elect a leader first
            try:
                await connection.jetstream().add_stream(StreamConfig(name=stream, subjects=[stream], num_replicas=3))
                return
            except nats.errors.Error:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.2)
    finally:
        await connection.close()


async def nats_closed_loops(servers: list[str], stream: str, loops: int, seconds: float) -> float:
    import nats

    connection, value, sent = await nats.connect(servers), bytes(100), 0
    try:
        publish = connection.jetstream().publish
        await publish(stream, value, timeout=READY_S)

        async def loop(end: float) -> None:
            nonlocal sent
            while True:
                await publish(stream, value, timeout=READY_S)
                if time.perf_counter() > end:
                    return
                sent += 1

        begin = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(loops):
                tasks.create_task(loop(begin + seconds))
        return sent / seconds
    finally:
        await connection.close()


async def nats_single(servers: list[str], stream: str, value: bytes, count: int) -> tuple[float, float]:
    import nats

    connection = await nats.connect(servers)
    try:
        publish, took = connection.jetstream().publish, []
        await publish(stream, value, timeout=READY_S)
        for _ in range(count):
            begin = time.perf_counter()
            await publish(stream, value, timeout=READY_S)
            took.append(time.perf_counter() - begin)
        return percentiles_ms(took)
    finally:
        await connection.close()
