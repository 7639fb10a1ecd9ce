"""Offsets of a group: commit, fetch, delete, expire (SEMANTICS 10).

A commit is a member's or an administrator's. A member's is fenced twice: by its epoch, so that one that has been put
out commits nothing; and partition by partition, so that a new owner is never set back by a late commit of the old one.
Whoever is no member may commit, delete and reset only while the group has no members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from streamlog.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    OffsetMetadataTooLargeError,
    StreamlogError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.decision import GroupContext, GroupDecision
from streamlog.groups.records import GroupKey, GroupRecord, OffsetKey, OffsetValue, TargetKey
from streamlog.groups.state import Group
from streamlog.groups.targets import topics_of
from streamlog.model import LeaderEpoch, Offset, PartitionId, TopicPartition


class Committer(Struct, frozen=True, kw_only=True):
    member_id: str
    epoch: int


class OffsetToCommit(Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    offset: Offset  # the next one to read
    leader_epoch: LeaderEpoch
    metadata: str


class CommitOffsets(Struct, frozen=True, kw_only=True):
    group: str
    member: Committer | None  # None: an administrator
    offsets: tuple[OffsetToCommit, ...]


class DeleteOffsets(Struct, frozen=True, kw_only=True):
    group: str
    partitions: tuple[TopicPartition, ...]


class DeleteGroup(Struct, frozen=True, kw_only=True):
    group: str


def commit(
    command: CommitOffsets, group: Group, context: GroupContext
) -> GroupDecision[tuple[StreamlogError | None, ...]]:
    """For each offset None, or why it is not committed. Errors of the member refuse the whole.

    UnknownMemberIdError, IllegalGenerationError, GroupNotEmptyError.
    """
    check_member(group, command.member)
    results: list[StreamlogError | None] = []
    records = []
    for wanted in command.offsets:
        error = _refusal(wanted, group, command.member, context)
        results.append(error)
        if error is None:
            key = OffsetKey(command.group, wanted.partition.topic, wanted.partition.partition)
            value = OffsetValue(
                offset=wanted.offset,
                leader_epoch=wanted.leader_epoch,
                metadata=wanted.metadata,
                commit_timestamp_ms=context.now_ms,
            )
            records.append(GroupRecord(key, value))
    return GroupDecision(response=tuple(results), records=tuple(records))


def check_member(group: Group, member: Committer | None) -> None:
    """May this one commit? A member's previous epoch is good: the answer that raised it may be under way."""
    if member is None:
        if group.members:
            raise GroupNotEmptyError(
                f"group {group.group_id!r} has {len(group.members)} members: they alone commit its offsets",
                group=group.group_id,
            )
        return
    if member.member_id not in group.members:
        raise UnknownMemberIdError(
            f"group {group.group_id!r} has no member {member.member_id!r}; it joins anew", field="member.member_id"
        )
    current = group.current(member.member_id)
    if member.epoch <= 0 or member.epoch not in (current.epoch, current.previous_epoch):
        raise IllegalGenerationError(
            f"member {member.member_id!r} of group {group.group_id!r} is in epoch {current.epoch}, not {member.epoch}",
            field="member.member_epoch",
            limit=current.epoch,
        )


def _refusal(
    wanted: OffsetToCommit, group: Group, member: Committer | None, context: GroupContext
) -> StreamlogError | None:
    partition, limit = wanted.partition, context.settings.metadata_bytes_max
    topic_id = context.topics.id_of(partition.topic)
    if topic_id is None or partition.partition >= context.topics.shape_of(topic_id).partition_count:
        return UnknownTopicOrPartitionError(f"there is no partition {partition}", field="offsets")
    owner = group.owners.get(GroupPartition(topic_id, partition.partition))
    if member is not None and owner not in (None, member.member_id):
        return IllegalGenerationError(f"partition {partition} is member {owner!r}'s now", field="offsets")
    size = len(wanted.metadata.encode())
    if size > limit:
        return OffsetMetadataTooLargeError(
            f"the metadata of {partition} has {size} bytes, {limit} are allowed", field="metadata", limit=limit
        )
    return None


def delete_offsets(
    command: DeleteOffsets, group: Group, context: GroupContext
) -> GroupDecision[tuple[StreamlogError | None, ...]]:
    """For each partition None, or why its offset is kept: GroupSubscribedToTopicError. GroupIdNotFoundError."""
    _require_known(group)
    subscribed = {t for member in group.members.values() for t in topics_of(member, context.topics)}
    results: list[StreamlogError | None] = []
    records = []
    for partition in command.partitions:
        if context.topics.id_of(partition.topic) in subscribed:
            message = f"group {command.group!r} reads topic {partition.topic!r}"
            results.append(GroupSubscribedToTopicError(message, topic=partition.topic))
            continue
        results.append(None)
        if (partition.topic, partition.partition) in group.offsets:
            records.append(GroupRecord(OffsetKey(command.group, partition.topic, partition.partition), None))
    return GroupDecision(response=tuple(results), records=tuple(records))


def delete_group(command: DeleteGroup, group: Group, context: GroupContext) -> GroupDecision[None]:
    """GroupIdNotFoundError, GroupNotEmptyError."""
    _require_known(group)
    if group.members:
        raise GroupNotEmptyError(
            f"group {command.group!r} has {len(group.members)} members: stop them first", group=command.group
        )
    return GroupDecision(response=None, records=_tombstones(group, group.offsets))


def expire(group: Group, context: GroupContext) -> GroupDecision[int]:
    """How many offsets of a group without members have outlived `offsets.retention.minutes` and go."""
    if group.members:
        return GroupDecision(response=0)
    latest_kept_ms = context.now_ms - context.settings.offsets_retention_ms
    expired = [
        at
        for at, value in group.offsets.items()
        if max(value.commit_timestamp_ms, group.empty_since_ms) < latest_kept_ms
    ]
    return GroupDecision(response=len(expired), records=_tombstones(group, expired))


def forget_topics(group: Group, context: GroupContext) -> GroupDecision[int]:
    """Offsets of topics that are no more go with them: a topic made anew under the name begins at its beginning."""
    gone = [at for at in group.offsets if context.topics.id_of(at[0]) is None]
    records = tuple(GroupRecord(OffsetKey(group.group_id, *at), None) for at in sorted(gone))
    return GroupDecision(response=len(gone), records=records)


def fetch(group: Group, partitions: Sequence[TopicPartition] | None) -> Mapping[TopicPartition, OffsetValue | None]:
    """What is committed; None for a partition without. `partitions` None: all of them, by topic and partition."""
    if partitions is None:
        return {TopicPartition(*at): value for at, value in sorted(group.offsets.items())}
    return {p: group.offsets.get((p.topic, p.partition)) for p in partitions}


def _require_known(group: Group) -> None:
    if group.is_gone:
        raise GroupIdNotFoundError(f"there is no group {group.group_id!r}", group=group.group_id)


def _tombstones(group: Group, offsets: Iterable[tuple[str, PartitionId]]) -> tuple[GroupRecord, ...]:
    """Of these offsets; and of the group itself, which has no members, where none are left."""
    going = sorted(offsets)
    records = [GroupRecord(OffsetKey(group.group_id, *at), None) for at in going]
    if len(going) == len(group.offsets) and group.epoch:
        if group.target_epoch:
            records.append(GroupRecord(TargetKey(group.group_id), None))
        records.append(GroupRecord(GroupKey(group.group_id), None))
    return tuple(records)
