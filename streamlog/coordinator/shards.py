"""The shards of one internal topic on one node, and which nodes have the others.

There is a shard for each partition that this node leads, for as long as the leadership lasts. A key (a group, a
transactional id) belongs to one partition permanently, by its hash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from streamlog.aio.group_tasks import start_unless_ending
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.coordinator.shard_log import ShardLog
from streamlog.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError
from streamlog.groups.placement import partition_of
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER, BrokerId, PartitionId


class Leaderships(Protocol):
    """streamlog.broker.Replicas."""

    @property
    def node_id(self) -> BrokerId: ...

    def leaders(self) -> Iterator[LeaderReplica]: ...

    def listen_for_leaders(self, listener: Callable[[LeaderReplica], None]) -> None: ...


class CoordinatorShard(Protocol):
    """One shard's state, its commands and its timers."""

    @property
    def log(self) -> ShardLog: ...

    def begin(self) -> None:
        """Loaded: ready for commands."""
        ...

    def end(self) -> None:
        """The leadership has ended."""
        ...


M = TypeVar("M", bound=CoordinatorShard)


class Shards(Generic[M]):
    """`run` is a task of the coordinator. `what`: what a key names, for messages."""

    def __init__(
        self, topic: str, what: str, replicas: Leaderships, view: MetadataView, make: Callable[[LeaderReplica], M]
    ) -> None:
        self._topic = topic
        self._what = what
        self._replicas = replicas
        self._view = view
        self._make = make
        self._shards: dict[PartitionId, M] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until cancelled. A shard runs as long as its leadership."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._replicas.listen_for_leaders(self._lead)
                for replica in self._replicas.leaders():
                    self._lead(replica)
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None

    def _lead(self, replica: LeaderReplica) -> None:
        if replica.partition.topic == self._topic and replica.ended is None:
            start_unless_ending(self._tasks, self._run_shard(replica))

    async def _run_shard(self, replica: LeaderReplica) -> None:
        partition = replica.partition.partition
        while replica.ended is None:
            shard = self._shards[partition] = self._make(replica)
            try:
                await shard.log.run(shard.begin)
            finally:
                shard.end()
                if self._shards.get(partition) is shard:
                    del self._shards[partition]

    def __iter__(self) -> Iterator[M]:
        """All shards on this node, loaded or not."""
        return iter(list(self._shards.values()))

    @property
    def loading(self) -> int:
        """Number of shards that are still loading."""
        return sum(not shard.log.is_active for shard in self._shards.values())

    def partition_of(self, key: str) -> PartitionId:
        """CoordinatorNotAvailableError while there is no such topic."""
        topic = self._view.image.topic_named(self._topic)
        if topic is None:
            raise CoordinatorNotAvailableError(f"{self._topic} has not been created yet; retry")
        return partition_of(key, len(topic.partitions))

    def coordinator_of(self, key: str) -> BrokerId:
        """CoordinatorNotAvailableError while there is no such topic, or its partition has no leader."""
        partition = self.partition_of(key)
        leader = self._view.image.require_topic(self._topic).partitions[partition].leader
        if leader == NO_BROKER:
            raise CoordinatorNotAvailableError(
                f"{self._topic}-{partition}, which coordinates {self._what} {key!r}, has no leader"
            )
        return leader

    def of(self, key: str) -> M:
        """NotCoordinatorError, CoordinatorLoadInProgressError, CoordinatorNotAvailableError."""
        leader = self.coordinator_of(key)
        shard = self._shards.get(self.partition_of(key))
        if shard is not None:
            return shard
        if leader == self._replicas.node_id:
            raise CoordinatorLoadInProgressError(f"this node is becoming the coordinator of {self._what} {key!r}")
        details = {"leader": leader, "address": self._view.hinted_address(leader)}
        raise NotCoordinatorError(
            f"node {leader} coordinates {self._what} {key!r}", **{k: v for k, v in details.items() if v is not None}
        )

    def at(self, partition: PartitionId) -> M | None:
        """The shard of this partition; None where this node does not lead it."""
        return self._shards.get(partition)
