"""The groups of one partition of `__consumer_offsets`: takes commands and carries out decisions of streamlog.groups.

    heartbeat, removal --> pending in its group --end of the loop's turn,-----> decided together --> responses, once
                                                  or of a large group's pause                        replicated
    everything else ----------------------------------------------------------> decided at once --> response, once
                                                                                                    replicated

A member on a stream gets a hint when a heartbeat of it would return a new assignment; the stream then sends one. So
every decision is made on a heartbeat, and a lost hint costs time only.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, TypeVar

from msgspec import Struct

from streamlog.aio.keyed_timers import KeyedTimers
from streamlog.broker.append.verification import VerificationGuard
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.coordinator.shard_log import ShardLog
from streamlog.errors import (
    InvalidRecordError,
    StreamlogError,
    UnstableOffsetCommitError,
    UnsupportedVersionError,
)
from streamlog.groups import committing, membership
from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.codec import decode, encode
from streamlog.groups.committing import CommitOffsets, DeleteGroup, DeleteOffsets
from streamlog.groups.decision import GroupContext, GroupDecision, RevocationTimer, SetMemberTimer, Timer, Topics
from streamlog.groups.membership import (
    Answer,
    Command,
    HeartbeatAnswer,
    MemberHeartbeat,
    RemoveMember,
    refresh_topics,
    timers_after_loading,
    timers_of_gone,
)
from streamlog.groups.pending import PendingOffsets
from streamlog.groups.reconcile import held_by_moved, members_to_notify
from streamlog.groups.records import GroupRecord, OffsetKey, OffsetValue
from streamlog.groups.state import Group, replay
from streamlog.model import NO_PRODUCER_ID, ProducerId, TopicPartition
from streamlog.ports import Clock, Probe
from streamlog.transactions.markers import PartitionMarker

R = TypeVar("R")

RETRY_MS = 500
"""Pause before work that no client waits for is retried after a failed append."""

OFFSETS_AT_ONCE: Final = 2_000
"""That are checked for their expiry before the event loop goes on: 1 ms."""

REST_TIMES: Final = 10
"""Pause between two decisions on one group: so many times what the last one took, so that a thousand members that join
one by one leave the node nine tenths of its time."""
DECISION_S_MIN: Final = 0.01
"""A shorter one says more about the machine than about the group."""
REST_S_MAX: Final = 5.0
"""Of that pause: shorter than the shortest session."""
REST_S_PER_MEMBER: Final = 0.0002
"""The least pause, of what decisions usually take. A group of 1,000 is decided every 0.2 s (Kafka: 1 s, KIP-1263)."""
REST_S_MIN: Final = 0.005
"""Shorter pauses are left out: those of groups of fewer than 25 members, mostly."""


_topic: Final = itemgetter(0)  # of the place of an offset


class TopicsTimer(Struct, frozen=True):
    """The topics have changed, and not all groups could be updated."""


TOPICS = TopicsTimer()


class GroupShard:
    """Owned by the coordinator, which runs `log.run` as a task."""

    def __init__(self, replica: LeaderReplica, context: Callable[[], GroupContext], clock: Clock, probe: Probe) -> None:
        self.log = ShardLog(replica, self, clock, probe)
        self.groups: dict[str, Group] = {}
        self._names: list[str] | None = None  # of the groups, ascending; None until they are asked for
        self._context = context
        self._clock = clock
        self._probe = probe
        self._timers: KeyedTimers[Timer | TopicsTimer] = KeyedTimers(self._on_due)
        self._pending: dict[str, list[tuple[Command, asyncio.Future[Answer]]]] = {}  # by group; decided together
        self._resting: dict[str, asyncio.TimerHandle] = {}  # groups in their pause
        self._pending_offsets = PendingOffsets()
        self._hints: dict[tuple[str, str], Callable[[], None]] = {}  # of members on streams
        self._unknown = 0  # records of a newer release, skipped
        self._removed: set[str] | None = None  # topics whose offsets may remain; None: any that does not exist

    # -- lifecycle

    def replay(self, key: bytes | None, value: bytes | None, producer_id: ProducerId) -> None:
        """While loading. Records of unknown kinds are skipped, as Kafka does."""
        try:
            record = decode(key, value)
        except UnsupportedVersionError:
            self._unknown += 1
            return
        if producer_id == NO_PRODUCER_ID:
            self._apply((record,))
        else:
            self._apply_pending(producer_id, (record,))

    def replay_marker(self, producer_id: ProducerId, *, commit: bool) -> None:
        self._replay(self._pending_offsets.end(producer_id, commit=commit))

    def check(self) -> None:
        for group in self.groups.values():
            group.check()

    def _apply(self, records: Sequence[GroupRecord]) -> None:
        for record in records:
            if isinstance(record.key, OffsetKey):
                self._pending_offsets.on_record(record.key)
        self._replay(records)

    def _replay(self, records: Sequence[GroupRecord]) -> None:
        names = {record.key.group for record in records}
        before = names & self.groups.keys()
        replay(self.groups, records)
        if self._names is None:
            return
        for name in sorted(names):
            if name in self.groups and name not in before:
                insort(self._names, name)
            elif name in before and name not in self.groups:
                del self._names[bisect_left(self._names, name)]

    def _apply_pending(self, producer_id: ProducerId, records: Sequence[GroupRecord]) -> None:
        for key, value in records:
            if not isinstance(key, OffsetKey) or not isinstance(value, OffsetValue):
                raise InvalidRecordError(f"{type(key).__name__} in a transaction; only committed offsets may be there")
            self._pending_offsets.add(producer_id, key, value)

    def begin(self) -> None:
        """Loaded: sessions start, and changes of topics since the last record are applied."""
        if self._unknown:
            self._probe("group_records_unknown", partition=str(self.log.replica.partition), count=self._unknown)
        context = self._context()
        for group in list(self.groups.values()):
            self._set(timers_after_loading(group, context))
        self.on_topics_changed(None)

    def on_nodes_gone(self) -> None:
        """Nodes have failed or restarted."""
        if self.log.is_active:
            context = self._context()
            for group in list(self.groups.values()):
                self._set(timers_of_gone(group, context))

    def end(self) -> None:
        """The leadership has ended: pending calls fail with the error of `log.check`."""
        self._timers.stop()
        for handle in self._resting.values():
            handle.cancel()
        self._resting.clear()
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            for _, future in waiting:
                if not future.done():
                    future.set_exception(self._error())
        hints, self._hints = self._hints, {}
        for hint in hints.values():
            hint()  # the member's next heartbeat gets NOT_COORDINATOR

    def _error(self) -> StreamlogError:
        try:
            self.log.check()
        except StreamlogError as error:
            return error
        raise AssertionError("ended while it is active")

    # -- commands

    async def heartbeat(self, command: MemberHeartbeat) -> HeartbeatAnswer:
        """Raises the errors of `membership.decide` and of the log."""
        answer = await self._submit(command)
        assert isinstance(answer, HeartbeatAnswer)
        await self.log.wait_until_safe()
        return answer

    async def remove_member(self, command: RemoveMember) -> bool:
        """Whether the member was removed. It is removed even if the caller is cancelled."""
        done = await asyncio.shield(self._submit(command))
        assert isinstance(done, bool)
        await self.log.wait_until_safe()
        return done

    async def decide(self, group: str, decide: Callable[[Group, GroupContext], GroupDecision[R]]) -> R:
        """Carry out a decision on one group; return its response once it is replicated."""
        response = self._decide(group, decide)
        await self.log.wait_until_safe()
        return response

    async def fetch(
        self,
        group: str,
        member: committing.Committer | None,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool = False,
    ) -> Mapping[TopicPartition, OffsetValue | UnstableOffsetCommitError | None]:
        """Committed offsets. A given member is checked as for a commit. `require_stable`: an error for each partition
        whose offset is pending in an open transaction.
        """
        self.log.check()
        known = self._group(group)
        if member is not None:
            committing.check_member(known, member)
        found: dict[TopicPartition, OffsetValue | UnstableOffsetCommitError | None]
        found = dict(committing.fetch(known, partitions))
        if require_stable:
            for key in self._pending_offsets.of_group(group):
                partition = TopicPartition(key.topic, key.partition)
                if partitions is None or partition in found:
                    found[partition] = UnstableOffsetCommitError(
                        f"an open transaction has a pending offset of {partition} in group {group!r}; retry"
                    )
        await self.log.wait_until_safe()
        return found

    # -- transactions

    async def commit_in_transaction(
        self, command: CommitOffsets, guard: VerificationGuard
    ) -> tuple[StreamlogError | None, ...]:
        """As `committing.commit`, and the errors of `ShardLog.write`. The offsets take effect at the commit marker.

        `guard`: proof that this partition has been added to the producer's transaction.
        """
        self.log.check()
        decision = committing.commit(command, self._group(command.group), self._context())
        if decision.records:
            self.log.write([encode(record) for record in decision.records], guard)
            self._apply_pending(guard.producer_id, decision.records)
        await self.log.wait_until_safe()
        return decision.response

    async def end_transaction(self, one: PartitionMarker) -> None:
        """Write the marker and wait until it is replicated. Raises the errors of `ShardLog.write_marker`."""
        producer_id, marker = one.producer_id, one.marker
        if self.log.write_marker(
            producer_id,
            one.producer_epoch,
            marker.coordinator_epoch,
            commit=marker.commit,
            opens_next=one.opens_next,
        ):
            self.replay_marker(producer_id, commit=marker.commit)
        await self.log.wait_until_safe()

    async def delete_group(self, command: DeleteGroup) -> None:
        """As `committing.delete_group`; offsets pending in open transactions have no effect at their markers."""
        pending = tuple(self._pending_offsets.of_group(command.group))
        await self.decide(command.group, partial(committing.delete_group, command, pending=pending))

    async def delete_offsets(self, command: DeleteOffsets) -> tuple[StreamlogError | None, ...]:
        """As `committing.delete_offsets`; otherwise as `delete_group`."""
        pending = tuple(self._pending_offsets.of_group(command.group))
        return await self.decide(command.group, partial(committing.delete_offsets, command, pending=pending))

    def watch_member(self, group: str, member_id: str, hint: Callable[[], None], *, is_new: bool) -> None:
        """The member is on a stream: call `hint` when a heartbeat would return a new assignment. `is_new`: the stream
        has just begun, and replaces the member's previous one, whose late heartbeats do not replace it in turn.
        """
        if is_new:
            self._hints[group, member_id] = hint
        else:
            self._hints.setdefault((group, member_id), hint)

    def unwatch_member(self, group: str, member_id: str, hint: Callable[[], None]) -> bool:
        """False: the member is on another stream, or this shard no longer coordinates it."""
        is_last = self._hints.get((group, member_id)) == hint
        if is_last:
            del self._hints[group, member_id]
        return is_last

    def groups_behind(self, start: str) -> Iterator[Group]:
        """Those with names behind `start`, by name. To be taken within one turn of the event loop."""
        if self._names is None:
            self._names = sorted(self.groups)
        for index in range(bisect_right(self._names, start), len(self._names)):
            yield self.groups[self._names[index]]

    # -- background work

    def on_topics_changed(self, removed: Iterable[str] | None) -> None:
        """`removed`: names of the topics that were; None: unknown. Retried until it is written: no client does it."""
        if not self.log.is_active:
            return  # `begin` does it
        if removed is None:
            self._removed = None
        elif self._removed is not None:
            self._removed.update(removed)
        self._follow_topics()

    def _follow_topics(self) -> None:
        context = self._context()
        with_members = [group_id for group_id, group in self.groups.items() if group.members]
        done = [self._try(group_id, refresh_topics, context) for group_id in with_members]
        if self._removed is None or self._removed:
            done += self._forget_topics(context)
        if all(done):
            self._removed = set()
        self._timers.set(TOPICS, None if all(done) else RETRY_MS)

    def _forget_topics(self, context: GroupContext) -> list[bool]:
        pending, removed = self._pending_offsets.by_group(), self._removed
        concerned = [
            group_id
            for group_id, group in self.groups.items()
            if removed is None or not removed.isdisjoint(map(_topic, group.offsets))
        ]
        return [
            self._try(group_id, partial(committing.forget_topics, pending=pending.get(group_id, ())), context)
            for group_id in dict.fromkeys((*concerned, *pending))
        ]

    async def expire_offsets(self) -> None:
        """With pauses: a node may have many groups."""
        context, pending, room = self._context(), self._pending_offsets.by_group(), OFFSETS_AT_ONCE
        for group_id in list(self.groups):
            if room <= 0:
                await asyncio.sleep(0)
                context, pending, room = self._context(), self._pending_offsets.by_group(), OFFSETS_AT_ONCE
            room -= 10 + len(self._group(group_id).offsets)
            self._try(group_id, partial(committing.expire, pending=pending.get(group_id, ())), context)

    def _on_due(self, timer: Timer | TopicsTimer) -> None:
        """A session or revocation time-out has expired."""
        if not self.log.is_active:
            return
        if isinstance(timer, TopicsTimer):
            self._follow_topics()
            return
        pending = self._pending.get(timer.group, ())
        if any(isinstance(command, MemberHeartbeat) and command.member_id == timer.member_id for command, _ in pending):
            self._timers.set(timer, RETRY_MS)  # it arrived in time; its decision sets the timers
            return
        done = self._submit(RemoveMember(group=timer.group, member_id=timer.member_id))
        done.add_done_callback(partial(self._member_was_removed, timer))

    def _member_was_removed(self, timer: Timer, done: asyncio.Future[Answer]) -> None:
        if done.exception() is not None:
            if self.log.is_active:
                self._timers.set(timer, RETRY_MS)
            return
        if not done.result():
            return  # a member with another id has replaced it
        event = "member_did_not_give_up" if isinstance(timer, RevocationTimer) else "member_session_over"
        self._probe(event, group=timer.group, member=timer.member_id)
        hint = self._hints.get((timer.group, timer.member_id))
        if hint is not None:
            hint()  # it is still on a stream, which learns of the removal

    def _try(
        self, group: str, decide: Callable[[Group, GroupContext], GroupDecision[object]], context: GroupContext
    ) -> bool:
        """Whether it was carried out. `context`: of this turn of the event loop."""
        if not self.log.is_active:
            return False
        try:
            self._decide(group, decide, context)
        except StreamlogError:
            return False
        return True

    # -- steps

    def _group(self, group_id: str) -> Group:
        return self.groups.get(group_id) or Group(group_id)

    def _decide(
        self,
        group_id: str,
        decide: Callable[[Group, GroupContext], GroupDecision[R]],
        context: GroupContext | None = None,
    ) -> R:
        self.log.check()
        if context is None:
            context = self._context()
        decision = decide(self._group(group_id), context)
        if decision.records:
            self.log.write([encode(record) for record in decision.records])
            held = held_by_moved(self._group(group_id), decision.records)
            self._apply(decision.records)
            self._hint(group_id, decision.records, held, context.topics)
        self._set(decision.timers)
        return decision.response

    def _submit(self, command: Command) -> asyncio.Future[Answer]:
        """Queue a command, to be decided with its group's others. Raises the errors of `log.check`."""
        self.log.check()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        pending = self._pending.setdefault(command.group, [])
        if not pending and command.group not in self._resting:
            loop.call_soon(self._decide_together, command.group)
        pending.append((command, future))
        return future

    def _decide_together(self, group_id: str) -> None:
        waiting = self._pending.pop(group_id, [])
        alive = [(command, future) for command, future in waiting if not future.done()]
        if not alive:
            return
        commands = [command for command, _ in alive]
        began = self._clock.monotonic()
        try:
            answers = self._decide(group_id, partial(membership.decide, commands))
        except StreamlogError as error:
            answers = (error,) * len(alive)
        self._rest(group_id, self._clock.monotonic() - began)
        for (_, future), answer in zip(alive, answers, strict=True):
            if isinstance(answer, StreamlogError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _rest(self, group_id: str, took_s: float) -> None:
        """The cost of an assignment grows with the group, so a large group pauses before the next one."""
        rest_s = len(self._group(group_id).members) * REST_S_PER_MEMBER
        if took_s >= DECISION_S_MIN:
            rest_s = max(rest_s, min(REST_TIMES * took_s, REST_S_MAX))
        if rest_s >= REST_S_MIN:
            loop = asyncio.get_running_loop()
            self._resting[group_id] = loop.call_later(rest_s, self._rested, group_id)

    def _rested(self, group_id: str) -> None:
        del self._resting[group_id]
        self._decide_together(group_id)

    def _hint(
        self, group_id: str, records: Sequence[GroupRecord], held: frozenset[GroupPartition], topics: Topics
    ) -> None:
        group = self.groups.get(group_id)
        if group is None or not self._hints:
            return
        for member_id in members_to_notify(group, records, held, topics):
            hint = self._hints.get((group_id, member_id))
            if hint is not None:
                hint()

    def _set(self, timers: Sequence[SetMemberTimer]) -> None:
        for wanted in timers:
            self._timers.set(wanted.timer, wanted.after_ms)
