"""What a call leaves behind in a node once it has ended: nothing that only the cyclic collector would find.

A real node over real gRPC, the collector disabled. Each kind of call is made many times, also cancelled, timed out and
refused, and then what is alive is counted: objects of streamlog's classes, and frames and coroutines of its code (a
traceback that is kept keeps a frame with all that it knows). An answer on a cycle is megabytes for as long as the
collector does not come by.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

import streamlog
from streamlog.api.pb import batches_pb2, common_pb2, groups_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.ports.malloc import resident_bytes, trim_heap
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.services.raw import dialled, produce
from tests.storage.batches import batch

FEW, MANY = 50, 1_000
AT_ONCE = 8
SETTLE_S = 30.0
KEPT_BYTES = 1 << 20
OWN_BYTES = 12_000
"""Of a call, until the collector comes: grpcio's stubs, in the same process, form cycles. Less than an answer."""
RESIDENT_BYTES = 48 << 20
VALUE = bytes(20_000)
EARLIEST = pb.StartPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    settings = {"min.insync.replicas": "1", "offsets.topic.num.partitions": "1"}
    with InProcessCluster(directory, nodes=1, settings=settings) as running:
        running.create_topic("t", 1)  # is written
        running.create_topic("r", 1)  # is read
        for _ in range(5):
            produce(running.address(1), "r", batch([VALUE]))
        with dialled(running.address(1)) as first:
            KINDS["publish stream"](first)  # the node has producer ids, which a cancelled one gives up
        yield running


@pytest.fixture
def channel(cluster: InProcessCluster) -> Iterator[grpc.Channel]:
    with dialled(cluster.address(1)) as made:
        yield made


def alive() -> Counter[str]:
    """Objects of the node that were made since `gc.freeze`, by kind."""
    found: Counter[str] = Counter()
    objects = gc.get_objects()
    for kind, number in Counter(map(type, objects)).items():
        name = str(kind.__module__)
        if name in STATE:
            continue
        if name.startswith("streamlog.") or kind.__name__ in ("TaskGroup", "Timeout"):
            found[f"{kind.__module__}.{kind.__qualname__}"] = number
    for one in objects:
        attribute = CODE.get(type(one).__name__)
        if attribute is not None:
            code: CodeType | None = getattr(one, attribute)  # Cython's have none
            if code is not None and code.co_filename.startswith(PACKAGE):
                found[f"{type(one).__name__} {code.co_qualname}"] += 1
    return found


def unary(channel: grpc.Channel, method: str, request: Message, timeout_s: float = 20) -> None:
    """However it ends."""
    call: Any = channel.unary_unary(f"/streamlog.v1.{method}")
    try:
        call(request.SerializeToString(), timeout=timeout_s)
    except grpc.RpcError:
        pass


def cancelled(channel: grpc.Channel, method: str, request: Message) -> None:
    call: Any = channel.unary_unary(f"/streamlog.v1.{method}")
    future = call.future(request.SerializeToString(), timeout=20)
    time.sleep(0.005)  # it is well when this is too short for some of the calls
    future.cancel()


def stream(channel: grpc.Channel, method: str, *requests: Message, reads: int, ends: bool) -> None:
    """`reads` messages, then it is cancelled; `ends`: the client has sent its last after `requests`."""
    over = threading.Event()

    def sent() -> Iterator[bytes]:
        for request in requests:
            yield request.SerializeToString()
        if not ends:
            over.wait(20)

    make: Any = channel.stream_stream(f"/streamlog.v1.{method}")
    call = make(sent(), timeout=20)
    try:
        for _ in range(reads):
            next(call)
    except (grpc.RpcError, StopIteration):
        pass
    call.cancel()
    over.set()


def fetching(**settings: Any) -> batches_pb2.FetchRequest:
    offset = settings.pop("offset", 0)
    return batches_pb2.FetchRequest(
        settings=batches_pb2.FetchSettings(**settings),
        partitions=[batches_pb2.FetchPartition(topic="r", fetch_offset=offset)],
    )


