"""Machine: one simulated computer without a network, driven step by step from synchronous code.

For tests that depend on the disk alone: a hypothesis state machine calls `run` for each of its steps, and `crash` or
`power_cut` between them, or `cut_after` to cut in the middle of one. After these the old process is dead, the ports of
the next one are in `fs`, `clock`, `random` and `workers`, and the test opens its files again.

    machine = Machine(seed=1)
    log = machine.run(Log.open(machine.fs, "/log"))
    machine.cut_after(changes=7)
    try:
        machine.run(log.append(batch))
    except Killed:
        machine.power_cut()
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from streamlog.sim.clock import SimClock
from streamlog.sim.files.disk import DiskFaults, SimDisk
from streamlog.sim.files.filesystem import SimFileSystem
from streamlog.sim.loop import Order, SimError, SimLoop, quiet_collector
from streamlog.sim.process import Killed, Process
from streamlog.sim.workers import SimWorkers

T = TypeVar("T")

RUN_MAX_S: Final = 3600.0  # virtual time of one `run`; periodic tasks would keep a wait for nothing alive for ever


class Machine:
    """Close it at the end: tasks left behind and unretrieved exceptions are then an error."""

    def __init__(
        self,
        seed: int | str = 0,
        *,
        name: str = "machine",
        order: Order = Order.FIFO,
        faults: DiskFaults | None = None,
    ) -> None:
        self._seed = seed
        self._name = name
        self.loop = SimLoop(seed, order=order)
        self.disk = SimDisk(random.Random(f"{seed}/disk"), faults=faults)
        self.clock = SimClock(self.loop)
        self.process = Process(name, 0)
        self._start()

    def _start(self) -> None:
        self.process = Process(self._name, self.process.incarnation + 1)
        self.random = random.Random(f"{self._seed}/{self.process}")
        self.fs = SimFileSystem(self.disk, self.process, self.clock)
        self.workers = SimWorkers(self.process, random.Random(f"{self._seed}/{self.process}/workers"))

    def run(self, coro: Coroutine[Any, Any, T], *, within_s: float = RUN_MAX_S) -> T:
        """Run it to its end as this machine's process; tasks that it started continue in the next `run`.

        Killed when the process died meanwhile (`cut_after`): call `crash` or `power_cut` then. Deadlock when it waits
        for an event that cannot happen, TimeoutError after `within_s` when other tasks go on meanwhile.
        """
        self.loop.until_s = self.loop.now + within_s
        with quiet_collector():
            return self.loop.run_until_complete(self._outlive(coro))

    async def _outlive(self, coro: Coroutine[Any, Any, T]) -> T:
        """Wait for a task of the process from outside it, where its death is noticed."""
        process = self.process
        if not process.alive:  # tasks of an earlier `run` have used up the fuse
            coro.close()
            raise Killed(process)
        death = self.loop.create_future()
        process.on_death(lambda: None if death.done() else death.set_result(None))
        task = self.loop.create_task(coro, context=process.context())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        if not process.alive:
            raise Killed(process)
        death.cancel()
        return task.result()

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass, so that timers and background tasks of the process run."""
        self.run(asyncio.sleep(seconds), within_s=seconds + RUN_MAX_S)

    def cut_after(self, changes: int | None) -> None:
        """The process dies in its next call that changes the disk after this many; None: it does not."""
        self.process.fuse = changes

    def crash(self) -> None:
        """kill -9 and a new process: the page cache stays."""
        self.process.kill()
        self._start()

    def power_cut(self) -> None:
        """A power cut and restart: unsynced data may be lost."""
        self.process.kill()
        self.disk.power_cut()
        self._start()

    def close(self) -> None:
        """SimError if the running process left tasks or unretrieved exceptions behind. Idempotent."""
        if self.loop.is_closed():
            return
        left = self.loop.leftovers()
        self.loop.bury()
        if left:
            raise SimError("; ".join(left[:10]))
