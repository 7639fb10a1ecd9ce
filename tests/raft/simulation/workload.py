"""Clients in the simulation: they write and read registers, retry under the same id, and change the voters.

A client sends to whom it takes for the leader, at times to anybody. A write is retried with its sequence until it is
acknowledged; one that is given up has an unknown outcome. A read that fails has not happened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from streamlog.errors import NotControllerError, StreamlogError
from streamlog.model import BrokerId
from streamlog.raft.core.syncobj import HardenedSyncObj

from ..kit import Cluster, Member, voter
from .history import Operation
from .truth import Truth

KEYS = "abc"
GIVE_UP_S = 2.5
RETRY_S = 0.03


class Client:
    def __init__(
        self,
        name: str,
        cluster: Cluster,
        rng: random.Random,
        now: Callable[[], float],
        truth: Truth,
        *,
        writes: float,
        retries: bool,
    ) -> None:
        self._writes = writes
        self._retries = retries
        self._truth = truth
        self._name = name
        self._cluster = cluster
        self._rng = rng
        self._now = now
        self._sequence = 0
        self.operations: list[Operation] = []

    async def run(self, until_s: float) -> None:
        while self._now() < until_s:
            await asyncio.sleep(self._rng.choice([0.01, 0.15, 0.5]) * self._rng.random())
            await self.one()

    async def one(self) -> Operation:
        """One operation from its invocation to its end."""
        key = self._rng.choice(KEYS)
        if self._rng.random() < self._writes:
            self._sequence += 1
            operation = Operation(self._name, "write", key, f"{self._name}.{self._sequence}", self._now())
        else:
            operation = Operation(self._name, "read", key, "", self._now())
        operation.floor = self._floor()
        self.operations.append(operation)
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._until_done(operation)
        except TimeoutError:
            pass
        return operation

    async def read_from(self, member: Member, until_s: float) -> None:
        """Read from this very node, over and over."""
        while self._now() < until_s:
            operation = Operation(self._name, "read", KEYS[0], "", self._now())
            operation.floor = self._floor()
            self.operations.append(operation)
            if member.is_up:
                try:
                    async with asyncio.timeout_at(until_s):
                        await self._attempt(member, operation)
                    operation.completed = self._now()
                except (StreamlogError, TimeoutError):
                    pass
            await asyncio.sleep(RETRY_S)

    def _floor(self) -> int:
        """What has been applied anywhere: a read that begins now must see it."""
        return max((member.raft.applied_index for member in self._cluster.members()), default=0)

    async def _until_done(self, operation: Operation) -> None:
        while True:
            member = self._choose()
            if member is not None:
                try:
                    await self._attempt(member, operation)
                except NotControllerError:
                    pass  # it has not been carried out
                except StreamlogError:
                    if not self._retries:
                        return
                else:
                    operation.completed = self._now()
                    return
            await asyncio.sleep(RETRY_S)

    def _choose(self) -> Member | None:
        members = self._cluster.members()
        leading = [member for member in members if member.raft.leadership().is_self]
        candidates = leading if leading and self._rng.random() < 0.85 else members
        return self._rng.choice(candidates) if candidates else None

    async def _attempt(self, member: Member, operation: Operation) -> None:
        if operation.kind == "write":
            command = f"{operation.key}={operation.value}".encode()
            applied = await self._cluster.call(
                member, member.raft.propose(command, client_id=self._name, sequence=self._sequence)
            )
            operation.index = applied.index
        else:
            await self._cluster.call(member, self._read(member, operation))

    async def _read(self, member: Member, operation: Operation) -> None:
        await member.raft.read_barrier()
        index = member.raft.applied_index
        if index < operation.floor:
            self._truth.wrong(f"a read at {index}, which was asked for when {operation.floor} was applied somewhere")
        operation.value = member.machine.values.get(operation.key, "")


class Changer:
    """Asks the leader for changes of the voters, one after the other; may have a voter lose its disk between two."""

    def __init__(
        self,
        cluster: Cluster,
        rng: random.Random,
        now: Callable[[], float],
        nodes: int,
        wipe: Callable[[int], None] | None,
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._now = now
        self._nodes = nodes
        self._wipe = wipe  # None: no disk is lost (any more)
        self.done = 0  # changes that were confirmed
        self.wiped: int | None = None  # a voter that lost its disk, to be replaced by itself

    async def run(self, until_s: float) -> None:
        while self._now() < until_s:
            await asyncio.sleep(self._rng.uniform(0.05, 0.5))
            leader = self._cluster.leader()
            if self._wipe is not None and leader is not None and self._may_wipe(leader):
                self.wiped = self._rng.choice([v.node_id for v in leader.raft.voters()])
                self._wipe(self.wiped)
                self._wipe = None
            await self._attempt(self._one)

    def _may_wipe(self, leader: Member) -> bool:
        """Three voters or more, no change of them under way, and each knows the others: a loss is noticed."""
        ids, core = {v.node_id for v in leader.raft.voters()}, leader.core
        members = [member.core for member in self._cluster.members() if member.node_id in ids]
        settled = core.voter_sets.index <= core.commit_index
        return settled and len(members) == len(ids) >= 3 and all(ids <= self._known_to(member) for member in members)

    @staticmethod
    def _known_to(core: HardenedSyncObj) -> set[BrokerId]:
        """Voters whose disk this one would miss."""
        named = {v.node_id for v in core.voter_sets.voters if v.directory_id}
        return named | set(core.log.peers) | {core.me.id}

    async def until_replaced(self) -> None:
        """Have the voter that lost its disk replaced by what it is now."""
        while self.wiped is not None:
            await self._attempt(self._replace_wiped)
            await asyncio.sleep(0.05)

    async def _attempt(self, change: Callable[[Member], Awaitable[None]]) -> None:
        leader = self._cluster.leader()
        if leader is None:
            return
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._cluster.call(leader, change(leader))
                self.done += 1
        except (StreamlogError, TimeoutError):
            pass

    async def _one(self, leader: Member) -> None:
        ids = [v.node_id for v in leader.raft.voters()]
        spare = [node_id for node_id in range(1, self._nodes + 1) if node_id not in ids]
        newcomer = voter(self._rng.choice(spare)) if spare else None
        gone = BrokerId(self._rng.choice(ids))
        if self.wiped is not None:
            await self._replace_wiped(leader)
        elif newcomer is not None and (len(ids) < 3 or self._rng.random() < 0.4):
            await leader.raft.add_voter(newcomer)
        elif newcomer is not None and self._rng.random() < 0.6:
            await leader.raft.replace_voter(gone, newcomer)
        elif len(ids) > 2:
            await leader.raft.remove_voter(gone)

    async def _replace_wiped(self, leader: Member) -> None:
        """One step towards the voter being what it is now."""
        fresh = next((member for member in self._cluster.members() if member.node_id == self.wiped), None)
        if fresh is None:
            return
        node_id, recorded = BrokerId(fresh.node_id), leader.raft.voters().get(BrokerId(fresh.node_id))
        if recorded is None:
            await leader.raft.add_voter(voter(fresh.node_id))
        elif recorded.directory_id != fresh.core.log.directory_id:
            await leader.raft.replace_voter(node_id, voter(fresh.node_id))
        self.wiped = None
