"""How a node and the clients of a simulated cluster are made: what production makes, on simulated ports."""

from __future__ import annotations

from collections.abc import Sequence

from streamlog.config import Loaded, PropertiesFile, load_node
from streamlog.model import TopicPartition
from streamlog.ports import Ports
from streamlog.sim.world import Node

from .plan import Plan
from .workload import Reader, Sender

PORT = 9092


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
    raise NotImplementedError


async def create_topics(plan: Plan, ports: Ports) -> None:
    raise NotImplementedError


async def make_sender(plan: Plan, ports: Ports) -> Sender:
    raise NotImplementedError


async def make_reader(plan: Plan, ports: Ports, partitions: Sequence[TopicPartition]) -> Reader:
    raise NotImplementedError
