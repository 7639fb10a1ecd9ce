"""The group coordinator of one node: which groups it coordinates, and which node coordinates the others.

It has a shard for each partition of `__consumer_offsets` that this node leads, for as long as the leadership lasts.
Every shard is notified of changes of topics; offsets expire by a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import TypeVar

from streamlog.config import Config
from streamlog.config.settings import group_settings
from streamlog.coordinator.group_shard import GroupShard
from streamlog.coordinator.shards import Leaderships, Shards
from streamlog.coordinator.topics import ImageTopics
from streamlog.errors import NotCoordinatorError, StreamlogError, UnstableOffsetCommitError
from streamlog.groups import committing
from streamlog.groups.committing import CommitOffsets, DeleteGroup, DeleteOffsets
from streamlog.groups.decision import GroupContext, GroupDecision, GroupSettings
from streamlog.groups.membership import HeartbeatAnswer, MemberHeartbeat, RemoveMember
from streamlog.groups.placement import OFFSETS_TOPIC
from streamlog.groups.records import OffsetValue
from streamlog.groups.state import Group
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.ports import Clock, Probe
from streamlog.transactions.markers import PartitionMarker

R = TypeVar("R")


class GroupCoordinator:
    """`run` is a task of the node."""

    def __init__(
        self, replicas: Leaderships, view: MetadataView, configs: NodeConfigs, clock: Clock, probe: Probe
    ) -> None:
        self._view = view
        self._configs = configs
        self._clock = clock
        self._topics = ImageTopics(view.image)
        self._live_epochs = _live_epochs(view.image)
        self._shards = Shards(
            OFFSETS_TOPIC, "group", replicas, view, lambda replica: GroupShard(replica, self._context, clock, probe)
        )

    # -- lifecycle

    async def run(self) -> None:
        self._topics = ImageTopics(self._view.image)
        self._live_epochs = _live_epochs(self._view.image)
        stop_listening = self._view.listen(self._on_metadata)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._shards.run())
                await self._keep_expiring()
        finally:
            stop_listening()

    async def _keep_expiring(self) -> None:
        while True:
            await asyncio.sleep(self._configs.node[group_settings.OFFSETS_RETENTION_CHECK_INTERVAL_MS] / 1000)
            for shard in self._shards:
                await shard.expire_offsets()
                await asyncio.sleep(0)

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        live = _live_epochs(image)
        gone, self._live_epochs = self._live_epochs - live, live
        if gone:
            for shard in self._shards:
                shard.on_nodes_gone()
        self._topics, matters = self._topics.following(image, delta)
        if matters:
            removed = None if delta is None else [topic.name for topic in delta.removed_topics()]
            for shard in self._shards:
                shard.on_topics_changed(removed)

    def _context(self) -> GroupContext:
        return GroupContext(
            settings=_settings(self._configs.node),
            topics=self._topics,
            now_ms=self._clock.wall_ms(),
            live_epochs=_live_epochs(self._view.image),
        )

    # -- lookup

    def coordinator_of(self, group: str) -> BrokerId:
        """As `Shards.coordinator_of`."""
        return self._shards.coordinator_of(group)

    # -- commands

    async def heartbeat(self, command: MemberHeartbeat) -> HeartbeatAnswer:
        """As `GroupShard.heartbeat`, and NotCoordinatorError, like all that follow."""
        return await self._shards.of(command.group).heartbeat(command)

    async def remove_member(self, command: RemoveMember) -> bool:
        """The member's stream broke, or an operator removes it."""
        return await self._shards.of(command.group).remove_member(command)

    async def decide(self, group: str, decide: Callable[[Group, GroupContext], GroupDecision[R]]) -> R:
        return await self._shards.of(group).decide(group, decide)

    async def fetch_offsets(
        self,
        group: str,
        member: committing.Committer | None,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool = False,
    ) -> Mapping[TopicPartition, OffsetValue | UnstableOffsetCommitError | None]:
        return await self._shards.of(group).fetch(group, member, partitions, require_stable=require_stable)

    async def commit_in_transaction(
        self,
        command: CommitOffsets,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        verify: Callable[[TopicPartition], Awaitable[None]],
        wait_s: float,
    ) -> tuple[StreamlogError | None, ...]:
        """As `GroupShard.commit_in_transaction`. `verify` adds this partition of `__consumer_offsets` to the
        transaction at its coordinator. `wait_s`: how long to wait for the marker of the previous transaction.
        """
        shard = self._shards.of(command.group)
        shard.log.check()
        replica = shard.log.replica
        confirm = partial(verify, replica.partition)
        async with replica.appends.verifications.verified(producer_id, producer_epoch, confirm, wait_s) as guard:
            return await shard.commit_in_transaction(command, guard)

    async def delete_group(self, command: DeleteGroup) -> None:
        await self._shards.of(command.group).delete_group(command)

    async def delete_offsets(self, command: DeleteOffsets) -> tuple[StreamlogError | None, ...]:
        return await self._shards.of(command.group).delete_offsets(command)

    async def end_transaction(self, one: PartitionMarker) -> None:
        """A marker for a partition of `__consumer_offsets`. As `GroupShard.end_transaction`."""
        shard = self._shards.at(one.partition.partition)
        if shard is None:
            raise NotCoordinatorError(f"this node does not lead {one.partition}")
        await shard.end_transaction(one)

    async def describe(self, group: str) -> Group | None:
        """Its current state, read-only; None: no such group."""
        shard = self._shards.of(group)
        shard.log.check()
        await shard.log.wait_until_safe()
        return shard.groups.get(group)

    def own_groups(self, start: str, count: int) -> list[Group]:
        """The first `count` behind the name `start`, of all loaded shards, by name; read-only."""
        active = [shard for shard in self._shards if shard.log.is_active]
        some = merge(*(shard.groups_behind(start) for shard in active), key=lambda group: group.group_id)
        return list(islice(some, count))

    @property
    def loading(self) -> int:
        """Number of shards that are still loading."""
        return self._shards.loading

    def watch_member(self, group: str, member_id: str, hint: Callable[[], None], *, is_new: bool) -> Callable[[], bool]:
        """As `GroupShard.watch_member`. Call the result to stop; it returns what `GroupShard.unwatch_member` does."""
        shard = self._shards.of(group)
        shard.watch_member(group, member_id, hint, is_new=is_new)
        return lambda: shard.unwatch_member(group, member_id, hint)


def _live_epochs(image: MetadataImage) -> frozenset[int]:
    return frozenset(broker.epoch for broker in image.brokers.values() if not broker.fenced)


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
