"""Offsets of a group: commit, fetch, delete, expire (SEMANTICS 10).

A commit comes from a member or an administrator. A member's commit is fenced twice: by its epoch, so that a removed
member commits nothing, and by partition, so that a late commit of the old owner never resets the new one. Callers that
are not members may commit, delete and reset offsets only while the group has no members.
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
from streamlog.groups.targets import subscribed_topics
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
    """For each offset None, or its error. Errors of the member fail the whole commit:

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
    """Whether `member` may commit. Its previous epoch is valid too: it may not have received the new one yet."""
    if member is None:
        if group.members:
            raise GroupNotEmptyError(
                f"group {group.group_id!r} has {len(group.members)} members; only they may commit its offsets",
                group=group.group_id,
            )
        return
    if member.member_id not in group.members:
        raise UnknownMemberIdError(
            f"group {group.group_id!r} has no member {member.member_id!r}; it has to join again",
            field="member.member_id",
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
    if topic_id is None or partition.partition >= context.topics.partition_count(topic_id):
        return UnknownTopicOrPartitionError(f"partition {partition} does not exist", field="offsets")
    owner = group.owners.get(GroupPartition(topic_id, partition.partition))
    if member is not None and owner not in (None, member.member_id):
        return IllegalGenerationError(f"partition {partition} is assigned to member {owner!r}", field="offsets")
    size = len(wanted.metadata.encode())
    if size > limit:
        return OffsetMetadataTooLargeError(
            f"the metadata of {partition} has {size} bytes; at most {limit} are allowed", field="metadata", limit=limit
        )
    return None


def delete_offsets(
    command: DeleteOffsets, group: Group, context: GroupContext, pending: Iterable[OffsetKey] = ()
) -> GroupDecision[tuple[StreamlogError | None, ...]]:
    """For each partition None, or GroupSubscribedToTopicError. Raises GroupIdNotFoundError. `pending`: as for
    `forget_topics`.
    """
    _require_known(group)
    subscribed = subscribed_topics(group, context.topics)
    results: list[StreamlogError | None] = []
    records = []
    known = {*group.offsets, *_places(pending)}
    for partition in command.partitions:
        if context.topics.id_of(partition.topic) in subscribed:
            results.append(GroupSubscribedToTopicError.of(command.group, partition.topic))
            continue
        results.append(None)
        if (partition.topic, partition.partition) in known:
            records.append(GroupRecord(OffsetKey(command.group, partition.topic, partition.partition), None))
    return GroupDecision(response=tuple(results), records=tuple(records))


def delete_group(
    command: DeleteGroup, group: Group, context: GroupContext, pending: Iterable[OffsetKey] = ()
) -> GroupDecision[None]:
    """GroupIdNotFoundError, GroupNotEmptyError. `pending`: as for `forget_topics`."""
    _require_known(group)
    if group.members:
        raise GroupNotEmptyError.with_members(command.group, len(group.members))
    known = {*group.offsets, *_places(pending)}
    return GroupDecision(response=None, records=_tombstones(group, known, known))


def expire(group: Group, context: GroupContext, pending: Iterable[OffsetKey] = ()) -> GroupDecision[int]:
    """Delete the offsets of a group without members that are older than `offsets.retention.minutes`; their number.
    `pending`: the group's keys in open transactions. These stay: a tombstone would delete what is pending, too.
    """
    if group.members:
        return GroupDecision(response=0)
    latest_kept_ms = context.now_ms - context.settings.offsets_retention_ms
    old = [
        at
        for at, value in group.offsets.items()
        if max(value.commit_timestamp_ms, group.empty_since_ms) < latest_kept_ms
    ]
    if not old and group.offsets:
        return GroupDecision(response=0)
    kept = _places(pending)
    expired = [at for at in old if at not in kept]
    return GroupDecision(response=len(expired), records=_tombstones(group, expired, {*group.offsets, *kept}))


def forget_topics(group: Group, context: GroupContext, pending: Iterable[OffsetKey] = ()) -> GroupDecision[int]:
    """Delete the offsets of deleted topics: a topic recreated under the name is read from its start. `pending`: the
    group's keys in open transactions; a deleted one has no effect when its transaction commits.
    """
    known = {*group.offsets, *_places(pending)}
    gone = sorted(at for at in known if context.topics.id_of(at[0]) is None)
    records = tuple(GroupRecord(OffsetKey(group.group_id, *at), None) for at in gone)
    return GroupDecision(response=len(gone), records=records)


def fetch(group: Group, partitions: Sequence[TopicPartition] | None) -> Mapping[TopicPartition, OffsetValue | None]:
    """Committed offsets; None for a partition without. `partitions` None: all, by topic and partition."""
    if partitions is None:
        return {TopicPartition(*at): value for at, value in sorted(group.offsets.items())}
    return {p: group.offsets.get((p.topic, p.partition)) for p in partitions}


def _require_known(group: Group) -> None:
    if group.is_gone:
        raise GroupIdNotFoundError(f"group {group.group_id!r} does not exist", group=group.group_id)


def _places(keys: Iterable[OffsetKey]) -> set[tuple[str, PartitionId]]:
    return {(key.topic, key.partition) for key in keys}


def _tombstones(
    group: Group, offsets: Iterable[tuple[str, PartitionId]], known: set[tuple[str, PartitionId]]
) -> tuple[GroupRecord, ...]:
    """For these offsets; and for the group, which has no members, if none of the `known` ones are left."""
    going = sorted(offsets)
    records = [GroupRecord(OffsetKey(group.group_id, *at), None) for at in going]
    if len(going) == len(known) and group.epoch:
        if group.target_epoch:
            records.append(GroupRecord(TargetKey(group.group_id), None))
        records.append(GroupRecord(GroupKey(group.group_id), None))
    return tuple(records)
