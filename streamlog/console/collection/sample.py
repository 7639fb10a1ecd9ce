"""A sample of everything that the console shows over time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.group_values import GroupListing
from streamlog.client.admin.values import TopicDescription
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId, TopicPartition
from streamlog.monitor import ClusterState, read_cluster_state

GROUPS_AT_ONCE: Final = 8
"""Maximum number of concurrent calls to coordinators."""


class PartitionEnd(Struct, frozen=True):
    """End and size of the leader's replica."""

    log_start: int
    log_end: int
    size_bytes: int


class Sample(Struct, frozen=True, kw_only=True):
    """`at_s`: wall clock, for display; `monotonic_s`: when the offsets were read, for rates."""

    at_s: float
    monotonic_s: float
    state: ClusterState
    ends: Mapping[TopicPartition, PartitionEnd] = field(default_factory=dict)
    groups: Sequence[GroupListing] = ()
    groups_complete: bool = True  # False: a node did not list its groups
    committed: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)  # by group: next offset to read

    @property
    def topics(self) -> Sequence[TopicDescription]:
        return self.state.topics

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """Records that the group has not committed, by partition; without partitions whose end is unknown."""
        return {
            at: max(0, self.ends[at].log_end - offset)
            for at, offset in self.committed.get(group, {}).items()
            if at in self.ends
        }


async def sample(admin: AsyncAdmin, at_s: float, monotonic_s: float, earlier: Sample | None = None) -> Sample:
    """Never raises a StreamlogError: parts that could not be read are missing, and `state.missing` has the errors.
    `earlier`: one whose parts that change seldom may be kept (`read_cluster_state`).
    """
    state = await read_cluster_state(admin, None if earlier is None else earlier.state)
    if state.cluster is None:
        return Sample(at_s=at_s, monotonic_s=monotonic_s, state=state)
    try:
        listed = await admin.list_groups()
    except StreamlogError:
        listed = None
    groups: Sequence[GroupListing] = () if listed is None else listed.groups
    return Sample(
        at_s=at_s,
        monotonic_s=monotonic_s if state.log_dirs_at_s is None else state.log_dirs_at_s,
        state=state,
        ends=ends_of(state),
        groups=groups,
        groups_complete=listed is not None and not listed.errors,
        committed=await _committed(admin, [one.group for one in groups]),
    )


def ends_of(state: ClusterState) -> dict[TopicPartition, PartitionEnd]:
    """From the log directories of the leaders."""
    leaders: dict[TopicPartition, BrokerId] = {
        TopicPartition(topic.name, one.partition): one.leader
        for topic in state.topics
        for one in topic.partitions
        if one.leader is not None
    }
    return {
        replica.at: PartitionEnd(replica.log_start, replica.log_end, replica.size_bytes)
        for node in state.log_dirs
        for directory in node.log_dirs
        for replica in directory.replicas
        if leaders.get(replica.at) == node.node_id
    }


async def _committed(admin: AsyncAdmin, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Of groups whose coordinator answered."""
    slots = asyncio.Semaphore(GROUPS_AT_ONCE)
    found: dict[str, dict[TopicPartition, int]] = {}

    async def ask(group: str) -> None:
        async with slots:
            try:
                offsets = await admin.list_group_offsets(group)
            except StreamlogError:
                return
            found[group] = {at: one.offset for at, one in offsets.items()}

    await asyncio.gather(*map(ask, groups))
    return found
