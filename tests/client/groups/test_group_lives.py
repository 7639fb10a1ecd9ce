"""Lives of groups under random faults: members join, leave, crash, stall; coordinators fail; streams break.

Held against what the programs saw (FAULTS I14 and I16): no commit goes back; every record below a commit was returned
to a member; and after the faults every partition has an owner, and everything has been read.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from streamlog.model import NO_BROKER, TopicPartition

from .group_stage import GroupStage, Reader, perform

PARTITIONS = 4
STEPS = 14


class Life:
    def __init__(self, stage: GroupStage, dice: random.Random) -> None:
        self.stage = stage
        self.dice = dice
        self.running: list[Reader] = []
        self.down: list[int] = []
        self.highest = [0] * PARTITIONS
        self.names = 0

    async def step(self) -> None:
        kinds = ["join", "join", "leave", "crash", "slow", "break", "coordinator", "write", "write", "pause"]
        kind = self.dice.choice(kinds)
        if kind == "join" and len(self.running) < 6:
            self.names += 1
            static = {"group_instance_id": f"i{self.names}"} if self.dice.random() < 0.3 else {}
            reader = self.stage.reader(
                f"r{self.names}",
                auto_commit_interval_ms=200,
                session_timeout_ms=6_000,
                max_poll_interval_ms=self.dice.choice([3_000, 300_000]),
                **static,
            )
            self.running.append(reader.start())
        elif kind == "write":
            await self.stage.write(self.dice.randrange(1, 30), partitions=PARTITIONS)
        elif kind == "coordinator" and not self.down:
            await self.kill_coordinator()
        elif kind == "pause" or not self.running:
            await asyncio.sleep(self.dice.uniform(0, 3))
        else:
            await self.hurt(self.dice.choice(self.running), kind)
        if self.down and self.dice.random() < 0.4:
            await self.revive()
        await asyncio.sleep(self.dice.uniform(0, 1))
        await self.look()

    async def hurt(self, reader: Reader, kind: str) -> None:
        match kind:
            case "leave":
                self.running.remove(reader)
                await reader.close()
                reader.owned.clear()
            case "crash":
                self.running.remove(reader)
                reader.crash()
            case "slow":
                reader.handling_s = self.dice.choice([0.0, 0.05, 4.0])
            case "break":
                for number in range(1, 4):
                    self.stage.nodes.world.fabric.reset(reader.name, f"n{number}")

    async def kill_coordinator(self) -> None:
        victim = self.stage.coordinator()
        if victim != NO_BROKER:
            self.down.append(victim)
            self.stage.nodes.host(victim).crash()

    async def revive(self) -> None:
        node = self.down.pop()
        self.stage.nodes.start(node)
        await self.stage.nodes.ready(node)

    async def look(self) -> None:
        """I14 and I16, as an observer sees them who polls now and then."""
        seen = await self.stage.committed(partitions=PARTITIONS)
        got = {at for reader in self.stage.readers for at in reader.got}
        for partition, offset in enumerate(seen):
            assert (offset or 0) >= self.highest[partition], (partition, offset, self.highest)
            self.highest[partition] = offset or 0
            at = TopicPartition("t", partition)  # type: ignore[arg-type]  # an index is an index
            missing = [number for number in range(offset or 0) if (at, number) not in got]
            assert not missing, (partition, offset, missing)

    async def end(self) -> None:
        """It gets quiet."""
        while self.down:
            await self.revive()
        for reader in self.running:
            reader.handling_s = 0.0
        if not self.running:
            self.running.append(self.stage.reader("last").start())
        await self.stage.write(5, partitions=PARTITIONS)
        await self.stage.read(*self.stage.readers, partitions=PARTITIONS, within_s=90)
        await self.stage.shared(*self.running, partitions=PARTITIONS, within_s=90)
        await self.look()
        for reader in self.running:
            await reader.close()
        assert await self.stage.committed(partitions=PARTITIONS) == [self.stage.written] * PARTITIONS


def live(seed: int) -> None:
    async def story(stage: GroupStage) -> None:
        await stage.nodes.until(lambda: len(stage.nodes.alive()) == 3)
        life = Life(stage, random.Random(seed))
        stage.lenient = True
        await life.look()  # who asks first makes the topic of the offsets
        for _ in range(STEPS):
            await life.step()
        await life.end()

    perform(story, nodes=3, partitions=PARTITIONS, first_seed=seed)


@pytest.mark.parametrize("seed", range(12))
def test_lives(seed: int) -> None:
    live(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 250))
def test_many_lives(seed: int) -> None:
    live(seed)
