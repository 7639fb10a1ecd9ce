"""FAULTS, "Bad input": requests with lists as long as they fit, whose entries take two bytes or are valid. What a
node does for one of them is bounded by what the request may mean, and not by its bytes: a list that is too long is
refused before its entries are looked at.

Every method that a node serves, every list and map below its request, and lists within lists. Counted are calls of
Python functions in the node, which are the same on every machine: a call takes 0.1 us to 1 us of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from streamlog.node import Node
from streamlog.node.served_methods import CLIENT_FILES, NODE_FILES
from streamlog.ports import Channel, RpcError
from streamlog.sim.wires.fabric import Certificate
from streamlog.tls.identity import node_uri
from tests.calls.counting import by_process, counted_calls

from .calls import Calls, until_done
from .kit import PORT, Nodes, run_story
from .plausible import DEPTH_MAX, Plausible, is_map

METHODS: Final = [
    method
    for file in (*CLIENT_FILES, *NODE_FILES)
    for service in file.services_by_name.values()
    for method in service.methods
]
BYTES_MAX: Final = 1_000_000
"""Of a request. The most that methods take but for those that write records, which take more."""
ENTRIES_MAX: Final = 250_000
NESTED: Final = 400
"""Entries of a list, each with a list of as many."""
CALLS_MAX: Final = 700_000
"""About what 1 MB takes of records with as many headers as a request may have, and of what nodes report of partitions.
"""
PATIENCE_S: Final = 2.0
"""Virtual."""
F: Final = FieldDescriptor
WITH_RIGHTS: Final = {
    "listeners": f"SSL://n1:{PORT}",
    "ssl_keystore_location": "/node.pem",
    "ssl_truststore_location": "/ca.crt",
    "authorizer_class_name": "StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
}
"""The certificates are the simulated network's, so nothing reads the files."""


class Shape(NamedTuple):
    path: tuple[FieldDescriptor, ...]  # from the request to the list
    entries: str  # empty, or valid, or lists: the entries of the first list of the path have long ones

    def __str__(self) -> str:
        return f"{'.'.join(field.name for field in self.path)} ({self.entries})"


def paths(message: Descriptor, depth: int = 0) -> Iterator[tuple[FieldDescriptor, ...]]:
    for field in message.fields:
        if field.is_repeated:
            yield (field,)
        if field.message_type is not None and not is_map(field) and depth < DEPTH_MAX:
            for below in paths(field.message_type, depth + 1):
                yield (field, *below)


def shapes(method: MethodDescriptor) -> list[Shape]:
    found = []
    for path in paths(method.input_type):
        found += [Shape(path, "empty"), Shape(path, "valid")]
        if len(path) > 1 and path[0].is_repeated:
            found.append(Shape(path, "lists"))
    return found


def request_of(method: MethodDescriptor, shape: Shape, node: Node) -> Message:
    message: Any = message_factory.GetMessageClass(method.input_type)()
    plausible = Plausible(node)
    plausible.names(timestamp_ms=1, partition=0, member_id="", assignor="")
    plausible.fill(message)
    parent = message
    for field in shape.path[:-1]:
        child = getattr(parent, field.name)
        if field.is_repeated:
            if not child:
                plausible.fill(child.add(), 1)
            child = child[0]
        parent = child
    lengthen(parent, shape.path[-1], NESTED if shape.entries == "lists" else ENTRIES_MAX, shape.entries, plausible)
    if shape.entries == "lists":
        first = getattr(message, shape.path[0].name)
        copies = min(NESTED, BYTES_MAX // first[0].ByteSize())
        first.extend([first[0]] * (copies - 1))
    return message


def lengthen(parent: Any, field: FieldDescriptor, count: int, entries: str, plausible: Plausible) -> None:
    target = getattr(parent, field.name)
    if is_map(field):
        assert field.message_type is not None
        for number in range(min(count, BYTES_MAX // 16)):
            if field.message_type.fields_by_name["value"].message_type is None:
                target[str(number)] = ""
            else:
                target[str(number)].SetInParent()
    elif field.message_type is not None:
        entry = message_factory.GetMessageClass(field.message_type)()
        if entries != "empty":
            plausible.fill(entry, 1)
        target.extend([entry] * min(count, BYTES_MAX // (entry.ByteSize() + 2)))
    elif field.type in (F.TYPE_STRING, F.TYPE_BYTES):
        value = b"t" if field.type == F.TYPE_BYTES else "t" if entries != "empty" else ""
        target.extend([value] * min(count, BYTES_MAX // 3))
    else:
        target.extend([0] * count if entries == "empty" else [number % 128 for number in range(count)])


async def send(channel: Channel, method: MethodDescriptor, request: bytes) -> None:
    assert method.containing_service is not None
    name = f"/{method.containing_service.full_name}/{method.name}"
    try:
        async with asyncio.timeout(PATIENCE_S):
            if not method.client_streaming and not method.server_streaming:
                await channel.unary(name, request, timeout_s=PATIENCE_S)
                return
            async with channel.stream(name) as stream:
                await stream.send(request)
                await stream.done_sending()
                while await stream.recv() is not None:
                    pass
    except (TimeoutError, RpcError):
        pass


@pytest.mark.parametrize("settings", [{}, WITH_RIGHTS], ids=["anyone", "with-rights"])
def test_the_work_for_a_request_is_not_that_of_its_bytes(settings: dict[str, str]) -> None:
    """With an authorizer the caller may do everything, and each name is looked up."""
    costly: list[str] = []
    seen: set[str] = set()

    async def story(nodes: Nodes) -> None:
        certificates = nodes.world.fabric.certificates
        certificates.update(n1=Certificate("CN=node-1", (node_uri(1),)), client=Certificate("CN=client"))
        nodes.start(1, **settings)
        await nodes.ready(1)
        client = nodes.world.host("client")
        network = client.boot().network
        channel, calls = network.connect("n1:9092"), Calls(network)
        await client.spawn(until_done(lambda: calls.create_topic("n1:9092", "t", 4, replication_factor=1)))
        for method in METHODS:
            for shape in shapes(method):
                data = request_of(method, shape, nodes.node(1)).SerializeToString()
                with counted_calls() as counts:
                    await client.spawn(send(channel, method, data))
                count = by_process(counts)["n1"]
                seen.add(method.name)
                if count > CALLS_MAX:
                    costly.append(f"{method.name} {shape}: {count} calls, most of them of {counts.most_common(3)}")
        await channel.close()
        await client.spawn(calls.close())

    run_story(story, voters=1)
    assert costly == []
    assert {"Publish", "GroupHeartbeat", "CreateTopics", "AlterPartition"} <= seen