def producing(topic: str = "t", data: bytes = b"") -> batches_pb2.ProduceRequest:
    part = batches_pb2.PartitionBatches(topic=topic, batches=data or batch([b"small"]))
    return batches_pb2.ProduceRequest(acks=common_pb2.ACKS_ALL, partitions=[part])


def subscribing(**fields: Any) -> pb.SubscribeRequest:
    return pb.SubscribeRequest(subscriptions=[pb.SubscribePartitions(topic="r", start=EARLIEST, **fields)])


HUGE = 1 << 20
END = pb.EndPosition(bound=common_pb2.OFFSET_BOUND_LATEST)
FEED = batches_pb2.FetchStreamRequest(add=[batches_pb2.FetchPartition(topic="r")])
APPEND = batches_pb2.ProduceStreamRequest(
    acks=common_pb2.ACKS_ALL, partitions=[batches_pb2.PartitionBatches(topic="t", batches=batch([b"small"]))]
)
PUBLISH = pb.PublishRequest(topic="t", records=[pb.PublishRecord(value=b"small")])
PUBLISH_MORE = pb.PublishStreamRequest(topic="t", records=[pb.PublishRecord(value=b"small")])
JOIN = pb.ConsumeRequest(join=pb.ConsumeJoin(group="g", topics=["r"], offset_reset=pb.OFFSET_RESET_EARLIEST), credits=1)
WATCH = batches_pb2.WatchMetadataRequest(topics=["t"])
HEARTBEAT = groups_pb2.GroupHeartbeatRequest(group="g2", member_id="missing", member_epoch=7)
MEMBER = groups_pb2.GroupMembershipRequest(
    heartbeat=groups_pb2.GroupHeartbeatRequest(group="g3", member_id="missing", member_epoch=7)
)

