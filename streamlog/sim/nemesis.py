"""Nemesis: injects the faults of a plan into the hosts of a World, and restarts nodes.

A node is up, down until a time, or has stopped itself. A node that stopped because its disk failed, which is correct,
is restarted with an empty page cache. Any other error that ended a node's `run` or was raised by one of its handlers is
kept in `bad_stops`: no fault here justifies it.

`heal` ends all faults: links open, disks healthy, all nodes up and at full speed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.errors import StorageError
from streamlog.sim.faults import OF_THE_PROGRAM, Fault, FaultKind, Hardware
from streamlog.sim.files.disk import DiskFaults
from streamlog.sim.process import Killed
from streamlog.sim.wires.fabric import Link
from streamlog.sim.world import Host, World

RESTART_S: Final = 0.5
"""Delay before a node that stopped itself is restarted."""
SOON_S: Final = 0.05
FREE_BYTES: Final = 8192
"""Free bytes of a full disk."""


class Strike(Struct, frozen=True, kw_only=True):
    """A node is about to fail: the moment to record what it has promised."""

    host: Host
    power: bool
    disk_lost: bool = False  # it restarts with an empty one


class Nemesis:
    """`start` starts a node by name. `find` resolves a role to a name; None if no node has it now. `of_the_program`
    carries out the kinds OF_THE_PROGRAM at a host, which is down where the kind says so. A node that `may_lose_disk`
    refuses loses its power and keeps its disk.
    """

    def __init__(
        self,
        world: World,
        nodes: Sequence[str],
        start: Callable[[str], object],
        *,
        hardware: Hardware | None = None,
        find: Callable[[str], str | None] = lambda role: None,
        before_death: Callable[[Strike], None] = lambda strike: None,
        of_the_program: Callable[[Fault, Host], None] = lambda fault, host: None,
        may_lose_disk: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self.struck: Counter[FaultKind] = Counter()
        self.stops: list[str] = []  # nodes that stopped themselves because of their disk
        self.bad_stops: list[str] = []  # and for any other reason
        self._world = world
        self._nodes = tuple(nodes)
        self._start = start
        self._find = find
        self._before_death = before_death
        self._of_the_program = of_the_program
        self._may_lose_disk = may_lose_disk
        self._hardware = hardware or Hardware.healthy(nodes)
        self._down_until: dict[str, float] = {}
        self._healed = False
        world.on_crash = self._stopped
        self._set_speeds()

    # Up and down.

    def start_all(self) -> None:
        for name in self._nodes:
            self._bring_up(name)

    def _bring_up(self, name: str) -> None:
        host = self._world.host(name)
        host.disk.faults.sync_errors = host.disk.faults.read_errors = 0
        host.disk.faults.capacity_bytes = DiskFaults().capacity_bytes
        self._start(name)
        task = host.task
        if task is not None:
            task.add_done_callback(lambda _: self._ended(host, task), context=self._world.fabric.context())

    def _ended(self, host: Host, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if not isinstance(error, Killed):
            self._stopped(host, error)

    def _stopped(self, host: Host, error: BaseException | None) -> None:
        """Its `run` ended, or a handler raised an error that ends a process in production too."""
        event = f"t={self._world.loop.now:.3f} {host.process}: {error!r}"
        (self.stops if error is not None and is_of_disk(error) else self.bad_stops).append(event)
        self._down(host.name, power=True, lasts=RESTART_S)

    def _down(self, name: str, *, power: bool, lasts: float, disk_lost: bool = False) -> None:
        host = self._world.host(name)
        if host.alive or disk_lost:
            self._before_death(Strike(host=host, power=power, disk_lost=disk_lost))
        if power:
            host.power_cut()
        else:
            host.crash()
        if disk_lost:
            host.disk.replace()
        until = self._world.loop.now + lasts
        self._down_until[name] = max(self._down_until.get(name, 0.0), until)
        self._world.fabric.after(lasts, lambda: self._maybe_up(name))  # also if healed by then

    def _maybe_up(self, name: str) -> None:
        due = self._down_until.get(name)
        if due is not None and (self._healed or self._world.loop.now >= due - 1e-3):
            del self._down_until[name]
            self._bring_up(name)

    # Striking.

    async def run(self, plan: Sequence[Fault]) -> None:
        """Inject each fault at its time."""
        for fault in sorted(plan, key=lambda fault: fault.at):
            await asyncio.sleep(max(0.0, fault.at - self._world.loop.now))
            self.strike(fault)

    def strike(self, fault: Fault) -> None:
        target = fault.target if fault.target in self._nodes else self._find(fault.target)
        if target is None or self._healed:
            return
        other = fault.other if fault.other != target else next(name for name in self._nodes if name != target)
        self.struck[fault.kind] += 1
        self._strike(fault.kind, target, other, fault.lasts)
        if fault.kind in OF_THE_PROGRAM:
            self._of_the_program(replace(fault, target=target, other=other), self._world.host(target))

    def _strike(self, kind: FaultKind, target: str, other: str, lasts: float) -> None:
        world, host = self._world, self._world.host(target)
        match kind:
            case FaultKind.CRASH | FaultKind.POWER | FaultKind.CRASH_THEN_DAMAGE:
                self._down(target, power=kind is FaultKind.POWER, lasts=lasts)
            case FaultKind.POWER_ALL:
                for name in self._nodes:
                    self._down(name, power=True, lasts=lasts)
            case FaultKind.POWER_ALL_WIPE:
                lost = self._may_lose_disk(target)  # as of now, when all run
                for name in self._nodes:
                    self._down(name, power=True, lasts=lasts, disk_lost=lost and name == target)
            case FaultKind.POWER_WIPE:
                self._down(target, power=True, lasts=lasts, disk_lost=self._may_lose_disk(target))
            case FaultKind.CRASH_THEN_POWER:
                self._down(target, power=False, lasts=SOON_S)
                self._later(2 * SOON_S + lasts / 4, lambda: self._down(target, power=True, lasts=lasts))
            case FaultKind.POWER_STAGGERED:
                self._power_staggered(target, lasts)
            case FaultKind.SLOW_THEN_POWER:
                host.disk.faults.slow = 100.0
                self._later(lasts, lambda: self._power_staggered(target, lasts))
            case FaultKind.PAUSE:
                host.pause()
                self._later(lasts, host.resume)
            case FaultKind.CUT | FaultKind.CUT_IN | FaultKind.CUT_OUT | FaultKind.ISOLATE:
                self._cut(list(self._links(kind, target, other)), lasts)
            case FaultKind.FLAP:
                for i in range(4):
                    self._later(i * 0.9, lambda: self._cut([(target, other), (other, target)], 0.1 + lasts / 3))
            case FaultKind.RESET:
                world.fabric.reset(target, other)
            case FaultKind.SLOW_DISK:
                host.disk.faults.slow = 100.0
                self._later(lasts, self._set_speeds)
            case FaultKind.SLOW_NETWORK:
                world.fabric.slow = 30.0
                self._later(lasts, self._set_speeds)
            case FaultKind.SYNC_ERROR:
                host.disk.faults.sync_errors = 1
            case FaultKind.READ_ERROR:
                host.disk.faults.read_errors = 1
            case FaultKind.FULL_DISK:
                host.disk.faults.capacity_bytes = host.disk.used_bytes() + FREE_BYTES
                self._later(lasts, lambda: setattr(host.disk.faults, "capacity_bytes", DiskFaults().capacity_bytes))
            case FaultKind.CLOCK_JUMP:
                host.clock.jump_ms += round((lasts - 1) * 1_000_000)

    def _power_staggered(self, first: str, lasts: float) -> None:
        self._set_speeds()
        for name in self._nodes:
            self._down(name, power=True, lasts=SOON_S if name == first else SOON_S + 3 * lasts)

    def _links(self, kind: FaultKind, target: str, other: str) -> Iterator[Link]:
        others = [name for name in self._world.hosts if name != target] if kind is FaultKind.ISOLATE else [other]
        for name in others:
            if kind is not FaultKind.CUT_OUT:
                yield name, target
            if kind is not FaultKind.CUT_IN:
                yield target, name

    def _cut(self, links: list[Link], lasts: float) -> None:
        for source, target in links:
            self._world.fabric.block(source, target)
        self._later(lasts, lambda: self._world.fabric.heal(links))

    def _set_speeds(self) -> None:
        for name in self._nodes:
            self._world.host(name).disk.faults.slow = self._hardware.disk_slow.get(name, 1.0)
        self._world.fabric.slow = self._hardware.network_slow

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Unless healed by then."""
        self._world.fabric.after(delay_s, lambda: None if self._healed else action())

    def heal(self) -> None:
        """End all faults; the rest of the plan is ignored."""
        self._healed = True
        self._hardware = Hardware.healthy(self._nodes)
        self._set_speeds()
        self._world.fabric.heal()
        for name in self._nodes:
            host = self._world.host(name)
            host.disk.faults = DiskFaults()
            host.resume()
            self._maybe_up(name)


def is_of_disk(error: BaseException) -> bool:
    """Whether the error is a disk failure alone, for which a node has to stop."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_of_disk(one) for one in error.exceptions)
    return isinstance(error, OSError | StorageError)
