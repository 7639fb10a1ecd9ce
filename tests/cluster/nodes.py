"""How a node and the clients of a simulated cluster are made: what production makes, on simulated ports."""

from __future__ import annotations

from collections.abc import Sequence

from streamlog.model import TopicPartition
from streamlog.ports import Ports
from streamlog.sim.world import Node

from .plan import Plan
from .workload import Reader, Sender

PORT = 9092


def make_node(plan: Plan, name: str, ports: Ports) -> Node:
    raise NotImplementedError


async def create_topics(plan: Plan, ports: Ports) -> None:
    raise NotImplementedError


async def make_sender(plan: Plan, ports: Ports) -> Sender:
    raise NotImplementedError


async def make_reader(plan: Plan, ports: Ports, partitions: Sequence[TopicPartition]) -> Reader:
    raise NotImplementedError
