"""What the coordinator assigns becomes what the consumer reads, step by step, at the user's polls.

    owned, not assigned  --poll--> held: no records are returned --positions committed--> --poll--> on_revoked, dropped,
                                   reported to the coordinator
    assigned, not owned  --poll--> committed offsets fetched --poll--> owned, read from there, on_assigned
    lost                 --poll--> on_lost, all dropped, joins again

A poll means that the records returned before it are processed: partitions that are held have none in flight, so their
positions can be committed, and then they are revoked. Network calls run in the background (a poll of 0 s must not wait
for them), and partitions that stay are read meanwhile; the user's listeners are called, and awaited, by polls only.

Committed offsets that were fetched for an older assignment are ignored: another member may have committed meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from streamlog.client.connection.backoff import Backoff
from streamlog.client.consumer.fetcher import Fetcher
from streamlog.client.groups.consumer_membership import FENCED, Assignment, ConsumerMembership, MembershipState
from streamlog.client.groups.group_offsets import GroupOffsets, OffsetAndMetadata
from streamlog.client.log_lines import inform, warn
from streamlog.config.offset_reset import AutoOffsetReset
from streamlog.errors import NoOffsetForPartitionError, StreamlogError
from streamlog.model import TopicPartition

_log: Final = logging.getLogger(__name__)

_NAMED_MAX: Final = 10
"""Partitions in a line of the log."""

# Called with the partitions; may be a coroutine function.
Listener: TypeAlias = Callable[[Sequence[TopicPartition]], Awaitable[object] | object]
Committed: TypeAlias = dict[TopicPartition, OffsetAndMetadata | None]


class Listeners(Struct, frozen=True, kw_only=True):
    """The user's functions, called while the consumer polls or closes."""

    on_assigned: Listener | None = None  # after they were assigned, before the first record is returned: may seek
    on_revoked: Listener | None = None  # while they are still this member's: may commit
    on_lost: Listener | None = None  # they may be another member's already. None: on_revoked is called


class RebalanceRules(Struct, frozen=True, kw_only=True):
    group: str
    reset: AutoOffsetReset
    api_timeout_s: float
    commits: bool  # positions, before partitions are revoked


