"""The transactional ids of one partition of `__transaction_state`: commands in, decisions of streamlog.transactions
carried out.

    command --decided at once--> record in the log --replicated--> answer
                                   PREPARE_* --replicated--> markers to all partitions --all written--> COMPLETE_*

Markers are written once the decision is replicated, never before: a decision that is lost with its leader must not
have been seen by anybody. Who wants to end a transaction, or to begin as another producer, while the one before is
being ended waits for that, for as long as the caller says; most often it is a moment.

A producer that writes to the same partitions in one transaction after another (`recurring`) has the next one opened
with the end of this one, and the markers tell so: nobody has to ask about it. Should it not be used for a second, it is
taken back from the leaders and closed again. Only the shard that opened one (`_ahead`) does that: it alone knows that
all markers are written, and that nobody was told who asked. Who takes over leaves it open, for its time-out.

That all markers are written is itself written down where no other transaction is open behind them; else the record of
that one's end tells it. Who takes over before that has them written again, and the partitions know them already.

An id has one timer: of its open transaction, or of its expiry.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.coordinator.deadlines import Deadlines
from streamlog.coordinator.recurring import Recurring
from streamlog.coordinator.shard_log import ShardLog
from streamlog.coordinator.timers import KeyedTimers
from streamlog.errors import (
    ConcurrentTransactionsError,
    ProducerFencedError,
    StreamlogError,
    UnsupportedVersionError,
)
from streamlog.model import NO_PRODUCER_ID, LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from streamlog.ports import Clock, Probe
from streamlog.transactions import lifecycle
from streamlog.transactions.codec import decode, encode
from streamlog.transactions.lifecycle import (
    AHEAD_MS,
    AddPartitions,
    Ended,
    EndTransaction,
    InitProducer,
    TransactionalProducer,
    TransactionDecision,
)
from streamlog.transactions.markers import Grant
from streamlog.transactions.records import PREPARED, TransactionRecord, TransactionStatus, TransactionValue

R = TypeVar("R")

RETRY_MS: Final = 500
"""Until something that no client waits for is tried again, when the log takes nothing."""
TIMER_MS_MAX: Final = 24 * 3_600_000
"""A timer is set anew at least so often: wall clocks are put right, and loops are not made for weeks."""


class ProducerIdAllocator(Protocol):
    """streamlog.broker.producer_ids."""

    async def next(self) -> ProducerId: ...


class PreparedEnd(Struct, frozen=True, kw_only=True):
    """A decided end whose markers are to be written."""

    transactional_id: str
    value: TransactionValue  # PREPARE_*
    coordinator_epoch: LeaderEpoch

    def is_of(self, now: TransactionValue | None) -> bool:
        """Whether the state is still that of this end: its markers are not all written."""
        return now is not None and _is_same_end(self.value, now)


class Ends(Protocol):
    """Whoever has markers written: streamlog.coordinator.marker_writer."""

    def write(self, shard: TransactionShard, prepared: PreparedEnd) -> None:
        """See to it that all partitions get their markers, then call `shard.completed`."""
        ...

    async def take_back(self, grant: Grant) -> bool:
        """From the leaders: whether one of them has used it. StreamlogError: that is not known, and some may have lost
        it.
        """
        ...


class TransactionShard:
    """Owned by the coordinator; `log.run` is a task of it."""

    def __init__(
        self,
        replica: LeaderReplica,
        ends: Ends,
        producer_ids: ProducerIdAllocator,
        expiration_ms: Callable[[], int],
        spawn: Callable[[Coroutine[object, object, None]], object],
        clock: Clock,
        probe: Probe,
    ) -> None:
        """`spawn`: makes a task of the coordinator's group."""
        self.log = ShardLog(replica, self, clock, probe)
        self.values: dict[str, TransactionValue] = {}
        self._ends = ends
        self._producer_ids = producer_ids
        self._expiration_ms = expiration_ms
        self._spawn = spawn
        self._clock = clock
        self._probe = probe
        self._timers: KeyedTimers[str] = KeyedTimers(self._on_due)
        self._deadlines = Deadlines(clock)
        self._changed: dict[str, asyncio.Event] = {}  # of ids that somebody waits for
        self._recurring = Recurring()
        self._ahead: dict[str, ProducerEpoch] = {}  # opened here with the end before, and nobody has asked about it
        self._unknown = 0  # records of a newer release, passed over

    # -- life

    def replay(self, key: bytes | None, value: bytes | None, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """While loading. Records of kinds that this release does not know are passed over, as Kafka does."""
        try:
            record = decode(key, value)
        except UnsupportedVersionError:
            self._unknown += 1
            return
        self._apply(record)

    def replay_marker(self, producer_id: ProducerId, *, commit: bool) -> None:
        """Transactions write nothing here."""

    def begin(self) -> None:
        """Loaded: time-outs run from now on, and what is decided is carried out."""
        if self._unknown:
            self._probe("transaction_records_unknown", partition=str(self.log.replica.partition), count=self._unknown)
        for transactional_id, value in list(self.values.items()):
            self._follow(transactional_id, value)

    def end(self) -> None:
        """The leadership is over: who waits is told by the shard's errors."""
        self._timers.stop()
        waiting, self._changed = self._changed, {}
        for changed in waiting.values():
            changed.set()

    # -- commands; `deadline` on the monotonic clock: how long to wait for the end of the transaction before

    async def init(self, command: InitProducer, deadline: float) -> TransactionalProducer:
        """What `lifecycle.init` raises; an open transaction is aborted first, and its end waited for."""
        async with self._confirmed(command.transactional_id):
            return await self._init(command, deadline)

    async def _init(self, command: InitProducer, deadline: float) -> TransactionalProducer:
        transactional_id = command.transactional_id
        while True:
            command = replace(command, fresh_producer_id=await self._fresh_id(transactional_id))
            before = self.values.get(transactional_id)
            if before is None or before.state not in PREPARED:
                if not lifecycle.must_abort_first(command, before):
                    return await self.decide(transactional_id, partial(lifecycle.init, command))
                command = self._abort_for(command)
            await self._until_ended(transactional_id, deadline)

    def _abort_for(self, command: InitProducer) -> InitProducer:
        """Who said what producer it had goes on as the one that the abort has made of it."""
        aborted = self._abort(command.transactional_id, command.fresh_producer_id)
        if command.producer_id == NO_PRODUCER_ID:
            return command
        return replace(command, producer_id=aborted.producer_id, producer_epoch=aborted.producer_epoch)

    async def add_partitions(self, command: AddPartitions) -> None:
        """What `lifecycle.add_partitions` raises."""
        async with self._confirmed(command.transactional_id):
            self._decide(command.transactional_id, partial(lifecycle.add_partitions, command))
        self._ahead.pop(command.transactional_id, None)
        await self.log.wait_until_safe()

    async def end_transaction(self, command: EndTransaction, deadline: float) -> Ended:
        """What `lifecycle.end` raises. Answers when the decision is replicated; the markers may follow."""
        async with self._confirmed(command.transactional_id):
            return await self._end(command, deadline)

    async def _end(self, command: EndTransaction, deadline: float) -> Ended:
        transactional_id = command.transactional_id
        while True:
            fresh = await self._fresh_id(transactional_id)
            open_now = lifecycle.known(transactional_id, self.values.get(transactional_id)).partitions
            recurring = self._recurring.of(transactional_id, command.producer_epoch, open_now)
            command = replace(command, fresh_producer_id=fresh, recurring=recurring)
            try:
                ended = self._decide(transactional_id, partial(lifecycle.end, command))
            except ConcurrentTransactionsError:
                await self._until_ended(transactional_id, deadline)
                continue
            if ended.was_open and self.values[transactional_id].has_next:
                self._ahead[transactional_id] = ended.producer.producer_epoch
            await self.log.wait_until_safe()
            return ended

    async def abort(self, transactional_id: str, deadline: float) -> None:
        """By an operator; the producer is fenced. InvalidTransactionStateError where none is open."""
        await self._until_next_begins(transactional_id, deadline)
        async with self._confirmed(transactional_id):
            self._abort(transactional_id, await self._fresh_id(transactional_id))
        await self.log.wait_until_safe()
        await self._until_ended(transactional_id, deadline)

    async def describe(self, transactional_id: str) -> TransactionValue | None:
        """None: the id is not known."""
        self.log.check()
        found = self.values.get(transactional_id)
        await self.log.wait_until_safe()
        return found

    async def decide(
        self, transactional_id: str, decide: Callable[[TransactionValue | None, int], TransactionDecision[R]]
    ) -> R:
        """Carry out a decision on one id, and give its response when it is safe."""
        response = self._decide(transactional_id, decide)
        await self.log.wait_until_safe()
        return response

    @asynccontextmanager
    async def _confirmed(self, transactional_id: str) -> AsyncIterator[None]:
        """Around a command. A refusal for good is told as a decision is: once what it rests on is replicated. A
        coordinator that has been replaced, and does not know it, would refuse what it has not heard of; so the id's
        state is written again, which it cannot have replicated. An epoch that is over is over for all.
        """
        try:
            yield
        except StreamlogError as error:
            if not error.retriable:
                if not isinstance(error, ProducerFencedError):
                    self.log.write([encode(TransactionRecord(transactional_id, self.values.get(transactional_id)))])
                await self.log.wait_until_safe()
            raise

    # -- what nobody asks for

    def completed(
        self, transactional_id: str, prepared: TransactionValue, ended: frozenset[TopicPartition] = frozenset()
    ) -> None:
        """All markers of this end are written, and replicated; `ended`: where there were records."""
        now = self.values.get(transactional_id)
        if not self.log.is_active or now is None or not _is_same_end(prepared, now):
            return
        decision = lifecycle.complete(transactional_id, now, self._clock.wall_ms())
        try:
            self._carry_out(transactional_id, decision, write=not now.has_next)
        except StreamlogError:
            loop = asyncio.get_running_loop()
            loop.call_later(RETRY_MS / 1000, self.completed, transactional_id, prepared, ended)
        else:
            self._recurring.note(transactional_id, now.producer_epoch, ended)

    def _on_due(self, transactional_id: str) -> None:
        value = self.values.get(transactional_id)
        if value is None or not self.log.is_active:
            return
        try:
            self._carry_out_due(transactional_id, value)
        except StreamlogError:
            self._timers.set(transactional_id, RETRY_MS)

    def _carry_out_due(self, transactional_id: str, value: TransactionValue) -> None:
        if transactional_id in self._ahead:
            self._spawn(self._close_unused(transactional_id))
        elif self._deadlines.left_ms(transactional_id, value) == 0:
            if lifecycle.needs_fresh_id(value):
                self._spawn(self._abort_overdue(transactional_id))
                return
            self._abort(transactional_id, NO_PRODUCER_ID)
            self._probe("transaction_timed_out", transactional_id=transactional_id, timeout_ms=value.timeout_ms)
        elif not self._decide(
            transactional_id,
            lambda _, now: lifecycle.expire(transactional_id, value, now, self._expiration_ms()),
        ):
            self._set_timer(transactional_id, value)

    async def _abort_overdue(self, transactional_id: str) -> None:
        """Where the abort takes another producer id: once in 32,766 transactions."""
        try:
            fresh = await self._fresh_id(transactional_id)
            value = self.values.get(transactional_id)
            if value is not None and self._deadlines.left_ms(transactional_id, value) == 0:
                self._abort(transactional_id, fresh)
        except StreamlogError:
            if self.log.is_active:
                self._timers.set(transactional_id, RETRY_MS)

    # -- the steps

    async def _fresh_id(self, transactional_id: str) -> ProducerId:
        """NO_PRODUCER_ID where none is needed."""
        self.log.check()
        fresh = NO_PRODUCER_ID
        while fresh == NO_PRODUCER_ID and lifecycle.needs_fresh_id(self.values.get(transactional_id)):
            fresh = await self._producer_ids.next()
        return fresh

    def _abort(self, transactional_id: str, fresh_producer_id: ProducerId) -> TransactionValue:
        def decide(value: TransactionValue | None, now_ms: int) -> TransactionDecision[TransactionValue]:
            return lifecycle.abort_open(
                transactional_id, lifecycle.known(transactional_id, value), fresh_producer_id, now_ms
            )

        return self._decide(transactional_id, decide)

    def _decide(
        self, transactional_id: str, decide: Callable[[TransactionValue | None, int], TransactionDecision[R]]
    ) -> R:
        self.log.check()
        decision = decide(self.values.get(transactional_id), self._clock.wall_ms())
        self._carry_out(transactional_id, decision)
        return decision.response

    def _carry_out(self, transactional_id: str, decision: TransactionDecision[object], *, write: bool = True) -> None:
        """`write`: False where the next record of the id says it too."""
        record = decision.record
        if record is None:
            return
        before = self.values.get(transactional_id)
        if write:
            self.log.write([encode(record)])
        self._apply(record)
        self._note(transactional_id)
        if record.value is None or record.value.producer_epoch != self._ahead.get(transactional_id):
            self._ahead.pop(transactional_id, None)
        if record.value is not None and not (before is not None and _is_same_end(before, record.value)):
            self._follow(transactional_id, record.value)

    async def _close_unused(self, transactional_id: str) -> None:
        """What was opened ahead a while ago, unless somebody has used it."""
        epoch, value = self._ahead.get(transactional_id), self.values.get(transactional_id)
        if epoch is None or value is None:
            return  # it has ended in the moment between
        grant = Grant(producer_id=value.producer_id, producer_epoch=epoch, partitions=tuple(sorted(value.partitions)))
        try:
            used = await self._ends.take_back(grant)
            if self._ahead.get(transactional_id) != epoch or not self.log.is_active:
                return  # somebody has asked, or it has ended
            if not used:
                self._decide(transactional_id, partial(_closed, transactional_id))
                self._recurring.forget(transactional_id)
            del self._ahead[transactional_id]
            self._set_timer(transactional_id, self.values[transactional_id])
        except StreamlogError:
            if self._ahead.get(transactional_id) == epoch and self.log.is_active:
                self._timers.set(transactional_id, RETRY_MS)

    def _apply(self, record: TransactionRecord) -> None:
        if record.value is None or record.value.state is not TransactionStatus.ONGOING:
            self._deadlines.forget(record.transactional_id)
        if record.value is None:
            self.values.pop(record.transactional_id, None)
        else:
            self.values[record.transactional_id] = record.value

    def _follow(self, transactional_id: str, value: TransactionValue) -> None:
        """What the new state asks for."""
        if value.state in PREPARED:
            self._timers.set(transactional_id, None)
            epoch = self.log.replica.leader_epoch
            prepared = PreparedEnd(transactional_id=transactional_id, value=value, coordinator_epoch=epoch)
            self._ends.write(self, prepared)
        else:
            self._set_timer(transactional_id, value)

    def _set_timer(self, transactional_id: str, value: TransactionValue) -> None:
        after_ms: int | None
        if transactional_id in self._ahead:
            after_ms = AHEAD_MS
        elif value.state is TransactionStatus.ONGOING:
            after_ms = self._deadlines.left_ms(transactional_id, value)
        else:
            after_ms = max(0, value.updated_ms + self._expiration_ms() - self._clock.wall_ms())
        self._timers.set(transactional_id, None if after_ms is None else min(after_ms, TIMER_MS_MAX))

    # -- waiting for the end of a transaction

    async def _until_ended(self, transactional_id: str, deadline: float) -> None:
        """ConcurrentTransactionsError when the time is over, and what the shard raises."""
        while True:
            self.log.check()
            value = self.values.get(transactional_id)
            if value is None or value.state not in PREPARED:
                return
            changed = self._changed.setdefault(transactional_id, asyncio.Event())
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                    await changed.wait()
            except TimeoutError:
                raise ConcurrentTransactionsError(
                    f"the transaction before of {transactional_id!r} is still being ended: ask again"
                ) from None

    async def _until_next_begins(self, transactional_id: str, deadline: float) -> None:
        """Where a transaction is open behind the one that is being ended. As `_until_ended`."""
        value = self.values.get(transactional_id)
        if value is not None and value.has_next:
            await self._until_ended(transactional_id, deadline)

    def _note(self, transactional_id: str) -> None:
        changed = self._changed.pop(transactional_id, None)
        if changed is not None:
            changed.set()


def _closed(transactional_id: str, value: TransactionValue | None, now_ms: int) -> TransactionDecision[None]:
    return lifecycle.close_unused(transactional_id, lifecycle.known(transactional_id, value), now_ms)


def _is_same_end(one: TransactionValue, other: TransactionValue) -> bool:
    """Whether both have the same decision yet to be carried out: each has an epoch of its own."""
    return (
        one.state is other.state
        and one.state in PREPARED
        and (one.producer_id, one.producer_epoch) == (other.producer_id, other.producer_epoch)
    )
