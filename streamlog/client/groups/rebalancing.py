"""What the coordinator assigns becomes what the consumer reads, step by step, at its user's polls.

    assignment lacks what is owned --poll--> held: nothing of it is handed out --positions committed-->
                                   --poll--> on_revoked, dropped, told to the coordinator
    assignment has more            --------> committed offsets fetched --poll--> read from there, on_assigned
    lost                           --poll--> on_lost, all dropped, joins again

Who polls has processed what he got before; so what is held has nothing in flight, and only then it is committed and
given up. Network work goes on behind (a poll of 0 s must not wait for it), partitions that stay are read meanwhile; the
user's functions are called by polls alone, and waited for.

What was fetched for an assignment that has changed since does not count: another member may have committed meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from streamlog.client.connection.backoff import Backoff
from streamlog.client.consumer.fetcher import Fetcher
from streamlog.client.groups.consumer_membership import FENCED, Assignment, ConsumerMembership, MembershipState
from streamlog.client.groups.group_offsets import GroupOffsets, OffsetAndMetadata
from streamlog.config.offset_reset import AutoOffsetReset
from streamlog.errors import NoOffsetForPartitionError, StreamlogError
from streamlog.model import TopicPartition

_log: Final = logging.getLogger(__name__)

# Told which partitions; may be a coroutine function.
Listener: TypeAlias = Callable[[Sequence[TopicPartition]], Awaitable[object] | object]
Committed: TypeAlias = dict[TopicPartition, OffsetAndMetadata | None]


class Listeners(Struct, frozen=True, kw_only=True):
    """The user's functions, called while he polls or closes."""

    on_assigned: Listener | None = None  # after it was assigned, before anything is handed out: the place for seeks
    on_revoked: Listener | None = None  # while it is still the member's: the place for commits
    on_lost: Listener | None = None  # it may be another's already. None: on_revoked is called


