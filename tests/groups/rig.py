"""A coordinator without a log: decisions are replayed at once. Members of it that behave as clients do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from streamlog.errors import InvalidRegularExpressionError, StreamlogError
from streamlog.groups import committing, membership
from streamlog.groups.assignors.problem import GroupPartition, TopicShape
from streamlog.groups.codec import decode, encode
from streamlog.groups.decision import GroupContext, GroupDecision, GroupSettings, SetMemberTimer, Timer
from streamlog.groups.membership import (
    Answer,
    Command,
    HeartbeatAnswer,
    MemberHeartbeat,
    MemberSubscription,
    RemoveMember,
)
from streamlog.groups.state import Group, replay
from streamlog.model import PartitionId, TopicId

R = TypeVar("R")

SETTINGS = GroupSettings(
    assignors=("uniform", "range", "roundrobin"),
    heartbeat_interval_ms=3_000,
    session_timeout_ms=45_000,
    session_timeout_ms_min=6_000,
    session_timeout_ms_max=1_800_000,
    members_max=100,
    metadata_bytes_max=4_096,
    offsets_retention_ms=1_000_000,
)


class FakeTopics:
    """Names and partition counts; an id is a number that is never used again."""

    def __init__(self, **counts: int) -> None:
        self._ids: dict[str, TopicId] = {}
        self._counts: dict[TopicId, int] = {}
        self._made = 0
        self.shapes_made = 0
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self._made += 1
        topic_id = self._ids[name] = TopicId(self._made.to_bytes(16, "big"))
        self._counts[topic_id] = count

    def grow(self, name: str, count: int) -> None:
        self._counts[self._ids[name]] = count

    def delete(self, name: str) -> None:
        del self._counts[self._ids.pop(name)]

    def id_of(self, name: str) -> TopicId | None:
        return self._ids.get(name)

    def name_of(self, topic_id: TopicId) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def partition_count(self, topic_id: TopicId) -> int:
        return self._counts[topic_id]

    def shape_of(self, topic_id: TopicId) -> TopicShape:
        self.shapes_made += 1
        return TopicShape(partition_count=self._counts[topic_id])

    def check_pattern(self, pattern: str) -> None:
        self.matching(pattern)

    def matching(self, pattern: str) -> Iterable[TopicId]:
        try:
            wanted = re.compile(pattern)
        except re.error as e:
            raise InvalidRegularExpressionError(f"{pattern!r}: {e}", field="subscription.pattern") from e
        return [topic_id for name, topic_id in self._ids.items() if wanted.fullmatch(name)]

    def all_partitions(self, names: Iterable[str]) -> set[GroupPartition]:
        ids = [self._ids[name] for name in names if name in self._ids]
        return {GroupPartition(i, PartitionId(n)) for i in ids for n in range(self._counts[i])}


class Coordinator(Struct):
    topics: FakeTopics
    settings: GroupSettings = SETTINGS
    now_ms: int = 1_000_000
    live_epochs: frozenset[int] = frozenset()  # of nodes
    groups: dict[str, Group] = field(default_factory=dict)
    timers: dict[Timer, int] = field(default_factory=dict)  # as set last
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    @property
    def context(self) -> GroupContext:
        return GroupContext(
            settings=self.settings, topics=self.topics, now_ms=self.now_ms, live_epochs=self.live_epochs
        )

    def group(self, group_id: str = "g") -> Group:
        return self.groups.get(group_id) or Group(group_id)

    def carry_out(self, decision: GroupDecision[R]) -> R:
        """Through the bytes of the log, so that what is replayed is what a new coordinator would read."""
        encoded = [encode(record) for record in decision.records]
        self.log += encoded
        replay(self.groups, [decode(key, value) for key, value in encoded])
        self._set(decision.timers)
        return decision.response

    def _set(self, timers: Iterable[SetMemberTimer]) -> None:
        for wanted in timers:
            if wanted.after_ms is None:
                self.timers.pop(wanted.timer, None)
            else:
                self.timers[wanted.timer] = wanted.after_ms

    def together(self, *commands: Command) -> tuple[Answer | StreamlogError, ...]:
        return self.carry_out(membership.decide(commands, self.group(commands[0].group), self.context))

    def heartbeats(self, *commands: MemberHeartbeat) -> tuple[HeartbeatAnswer | StreamlogError, ...]:
        answers = self.together(*commands)
        assert not any(isinstance(answer, bool) for answer in answers)
        return cast("tuple[HeartbeatAnswer | StreamlogError, ...]", answers)

    def heartbeat(self, command: MemberHeartbeat) -> HeartbeatAnswer:
        (answer,) = self.heartbeats(command)
        if isinstance(answer, StreamlogError):
            raise answer
        return answer

    def remove_member(self, member_id: str, group: str = "g", **fields: Any) -> bool:
        command = replace(RemoveMember(group=group, member_id=member_id), **fields)
        (done,) = self.together(command)
        assert isinstance(done, bool)
        return done

    def refresh_topics(self, group: str = "g") -> bool:
        return self.carry_out(membership.refresh_topics(self.group(group), self.context))

    def commit(self, command: committing.CommitOffsets) -> tuple[StreamlogError | None, ...]:
        return self.carry_out(committing.commit(command, self.group(command.group), self.context))

    def fail_over(self) -> None:
        """Another coordinator reads the log from its beginning."""
        self.groups, self.timers = {}, {}
        replay(self.groups, [decode(key, value) for key, value in self.log])
        for group in self.groups.values():
            self._set(membership.timers_after_loading(group, self.context))


class Member(Struct):
    """A client of one group. `reads` is what it really reads: no other member may at that time."""

    coordinator: Coordinator
    member_id: str
    topics: tuple[str, ...] = ("t",)
    group: str = "g"
    instance_id: str = ""
    pattern: str = ""
    assignor: str = ""
    serving_epoch: int = 0
    epoch: int = 0
    reads: frozenset[GroupPartition] = frozenset()
    wanted: frozenset[GroupPartition] = frozenset()  # the latest assignment

    def request(self, epoch: int | None = None) -> MemberHeartbeat:
        joins = self.epoch == 0 and epoch is None
        return MemberHeartbeat(
            group=self.group,
            member_id=self.member_id,
            epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance_id,
            subscription=self.subscription if joins else None,
            owned=None if joins else self.reads,
            serving_epoch=self.serving_epoch,
        )

    @property
    def subscription(self) -> MemberSubscription:
        return MemberSubscription(
            topics=self.topics,
            pattern=self.pattern,
            assignor=self.assignor,
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
        )

    def beat(self) -> HeartbeatAnswer:
        """A heartbeat, and what a client makes of its answer."""
        answer = self.coordinator.heartbeat(self.request())
        self.take(answer)
        return answer

    def take(self, answer: HeartbeatAnswer) -> None:
        assert answer.epoch, "with epoch 0 and without a subscription, its next heartbeat would be refused"
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.wanted = answer.assignment
        self.reads = self.wanted  # gives up the rest at once

    def leave(self) -> None:
        self.coordinator.heartbeat(self.request(epoch=membership.LEAVE))
        self.epoch, self.reads, self.wanted = 0, frozenset(), frozenset()

    @property
    def indexes(self) -> list[int]:
        return sorted(p.partition for p in self.reads)


def settle(*members: Member, rounds: int = 20) -> None:
    """Heartbeats all round until nothing changes any more."""
    for _ in range(rounds):
        before = [(m.epoch, m.reads) for m in members]
        for member in members:
            member.beat()
        if [(m.epoch, m.reads) for m in members] == before:
            return
    raise AssertionError("the group does not come to rest")
