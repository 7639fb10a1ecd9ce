"""The shards of one internal topic on one node, and who has the others.

A shard for each partition that this node leads, from the beginning of the leadership to its end; a key (a group, a
transactional id) belongs to one partition for ever, by its hash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

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
        """Loaded: commands may come."""
        ...

    def end(self) -> None:
        """The leadership is over."""
        ...


M = TypeVar("M", bound=CoordinatorShard)


class Shards(Generic[M]):
    """`run` is a task of the coordinator. `what`: of what a key is the name, for people."""

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
        """For ever: a shard for as long as its leadership lasts."""
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
        if replica.partition.topic == self._topic and self._tasks is not None and replica.ended is None:
            self._tasks.create_task(self._run_shard(replica))

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
        """Those that this node has now, loaded or not."""
        return iter(list(self._shards.values()))

    @property
    def loading(self) -> int:
        """Shards that are not loaded yet."""
        return sum(not shard.log.is_active for shard in self._shards.values())

    def partition_of(self, key: str) -> PartitionId:
        """CoordinatorNotAvailableError while there is no such topic."""
        topic = self._view.image.topic_named(self._topic)
        if topic is None:
            raise CoordinatorNotAvailableError(f"{self._topic} has not been created yet")
        return partition_of(key, len(topic.partitions))

    def coordinator_of(self, key: str) -> BrokerId:
        """CoordinatorNotAvailableError while there is no such topic, or its partition has no leader."""
        partition = self.partition_of(key)
        leader = self._view.image.require_topic(self._topic).partitions[partition].leader
        if leader == NO_BROKER:
            raise CoordinatorNotAvailableError(
                f"{self._topic}-{partition}, which has {self._what} {key!r}, has no leader"
            )
        return leader

    def of(self, key: str) -> M:
        """NotCoordinatorError, CoordinatorLoadInProgressError, CoordinatorNotAvailableError."""
        leader = self.coordinator_of(key)
        shard = self._shards.get(self.partition_of(key))
        if shard is not None:
            return shard
        if leader == self._replicas.node_id:
            raise CoordinatorLoadInProgressError(f"this node is about to coordinate {self._what} {key!r}")
        details = {"leader": leader, "address": self._view.address_of(leader)}
        raise NotCoordinatorError(
            f"node {leader} coordinates {self._what} {key!r}", **{k: v for k, v in details.items() if v is not None}
        )

    def at(self, partition: PartitionId) -> M | None:
        """Of this partition of the topic; None where this node does not lead it."""
        return self._shards.get(partition)
