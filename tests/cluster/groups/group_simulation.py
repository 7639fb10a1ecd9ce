"""Groups on a cluster under faults, from the first start to the last member that leaves: the phases of `group_plan`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from streamlog.errors import StreamlogError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from streamlog.groups.placement import OFFSETS_TOPIC, partition_of
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.sim import SimLoop
from streamlog.sim.faults import Fault
from streamlog.sim.task import SimTask

from .. import nodes
from ..clients.crew import OPERATORS
from ..clients.workload import Target
from ..plan import CLIENTS, PLAIN
from ..simulation import Simulation
from .group_crew import GroupCrew, Program
from .group_eyes import looking
from .group_plan import (
    COORDINATOR,
    FAULTS_END_S,
    FLEETING,
    FLEETING_PARTITIONS,
    HEAL_S,
    SESSION_MS,
    Action,
    GroupPlan,
    GroupsPlan,
)
from .group_watch import GroupWatch

GROWN_BY: Final = 2
OWNED_AFTER_HEAL_S: Final = 10.0
"""I19: by then every partition has an owner again: a member in the way has been removed."""
READ_S: Final = 5.0
CALM_S: Final = 0.6
"""I19 in a calm group: a member joins, leaves or dies, and all partitions have an owner. Less than a heartbeat's
interval, so that it shows when a hint is lost."""
LOOK_S: Final = 0.02


class GroupSimulation(Simulation):
    def __init__(self, plan: GroupsPlan, loop: SimLoop, *, with_story: bool = False) -> None:
        super().__init__(plan.cluster, loop, with_story=with_story)
        self.groups_plan = plan
        self.group_watch = GroupWatch(lambda: loop.now, self._wrong, kept=frozenset({PLAIN}))
        self.group_crew = GroupCrew(plan, self.world, self.group_watch)
        self._operating: list[SimTask[None]] = []

    def _wrong(self, invariant: str, what: str) -> None:
        self.note(f"WRONG {invariant}: {what}")
        self.watch.wrong(invariant, what)

    def _find(self, role: str) -> str | None:
        if role != COORDINATOR:
            return super()._find(role)
        image = self.image()
        topic = None if image is None else image.topic_named(OFFSETS_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(self.groups_plan.groups[0].name, len(topic.partitions))].leader
        return None if leader < 0 else f"n{leader}"

    async def run(self) -> None:
        with looking(self.group_watch):
            self.nemesis.start_all()
            await self._create_topics()
            await self.crew.begin()
            self._begin()
            await self._strike()
            await self._until(HEAL_S)
            self.note("all is healed")
            self.nemesis.heal()
            self.group_crew.heal()
            await asyncio.wait(self._operating) if self._operating else None
            await self._have_owners()
            await self.crew.end()
            await self._write_everywhere()
            await self._is_read()
            await self._until(HEAL_S + self.world.fabric.keepalive_s)  # who asked a node without power knows it by then
            for group in self.groups_plan.groups:
                await self._is_calm(group)
            await self.group_crew.end()
            await self._is_committed()
        self._look_at_groups()
        self.world.stop()

    # What happens.

    def _begin(self) -> None:
        plan = self.groups_plan
        for group in plan.groups:
            for member in group.members:
                program = self.group_crew.programs[member.host]
                self.world.fabric.after(max(0.0, self._late_s + member.starts_at - self.loop.now), program.start)
        operators = self.world.host(OPERATORS)
        if plan.grows_at:
            self._operating.append(operators.spawn(self._grow()))
        if plan.fleeting_at:
            self._operating.append(operators.spawn(self._make_and_delete()))

    async def _grow(self) -> None:
        await self._until(self.groups_plan.grows_at)
        self.note("the plain topic grows")
        admin = await nodes.make_admin(self.plan, self.world.host(OPERATORS).ports)
        count = self.plan.topic(PLAIN).partitions + GROWN_BY
        try:
            await admin.grow_topic(PLAIN, count)
        except StreamlogError as error:
            self.note(f"... {error.code}")  # it may have been done all the same
        await admin.close()

    async def _make_and_delete(self) -> None:
        admin = await nodes.make_admin(self.plan, self.world.host(OPERATORS).ports)
        for number, at in enumerate(self.groups_plan.fleeting_at):
            await self._until(at)
            self.note(f"{FLEETING} is {'deleted' if number % 2 else 'made'}")
            try:
                if number % 2:
                    await admin.delete_topic(FLEETING)
                else:
                    await admin.create_topic(FLEETING, FLEETING_PARTITIONS, 3)
            except (TopicAlreadyExistsError, UnknownTopicOrPartitionError):
                continue
            except StreamlogError as error:
                self.note(f"... {error.code}")
        await admin.close()

    async def _strike(self) -> None:
        plan = self.groups_plan
        events: list[Fault | Action] = [*self.plan.faults, *plan.actions]
        for event in sorted(events, key=lambda event: event.at):
            await self._until(event.at)
            self.note(f"{event!r}")
            if isinstance(event, Fault):
                self.quorum.check_now()
                self.nemesis.strike(event)
            else:
                self.group_crew.programs[event.member].strike(event)
                self.stats[f"member {event.event.name.lower()}"] += 1
        await self._until(FAULTS_END_S)

    # What must come of it.

    async def _within(self, seconds: float, holds: Callable[[], bool]) -> bool:
        deadline = self.loop.now + seconds
        while not holds():
            if self.loop.now > deadline:
                return False
            await self._pause(LOOK_S)
        return True

    def _partitions(self, group: GroupPlan) -> list[TopicPartition]:
        """What there is now of what it reads."""
        image = self.image()
        found = []
        for name in self.groups_plan.names(group):
            topic = None if image is None else image.topic_named(name)
            if topic is not None:
                found += [TopicPartition(name, PartitionId(number)) for number in range(len(topic.partitions))]
        return found

    def _has_owners(self, group: GroupPlan) -> bool:
        owners = self.group_watch.owners(group.name)
        return sorted(owners) == sorted(self._partitions(group)) and all(len(who) == 1 for who in owners.values())

    async def _have_owners(self) -> None:
        since = self.loop.now
        await self._pause(SESSION_MS / 1000)  # members that were removed, and are back, do not know it yet
        for group in self.groups_plan.groups:
            if not await self._within(since + OWNED_AFTER_HEAL_S - self.loop.now, lambda: self._has_owners(group)):  # noqa: B023  called at once
                self._wrong("I19", f"{OWNED_AFTER_HEAL_S} s after the heal {self._described(group)}")
        self.stats["ms until all is owned after the heal"] = round((self.loop.now - since) * 1000)

    def _described(self, group: GroupPlan) -> str:
        return f"group {group.name}: {self._partitions(group)} have owners {self.group_watch.owners(group.name)}"

    async def _write_everywhere(self) -> None:
        """One record at least for each partition that there is."""
        host, crew = CLIENTS[0], self.crew
        producer = await crew.producer("healed", host, patient=True)
        for partition in self._plain():
            await crew.on(host, producer.send(Target(partition=partition, keyed=False, min_insync_replicas=2), 0))
        await crew.on(host, producer.until_answered())
        await crew.on(host, producer.close())

    def _plain(self) -> list[TopicPartition]:
        image = self.image()
        count = 0 if image is None else len(image.require_topic(PLAIN).partitions)
        return [TopicPartition(PLAIN, PartitionId(number)) for number in range(count)]

    def _ends(self) -> dict[TopicPartition, Offset]:
        ends: dict[TopicPartition, Offset] = {}
        for partition, high_watermark in self._high_watermarks():
            ends[partition] = max(ends.get(partition, Offset(0)), high_watermark)
        return ends

    def _high_watermarks(self) -> Iterator[tuple[TopicPartition, Offset]]:
        for host in self.living():
            if host.process is not None:
                for log, high_watermark in self.watch.replicas(host.process):
                    if log.partition.topic == PLAIN:
                        yield log.partition, high_watermark

    async def _is_read(self) -> None:
        """All of it by each group."""
        ends = self._ends()
        for group in self.groups_plan.groups:

            def behind(name: str = group.name) -> dict[TopicPartition, Offset]:
                frontier = self.group_watch.frontier
                return {one: frontier(name, one) for one, end in ends.items() if frontier(name, one) < end}

            if not await self._within(READ_S, lambda: not behind()):
                self._wrong("I16", f"group {group.name} was given up to {behind()} alone, the ends are {ends}")

    async def _is_calm(self, group: GroupPlan) -> None:
        """One more member joins, is killed, joins, leaves."""
        program = self.group_crew.one_more(group)
        for end in (program.kill, program.leave):
            program.start()
            await self._has_owners_soon(group, f"{program.name} joins", program)
            end()
            await self._has_owners_soon(group, f"{program.name} is out by {end.__name__}")

    async def _has_owners_soon(self, group: GroupPlan, what: str, joining: Program | None = None) -> None:
        since = self.loop.now

        def holds() -> bool:
            has = any(one.process.name == f"x{group.name}" and one.member.owned for one in watch.living(group.name))
            return has == (joining is not None) and self._has_owners(group)

        watch = self.group_watch
        if not await self._within(CALM_S, holds):
            self._wrong("I19", f"{CALM_S} s after {what}: {self._described(group)}")
        self.stats["ms until all is owned in a calm group"] += round((self.loop.now - since) * 1000)

    async def _is_committed(self) -> None:
        """Who leaves commits what he was given: all."""
        admin = await self.crew.on(OPERATORS, nodes.make_admin(self.plan, self.world.host(OPERATORS).ports))
        ends = {partition: end for partition, end in self._ends().items() if end > 0}
        for group in self.groups_plan.groups:
            found = await self.crew.on(OPERATORS, admin.list_group_offsets(group.name))
            committed = {one: at.offset for one, at in found.items() if one.topic == PLAIN}
            if committed != ends:
                self._wrong("I14", f"group {group.name} has committed {committed} in the end, all is {ends}")
        await self.crew.on(OPERATORS, admin.close())

    def _look_at_groups(self) -> None:
        self.quorum.check_now()
        for stop in self.nemesis.bad_stops:
            self._wrong("stop", stop)
        self.stats["commits"] = self.group_watch.commits
        self.stats["partitions got"] = self.group_watch.rebalances
        for program in self.group_crew.programs.values():
            for code, count in program.errors.items():
                self.stats[f"errors {code}"] += count
