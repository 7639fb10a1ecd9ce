"""Operators of the simulated cluster: they change the metadata while it is under faults.

A Tuner writes a topic's `retention.ms` over and over, each time another value: a register, whose history must be one
that could have happened, one write after the other, and in which every node reads the same in the end (I12).

A Mover gives partitions other replicas, and their leaderships other nodes. What it is refused is no matter.

A DirectoryMover moves replicas between the log directories of their nodes, or cancels that; refusals are no matter.

A VoterChanger removes voters of the quorum, adds them again, and replaces one by another, one change at a time. At
least VOTERS_MIN remain, so that one of them may lose its disk. A replacement removes one voter first and may end there;
where a disk is lost it is not made with VOTERS_MIN voters. A voter that was removed observes.

An Upgrader asks for the new release's metadata.version, or for the highest that there can be, over and over (I24). What
it is refused is no matter.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ConfigChange, ConfigResource, Reassignment, ReplicaOnNode
from streamlog.errors import DuplicateVoterError, StreamlogError
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.model import BrokerId, PartitionId, TopicPartition
from tests.raft.simulation.history import Operation, violations

from ..plan import TopicPlan

SETTING: Final = "retention.ms"
BASE_MS: Final = 10**12
"""Values begin here: nothing is deleted by them."""
GAP_S: Final = (0.2, 2.0)
MOVE_GAP_S: Final = (1.0, 4.0)
DIRECTORY_GAP_S: Final = (0.1, 0.8)
VOTE_GAP_S: Final = (0.5, 3.0)
RAISE_GAP_S: Final = (0.2, 1.0)
HIGHEST: Final = 0
"""That all nodes support."""
VOTERS_MIN: Final = 3


class Tuner:
    """One process, one write at a time."""

    def __init__(self, admin: AsyncAdmin, topic: str, rng: random.Random, now: Callable[[], float]) -> None:
        self._admin = admin
        self._topic = topic
        self._rng = rng
        self._now = now
        self.operations: list[Operation] = []
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._rng.uniform(*GAP_S))
            await self.write()

    async def write(self) -> None:
        value = str(BASE_MS + len(self.operations))
        operation = Operation("tuner", "write", self._topic, value, self._now())
        self.operations.append(operation)
        try:
            await self._admin.alter_config(ConfigResource.topic(self._topic), [ConfigChange(name=SETTING, value=value)])
        except StreamlogError:
            return  # whether it was made is unknown
        operation.completed = self._now()

    def problems(self, read: Mapping[str, str]) -> list[str]:
        """`read`: what each node has in the end; empty text where it has none."""
        reads = [Operation(node, "read", self._topic, value, self._now(), self._now()) for node, value in read.items()]
        return violations([*self.operations, *reads])


class Mover:
    def __init__(
        self, admin: AsyncAdmin, topics: Sequence[TopicPlan], nodes: Sequence[BrokerId], rng: random.Random
    ) -> None:
        self._admin = admin
        self._topics = topics
        self._nodes = nodes
        self._rng = rng
        self.moves = 0  # that were taken on
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._rng.uniform(*MOVE_GAP_S))
            topic = self._rng.choice(self._topics)
            partition = TopicPartition(topic.name, PartitionId(self._rng.randrange(topic.partitions)))
            replicas = tuple(self._rng.sample(list(self._nodes), topic.replication_factor))
            try:
                await self._move(partition, replicas)
            except StreamlogError:
                pass

    async def _move(self, partition: TopicPartition, replicas: tuple[BrokerId, ...]) -> None:
        results = await self._admin.alter_partition_reassignments([Reassignment(at=partition, replicas=replicas)])
        self.moves += sum(result.error is None for result in results)


class DirectoryMover:
    def __init__(
        self,
        admin: AsyncAdmin,
        topics: Sequence[TopicPlan],
        nodes: Sequence[BrokerId],
        log_dirs: Sequence[str],
        rng: random.Random,
    ) -> None:
        self._admin = admin
        self._topics = topics
        self._nodes = nodes
        self._log_dirs = log_dirs
        self._rng = rng
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._rng.uniform(*DIRECTORY_GAP_S))
            topic = self._rng.choice(self._topics)
            partition = PartitionId(self._rng.randrange(topic.partitions))
            replica = ReplicaOnNode(topic.name, partition, self._rng.choice(self._nodes))
            try:
                await self._admin.alter_replica_log_dirs({replica: self._rng.choice(self._log_dirs)})
            except StreamlogError:
                pass


class VoterChanger:
    def __init__(
        self, admin: AsyncAdmin, may_vote: Sequence[BrokerId], rng: random.Random, *, loses_disk: bool
    ) -> None:
        """`may_vote`: those that run as voters, whether in the set or not. `loses_disk`: a node does, some time."""
        self._admin = admin
        self._may_vote = may_vote
        self._rng = rng
        self._least_to_replace = VOTERS_MIN + 1 if loses_disk else VOTERS_MIN
        self._voters = list(may_vote)  # those that vote for certain
        self._removed: set[BrokerId] = set()  # perhaps: a node that describes the cluster may not know of it yet
        self.changes = 0  # that were made
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._rng.uniform(*VOTE_GAP_S))
            await self.change()

    async def change(self) -> None:
        try:
            cluster = await self._admin.describe_cluster()
            self._voters = [voter.node_id for voter in cluster.voters if voter.node_id not in self._removed]
            await self._change()
        except StreamlogError:
            pass

    async def _change(self) -> None:
        others = [node for node in self._may_vote if node not in self._voters]
        count = len(self._voters)
        kinds = ["remove"] * (count > VOTERS_MIN) + ["add"] * bool(others)
        kinds += ["replace"] * bool(others and count >= self._least_to_replace)
        if not kinds:
            return
        match self._rng.choice(kinds):
            case "remove":
                await self._admin.remove_voter(self._leaving())
                self.changes += 1
            case "add":
                await self._add(self._rng.choice(others))
            case "replace":
                await self._add(self._rng.choice(others), self._leaving())

    def _leaving(self) -> BrokerId:
        node_id = self._rng.choice(self._voters)
        self._removed.add(node_id)
        return node_id

    async def _add(self, node_id: BrokerId, replaced: BrokerId | None = None) -> None:
        try:
            await self._admin.add_voter(node_id, replaced_node_id=replaced)
            self.changes += 1
        except DuplicateVoterError:  # its removal was refused, and it has been a voter all the time
            pass
        self._removed.discard(node_id)


class Upgrader:
    def __init__(self, admin: AsyncAdmin, rng: random.Random, *, wait_s: float) -> None:
        self._admin = admin
        self._rng = rng
        self._wait_s = wait_s
        self.stopping = False

    async def run(self) -> None:
        await asyncio.sleep(self._wait_s)
        while not self.stopping:
            try:
                await self._admin.update_metadata_version(self._rng.choice((HIGHEST, METADATA_VERSION_MAX)))
            except StreamlogError:
                pass
            await asyncio.sleep(self._rng.uniform(*RAISE_GAP_S))
