"""Benchmark part "services": the service Records, for clients that have only the .proto files.

Three real nodes as in part "cluster"; a plain gRPC channel to one of them: in Python, and for single records in Go too,
where gRPC's library takes little CPU. Requests are encoded and responses decoded outside of the measured time, so it is
the nodes' alone: here they process each record, for clients with a library only batches. Bytes are those of values.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from bench import stock_client
from bench.cluster import Cluster
from bench.figures import Figure
from bench.scratch import scratch
from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.ports.system import run as run_loop

_SERVICE: Final = "/streamlog.v1.Records/"
_RECORDS: Final = 300_000
_VALUE_BYTES: Final = 100
_IN_FLIGHT: Final = 8  # messages of one client
_UNARY_RECORDS: Final = (1, 100)
_CONCURRENCY: Final = (8, 16, 32)  # of the client in Go
_STREAM_RECORDS: Final = (10, 1_000)
_CALLS_MAX: Final = 3_000
_MESSAGE_BYTES_MAX: Final = 16 << 20


def run() -> list[Figure]:
    with scratch("services") as base:
        return run_loop(_measure(base))


async def _measure(base: Path) -> list[Figure]:
    options = [("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX)]
    async with Cluster(base) as cluster:
        address = cluster.local.nodes[0].address
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            return await _figures(cluster, channel)


async def _figures(cluster: Cluster, channel: grpc.aio.Channel) -> list[Figure]:
    figures: list[Figure] = []
    for size in _UNARY_RECORDS:
        await cluster.create(f"unary-{size}")
        request = pb.PublishRequest(topic=f"unary-{size}", records=_records(size)).SerializeToString()
        calls = min(_CALLS_MAX, _RECORDS // size)
        await _publish(channel, request, calls // 10)  # warm
        name = f"Publish, {_IN_FLIGHT} calls at a time of {size} records"
        figures += await _rates(cluster, name, calls * size, _publish(channel, request, calls))
    figures += await _stock_client(cluster)
    for size in _STREAM_RECORDS:
        await cluster.create(f"stream-{size}")
        message = pb.PublishStreamRequest(topic=f"stream-{size}", records=_records(size)).SerializeToString()
        count = _RECORDS // size
        await _publish_stream(channel, message, count // 10)
        name = f"PublishStream, messages of {size} records"
        figures += await _rates(cluster, name, count * size, _publish_stream(channel, message, count))
    for size in _STREAM_RECORDS:
        await _subscribe(channel, f"stream-{size}")
        name = f"Subscribe, written by {size}"
        written = _RECORDS // size // 10 * size + _RECORDS
        figures += await _rates(cluster, name, written, _subscribe(channel, f"stream-{size}"))
    return figures


async def _rates(cluster: Cluster, name: str, count: int, work: Awaitable[None]) -> list[Figure]:
    nodes, begin = cluster.cpu_s(), time.monotonic()
    await work
    took, nodes = time.monotonic() - begin, cluster.cpu_s() - nodes
    megabytes = count * _VALUE_BYTES / 1e6
    return [
        Figure(name=name, value=count / took / 1e3, unit="k records/s"),
        Figure(name="... CPU of all nodes", value=nodes / megabytes * 1e3, unit="ms/MB", less_is_better=True),
    ]


def _records(count: int) -> list[pb.PublishRecord]:
    return [pb.PublishRecord(value=b"%0*d" % (_VALUE_BYTES, number)) for number in range(count)]


async def _stock_client(cluster: Cluster) -> list[Figure]:
    missing = await asyncio.to_thread(stock_client.build)
    if missing is not None:
        print(missing, file=sys.stderr)  # not among the figures
        return []
    await cluster.create("single")
    request = pb.PublishRequest(topic="single", records=_records(1)).SerializeToString()
    figures: list[Figure] = []
    for in_flight in _CONCURRENCY:
        found = await asyncio.to_thread(
            partial(
                stock_client.run,
                cluster.local.nodes[0].address,
                f"{_SERVICE}Publish",
                request,
                calls=_CALLS_MAX,
                in_flight=in_flight,
            )
        )
        name = f"Publish by a client in Go, {in_flight} calls at a time of 1 record"
        figures += [
            Figure(
                name=name, value=found.calls / found.seconds, unit="calls/s", target=3_000 if in_flight == 8 else None
            ),
            Figure(name="... p50", value=found.p50_ms, unit="ms", less_is_better=True),
            Figure(name="... p99", value=found.p99_ms, unit="ms", less_is_better=True),
        ]
    return figures


async def _publish(channel: grpc.aio.Channel, request: bytes, calls: int) -> None:
    call = channel.unary_unary(f"{_SERVICE}Publish")
    left = iter(range(calls))

    async def one_after_the_other() -> None:
        for _ in left:
            await call(request, timeout=60)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_IN_FLIGHT):
            tasks.create_task(one_after_the_other())


async def _publish_stream(channel: grpc.aio.Channel, message: bytes, count: int) -> None:
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def messages() -> AsyncIterator[bytes]:
        for _ in range(count):
            await room.acquire()
            yield message

    answers = 0
    async for _ in channel.stream_stream(f"{_SERVICE}PublishStream")(messages(), timeout=600):
        room.release()
        answers += 1
    assert answers == count, f"{answers} of {count} messages were answered"


async def _subscribe(channel: grpc.aio.Channel, topic: str) -> None:
    """From the beginning to the end."""
    request = pb.SubscribeRequest(
        subscriptions=[
            pb.SubscribePartitions(
                topic=topic,
                start=pb.StartPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST),
                end=pb.EndPosition(bound=common_pb2.OFFSET_BOUND_LATEST),
            )
        ]
    )
    async for _ in channel.unary_stream(f"{_SERVICE}Subscribe")(request.SerializeToString(), timeout=600):
        pass