class RebalanceRules(Struct, frozen=True, kw_only=True):
    group: str
    reset: AutoOffsetReset
    api_timeout_s: float
    commits: bool  # positions, before partitions are given up


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
        """`commit` the positions of these, raising nothing; `on_progress`: `settle` has something to do."""
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

    async def settle(self) -> None:
        """As far as it goes without waiting for the network. What the user's functions raise; what the coordinator
        refuses for good.
        """
        member = self._member
        while True:
            if member.state is MembershipState.FAILED:
                await self._fail()
            elif member.state is MembershipState.LOST:
                await self._lose()
            elif self._revoking is not None:
                if not self._revoking[1].done():
                    return
                await self._finish_revoking(*self._revoking)
            elif gone := _missing(member.owned, member.assignment):
                self._begin_revoking(gone)
            elif new := _missing(member.assignment, member.owned):
                if self._adding is None or self._adding[0] != member.version:
                    self._begin_adding(new)
                elif not self._adding[1].done():
                    return
                else:
                    await self._finish_adding(new, self._adding[1])
            else:
                return

    async def give_up_all(self) -> None:
        """The end of the membership: on_revoked for everything, after the commit."""
        await self.drop()
        if self._member.state in (MembershipState.LOST, MembershipState.FAILED):
            await self._forget_all()
        elif self._member.owned:
            gone = dict(self._member.owned)
            self._hold(gone)
            if self._rules.commits:
                await self._commit(gone)
            await self._tell(self.listeners.on_revoked, gone)
            self._drop(gone)

    async def drop(self) -> None:
        """Whatever goes on behind ends."""
        going = [work[1] for work in (self._revoking, self._adding) if work is not None]
        self._revoking = self._adding = None
        for future in going:
            future.cancel()
        if going:
            await asyncio.gather(*going, return_exceptions=True)

    # What is to go.

    def _begin_revoking(self, gone: Assignment) -> None:
        self._hold(gone)
        work = self._commit(gone) if self._rules.commits else _nothing()
        self._revoking = gone, self._behind(work)

    async def _finish_revoking(self, gone: Assignment, committed: asyncio.Future[None]) -> None:
        self._revoking = None
        committed.result()
        await self._tell(self.listeners.on_revoked, gone)
        self._drop(gone)

    def _hold(self, gone: Iterable[TopicPartition]) -> None:
        for partition in gone:
            reader = self._fetcher.readers.get(partition)
            if reader is not None:
                self._fetcher.hold(reader)

    def _drop(self, gone: Assignment) -> None:
        self._fetcher.assign({one: None for one in self._fetcher.readers if one not in gone})
        owned = self._member.owned
        self._member.own({one: topic_id for one, topic_id in owned.items() if gone.get(one) != topic_id})

    async def _lose(self) -> None:
        await self.drop()
        _log.warning("group %s: all partitions are lost: %s", self._rules.group, self._member.error)
        await self._forget_all()
        self._member.rejoin()

    async def _fail(self) -> None:
        await self.drop()
        await self._forget_all()
        error = self._member.error
        assert error is not None, "it failed of something"
        raise error.restored(error.message, error.details)

    async def _forget_all(self) -> None:
        gone, self._member.owned = self._member.owned, {}
        self._fetcher.assign({})
        await self._tell(self.listeners.on_lost or self.listeners.on_revoked, gone)

    # What is new.

    def _begin_adding(self, new: Assignment) -> None:
        if self._adding is not None:
            self._adding[1].cancel()
        self._adding = self._member.version, self._behind(self._find(list(new)))

    async def _find(self, partitions: list[TopicPartition]) -> Committed:
        attempt = 0
        while True:
            try:
                return await self._offsets.fetch(partitions, stable=True, timeout_s=self._rules.api_timeout_s)
            except StreamlogError as error:
                # One that is fenced hears of it by its heartbeat, and then this is of no use any more.
                if not error.retriable and not isinstance(error, FENCED):
                    raise
                attempt += 1
                await self._backoff.wait(attempt)

    async def _finish_adding(self, new: Assignment, finding: asyncio.Future[Committed]) -> None:
        self._adding = None
        committed = finding.result()
        self._member.own({**self._member.owned, **new})
        places = {one: at.offset for one in new if (at := committed.get(one)) is not None}
        self._fetcher.assign({**dict.fromkeys(self._fetcher.readers), **{one: places.get(one) for one in new}})
        for one in new:
            self._start(one, committed.get(one))
        await self._tell(self.listeners.on_assigned, new)

    def _start(self, partition: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        reader, group = self._fetcher.readers[partition], self._rules.group
        if committed is not None:
            if committed.leader_epoch is not None:
                self._fetcher.move(reader, committed.offset, committed.leader_epoch)
        elif self._rules.reset.strategy == "none":
            self._fetcher.fail(reader, no_offset(group, partition))
        else:
            _log.info("group %s has committed nothing of %s: begins at %s", group, partition, self._rules.reset)

    # Behind, and in front.

    def _behind(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        future = asyncio.ensure_future(work)  # sim: awaited by `settle` or `drop`
        future.add_done_callback(lambda _future: self._on_progress())
        return future

    async def _tell(self, listener: Listener | None, partitions: Iterable[TopicPartition]) -> None:
        told = sorted(partitions)
        if listener is not None and told:
            answer = listener(told)
            if inspect.isawaitable(answer):
                await answer


def no_offset(group: str, partition: TopicPartition) -> StreamlogError:
    return NoOffsetForPartitionError(
        f"group {group!r} has committed nothing of {partition}, or it has expired, and auto.offset.reset is none: seek "
        "to begin",
        group=group,
        topic=partition.topic,
        partition=partition.partition,
    )


def _missing(some: Assignment, others: Assignment) -> Assignment:
    """What of `some` the others lack."""
    return {partition: topic_id for partition, topic_id in some.items() if others.get(partition) != topic_id}


async def _nothing() -> None:
    pass
