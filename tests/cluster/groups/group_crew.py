"""Programs that are members of groups: each on a host of its own, so that what happens to it happens to it alone."""

from __future__ import annotations

import asyncio
from typing import Final

from streamlog.client.consumer.async_consumer import AsyncConsumer
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition
from streamlog.sim.world import World

from ..clients.client_program import ClientProgram
from ..nodes import bootstrap
from .group_plan import Action, Event, GroupPlan, GroupsPlan, MemberPlan
from .group_watch import GroupWatch

POLL_S: Final = 0.25
AGAIN_S: Final = 0.2
"""After an error; and until it is looked again whether a program has ended."""


class Program(ClientProgram):
    """A loop of polls, from `start` to `leave`, or until it is killed; then it may be started again."""

    def __init__(self, plan: GroupsPlan, group: GroupPlan, member: MemberPlan, world: World, watch: GroupWatch) -> None:
        super().__init__(world.host(member.host), world)
        self.group = group
        self.name = member.host
        self._plan = plan
        self._member = member
        self._watch = watch
        self._leaving = False
        self._stuck_s = 0.0  # what it does before its next poll
        self._over = False

    def start(self) -> None:
        if self._over:
            return
        if self.is_running:
            if self._leaving:  # it is on its way out, and may be so beyond the heal
                self._world.fabric.after(AGAIN_S, self.start)
            return
        self._host.crash()
        self._host.boot()
        self._leaving, self._stuck_s = False, 0.0
        self._task = self._host.spawn(self._live())

    def leave(self) -> None:
        self._leaving = True

    def leave_permanently(self) -> None:
        """A start that is due finds it over."""
        self._over = True
        self.leave()

    async def until_ended(self) -> None:
        if self._task is not None and self._host.alive:
            await asyncio.wait([self._task])
            self._task.result()

    def kill(self) -> None:
        self._host.crash()

    def strike(self, action: Action) -> None:
        """What is down, or on its way, comes up by it."""
        if not self.is_running:
            self.start()
            return
        match action.event:
            case Event.LEAVE:
                self.leave()
                self._restart_after(action.lasts)
            case Event.KILL:
                self._host.crash()
                self._restart_after(action.lasts)
            case Event.POWER:
                self._host.power_cut()
                self._restart_after(action.lasts)
            case Event.PAUSE:
                self._pause(action.lasts)
            case Event.STUCK:
                self._stuck_s = action.lasts
            case Event.CUT:
                self._cut_off(self._plan.cluster.nodes, action.lasts)

    def heal(self) -> None:
        """From now on it is quick, and nothing happens to it by itself."""
        self._settled = True
        self._host.resume()

    async def _live(self) -> None:
        group, member = self.group, self._member
        settings = {
            **self._plan.consumer,
            "bootstrap.servers": bootstrap(self._plan.cluster),
            "group.id": group.name,
            "enable.auto.commit": str(not member.commits).lower(),
        }
        if member.instance_id:
            settings["group.instance.id"] = member.instance_id
        if group.assignor:
            settings["group.remote.assignor"] = group.assignor
        consumer = await AsyncConsumer(settings, ports=self._host.ports).start()
        try:
            while not self._leaving:
                try:
                    # Also after an error that ends a membership permanently: an instance id that is still in use.
                    consumer.subscribe(group.topics, pattern=group.pattern or None)
                    while not self._leaving:
                        await self._turn(consumer)
                except StreamlogError as error:
                    self.errors[error.code] += 1
                    await asyncio.sleep(AGAIN_S)
        finally:
            await consumer.close()

    async def _turn(self, consumer: AsyncConsumer) -> None:
        """One poll, and what comes of it."""
        process = self._host.process
        assert process is not None
        records = await consumer.poll(timeout_s=POLL_S)
        for record in records:
            partition = TopicPartition(record.topic, PartitionId(record.partition))
            assert consumer._group is not None
            self._watch.given(self.group.name, process, consumer._group.membership, partition, record.offset)
        stuck_s, self._stuck_s = self._stuck_s, 0.0
        busy_s = self._member.handling_s if records else 0.0
        if (busy_s or stuck_s) and not self._settled:
            await asyncio.sleep(busy_s + stuck_s)
        if records and self._member.commits:
            await consumer.commit()


class GroupCrew:
    """All programs of a plan."""

    def __init__(self, plan: GroupsPlan, world: World, watch: GroupWatch) -> None:
        self._plan = plan
        self._world = world
        self._watch = watch
        self.programs = {
            member.host: Program(plan, group, member, world, watch) for group in plan.groups for member in group.members
        }

    def one_more(self, group: GroupPlan) -> Program:
        """A member that is not of the plan, to measure how quickly it gets partitions."""
        name = f"x{group.name}"
        member = MemberPlan(host=name, instance_id="", commits=False, handling_s=0.0, starts_at=0.0)
        program = self.programs[name] = Program(self._plan, group, member, self._world, self._watch)
        program.heal()
        return program

    def heal(self) -> None:
        """Two members of each group are up then, and some more."""
        for group in self._plan.groups:
            for number, member in enumerate(group.members):
                program = self.programs[member.host]
                program.heal()
                if number < 2:
                    program.start()

    async def end(self) -> None:
        """All leave in order."""
        for program in self.programs.values():
            program.leave_permanently()
        for program in self.programs.values():
            await program.until_ended()
