"""How a node and the clients of a simulated cluster are made: what production makes, on simulated ports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from streamlog.client.admin import AsyncAdmin
from streamlog.client.any_node import AnyNode, AskTimes
from streamlog.client.backoff import Backoff
from streamlog.client.connections import Connections
from streamlog.config import Loaded, PropertiesFile, load_node
from streamlog.errors import InvalidReplicationFactorError, TopicAlreadyExistsError
from streamlog.model import TopicPartition
from streamlog.node import Node
from streamlog.ports import Ports

from .plan import Plan
from .workload import Reader, Sender

PORT: Final = 9092
RETRY_S: Final = 0.1


def properties(plan: Plan, name: str) -> dict[str, str]:
    """What a node's server.properties say."""
    voters = [f"{host.removeprefix('n')}@{address(host)}" for host in plan.nodes[: plan.voters]]
    return {
        "node.id": name.removeprefix("n"),
        "listeners": f"PLAINTEXT://{address(name)}",
        "allow.plaintext.public.listeners": "true",
        "log.dirs": "/data",
        "controller.quorum.voters": ",".join(voters),
        **plan.settings,
    }


def address(name: str) -> str:
    return f"{name}:{PORT}"


def load(plan: Plan, name: str) -> Loaded:
    lines = "".join(f"{key}={value}\n" for key, value in properties(plan, name).items())
    return load_node(PropertiesFile("server.properties", lines))


def make_node(plan: Plan, name: str, ports: Ports) -> Node:
    return Node(load(plan, name), ports)


def make_admin(plan: Plan, ports: Ports) -> AsyncAdmin:
    """Its calls give up soon, as everything here is quick."""
    backoff = Backoff(ports.random)
    connections = Connections(
        ports.network, ports.clock, ports.random, [address(name) for name in plan.nodes], backoff=backoff
    )
    return AsyncAdmin(AnyNode(connections, ports.clock, backoff, AskTimes(total_s=10.0, attempt_s=2.0)))


async def create_topics(plan: Plan, ports: Ports) -> None:
    """As soon as enough nodes are there. Tried again until then, as somebody at a terminal would."""
    admin = make_admin(plan, ports)
    for topic in plan.topics:
        configs = {"min.insync.replicas": str(topic.min_insync_replicas), **topic.configs}
        while True:
            try:
                await admin.create_topic(topic.name, topic.partitions, topic.replication_factor, configs=configs)
            except TopicAlreadyExistsError:
                break
            except InvalidReplicationFactorError:
                await asyncio.sleep(RETRY_S)
            else:
                break


async def make_sender(plan: Plan, ports: Ports) -> Sender:
    raise NotImplementedError


async def make_reader(plan: Plan, ports: Ports, partitions: Sequence[TopicPartition]) -> Reader:
    raise NotImplementedError
