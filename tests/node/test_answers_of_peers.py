"""FAULTS, "Hostile peers": a node passes a client's call on, and the other one's answer has no result in it, or each
twice. It is a message, and none of its numbers is out of bounds; so it is what the node does with it that counts. Every
method of every service for clients, for names that other nodes lead or coordinate: each call ends by a status of its
own, within its time, and the node goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from msgspec.structs import replace

from streamlog.api.errors import from_rpc
from streamlog.api.pb import batches_pb2, groups_pb2
from streamlog.errors import StreamlogError
from streamlog.node import Node
from streamlog.node.served_methods import CLIENT_FILES
from streamlog.ports import Channel, Ports, RpcError
from tests.support.changed_answers import ChangedNetwork

from .calls import Calls, until_done
from .kit import Nodes, properties, run_story
from .plausible import Plausible

METHODS: Final = [
    method for file in CLIENT_FILES for service in file.services_by_name.values() for method in service.methods
]
KEPT: Final = frozenset({"Register", "Heartbeat", "AlterPartition"})
"""Without these a node is fenced; tests/cluster has false answers to them."""
VARIANTS: Final = 6
"""Names and partitions, so that each method has some that another node has."""
PATIENCE_S: Final = 20.0
"""Virtual."""
NOT_CALLED: Final = frozenset({"DeleteTopics", "UnregisterBroker", "AddVoter", "RemoveVoter", "AlterConfigs"})


ABSENT: Final = ("producer_id", "producer_epoch", "member", "member_epoch", "end", "ip", "level", "acknowledgements")
"""Fields with which most of the requests would not be valid."""


class Changed:
    """Answers to calls that are passed on, while `how` is set."""

    def __init__(self) -> None:
        self.how: Callable[[bytes], bytes] | None = None
        self.kept = KEPT
        self.methods: set[str] = set()

    async def unary(self, method: str, call: Callable[[], Awaitable[bytes]]) -> bytes:
        answer = await call()
        name = method.rpartition("/")[2]
        if self.how is None or name in self.kept:
            return answer
        self.methods.add(name)
        return self.how(answer)

    def message(self, method: str, message: bytes) -> bytes:
        """Of streams for clients; tests/cluster has those between nodes."""
        if self.how is None or not method.startswith("/streamlog.v1."):
            return message
        self.methods.add(method.rpartition("/")[2])
        return self.how(message)


def requests_of(method: MethodDescriptor, node: Node) -> list[Message]:
    found = []
    for variant in range(VARIANTS):
        message: Any = message_factory.GetMessageClass(method.input_type)()
        plausible = Plausible(node)
        plausible.names(
            *ABSENT,
            group=f"g{variant}",
            groups=f"g{variant}",
            transactional_id=f"x{variant}",
            transactional_ids=f"x{variant}",
            partition=variant,
            partitions=variant,
            node_id=1 + variant % 3,
            node_ids=1 + variant % 3,
            replicas=1 + variant % 3,
            member_id="",
            assignor="",
            end_offset=100,
            name=str(1 + variant % 3) if method.name.endswith("Configs") else "t",
            type=2 if method.name.endswith("Configs") else 0,
        )
        plausible.fill(message)
        found.append(message)
    return found


async def answer(channel: Channel, method: MethodDescriptor, request: Message) -> RpcError | None:
    assert method.containing_service is not None
    name = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if not method.client_streaming and not method.server_streaming:
            async with asyncio.timeout(2 * PATIENCE_S):
                await channel.unary(name, request.SerializeToString(), timeout_s=PATIENCE_S)
            return None
        async with asyncio.timeout(PATIENCE_S), channel.stream(name) as stream:
            await stream.send(request.SerializeToString())
            while await stream.recv() is not None:
                pass
    except TimeoutError:
        assert method.client_streaming or method.server_streaming, f"{name} did not end"
    except RpcError as error:
        return error
    return None


class Cluster:
    """Three nodes, and a client of one that is not the controller. `changed`: the answers that this one receives."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._client = nodes.world.host("client")

    async def start(self) -> None:
        changes = {node_id: Changed() for node_id in (1, 2, 3)}
        for node_id, changed in changes.items():
            self._nodes.host(node_id).start(partial(_node, node_id, changed))
        await self._nodes.ready()
        controller = self._nodes.controller()
        node_id = next(one for one in changes if one != controller)
        self.changed, self.node, self.host = changes[node_id], self._nodes.node(node_id), self._nodes.host(node_id)
        address = f"n{node_id}:9092"
        network = self._client.boot().network
        self.channel, calls = network.connect(address), Calls(network)
        await self._client.spawn(until_done(lambda: calls.create_topic(address, "t", VARIANTS, replication_factor=1)))
        await self._client.spawn(self._use_internal_topics(calls, address))
        await self._client.spawn(calls.close())

    async def _use_internal_topics(self, calls: Calls, address: str) -> None:
        """They exist, and their partitions have leaders."""

        async def use(variant: int) -> None:
            init = batches_pb2.InitProducerIdRequest(transactional_id=f"x{variant}", transaction_timeout_ms=60_000)
            await calls.call(address, "Batches/InitProducerId", init, batches_pb2.InitProducerIdResponse)
            find = groups_pb2.FindCoordinatorRequest(groups=[f"g{variant}"])
            await calls.call(address, "Groups/FindCoordinator", find, groups_pb2.FindCoordinatorResponse)

        for variant in range(VARIANTS):
            await until_done(partial(use, variant))

    async def answer(self, method: MethodDescriptor, request: Message) -> RpcError | None:
        return await self._client.spawn(answer(self.channel, method, request))


def _node(node_id: int, changed: Changed, ports: Ports) -> Node:
    return Node(properties(node_id, 3), replace(ports, network=ChangedNetwork(ports.network, lambda _: changed)))


@pytest.mark.parametrize("how", [lambda answer: b"", lambda answer: answer + answer], ids=["empty", "twice"])
@pytest.mark.parametrize("kept", [KEPT, KEPT | {"ListOffsets"}], ids=["all", "streams"])
def test_answers_with_other_counts_end_calls_and_nothing_else(
    how: Callable[[bytes], bytes], kept: frozenset[str]
) -> None:
    """With false answers to ListOffsets no stream of another leader is read."""
    methods: set[str] = set()

    async def story(nodes: Nodes) -> None:
        crashes: list[Exception] = []
        nodes.world.on_crash = lambda _, error: crashes.append(error)
        cluster = Cluster(nodes)
        await cluster.start()
        cluster.changed.kept = kept
        failed: list[str] = []
        for method in METHODS:
            if method.name in NOT_CALLED:
                continue
            for changes in (None, how):
                cluster.changed.how = changes
                for request in requests_of(method, cluster.node):
                    error = await cluster.answer(method, request)
                    assert not crashes, f"{method.full_name}: {crashes}"
                    assert cluster.host.alive, method.full_name
                    if error is not None and not isinstance(from_rpc(error), StreamlogError):
                        failed.append(f"{method.full_name}: {error}")
        methods.update(cluster.changed.methods)
        assert sorted(set(failed)) == []
        await cluster.channel.close()

    run_story(story)
    assert len(methods) >= 18, sorted(methods)
    read = "ListOffsets" if kept == KEPT else "FetchStream"
    assert {"Produce", "DescribeGroups", "DescribeConfigs", read} <= methods, sorted(methods)
