"""FAULTS, "Hostile peers", and I21: every integer of every request of every service, internal ones too, at
the ends of its type and beyond what we make of it. A node in the simulated world answers each by a status of its own,
goes on, and its partitions are as they were.

The rest of each request is plausible (the topic exists, the epochs are right), so that the number gets as far as it
can. `Raft` has a walk of its own beside its engine.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any, Final

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from msgspec import Struct

from streamlog.broker.replica_wire import FollowerHello, encode_request
from streamlog.broker.replica_wire import Request as Replicate
from streamlog.broker.table.replicas import Replicas
from streamlog.errors import Status
from streamlog.metadata.records import Partition
from streamlog.model import BrokerEpoch, BrokerId, Offset, PartitionId
from streamlog.node import Node
from streamlog.node.served_methods import CLIENT_FILES, NODE_FILES
from streamlog.ports import Channel, RpcError
from streamlog.storage.files.checkpoints import EpochEntry

from .calls import Calls, until_done
from .kit import Nodes, run_story
from .plausible import DEPTH_MAX, Plausible, is_map

SERVICES: Final = [service for file in (*CLIENT_FILES, *NODE_FILES) for service in file.services_by_name.values()]
F = FieldDescriptor
EXTREMES: Final = {
    **dict.fromkeys((F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32), (-(2**31), -2, -1, 2**15, 40_000, 2**31 - 1)),
    **dict.fromkeys((F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64), (-(2**63), -2, -1, 2**31, 2**63 - 1)),
    **dict.fromkeys((F.TYPE_UINT32, F.TYPE_FIXED32), (2**31 - 1, 2**31, 2**32 - 1)),
    **dict.fromkeys((F.TYPE_UINT64, F.TYPE_FIXED64), (2**31, 2**63 - 1, 2**63, 2**64 - 1)),
}
PATIENCE_S: Final = 0.3
"""Virtual: what a stream has to say to such a message it says at once."""
DELETES: Final = frozenset({"DeleteRecords"})
"""-1 is the high watermark there, by Kafka's rule: it does what it is asked to."""

Path = tuple[FieldDescriptor, ...]


def paths_of(descriptor: Descriptor, above: Path = ()) -> Iterator[Path]:
    """The way to each integer field."""
    for field in descriptor.fields:
        if field.type in EXTREMES:
            yield (*above, field)
        elif field.message_type is not None and len(above) < DEPTH_MAX and not is_map(field):
            yield from paths_of(field.message_type, (*above, field))


def put(message: Any, path: Path, value: int) -> None:
    for field in path[:-1]:
        child = getattr(message, field.name)
        message = (child[0] if len(child) else child.add()) if field.is_repeated else child
    last = path[-1]
    if last.is_repeated:
        del getattr(message, last.name)[:]
        getattr(message, last.name).append(value)
    else:
        setattr(message, last.name, value)


def requests_of(method: MethodDescriptor, plausible: Plausible) -> Iterator[tuple[str, Message]]:
    for path in paths_of(method.input_type):
        for value in EXTREMES[path[-1].type]:
            message = message_factory.GetMessageClass(method.input_type)()
            plausible.fill(message)
            put(message, path, value)
            yield f"{method.full_name} {'.'.join(field.name for field in path)}={value}", message


async def answer(channel: Channel, method: MethodDescriptor, sent: list[bytes]) -> RpcError | None:
    assert method.containing_service is not None
    name = f"/{method.containing_service.full_name}/{method.name}"
    try:
        async with asyncio.timeout(PATIENCE_S):
            if not method.client_streaming and not method.server_streaming:
                await channel.unary(name, sent[0], timeout_s=PATIENCE_S)
                return None
            async with channel.stream(name) as stream:
                for data in sent:
                    await stream.send(data)
                while await stream.recv() is not None:
                    pass
    except TimeoutError:
        return None
    except RpcError as error:
        return error
    return None


class State(Struct):
    """Of the partition."""

    partition: Partition
    epochs: tuple[EpochEntry, ...]
    log_end: Offset
    data: bytes

    def is_followed_by(self, later: State) -> bool:
        """Nothing has changed, but for what was validly appended: a marker, what Publish was given."""
        same = (self.partition, self.epochs) == (later.partition, later.epochs)
        return same and later.log_end >= self.log_end and later.data.startswith(self.data)


def state_of(replicas: Replicas, node: Node) -> State:
    log = replicas.leader("t", None, PartitionId(0)).log
    data = b"".join(segment.file.pread(segment.size_bytes, 0) for segment in log.segments)
    partition = node.view.image.require_topic("t").partitions[PartitionId(0)]
    return State(partition, log.epochs.entries, log.log_end_offset, data)


@pytest.mark.parametrize("service", SERVICES, ids=[service.full_name for service in SERVICES])
def test_every_number_of_every_request_at_its_ends(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Replicas] = []
    open_logs = Replicas.open

    async def noted(self: Replicas) -> None:
        opened.append(self)
        await open_logs(self)

    monkeypatch.setattr(Replicas, "open", noted)

    async def story(nodes: Nodes) -> None:
        crashes: list[Exception] = []
        nodes.world.on_crash = lambda _, error: crashes.append(error)
        nodes.start()
        await nodes.ready()
        host, node = nodes.world.host("client"), nodes.node(1)
        network = host.boot().network
        calls = Calls(network)
        await host.spawn(calls.create_topic("n1:9092", "t", replication_factor=1))
        await host.spawn(until_done(lambda: calls.produce("n1:9092", "t", 0, b"one")))
        plausible, before = Plausible(node), state_of(opened[0], node)
        channel = network.connect("n1:9092")
        for method in service.methods:
            if method.name in DELETES:
                continue
            for what, message in requests_of(method, plausible):
                sent = [message.SerializeToString()]
                if method.name == "Replicate" and not what.split()[1].startswith("hello"):
                    message.ClearField("hello")
                    hello = FollowerHello(plausible.cluster_id, BrokerId(2), BrokerEpoch(0), BrokerId(1))
                    sent = [encode_request(Replicate(hello=hello)), message.SerializeToString()]
                error = await host.spawn(answer(channel, method, sent))
                assert not crashes, f"{what}: {crashes}"
                assert host.alive, what
                assert nodes.host(1).alive, what
                assert error is None or error.status not in (Status.INTERNAL, Status.UNKNOWN), f"{what}: {error}"
        after = state_of(opened[0], node)
        assert before.is_followed_by(after)
        again = await host.spawn(until_done(lambda: calls.produce("n1:9092", "t", 0, b"two")))
        assert again == after.log_end
        await channel.close()
        await host.spawn(calls.close())

    run_story(story, voters=1)


def test_the_walk_meets_every_service_and_hundreds_of_numbers() -> None:
    methods = list(itertools.chain.from_iterable(service.methods for service in SERVICES))
    assert sum(1 for method in methods for _ in paths_of(method.input_type)) > 150
