"""Consume, transform and produce on a real cluster, while the processor, the transactions' coordinator and leaders of
partitions are killed with -9: the output is the input transformed, once each.

`make test` has a round of each of these; fifty, of all kinds, run with `make test-rounds`.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from streamlog.coordinator.transactions import TRANSACTIONS_TOPIC
from streamlog.groups.placement import OFFSETS_TOPIC, partition_of
from tests.e2e.processes import Processes
from tests.e2e.transform import SOURCE, TARGET, TARGET_PARTITIONS, Transformation

pytestmark = pytest.mark.process

FED = 120
"""Numbers of one round, in transactions of ten at most."""
BEFORE = 20
"""As many are through when the fault comes, so the rest is under way."""
ROUNDS = 50
TOPICS = (SOURCE, TARGET, TRANSACTIONS_TOPIC, OFFSETS_TOPIC)


class Fault(enum.Enum):
    PROCESSOR = "kill the processor"
    COORDINATOR = "kill the node that coordinates its transactions"
    LEADER = "kill the leader of a partition that it writes to"
    OFFSETS = "kill the node that coordinates its group"
    BOTH = "kill the processor and the coordinator of its transactions"


async def strike(fault: Fault, processes: Processes, transformation: Transformation, random: Random) -> None:
    """The fault, and its end: killed nodes are started again."""
    count = {topic: len((await processes.admin.describe_topic(topic)).partitions) for topic in TOPICS}
    name = transformation.name
    coordinator = await processes.leader(TRANSACTIONS_TOPIC, partition_of(name, count[TRANSACTIONS_TOPIC]))
    leader = await processes.leader(TARGET, random.randrange(TARGET_PARTITIONS))
    offsets = await processes.leader(OFFSETS_TOPIC, partition_of(name, count[OFFSETS_TOPIC]))
    victim = {Fault.COORDINATOR: coordinator, Fault.LEADER: leader, Fault.OFFSETS: offsets, Fault.BOTH: coordinator}
    if fault in (Fault.PROCESSOR, Fault.BOTH):
        transformation.processors[-1].kill()
    if fault in victim:
        processes.kill(victim[fault])
    if fault in (Fault.PROCESSOR, Fault.BOTH):
        await transformation.start()
    await transformation.until_done()  # without it
    if fault in victim:
        processes.start(victim[fault])


@asynccontextmanager
async def transforming(directory: Path) -> AsyncIterator[tuple[Processes, Transformation]]:
    """And what must hold in the end."""
    async with Processes(directory) as processes, Transformation(processes) as transformation:
        await transformation.start()
        await transformation.feed(1)
        await transformation.until_done()
        yield processes, transformation
        for topic in TOPICS:
            await processes.until_in_sync(topic)
        await transformation.check()
        for partition in range(TARGET_PARTITIONS):
            comparison = await processes.admin.digest_replicas(TARGET, partition)
            assert comparison.identical, f"the replicas of partition {partition} differ: {comparison}"


async def play(fault: Fault, processes: Processes, transformation: Transformation, random: Random) -> None:
    for topic in TOPICS:
        await processes.until_in_sync(topic)
    async with transformation.feeding(FED, through=BEFORE + random.randrange(40)):
        await strike(fault, processes, transformation, random)


async def test_the_output_is_the_input_transformed_whoever_is_killed(tmp_path: Path) -> None:
    random = Random("one of each")
    async with transforming(tmp_path) as (processes, transformation):
        for fault in (Fault.PROCESSOR, Fault.COORDINATOR, Fault.LEADER):
            await play(fault, processes, transformation, random)


@pytest.mark.rounds
@pytest.mark.timeout(1_800)
async def test_the_output_is_the_input_transformed_in_fifty_rounds(tmp_path: Path) -> None:
    random = Random("fifty")
    async with transforming(tmp_path) as (processes, transformation):
        for _ in range(ROUNDS):
            await play(random.choice(list(Fault)), processes, transformation, random)
        committed = sum(processor.said("committed") for processor in transformation.processors)
        aborted = sum(processor.said("aborted") for processor in transformation.processors)
        print(f"{ROUNDS} rounds: {committed} commits, {aborted} aborts reported")


async def test_of_two_processors_with_one_id_the_older_is_fenced(tmp_path: Path) -> None:
    async with transforming(tmp_path) as (_, transformation):
        (older,) = transformation.processors
        async with transformation.feeding(FED, through=BEFORE):
            newer = await transformation.start()

        while not older.said("fenced"):  # by its next transaction; it has one as long as it has a share of the group
            await transformation.feed(FED)
            await transformation.until_done()
        await transformation.feed(FED)
        await transformation.until_done()
        assert newer.is_running
        assert newer.said("committed") > 0
        assert newer.said("fenced") == 0
