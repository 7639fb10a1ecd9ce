"""Commit, fetch, delete and expire offsets (SEMANTICS 10)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from streamlog.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from streamlog.groups import committing
from streamlog.groups.committing import (
    CommitOffsets,
    Committer,
    DeleteGroup,
    DeleteOffsets,
    OffsetToCommit,
)
from streamlog.groups.records import GroupRecord, OffsetKey
from streamlog.model import LeaderEpoch, Offset, PartitionId, TopicPartition

from .rig import SETTINGS, Coordinator, FakeTopics, Member, settle


def at(topic: str, partition: int, offset: int, metadata: str = "") -> OffsetToCommit:
    return OffsetToCommit(
        partition=TopicPartition(topic, PartitionId(partition)),
        offset=Offset(offset),
        leader_epoch=LeaderEpoch(3),
        metadata=metadata,
    )


def commit_of(member: Member | None, *offsets: OffsetToCommit) -> CommitOffsets:
    committer = None if member is None else Committer(member_id=member.member_id, epoch=member.epoch)
    return CommitOffsets(group="g", member=committer, offsets=offsets)


def fetched(coordinator: Coordinator) -> dict[str, int]:
    offsets = committing.fetch(coordinator.group(), None)
    return {str(partition): value.offset for partition, value in offsets.items() if value is not None}


def test_the_newest_commit_counts_and_outlives_the_coordinator() -> None:
    coordinator = Coordinator(FakeTopics(t=2))
    member = Member(coordinator, "a")
    member.beat()
    assert coordinator.commit(commit_of(member, at("t", 0, 5), at("t", 1, 7, "x"))) == (None, None)
    assert coordinator.commit(commit_of(member, at("t", 0, 4))) == (None,)
    coordinator.fail_over()
    assert fetched(coordinator) == {"t-0": 4, "t-1": 7}
    wanted = [TopicPartition("t", PartitionId(1)), TopicPartition("t", PartitionId(9))]
    found = committing.fetch(coordinator.group(), wanted)
    assert found[wanted[1]] is None
    value = found[wanted[0]]
    assert value is not None
    assert (value.metadata, value.leader_epoch, value.commit_timestamp_ms) == ("x", 3, coordinator.now_ms)


def test_who_may_commit() -> None:
    coordinator = Coordinator(FakeTopics(t=2))
    assert coordinator.commit(commit_of(None, at("t", 0, 1))) == (None,)
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    settle(a, b)
    with pytest.raises(GroupNotEmptyError):
        coordinator.commit(commit_of(None, at("t", 0, 2)))
    with pytest.raises(UnknownMemberIdError):
        coordinator.commit(commit_of(Member(coordinator, "c", epoch=1), at("t", 0, 2)))
    with pytest.raises(IllegalGenerationError):
        coordinator.commit(commit_of(replace(a, epoch=9), at("t", 0, 2)))
    with pytest.raises(IllegalGenerationError):
        coordinator.commit(commit_of(replace(a, epoch=0), at("t", 0, 2)))
    assert fetched(coordinator) == {"t-0": 1}


def test_a_late_commit_does_not_set_the_new_owner_back() -> None:
    coordinator = Coordinator(FakeTopics(t=2))
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.beat()
    late = commit_of(a, at("t", 0, 1), at("t", 1, 1))
    settle(a, b)
    (moved,) = b.indexes
    results = coordinator.commit(late)
    assert isinstance(results[moved], IllegalGenerationError)
    assert results[1 - moved] is None
    assert fetched(coordinator) == {f"t-{1 - moved}": 1}


def test_what_is_wrong_with_one_offset_does_not_hold_up_the_others() -> None:
    coordinator = Coordinator(FakeTopics(t=1))
    wanted = (at("t", 0, 1), at("t", 1, 1), at("u", 0, 1), at("t", 0, 2, "ä" * 2_049))
    results = coordinator.commit(commit_of(None, *wanted))
    assert results[0] is None
    assert isinstance(results[1], UnknownTopicOrPartitionError)
    assert isinstance(results[2], UnknownTopicOrPartitionError)
    assert isinstance(results[3], OffsetMetadataTooLargeError)
    assert results[3].details["limit"] == 4_096


def test_a_commit_does_not_look_at_all_partitions_for_each_offset() -> None:
    topics = FakeTopics(t=1_000)
    coordinator = Coordinator(topics)
    results = coordinator.commit(commit_of(None, *(at("t", partition, 1) for partition in range(1_001))))
    assert results[:1_000] == (None,) * 1_000
    assert isinstance(results[1_000], UnknownTopicOrPartitionError)
    assert topics.shapes_made == 0


def test_offsets_are_deleted_where_nobody_reads() -> None:
    coordinator = Coordinator(FakeTopics(t=1, u=1))
    coordinator.commit(commit_of(None, at("t", 0, 1), at("u", 0, 1)))
    Member(coordinator, "a", topics=("t",)).beat()
    partitions = (TopicPartition("t", PartitionId(0)), TopicPartition("u", PartitionId(0)))
    command = DeleteOffsets(group="g", partitions=partitions)
    results = coordinator.carry_out(committing.delete_offsets(command, coordinator.group(), coordinator.context))
    assert isinstance(results[0], GroupSubscribedToTopicError)
    assert results[1] is None
    assert fetched(coordinator) == {"t-0": 1}


def test_a_group_is_deleted_when_it_is_empty() -> None:
    coordinator = Coordinator(FakeTopics(t=1))
    delete = DeleteGroup(group="g")
    with pytest.raises(GroupIdNotFoundError):
        committing.delete_group(delete, coordinator.group(), coordinator.context)
    member = Member(coordinator, "a")
    member.beat()
    coordinator.commit(commit_of(member, at("t", 0, 1)))
    with pytest.raises(GroupNotEmptyError):
        committing.delete_group(delete, coordinator.group(), coordinator.context)
    member.leave()
    coordinator.carry_out(committing.delete_group(delete, coordinator.group(), coordinator.context))
    assert coordinator.groups == {}
    coordinator.fail_over()
    assert coordinator.groups == {}


def test_offsets_expire_after_the_last_member_has_left() -> None:
    coordinator = Coordinator(FakeTopics(t=1))
    member = Member(coordinator, "a")
    member.beat()
    coordinator.commit(commit_of(member, at("t", 0, 1)))

    def expire_after(ms: int) -> int:
        coordinator.now_ms += ms
        return coordinator.carry_out(committing.expire(coordinator.group(), coordinator.context))

    assert expire_after(2 * SETTINGS.offsets_retention_ms) == 0, "it has a member"
    member.leave()
    assert expire_after(SETTINGS.offsets_retention_ms) == 0
    assert expire_after(1) == 1
    assert coordinator.groups == {}


def test_offsets_go_with_their_topic() -> None:
    coordinator = Coordinator(FakeTopics(t=1, u=1))
    coordinator.commit(commit_of(None, at("t", 0, 1), at("u", 0, 1)))
    coordinator.topics.delete("t")
    coordinator.topics.create("v", 1)
    assert coordinator.carry_out(committing.forget_topics(coordinator.group(), coordinator.context)) == 1
    assert fetched(coordinator) == {"u-0": 1}
    pending = [OffsetKey("g", topic, PartitionId(1)) for topic in "tuv"]
    decision = committing.forget_topics(coordinator.group(), coordinator.context, pending)
    assert decision.records == (GroupRecord(pending[0], None),)
