"""Carries a plan out on real nodes: injects faults, repairs them, and measures pauses of writing (I19).

One event after the other. Each fault of an event is a task: it starts after its delay, holds, and is repaired,
whatever else has happened to its target meanwhile. When all faults of an event are repaired, every partition must have
an acknowledgement again within LIVE_S; while a single fault holds that leaves a majority at work, no pause may exceed
PAUSE_S. Both bounds are multiplied by the run's slack: a busy machine is slow by itself.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec import Struct

from tests.nemesis.nodes import Node, Nodes

from .plan import MAY_STOP, WHOLE, Event, Fault, Kind
from .switch import CLIENTS

LIVE_S: Final = 10.0
"""FAULTS, I19: after a heal."""
PAUSE_S: Final = 15.0
"""A node that does not answer is fenced after 9 s (broker.session.timeout.ms), a follower after 10 s out of the ISR."""
GIVE_UP_S: Final = 120.0
STUTTER_S: Final = 0.1
_UNMEASURED: Final = WHOLE | {Kind.LOSS, Kind.DELAY, Kind.BANDWIDTH, Kind.SLOW_SYNC, Kind.STUTTER}
"""These stop or slow down everybody, as long as they hold."""


class Struck(Struct, kw_only=True):
    """One fault as it happened. Times of the run's clock."""

    event: int
    fault: Fault
    target: int  # 0: every node
    begin: float
    end: float = 0.0


class Came(Struct, frozen=True, kw_only=True):
    """What came of one event."""

    event: Event
    begin: float
    repaired: float
    pause_s: float  # the longest time without an acknowledgement in some partition, while it held
    back_s: float | None  # from the repair until each partition was acknowledged something; None: never


