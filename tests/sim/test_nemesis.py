"""Plans, the nemesis that carries them out, and what it does to a world of small nodes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from streamlog.errors import InvariantError, StorageError
from streamlog.ports import Ports, RpcError
from streamlog.sim import SimLoop, World, run
from streamlog.sim.faults import SURVIVABLE, Fault, FaultKind, Hardware, draw_plan
from streamlog.sim.nemesis import Nemesis, Strike, is_of_disk
from streamlog.sim.process import Process
from streamlog.sim.world import TIMER_JITTER_S

from .sample_node import COUNT, NAMES, SampleNode


def start_sample(world: World, name: str) -> SampleNode:
    neighbour = NAMES[(NAMES.index(name) + 1) % len(NAMES)]
    return world.host(name).start(lambda ports: SampleNode(name, f"{neighbour}:1", ports))


class Trial:
    """A world of sample nodes under a nemesis, and a client that counts on all of them without a pause."""

    def __init__(self, loop: SimLoop, seed: int, hardware: Hardware | None = None) -> None:
        self.loop = loop
        self.world = World(loop, seed)
        self.deaths: list[tuple[str, bool]] = []
        self.dead: list[Process | None] = []
        self.nemesis = Nemesis(
            self.world,
            NAMES,
            lambda name: start_sample(self.world, name),
            hardware=hardware,
            find={"leader": "n1"}.get,
            before_death=self._dying,
        )
        self.stopping = False
        self.nemesis.start_all()
        self.world.host("client").boot()
        self.calling = [self.world.host("client").spawn(self._call(name)) for name in NAMES]

    def _dying(self, strike: Strike) -> None:
        assert strike.host.alive
        self.deaths.append((strike.host.name, strike.power))

    async def _call(self, name: str) -> None:
        channel = self.world.host("client").ports.network.connect(f"{name}:1")
        while not self.stopping:
            try:
                await channel.unary(COUNT, b"x", timeout_s=0.5)
            except RpcError:
                pass
            await asyncio.sleep(0.2)

    async def counts(self) -> list[bool]:
        """Whether each node answers."""
        client = self.world.host("client")
        answers = []
        for name in NAMES:
            channel = client.ports.network.connect(f"{name}:1")
            try:
                await client.spawn(channel.unary(COUNT, b"y", timeout_s=5))
                answers.append(True)
            except RpcError:
                answers.append(False)
        return answers

    async def finish(self) -> None:
        self.stopping = True
        await asyncio.gather(*self.calling)
        self.world.stop()


def play(plan: Sequence[Fault], seed: int = 1, hardware: Hardware | None = None) -> Trial:
    async def main(loop: SimLoop) -> Trial:
        trial = Trial(loop, seed, hardware)
        await trial.nemesis.run(plan)
        await asyncio.sleep(max(0.0, 8 - loop.now))
        trial.nemesis.heal()
        await asyncio.sleep(8)
        assert await trial.counts() == [True] * len(NAMES)
        await trial.finish()
        return trial

    return run(main, seed=seed, jitter_s=TIMER_JITTER_S, until_s=120)


@pytest.mark.parametrize("kind", FaultKind)
def test_after_every_kind_of_fault_all_can_be_healed(kind: FaultKind) -> None:
    trial = play([Fault(1.0, kind, "n0", "n1", 2.0), Fault(3.5, kind, "leader", "n1", 0.5)])
    assert trial.nemesis.struck == {kind: 2}
    assert trial.nemesis.bad_stops == []


def test_faults_do_what_they_say() -> None:
    assert play([Fault(1.0, FaultKind.CRASH, "n0")]).deaths == [("n0", False)]
    assert play([Fault(1.0, FaultKind.POWER, "leader")]).deaths == [("n1", True)]
    assert sorted(play([Fault(1.0, FaultKind.POWER_ALL, "n0")]).deaths) == [(name, True) for name in NAMES]
    assert play([Fault(1.0, FaultKind.CRASH_THEN_POWER, "n0")]).deaths == [("n0", False), ("n0", True)]
    assert play([Fault(1.0, FaultKind.CRASH, "unknown")]).nemesis.struck == {}
    stopped = play([Fault(1.0, FaultKind.SYNC_ERROR, "n2")])
    assert stopped.nemesis.struck == {FaultKind.SYNC_ERROR: 1}
    assert len(stopped.nemesis.stops) == 1
    assert "n2#1: OSError(5" in stopped.nemesis.stops[0]
    assert stopped.deaths == [("n2", True)]
    jumped = play([Fault(1.0, FaultKind.CLOCK_JUMP, "n0", lasts=0.5)])
    assert jumped.world.host("n0").clock.jump_ms == -500_000
    assert jumped.world.host("n1").clock.jump_ms == 0


def test_the_slow_are_slow() -> None:
    hardware = Hardware(disk_slow={"n0": 150.0}, network_slow=5.0)

    async def main(loop: SimLoop) -> None:
        trial = Trial(loop, 1, hardware)
        disks = [trial.world.host(name).disk for name in NAMES]
        assert [disk.faults.slow for disk in disks] == [150.0, 1.0, 1.0]
        trial.nemesis.strike(Fault(0.0, FaultKind.SLOW_DISK, "n1", lasts=1.0))
        trial.nemesis.strike(Fault(0.0, FaultKind.SLOW_NETWORK, "n1", lasts=1.0))
        assert [disk.faults.slow for disk in disks] == [150.0, 100.0, 1.0]
        assert trial.world.fabric.slow == 30.0
        await asyncio.sleep(1.1)
        assert [disk.faults.slow for disk in disks] == [150.0, 1.0, 1.0]
        assert trial.world.fabric.slow == 5.0
        trial.nemesis.heal()
        assert [disk.faults.slow for disk in disks] == [1.0, 1.0, 1.0]
        trial.nemesis.strike(Fault(0.0, FaultKind.CRASH, "n1"))
        assert trial.world.host("n1").alive
        await trial.finish()

    run(main)


def test_a_node_that_stops_itself_is_excused_by_its_disk_alone() -> None:
    class Failing:
        def __init__(self, ports: Ports, error: Exception) -> None:
            self._error = error

        async def run(self) -> None:
            await asyncio.sleep(1)
            raise self._error

    async def main(loop: SimLoop, error: Exception) -> Nemesis:
        world = World(loop, 1)
        nemesis = Nemesis(world, ["n0"], lambda name: start(world, error))
        nemesis.start_all()
        await asyncio.sleep(3.5)
        nemesis.heal()
        world.stop()
        return nemesis

    def start(world: World, error: Exception) -> None:
        world.host("n0").start(lambda ports: Failing(ports, error))

    excused = run(lambda loop: main(loop, StorageError("sync failed")))
    assert (len(excused.stops), excused.bad_stops) == (2, [])
    guilty = run(lambda loop: main(loop, InvariantError("two leaders")))
    assert (guilty.stops, len(guilty.bad_stops)) == ([], 2)
    assert "n0#1: InvariantError('two leaders')" in guilty.bad_stops[0]


def test_a_node_that_stops_itself_after_the_heal_comes_back() -> None:
    """It had met its fault before: a read that fails shows when something is read."""

    class Late:
        def __init__(self, lives: list[float], loop: SimLoop) -> None:
            self._lives, self._loop = lives, loop

        async def run(self) -> None:
            self._lives.append(self._loop.now)
            await asyncio.sleep(2 if len(self._lives) == 1 else 1000)
            raise StorageError("read failed")

    async def main(loop: SimLoop) -> list[float]:
        world = World(loop, 1)
        lives: list[float] = []
        nemesis = Nemesis(world, ["n0"], lambda name: world.host(name).start(lambda ports: Late(lives, loop)))
        nemesis.start_all()
        await asyncio.sleep(1)
        nemesis.heal()
        await asyncio.sleep(5)
        assert world.host("n0").alive
        world.stop()
        return lives

    assert run(main) == [0.0, pytest.approx(2.5)]


def test_one_error_that_is_not_of_the_disk_is_enough() -> None:
    disk, bug = OSError(5, "sync"), KeyError("x")
    assert is_of_disk(ExceptionGroup("tasks", [disk, ExceptionGroup("more", [StorageError("offline")])]))
    assert not is_of_disk(ExceptionGroup("tasks", [disk, ExceptionGroup("more", [bug])]))


def draw(seed: int) -> list[Fault]:
    return draw_plan(
        random.Random(f"plan/{seed}"), targets=["n0", "n1", "leader"], hosts=["n0", "n1", "n2"], from_s=1, to_s=20
    )


def test_a_plan_is_drawn_from_its_seed_alone() -> None:
    assert draw(1) == draw(1) != draw(2)
    plans = [draw(seed) for seed in range(200)]
    assert all(1 < fault.at < 20 and fault.target != fault.other for plan in plans for fault in plan)
    assert all(plan == sorted(plan, key=lambda fault: fault.at) for plan in plans)
    assert all(len({fault.kind for fault in plan}) <= 6 for plan in plans)
    assert {fault.kind for plan in plans for fault in plan} == set(SURVIVABLE)
    namespace = {"Fault": Fault, "FaultKind": FaultKind}
    assert eval(repr(plans[0]), namespace) == plans[0]  # what is printed can be committed as a test


@pytest.mark.parametrize("seed", range(4))
def test_drawn_plans_are_survived(seed: int) -> None:
    hardware = Hardware.draw(random.Random(f"hardware/{seed}"), NAMES)
    plan = draw_plan(random.Random(f"plan/{seed}"), targets=[*NAMES, "leader"], hosts=NAMES, from_s=1, to_s=10)
    trial = play(plan, seed, hardware)
    assert trial.nemesis.bad_stops == []
