"""The cells, of streamlog's clients. Each returns records or batches a second, or ms."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import cycle, islice

import grpc

from bench import stock_client
from bench.growth.loads import percentiles_ms
from bench.peers.workload import Workload
from streamlog.api.pb import records_pb2 as pb
from streamlog.client import AsyncConsumer, AsyncProducer, Consumer, Producer

LINGER_MS = 5
BATCH_BYTES = 256 << 10
PUBLISH = "/streamlog.v1.Records/Publish"
CALL_S = 60.0


def send(servers: str, topic: str, work: Workload, codec: str) -> float:
    settings = {"linger.ms": LINGER_MS, "batch.size": BATCH_BYTES, "compression.type": codec}
    with Producer({"bootstrap.servers": servers, **settings}) as producer:
        begin, send = time.perf_counter(), producer.send
        if work.keys is None:
            for value in islice(cycle(work.values), work.count):
                send(topic, value)
        else:
            for key, value in islice(cycle(zip(work.keys, work.values, strict=True)), work.count):
                send(topic, value, key=key)
        producer.flush()
        return work.count / (time.perf_counter() - begin)


async def send_many(servers: str, topic: str, work: Workload) -> float:
    async with AsyncProducer(bootstrap_servers=servers, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        begin = time.perf_counter()
        for _ in range(0, work.count, len(work.values)):
            await producer.send_many(topic, work.values, keys=work.keys)
        await producer.flush()
        return -(-work.count // len(work.values)) * len(work.values) / (time.perf_counter() - begin)


async def single(servers: str, topic: str, value: bytes, count: int) -> tuple[float, float]:
    """p50 and p99 in ms, of one record after the other."""
    took = []
    async with AsyncProducer(bootstrap_servers=servers, linger_ms=0) as producer:
        await producer.send(topic, value)
        for _ in range(count):
            begin = time.perf_counter()
            await producer.send(topic, value)
            took.append(time.perf_counter() - begin)
    return percentiles_ms(took)


def iterate(servers: str, topic: str, group: str, count: int) -> float:
    """From the first record on."""
    with Consumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        records = iter(consumer)
        next(records)
        begin = time.perf_counter()
        for _ in islice(records, count - 1):
            pass
        return (count - 1) / (time.perf_counter() - begin)


async def iterate_async(servers: str, topic: str, group: str, count: int) -> float:
    settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    async with AsyncConsumer(settings) as consumer:
        consumer.subscribe([topic])
        begin, read = 0.0, 0
        async for _ in consumer:
            begin = begin or time.perf_counter()
            read += 1
            if read == count:
                break
        return (count - 1) / (time.perf_counter() - begin)


def publish_request(topic: str) -> bytes:
    return pb.PublishRequest(topic=topic, records=[pb.PublishRecord(value=bytes(100))]).SerializeToString()


def publish_from_go(address: str, topic: str, calls: int, at_a_time: int) -> float:
    """Calls a second, by a program with gRPC's library for Go and nothing of streamlog."""
    found = stock_client.run(address, PUBLISH, publish_request(topic), calls=calls, in_flight=at_a_time)
    return found.calls / found.seconds


async def publish(address: str, topic: str, calls: int, at_a_time: int) -> float:
    """The same with gRPC's library for Python."""
    request, left = publish_request(topic), iter(range(calls))
    async with grpc.aio.insecure_channel(address) as channel:
        call: Callable[..., Awaitable[bytes]] = channel.unary_unary(PUBLISH)
        await call(request, timeout=CALL_S)

        async def one_after_the_other() -> None:
            for _ in left:
                await call(request, timeout=CALL_S)

        begin = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_a_time):
                tasks.create_task(one_after_the_other())
        return calls / (time.perf_counter() - begin)


async def closed_loops(servers: str, topic: str, partitions: int, loops: int, seconds: float) -> float:
    """Batches a second: each loop has one record in flight."""
    value, sent = bytes(100), 0
    async with AsyncProducer(bootstrap_servers=servers, linger_ms=0) as producer:

        async def loop(number: int, end: float) -> None:
            nonlocal sent
            for partition in cycle(range(number, partitions, loops)):
                await producer.send(topic, value, partition=partition)
                if time.perf_counter() > end:
                    return
                sent += 1

        begin = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(loops):
                tasks.create_task(loop(number, begin + seconds))
        return sent / seconds