class Striker:
    """`find` gives the node behind a role now, None if no node has it; `flow` knows the acknowledgements."""

    def __init__(
        self,
        nodes: Nodes,
        *,
        now: Callable[[], float],
        find: Callable[[str], int | None],
        longest_pause: Callable[[float, float], float],
        wait_for_acks: Callable[[float, float], Awaitable[float | None]],
        wrong: Callable[[str, str], None],
        say: Callable[[str], None],
        slack: float,
        is_voter: Callable[[Node], Awaitable[bool | None]],
        until_votes: Callable[[Node, int], Awaitable[None]],
    ) -> None:
        self._is_voter = is_voter
        self._until_votes = until_votes
        self.struck: list[Struck] = []
        self.came: list[Came] = []
        self._nodes = nodes
        self._now = now
        self._find = find
        self._longest_pause = longest_pause
        self._wait_for_acks = wait_for_acks
        self._wrong = wrong
        self._say = say
        self._slack = slack

    async def run(self, plan: Sequence[Event], until: float) -> None:
        for event in plan:
            if self._now() >= until:
                return
            self._say(str(event))
            await self._carry_out(event)
            await asyncio.sleep(event.rest_s)

    async def _carry_out(self, event: Event) -> None:
        begin = self._now()
        async with asyncio.TaskGroup() as tasks:
            for fault in event.faults:
                tasks.create_task(self._one(event, fault))
        repaired = self._now()
        pause_s = self._longest_pause(begin, repaired)
        back_s = await self._wait_for_acks(repaired, GIVE_UP_S)
        self.came.append(Came(event=event, begin=begin, repaired=repaired, pause_s=pause_s, back_s=back_s))
        if back_s is None or back_s > LIVE_S * self._slack:
            after = f"{GIVE_UP_S:g} s" if back_s is None else f"{back_s:.1f} s"
            self._wrong("I19", f"event {event}: {after} after it was repaired a partition had no acknowledgement")
        alone = len(event.faults) == 1 and event.faults[0].kind not in _UNMEASURED
        if alone and pause_s > PAUSE_S * self._slack:
            self._wrong("I19", f"event {event}: {pause_s:.1f} s without an acknowledgement while it held")

    async def _one(self, event: Event, fault: Fault) -> None:
        await asyncio.sleep(fault.after_s)
        target = self._target(fault)
        struck = Struck(
            event=event.number, fault=fault, target=0 if fault.kind in WHOLE else target.node_id, begin=self._now()
        )
        self.struck.append(struck)
        broken = [] if fault.kind not in MAY_STOP else self._nodes.all if fault.kind in WHOLE else [target]
        for node in broken:
            node.excused = True
            node.disk_faults += 1
        try:
            await self._strike(fault, target)
        finally:
            for node in broken:
                node.disk_faults -= 1
            struck.end = self._now()

    def _target(self, fault: Fault) -> Node:
        if fault.target.isdigit():
            return self._nodes.node(int(fault.target))
        found = self._find(fault.target)
        return self._nodes.node(found or 1)

    def _other(self, target: Node, fault: Fault) -> Node:
        return self._nodes.all[(target.node_id - 1 + fault.other) % len(self._nodes.all)]

    # -- what the kinds do

    async def _strike(self, fault: Fault, node: Node) -> None:
        lasts = fault.lasts_s
        match fault.kind:
            case Kind.KILL:
                await self._down([node], lasts, power=False)
            case Kind.KILL_ALL:
                await self._down(self._nodes.all, lasts, power=False)
            case Kind.POWER:
                await self._down([node], lasts, power=True)
            case Kind.POWER_ALL:
                await self._down(self._nodes.all, lasts, power=True)
            case Kind.PAUSE:
                node.signal(signal.SIGSTOP)
                await asyncio.sleep(lasts)
                node.signal(signal.SIGCONT)
            case Kind.STUTTER:
                until = self._now() + lasts
                while self._now() < until:
                    node.signal(signal.SIGSTOP)
                    await asyncio.sleep(STUTTER_S)
                    node.signal(signal.SIGCONT)
                    await asyncio.sleep(STUTTER_S)
            case Kind.LOST_VOTE:
                await self._lose_vote(node, lasts)
            case Kind.RESTART:
                await self._restart(node, lasts)
            case Kind.ROLLING:
                for one in self._nodes.all:
                    await self._restart(one, 0.2)
                    await self._wait_for_acks(self._now(), LIVE_S)
            case Kind.DISK_FULL | Kind.READ_ONLY:
                await self._break_disk(fault, node)
            case Kind.CLOCK | Kind.SLOW_SYNC | Kind.SYNC_ERROR | Kind.READ_ERROR | Kind.WRITE_ERROR:
                await self._shim(fault, node)
            case _:
                await self._disturb(fault, node)

    async def _down(self, nodes: Sequence[Node], lasts: float, *, power: bool) -> None:
        async with asyncio.TaskGroup() as tasks:
            for node in nodes:
                tasks.create_task(self._kill(node, power=power))
        await asyncio.sleep(lasts)
        for node in nodes:
            await self.bring_up(node)

    async def _lose_vote(self, node: Node, lasts: float) -> None:
        """One at a time, and none while voters are added or removed. The next fault waits until it votes again."""
        async with self._nodes.voters_change:
            voted = await self._is_voter(node)
            position = node.log_size()
            async with node.busy:
                await node.kill()
                lost = voted is not None and node.lose_metadata()
            await asyncio.sleep(lasts)
            await self.bring_up(node)
            if voted and lost:
                await self._until_votes(node, position)

    async def _kill(self, node: Node, *, power: bool) -> None:
        async with node.busy:
            if power and node.disk is not None:
                node.disk.cut_power()
            await node.kill()
            if power and node.disk is not None:
                node.disk.come_back()

    async def _restart(self, node: Node, lasts: float) -> None:
        async with node.busy:
            running, excused = node.pid is not None, node.excused
            stopped = await node.stop()
            if not stopped and not excused:
                self._wrong("stop", f"node {node.node_id} does not stop within a minute of SIGTERM")
            if running and stopped and not node.is_sound_stop() and not excused:
                self._wrong("stop", f"node {node.node_id} stopped by SIGTERM with status {node.status}")
        await asyncio.sleep(lasts)
        await self.bring_up(node)

    async def bring_up(self, node: Node) -> None:
        async with node.busy:
            node.start()

    async def _break_disk(self, fault: Fault, node: Node) -> None:
        disk = node.disk
        assert disk is not None
        async with node.busy:
            if fault.kind is Kind.DISK_FULL:
                disk.fill()
            else:
                disk.make_read_only()
        await asyncio.sleep(fault.lasts_s)
        async with node.busy:
            if fault.kind is Kind.DISK_FULL:
                disk.free()
            else:
                await node.kill()
                disk.come_back()
            node.start()

    async def _shim(self, fault: Fault, node: Node) -> None:
        shim = node.shim
        assert shim is not None
        match fault.kind:
            case Kind.CLOCK:
                shim.clock(fault.amount)
            case Kind.SLOW_SYNC:
                shim.slow_syncs(fault.amount)
            case Kind.SYNC_ERROR:
                shim.fail_next_sync()
            case Kind.READ_ERROR:
                shim.fail_next_read()
            case _:
                shim.fail_writes()
        await asyncio.sleep(fault.lasts_s)
        if fault.kind is Kind.CLOCK:
            shim.clock(0)
        shim.clear()
        async with node.busy:
            if node.pid is None and node.wanted:
                if node.disk is not None:  # what the kernel still has of a disk that failed is not to be believed
                    node.disk.cut_power()
                    node.disk.come_back()
                node.start()

    async def _disturb(self, fault: Fault, node: Node) -> None:
        network = self._nodes.network
        assert network is not None
        me, other = node.node_id, self._other(node, fault).node_id
        nodes = [one.node_id for one in self._nodes.all if one is not node]
        everybody = [CLIENTS, *nodes]
        both = [link for one in everybody for link in ((one, me), (me, one))]
        match fault.kind:
            case Kind.LOSS:
                network.shape(both, loss_permille=fault.amount)
            case Kind.DELAY:
                network.shape(both, delay_ms=fault.amount)
            case Kind.BANDWIDTH:
                network.shape(both, kbit=fault.amount)
            case Kind.RESET:
                network.reset(both)
                return
            case _:
                links = {
                    Kind.CUT: [(me, other), (other, me)],
                    Kind.CUT_IN: [(other, me)],
                    Kind.CUT_OUT: [(me, other)],
                    Kind.ISOLATE: both,
                    Kind.ISOLATE_NODES: [link for one in nodes for link in ((one, me), (me, one))],
                }[fault.kind]
                network.cut(links)
                await asyncio.sleep(fault.lasts_s)
                network.cut(links, cut=False)
                return
        await asyncio.sleep(fault.lasts_s)
        network.shape(both)

    # -- the end of it

    async def heal(self) -> None:
        """Everything as it was, everybody up."""
        if self._nodes.network is not None:
            self._nodes.network.clear()
        for node in self._nodes.all:
            if node.shim is not None:
                node.shim.clear()
                node.shim.clock(0)
            if node.disk is not None:
                node.disk.free()
            node.signal(signal.SIGCONT)
            await self.bring_up(node)
