"""The coordinator of groups on one node: which groups are its own, and who coordinates the others.

A shard for each partition of `__consumer_offsets` that this node leads, from the beginning of the leadership to its
end. What changes in the cluster's topics is told to all of them; offsets expire by a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from streamlog.broker.leader_replica import LeaderReplica
from streamlog.config import Config, group_settings
from streamlog.coordinator.group_shard import GroupShard
from streamlog.coordinator.topics import ImageTopics
from streamlog.errors import CoordinatorNotAvailableError, NotCoordinatorError
from streamlog.groups import committing
from streamlog.groups.decision import Context, Decision, GroupSettings
from streamlog.groups.membership import Heartbeat, HeartbeatAnswer, PutOut, put_out
from streamlog.groups.placement import OFFSETS_TOPIC, partition_of
from streamlog.groups.records import OffsetValue
from streamlog.groups.state import Group
from streamlog.metadata.delta import MetadataDelta
from streamlog.metadata.image import MetadataImage
from streamlog.metadata.node_configs import NodeConfigs
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER, BrokerId, PartitionId, TopicPartition
from streamlog.ports import Clock, Probe

R = TypeVar("R")


class Leaderships(Protocol):
    """streamlog.broker.Replicas."""

    def leaders(self) -> Iterator[LeaderReplica]: ...

    def listen_for_leaders(self, listener: Callable[[LeaderReplica], None]) -> None: ...


class GroupCoordinator:
    """`run` is a task of the node."""

    def __init__(
        self, replicas: Leaderships, view: MetadataView, configs: NodeConfigs, clock: Clock, probe: Probe
    ) -> None:
        self._replicas = replicas
        self._view = view
        self._configs = configs
        self._clock = clock
        self._probe = probe
        self._topics = ImageTopics(view.image)
        self._shards: dict[PartitionId, GroupShard] = {}
        self._tasks: asyncio.TaskGroup | None = None

    # -- life

    async def run(self) -> None:
        self._topics = ImageTopics(self._view.image)
        stop_listening = self._view.listen(self._on_metadata)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._replicas.listen_for_leaders(self._lead)
                for replica in self._replicas.leaders():
                    self._lead(replica)
                await self._keep_expiring()
        finally:
            self._tasks = None
            stop_listening()

    def _lead(self, replica: LeaderReplica) -> None:
        if replica.partition.topic == OFFSETS_TOPIC and self._tasks is not None and replica.ended is None:
            self._tasks.create_task(self._run_shard(replica))

    async def _run_shard(self, replica: LeaderReplica) -> None:
        """For as long as the leadership lasts."""
        partition = replica.partition.partition
        while replica.ended is None:
            shard = self._shards[partition] = GroupShard(replica, self._context, self._clock, self._probe)
            try:
                await shard.shard.run(shard.begin)
            finally:
                shard.end()
                if self._shards.get(partition) is shard:
                    del self._shards[partition]

    async def _keep_expiring(self) -> None:
        while True:
            await asyncio.sleep(self._configs.node[group_settings.OFFSETS_RETENTION_CHECK_INTERVAL_MS] / 1000)
            for shard in list(self._shards.values()):
                shard.expire_offsets()

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        self._topics, matters = self._topics.following(image, delta)
        if matters:
            for shard in list(self._shards.values()):
                shard.on_topics_changed()

    def _context(self) -> Context:
        return Context(settings=_settings(self._configs.node), topics=self._topics, now_ms=self._clock.wall_ms())

    # -- who coordinates

    def coordinator_of(self, group: str) -> BrokerId:
        """CoordinatorNotAvailableError while there is no `__consumer_offsets`, or its partition has no leader."""
        image = self._view.image
        topic = image.topic_named(OFFSETS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailableError(f"{OFFSETS_TOPIC} has not been created yet")
        partition = partition_of(group, len(topic.partitions))
        leader = topic.partitions[partition].leader
        if leader == NO_BROKER:
            raise CoordinatorNotAvailableError(f"{OFFSETS_TOPIC}-{partition}, which has group {group!r}, has no leader")
        return leader

    def _shard_of(self, group: str) -> GroupShard:
        """NotCoordinatorError, CoordinatorNotAvailableError."""
        leader = self.coordinator_of(group)
        topic = self._view.image.require_topic(OFFSETS_TOPIC)
        shard = self._shards.get(partition_of(group, len(topic.partitions)))
        if shard is not None:
            return shard
        details = {"leader": leader, "address": self._view.address_of(leader)}
        raise NotCoordinatorError(
            f"node {leader} coordinates group {group!r}", **{k: v for k, v in details.items() if v is not None}
        )

    # -- commands

    async def heartbeat(self, command: Heartbeat) -> HeartbeatAnswer:
        """As `GroupShard.heartbeat`, and NotCoordinatorError; so all that follow."""
        return await self._shard_of(command.group).heartbeat(command)

    async def put_out(self, command: PutOut) -> bool:
        """The member's stream has broken, or an operator removes it."""
        return await self.decide(command.group, lambda group, context: put_out(command, group, context))

    async def decide(self, group: str, decide: Callable[[Group, Context], Decision[R]]) -> R:
        return await self._shard_of(group).decide(group, decide)

    async def fetch_offsets(
        self, group: str, member: committing.Committer | None, partitions: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, OffsetValue | None]:
        return await self._shard_of(group).fetch(group, member, partitions)

    async def describe(self, group: str) -> Group | None:
        """As it is now, not to be changed; None: nothing is known of it."""
        shard = self._shard_of(group)
        shard.shard.check()
        await shard.shard.wait_until_safe()
        return shard.groups.get(group)

    def own_groups(self) -> list[Group]:
        """Of all shards that are loaded, by name; not to be changed."""
        groups = [g for shard in self._shards.values() if shard.shard.is_active for g in shard.groups.values()]
        return sorted(groups, key=lambda group: group.group_id)

    @property
    def loading(self) -> int:
        """Shards that are not loaded yet."""
        return sum(not shard.shard.is_active for shard in self._shards.values())

    def watch_member(self, group: str, member_id: str, hint: Callable[[], None]) -> Callable[[], None]:
        """Call `hint` when a heartbeat of this member would have news. The answer stops it."""
        shard = self._shard_of(group)
        shard.watch_member(group, member_id, hint)
        return lambda: shard.unwatch_member(group, member_id, hint)


def _settings(config: Config) -> GroupSettings:
    return GroupSettings(
        assignors=config[group_settings.GROUP_CONSUMER_ASSIGNORS],
        heartbeat_interval_ms=config[group_settings.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS],
        session_timeout_ms=config[group_settings.GROUP_CONSUMER_SESSION_TIMEOUT_MS],
        session_timeout_ms_min=config[group_settings.GROUP_MIN_SESSION_TIMEOUT_MS],
        session_timeout_ms_max=config[group_settings.GROUP_MAX_SESSION_TIMEOUT_MS],
        members_max=config[group_settings.GROUP_MAX_SIZE],
        metadata_bytes_max=config[group_settings.OFFSET_METADATA_MAX_BYTES],
        offsets_retention_ms=config[group_settings.OFFSETS_RETENTION_MINUTES] * 60_000,
    )
