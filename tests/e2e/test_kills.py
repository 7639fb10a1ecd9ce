"""Real processes that are killed with -9 under load: nothing acknowledged is lost, nothing stands twice.

acks=all and min.insync.replicas=2, which are the defaults of three replicas. After each fault the load must go on, and
in the end all replicas must be identical. `make test` has one round of each; more rounds run with `make test-rounds`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from tests.e2e.load import Load
from tests.e2e.processes import Processes

pytestmark = pytest.mark.process

TOPIC = "logs"
PARTITIONS = 3
BETWEEN = 300
"""Acknowledgements in every partition between two faults."""


class Fault(enum.Enum):
    LEADER = "kill the leader of a partition"
    CONTROLLER = "kill the controller"
    TWO = "kill two of three"
    ALL = "kill all of them"
    HANG = "stop the leader of a partition, and let it go on"
    RESTART = "stop the leader of a partition in good order"


async def strike(fault: Fault, processes: Processes, random: Random, load: Load) -> None:
    """The fault, and its end: killed nodes are started again."""
    nodes = processes.node_ids
    leader = await processes.leader(TOPIC, random.randrange(PARTITIONS))
    match fault:
        case Fault.LEADER | Fault.CONTROLLER:
            victim = leader if fault is Fault.LEADER else await processes.controller()
            processes.kill(victim)
            await load.until_acknowledged(BETWEEN)  # without it
            processes.start(victim)
        case Fault.TWO:
            victims = random.sample(nodes, 2)
            processes.kill(*victims)
            processes.start(*victims)
        case Fault.ALL:
            processes.kill(*nodes)
            processes.start(*nodes)
        case Fault.HANG:
            processes.pause(leader)
            await load.until_acknowledged(BETWEEN)
            processes.resume(leader)
        case Fault.RESTART:
            processes.stop(leader)
            await load.until_acknowledged(BETWEEN)
            processes.start(leader)


@asynccontextmanager
async def under_load(directory: Path) -> AsyncIterator[tuple[Processes, Load]]:
    """And what must hold when the load has stopped."""
    async with Processes(directory) as processes:
        await processes.create_topic(TOPIC, PARTITIONS)
        load = Load(processes, TOPIC, PARTITIONS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            await load.until_acknowledged(BETWEEN)
            yield processes, load
            await load.until_acknowledged(BETWEEN)
            load.stop()
        assert not load.refused, f"a producer that may retry for two minutes was refused: {load.refused[0]}"
        await processes.until_in_sync(TOPIC)
        await load.check()
        for partition in range(PARTITIONS):
            comparison = await processes.admin.digest_replicas(TOPIC, partition)
            assert comparison.identical, f"the replicas of partition {partition} differ: {comparison}"


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
async def test_nothing_acknowledged_is_lost(fault: Fault, tmp_path: Path) -> None:
    async with under_load(tmp_path) as (processes, load):
        await strike(fault, processes, Random(fault.name), load)


@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(3))
async def test_many_rounds(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    async with under_load(tmp_path) as (processes, load):
        for _ in range(12):
            await strike(random.choice(list(Fault)), processes, random, load)
            await load.until_acknowledged(BETWEEN)
            await processes.until_in_sync(TOPIC)