KINDS: dict[str, Callable[[grpc.Channel], None]] = {
    "fetch": lambda c: unary(c, "Batches/Fetch", fetching()),
    "fetch that waited in vain": lambda c: unary(c, "Batches/Fetch", fetching(wait_ms_max=5, bytes_min=HUGE)),
    "fetch that waited at the end": lambda c: unary(c, "Batches/Fetch", fetching(wait_ms_max=5, offset=5)),
    "fetch of nothing": lambda c: unary(c, "Batches/Fetch", fetching(offset=10**9)),
    "fetch that was cancelled": lambda c: cancelled(c, "Batches/Fetch", fetching(wait_ms_max=9_000, bytes_min=HUGE)),
    "fetch whose time was over": lambda c: unary(c, "Batches/Fetch", fetching(wait_ms_max=9_000, bytes_min=HUGE), 0.01),
    "fetch stream": lambda c: stream(c, "Batches/FetchStream", FEED, reads=1, ends=False),
    "fetch stream that is not read": lambda c: stream(c, "Batches/FetchStream", FEED, reads=0, ends=False),
    "fetch stream that ends": lambda c: stream(c, "Batches/FetchStream", FEED, reads=1, ends=True),
    "produce": lambda c: unary(c, "Batches/Produce", producing()),
    "produce to no topic": lambda c: unary(c, "Batches/Produce", producing("missing")),
    "produce of garbage": lambda c: unary(c, "Batches/Produce", producing(data=b"garbage")),
    "produce that was cancelled": lambda c: cancelled(c, "Batches/Produce", producing()),
    "produce stream": lambda c: stream(c, "Batches/ProduceStream", APPEND, reads=1, ends=True),
    "produce stream that was cancelled": lambda c: stream(c, "Batches/ProduceStream", APPEND, reads=0, ends=False),
    "publish": lambda c: unary(c, "Records/Publish", PUBLISH),
    "publish to no topic": lambda c: unary(c, "Records/Publish", pb.PublishRequest(topic="missing")),
    "publish that was cancelled": lambda c: cancelled(c, "Records/Publish", PUBLISH),
    "publish stream": lambda c: stream(c, "Records/PublishStream", PUBLISH_MORE, reads=1, ends=True),
    "publish stream that was cancelled": lambda c: stream(
        c, "Records/PublishStream", PUBLISH_MORE, reads=0, ends=False
    ),
    "subscribe": lambda c: stream(c, "Records/Subscribe", subscribing(), reads=1, ends=True),
    "subscribe to the end": lambda c: stream(c, "Records/Subscribe", subscribing(end=END), reads=19, ends=True),
    "subscribe that was cancelled": lambda c: stream(c, "Records/Subscribe", subscribing(), reads=0, ends=True),
    "consume": lambda c: stream(c, "Records/Consume", JOIN, reads=2, ends=False),
    "watch metadata": lambda c: stream(c, "Batches/WatchMetadata", WATCH, reads=1, ends=True),
    "heartbeat": lambda c: unary(c, "Groups/GroupHeartbeat", HEARTBEAT),
    "group membership": lambda c: stream(c, "Groups/GroupMembership", MEMBER, reads=1, ends=False),
    "nothing sent": lambda c: stream(c, "Batches/FetchStream", reads=1, ends=True),
}
# What a node must know of producers: each of the streams is one.
STATE = {"streamlog.storage.producers.producer_states"}
# A cancelled timer stays in asyncio's loop until it would be due, with its context. That refers to the node only.
IN_CONTEXTS = {"streamlog.aio.call_time.CallTime"}
# Not by name: a clone that is called streamlog has the client's frames, gRPC's and the test's, below it too.
PACKAGE = f"{Path(streamlog.__file__).parent}{os.sep}"
CODE = {"frame": "f_code", "coroutine": "cr_code", "async_generator": "ag_code"}
SELF_REFERRING = {"consume"}  # the client's consumer, but not the records that it has fetched ahead
FEWER = {"consume": 10}  # each is a consumer of its own
# By default one after the other, and AT_ONCE of the thousand.
TOGETHER = {
    "consume": 1,  # they would share the partitions
    "publish to no topic": 100,  # each waits half a second for the topic
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_is_over_leaves_nothing(channel: grpc.Channel, kind: str) -> None:
    make_calls(channel, kind, FEW, at_once=TOGETHER.get(kind, 1))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_calls_leave_nothing(channel: grpc.Channel, kind: str) -> None:
    make_calls(channel, kind, MANY, at_once=TOGETHER.get(kind, AT_ONCE))


def make_calls(channel: grpc.Channel, kind: str, calls: int, *, at_once: int) -> None:
    call = KINDS[kind]
    count = calls // FEWER.get(kind, 1)
    for _ in range(3):
        call(channel)  # what is made once
    gc.collect()
    trim_heap()
    resident = resident_bytes()
    gc.disable()
    gc.freeze()
    tracemalloc.start()
    try:
        with ThreadPoolExecutor(at_once) as clients:
            list(clients.map(lambda _: call(channel), range(count)))
        bytes_max = max(KEPT_BYTES, calls * OWN_BYTES)
        if kind in SELF_REFERRING:
            settled(lambda: traced_bytes() < bytes_max)
        else:
            assert settled(lambda: not left(count // 10)), left(count // 10)
        kept = traced_bytes()
        assert kept < bytes_max, f"{kept} bytes"
        assert settled(lambda: collected() < KEPT_BYTES), f"{collected()} bytes, whatever the collector does"
        trim_heap()
        grown = resident_bytes() - resident
        assert grown < RESIDENT_BYTES, f"{grown} bytes"
    finally:
        tracemalloc.stop()
        gc.unfreeze()
        gc.enable()


def settled(condition: Callable[[], bool]) -> bool:
    """Whether it becomes true, once calls that were cancelled have ended."""
    deadline = time.monotonic() + SETTLE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def left(few: int) -> dict[str, int]:
    """What there is more than a few of."""
    return {name: number for name, number in alive().items() if number > few and name not in IN_CONTEXTS}


def traced_bytes() -> int:
    return tracemalloc.get_traced_memory()[0]


def collected() -> int:
    """The traced bytes that the collector leaves."""
    gc.collect()
    return traced_bytes()