class Rebalancing:
    """Of one consumer."""

    def __init__(
        self,
        member: ConsumerMembership,
        offsets: GroupOffsets,
        fetcher: Fetcher,
        backoff: Backoff,
        rules: RebalanceRules,
        commit: Callable[[Iterable[TopicPartition]], Coroutine[Any, Any, None]],
        on_progress: Callable[[], None],
    ) -> None:
        """`commit`: the positions of these partitions; raises nothing. `on_progress`: `settle` has something to do."""
        self._member = member
        self._offsets = offsets
        self._fetcher = fetcher
        self._backoff = backoff
        self._rules = rules
        self._commit = commit
        self._on_progress = on_progress
        self.listeners = Listeners()
        self._revoking: tuple[Assignment, asyncio.Future[None]] | None = None
        self._adding: tuple[int, asyncio.Future[Committed]] | None = None  # under which version of the assignment
        self._unannounced: Assignment = {}  # owned, and their on_assigned was cancelled

    async def settle(self) -> None:
        """As far as it goes without waiting for the network. Raises what the user's listeners raise, and a permanent
        error of the coordinator.
        """
        member = self._member
        while True:
            if member.state is MembershipState.FAILED:
                await self._fail()
            elif member.state is MembershipState.LOST:
                await self._lose()
            elif self._unannounced:
                await self._announce(self._unannounced)
            elif self._revoking is not None:
                if not self._revoking[1].done():
                    return
                await self._finish_revoking(*self._revoking)
            elif revoked := _missing(member.owned, member.assignment):
                self._begin_revoking(revoked)
            elif new := _missing(member.assignment, member.owned):
                if self._adding is None or self._adding[0] != member.version:
                    self._begin_adding(new)
                elif not self._adding[1].done():
                    return
                else:
                    await self._finish_adding(new, self._adding[1])
            else:
                return

    async def revoke_all(self) -> None:
        """At the end of the membership: on_revoked for all partitions, after the commit."""
        await self.cancel()
        self._unannounced = {}
        if self._member.state in (MembershipState.LOST, MembershipState.FAILED):
            await self._forget_all()
        elif self._member.owned:
            revoked = dict(self._member.owned)
            self._hold(revoked)
            if self._rules.commits:
                await self._commit(revoked)
            await self._call(self.listeners.on_revoked, revoked)
            self._drop(revoked)
            self._log_change("no longer reads", revoked)

    async def cancel(self) -> None:
        """Cancel what runs in the background."""
        running = [work[1] for work in (self._revoking, self._adding) if work is not None]
        self._revoking = self._adding = None
        for future in running:
            future.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)

    # Revoked partitions.

    def _begin_revoking(self, revoked: Assignment) -> None:
        self._hold(revoked)
        work = self._commit(revoked) if self._rules.commits else _nothing()
        self._revoking = revoked, self._in_background(work)

    async def _finish_revoking(self, revoked: Assignment, committed: asyncio.Future[None]) -> None:
        self._revoking = None
        committed.result()
        await self._call(self.listeners.on_revoked, revoked)
        self._drop(revoked)
        self._log_change("no longer reads", revoked)

    def _hold(self, revoked: Iterable[TopicPartition]) -> None:
        for partition in revoked:
            reader = self._fetcher.readers.get(partition)
            if reader is not None:
                self._fetcher.hold(reader)

    def _drop(self, revoked: Assignment) -> None:
        self._fetcher.assign({one: None for one in self._fetcher.readers if one not in revoked})
        owned = self._member.owned
        self._member.own({one: topic_id for one, topic_id in owned.items() if revoked.get(one) != topic_id})

    async def _lose(self) -> None:
        await self.cancel()
        warn(_log, f"group {self._rules.group}: this member has lost all its partitions: {self._member.error}")
        await self._forget_all()
        self._member.rejoin()

    async def _fail(self) -> None:
        await self.cancel()
        await self._forget_all()
        error = self._member.error
        assert error is not None, "a failed membership has an error"
        raise error.restored(error.message, error.details)

    async def _forget_all(self) -> None:
        lost, self._member.owned = self._member.owned, {}
        self._unannounced = {}
        self._fetcher.assign({})
        await self._call(self.listeners.on_lost or self.listeners.on_revoked, lost)

    # New partitions.

    def _begin_adding(self, new: Assignment) -> None:
        if self._adding is not None:
            self._adding[1].cancel()
        self._adding = self._member.version, self._in_background(self._find(list(new)))

    async def _find(self, partitions: list[TopicPartition]) -> Committed:
        attempt = 0
        while True:
            try:
                return await self._offsets.fetch(partitions, stable=True, timeout_s=self._rules.api_timeout_s)
            except StreamlogError as error:
                # A fenced member learns that from its heartbeat, which cancels this.
                if not error.retriable and not isinstance(error, FENCED):
                    raise
                attempt += 1
                await self._backoff.wait(attempt)

    async def _finish_adding(self, new: Assignment, finding: asyncio.Future[Committed]) -> None:
        self._adding = None
        committed = finding.result()
        self._member.own({**self._member.owned, **new})
        offsets = {one: at.offset for one in new if (at := committed.get(one)) is not None}
        self._fetcher.assign({**dict.fromkeys(self._fetcher.readers), **{one: offsets.get(one) for one in new}})
        for one in new:
            self._start(one, committed.get(one))
        self._log_uncommitted([one for one in new if committed.get(one) is None])
        self._log_change("reads", new)
        await self._announce(new)

    async def _announce(self, new: Assignment) -> None:
        self._unannounced = {}
        try:
            await self._call(self.listeners.on_assigned, new)
        except asyncio.CancelledError:  # of the poll: the next one calls it again, before it returns records
            self._unannounced = new
            raise

    def _start(self, partition: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        reader, group = self._fetcher.readers[partition], self._rules.group
        if committed is not None:
            if committed.leader_epoch is not None:
                self._fetcher.move(reader, committed.offset, committed.leader_epoch)
        elif self._rules.reset.strategy == "none":
            self._fetcher.fail(reader, no_offset(group, partition))

    def _log_uncommitted(self, partitions: Sequence[TopicPartition]) -> None:
        rules = self._rules
        if partitions and rules.reset.strategy != "none":
            inform(_log, f"group {rules.group}: no committed offset of {_named(partitions)}: starts at {rules.reset}")

    def _log_change(self, what: str, partitions: Assignment) -> None:
        member = self._member
        who = f"group {self._rules.group}: member {member.member_id} (epoch {member.epoch})"
        inform(_log, f"{who} {what} {_named(partitions)}; {len(member.owned)} in all")

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        future = asyncio.ensure_future(work)  # sim: awaited by `settle` or `cancel`
        future.add_done_callback(lambda _future: self._on_progress())
        return future

    async def _call(self, listener: Listener | None, partitions: Iterable[TopicPartition]) -> None:
        ordered = sorted(partitions)
        if listener is not None and ordered:
            result = listener(ordered)
            if inspect.isawaitable(result):
                await result


def _named(partitions: Collection[TopicPartition]) -> str:
    """For a line of the log."""
    some = ", ".join(map(str, sorted(partitions)[:_NAMED_MAX]))
    return some + (f" and {len(partitions) - _NAMED_MAX} more" if len(partitions) > _NAMED_MAX else "")


def no_offset(group: str, partition: TopicPartition) -> StreamlogError:
    return NoOffsetForPartitionError(
        f"group {group!r} has no committed offset of {partition} (none was committed, or it has expired), and"
        " auto.offset.reset is none: seek to an offset, or set auto.offset.reset",
        group=group,
        topic=partition.topic,
        partition=partition.partition,
    )


def _missing(some: Assignment, others: Assignment) -> Assignment:
    """What of `some` the others lack."""
    return {partition: topic_id for partition, topic_id in some.items() if others.get(partition) != topic_id}


async def _nothing() -> None:
    pass
