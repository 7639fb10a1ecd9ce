"""Three real processes over gRPC that lose their leader, or all lose their lives, or their power, under load.

What must hold (FAULTS: I12, I13): nothing that was acknowledged is lost, nothing is carried out twice, the history of
reads and writes is linearizable, all nodes come to the same state.

A power cut here is kill -9, then the file system stops where it is (loopdev.py): what no fdatasync has made durable is
gone. Snapshots are taken all the time, so that some nodes come back through one.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from tests.ports.loopdev import LoopDisk, unavailable

from ..simulation.history import Operation, violations
from .process_node import ONCE, Json
from .processes import Cluster

pytestmark = pytest.mark.process

CLIENTS = 4
REGISTERS = 4
ACKNOWLEDGED_BETWEEN = 150
SETTINGS = {"snapshot_entries": 1_000, "snapshot_trailing_entries": 100}
PROGRESS_TIMEOUT_S = 60.0


class Fault(enum.Enum):
    KILL_LEADER = "kill the leader"
    KILL_ALL = "kill all"
    CUT_LEADER = "cut the leader's power"
    CUT_ALL = "cut all power"

    @property
    def hits_all(self) -> bool:
        return self in (Fault.KILL_ALL, Fault.CUT_ALL)

    @property
    def is_power_cut(self) -> bool:
        return self in (Fault.CUT_LEADER, Fault.CUT_ALL)


class Load:
    """Clients that write and read until they are stopped, and the responses they got."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._seed = seed
        self._round = 0
        self._progress = asyncio.Condition()
        self.history: list[Operation] = []
        self.acknowledged: dict[str, str] = {}  # of the keys that are written once

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._client(f"{self._seed}.{number}"))

    async def _client(self, name: str) -> None:
        random = Random(name)
        leader = 1
        for sequence in itertools.count(1):
            register = f"{self._round}/{random.randrange(REGISTERS)}"
            what = random.choice(("once", "write", "read"))
            if what == "read":
                leader = await self._read(name, register, leader)
            else:
                key = f"{ONCE}{name}/{sequence}" if what == "once" else register
                leader = await self._write(name, sequence, key, leader)
            async with self._progress:
                self._progress.notify_all()

    async def _write(self, client: str, sequence: int, key: str, first: int) -> int:
        """Send it until it is accepted, always with the same sequence. Who accepted it."""
        value = f"{client}.{sequence}"
        operation = Operation(client, "write", key, value, time.monotonic())
        if not key.startswith(ONCE):
            self.history.append(operation)
        leader, answer = await self._cluster.ask_leader(
            first, "submit", command=f"{key}={value}", client_id=client, sequence=sequence
        )
        operation.completed, operation.index = time.monotonic(), answer["index"]
        if key.startswith(ONCE):
            self.acknowledged[key] = value
        return leader

    async def _read(self, client: str, key: str, first: int) -> int:
        operation = Operation(client, "read", key, "", time.monotonic())
        leader, answer = await self._cluster.ask_leader(first, "read", key=key)
        operation.value, operation.completed = answer["value"], time.monotonic()
        self.history.append(operation)
        return leader

    async def wait_for_progress(self, count: int = ACKNOWLEDGED_BETWEEN) -> None:
        """Until so many more writes are acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(PROGRESS_TIMEOUT_S), self._progress:
            await self._progress.wait_for(lambda: len(self.acknowledged) >= wanted)

    async def next_round(self) -> None:
        """From now on other registers, so that no history of one grows long. The last ones are read once more."""
        last, self._round = self._round, self._round + 1
        for register in range(REGISTERS):
            await self._read("last", f"{last}/{register}", 1)


async def suffer(cluster: Cluster, fault: Fault, disks: Mapping[int, LoopDisk], load: Load) -> None:
    """One round: load, the fault, load again where a majority is left, and everybody comes back."""
    await load.wait_for_progress()
    hit = cluster.nodes if fault.hits_all else [await cluster.leader()]
    await cluster.kill(hit)
    if fault.is_power_cut:
        for node in hit:
            disks[node].power_cut()
    if not fault.hits_all:
        await load.wait_for_progress()
    await cluster.start(hit)
    await load.wait_for_progress()
    await load.next_round()


async def run_rounds(
    directories: list[Path], disks: Mapping[int, LoopDisk], faults: list[Fault], seed: int, *, forgetful: bool = False
) -> Load:
    async with Cluster(directories, SETTINGS, forgetful=forgetful) as cluster:
        load = Load(cluster, seed)
        async with asyncio.TaskGroup() as group:
            clients = group.create_task(load.run())
            for fault in faults:
                await suffer(cluster, fault, disks, load)
            clients.cancel()
        async with asyncio.timeout(PROGRESS_TIMEOUT_S):
            dumps = await cluster.wait_until_level()
    check(cluster, load, dumps)
    return load


def check(cluster: Cluster, load: Load, dumps: list[Json]) -> None:
    assert not cluster.crashes
    first, *others = dumps
    assert all(dump == first for dump in others)
    values = first["values"]
    lost = {key: value for key, value in load.acknowledged.items() if values.get(key) != value}
    assert not lost, "acknowledged and not there"
    assert violations(load.history) == []


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[int, LoopDisk]]:
    """A file system of its own for each node."""
    if reason := unavailable():
        pytest.skip(reason)
    made: dict[int, LoopDisk] = {}
    try:
        for node in (1, 2, 3):
            base = tmp_path / str(node)
            base.mkdir()
            made[node] = LoopDisk(base, size_bytes=64 << 20)
        yield made
    finally:
        for disk in made.values():
            disk.close()


def on(disks: Mapping[int, LoopDisk]) -> list[Path]:
    return [Path(disk.root) / "quorum" for disk in disks.values()]


async def test_nothing_is_lost_when_processes_are_killed(tmp_path: Path) -> None:
    directories = [tmp_path / str(node) for node in (1, 2, 3)]
    await run_rounds(directories, {}, [Fault.KILL_LEADER, Fault.KILL_ALL, Fault.KILL_LEADER], seed=1)


@pytest.mark.loopdev
async def test_nothing_is_lost_when_the_power_goes(disks: dict[int, LoopDisk]) -> None:
    await run_rounds(on(disks), disks, [Fault.CUT_LEADER, Fault.CUT_ALL, Fault.CUT_ALL], seed=2)


@pytest.mark.rounds
@pytest.mark.loopdev
async def test_nodes_that_do_not_sync_are_found_out(disks: dict[int, LoopDisk]) -> None:
    """What was acknowledged is gone, or the journal is so broken that its node does not start."""
    found: list[str] = []
    try:
        await run_rounds(on(disks), disks, [Fault.CUT_ALL], seed=3, forgetful=True)
    except* AssertionError as errors:
        found = [str(error) for error in errors.exceptions]
    assert found
    assert all("acknowledged and not there" in text or "did not come up" in text for text in found)


@pytest.mark.rounds
@pytest.mark.loopdev
@pytest.mark.parametrize("seed", range(10, 15))
async def test_fifty_rounds(disks: dict[int, LoopDisk], seed: int) -> None:
    """Ten rounds a seed, all faults in turn, from another one on each time."""
    faults = list(itertools.islice(itertools.cycle(Fault), seed, seed + 10))
    load = await run_rounds(on(disks), disks, faults, seed)
    print(
        f"seed {seed}: {len(faults)} rounds, {len(load.acknowledged)} keys acknowledged and there, "
        f"{len(load.history)} reads and writes linearizable"
    )
