"""Clock, randomness, workers and the runner, on the machine and in simulation."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time

import pytest

from streamlog.ports import Clock, Random, Workers, no_probe, system
from streamlog.ports.system import DaemonThreads, SystemClock, ThreadWorkers, system_random
from streamlog.sim import Machine
from streamlog.sim.clock import SimClock
from streamlog.sim.loop import SimLoop


def divide(a: int, *, by: int) -> float:
    return a / by


async def use(workers: Workers) -> None:
    assert await workers.run(divide, 6, by=3) == 2
    with pytest.raises(ZeroDivisionError):
        await workers.run(divide, 6, by=0)
    assert await asyncio.gather(*(workers.run(divide, i, by=1) for i in range(20))) == list(range(20))


def test_workers_give_results_and_errors() -> None:
    machine = Machine()
    machine.run(use(machine.workers))
    machine.close()

    async def main() -> None:
        workers = ThreadWorkers(2)
        await use(workers)
        await workers.close()

    system.run(main())


def test_threads_do_not_hold_up_the_loop() -> None:
    async def main() -> None:
        gate, workers = threading.Event(), ThreadWorkers(1)
        blocked = asyncio.ensure_future(workers.run(gate.wait, 10))
        await asyncio.sleep(0)
        assert not blocked.done()
        closing = asyncio.ensure_future(workers.close())
        await asyncio.sleep(0)  # `close` waits by then
        gate.set()
        assert await blocked
        await closing

    system.run(main())


def test_stop_and_daemon_threads_wait_for_nothing() -> None:
    async def main() -> None:
        gate, workers, daemons = threading.Event(), ThreadWorkers(1), DaemonThreads()
        assert await daemons.run(lambda: threading.current_thread().daemon)
        with pytest.raises(ZeroDivisionError):
            await daemons.run(divide, 6, by=0)
        blocked = [asyncio.ensure_future(one.run(gate.wait, 10)) for one in (workers, daemons)]
        await asyncio.sleep(0)
        workers.stop()
        gate.set()
        assert await asyncio.gather(*blocked) == [True, True]

    system.run(main())


def test_simulated_work_happens_at_one_instant_of_its_latency() -> None:
    machine = Machine()
    moments = []

    async def work() -> float:
        await machine.workers.run(lambda: moments.append(machine.clock.monotonic()))
        return machine.clock.monotonic()

    end = machine.run(work())
    assert 0 < moments[0] < end < 0.005


def test_the_wall_clock_may_jump_and_the_other_does_not() -> None:
    clock = SimClock(SimLoop(0))
    before = clock.wall_ms()
    clock.jump_ms = -5000
    assert (clock.wall_ms(), clock.monotonic()) == (before - 5000, 0.0)
    real: Clock = SystemClock()
    assert real.monotonic() <= real.monotonic()
    assert abs(real.wall_ms() - time.time() * 1000) < 60_000


def test_the_kernels_chance_satisfies_the_port() -> None:
    chance: Random = system_random()
    assert 0 <= chance.random() < 1
    assert 1 <= chance.uniform(1, 2) <= 2
    assert chance.randrange(3) in (0, 1, 2)
    assert chance.getrandbits(64) != chance.getrandbits(64)
    seeded: Random = random.Random(1)
    assert seeded.getrandbits(8) < 256


def test_the_runner_runs_uvloop_where_there_is_one() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> bool:
        return isinstance(asyncio.get_running_loop(), uvloop.Loop)

    assert system.run(main())


def test_a_probe_may_be_nobody() -> None:
    no_probe("event", partition=1)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_loop_in_a_process_without_a_standard_stream(closed: str) -> None:
    """libuv ends the process when it closes such a descriptor."""
    code = "from streamlog.ports.system import new_event_loop; new_event_loop().close()"
    command = ["bash", "-c", f'"$@" {closed}', "bash", sys.executable, "-c", code]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
