"""The transactional ids of one partition of `__transaction_state`: carries out decisions of streamlog.transactions.

    command --decided at once--> record in the log --replicated--> response
                                   PREPARE_* --replicated--> markers to all partitions --all written--> COMPLETE_*

Markers are written only after the decision is replicated: a decision that is lost with its leader must not be visible
anywhere. A command to end a transaction, or to initialize a producer, that arrives while the previous transaction is
being completed waits for that, up to the caller's deadline; usually milliseconds.

For a producer that writes to the same partitions in each transaction (`recurring`), the next transaction is opened
with the end of this one, and the markers say so: the leaders need not verify it. If it is unused for a second, it is
revoked at the leaders and closed again. Only the shard that opened it (`_ahead`) does this: it alone knows that all
markers are written and that no verification was answered. A new coordinator leaves it open until its time-out.

COMPLETE_* is recorded where no next transaction is open; otherwise the record of the next end implies it. A new
coordinator that takes over earlier writes the markers again, which the partitions recognize as duplicates.

An id has one timer: the time-out of its open transaction, or its expiry.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from streamlog.aio.keyed_timers import KeyedTimers
from streamlog.aio.timeouts import timeout
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.coordinator.deadlines import Deadlines
from streamlog.coordinator.recurring import Recurring
from streamlog.coordinator.shard_log import ShardLog
from streamlog.errors import (
    ConcurrentTransactionsError,
    ProducerFencedError,
    StreamlogError,
    UnsupportedVersionError,
)
from streamlog.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
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
"""Pause before work that no client waits for is retried after a failed append."""
TIMER_MS_MAX: Final = 24 * 3_600_000
"""Longest timer; it is set again when due: wall clocks are corrected, and loops do not take timers of weeks."""


class ProducerIdSequence(Protocol):
    """Ids of producers: streamlog.broker.producer_id_blocks."""

    async def next(self) -> ProducerId:
        """An id that no producer had before. StreamlogError."""
        ...


class PreparedEnd(Struct, frozen=True, kw_only=True):
    """A prepared commit or abort whose markers have to be written."""

    transactional_id: str
    value: TransactionValue  # PREPARE_*
    coordinator_epoch: LeaderEpoch

    def is_of(self, now: TransactionValue | None) -> bool:
        """Whether the id is still in this end: not all markers are written."""
        return now is not None and _is_same_end(self.value, now)


class MarkerQueue(Protocol):
    """streamlog.coordinator.marker_writer."""

    def write(self, shard: TransactionShard, prepared: PreparedEnd) -> Collection[TopicPartition]:
        """Have the markers written to all partitions, then call `shard.completed`. A view of the missing ones."""
        ...

    async def take_back(self, grant: Grant) -> bool:
        """Revoke the grant at the leaders. Whether one of them has used it; StreamlogError: unknown, and some may have
        revoked it.
        """
        ...


class TransactionShard:
    """Owned by the coordinator, which runs `log.run` as a task."""

    def __init__(
        self,
        replica: LeaderReplica,
        markers: MarkerQueue,
        producer_ids: ProducerIdSequence,
        expiration_ms: Callable[[], int],
        spawn: Callable[[Coroutine[object, object, None]], object],
        clock: Clock,
        probe: Probe,
    ) -> None:
        """`spawn` starts a task in the coordinator's task group."""
        self.log = ShardLog(replica, self, clock, probe)
        self.values: dict[str, TransactionValue] = {}
        self._names: list[str] | None = None  # their ids, ascending; None until they are asked for
        self._markers = markers
        self._producer_ids = producer_ids
        self._expiration_ms = expiration_ms
        self._spawn = spawn
        self._clock = clock
        self._probe = probe
        self._timers: KeyedTimers[str] = KeyedTimers(self._on_due)
        self._deadlines = Deadlines(clock)
        self._changed: dict[str, asyncio.Event] = {}  # of ids with waiting commands
        self._missing: dict[str, Collection[TopicPartition]] = {}  # of ids in PREPARE_*: without their markers
        self._recurring = Recurring()
        self._ahead: dict[str, ProducerEpoch] = {}  # opened here in advance, and not used yet
        self._unknown = 0  # records of a newer release, skipped

    # -- lifecycle

    def replay(self, key: bytes | None, value: bytes | None, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """While loading. Records of unknown kinds are skipped, as Kafka does."""
        try:
            record = decode(key, value)
        except UnsupportedVersionError:
            self._unknown += 1
            return
        self._apply(record)

    def replay_marker(self, producer_id: ProducerId, *, commit: bool) -> None:
        """This log has no transactional records."""

    def check(self) -> None:
        """Each record is the whole state of its id."""

    def begin(self) -> None:
        """Loaded: time-outs start, and markers of prepared ends are written."""
        if self._unknown:
            self._probe("transaction_records_unknown", partition=str(self.log.replica.partition), count=self._unknown)
        for transactional_id, value in list(self.values.items()):
            self._follow(transactional_id, value)

    def end(self) -> None:
        """The leadership has ended: waiting commands fail with the error of `log.check`."""
        self._timers.stop()
        waiting, self._changed = self._changed, {}
        for changed in waiting.values():
            changed.set()

    # -- commands; `deadline` on the monotonic clock: how long to wait for the previous transaction to complete

    async def init(self, command: InitProducer, deadline: float) -> TransactionalProducer:
        """Raises the errors of `lifecycle.init`. An open transaction is aborted first."""
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
                self._abort(transactional_id, command.fresh_producer_id, command.producer_epoch)
            await self._until_ended(transactional_id, deadline)

    async def add_partitions(self, command: AddPartitions) -> None:
        """Raises the errors of `lifecycle.add_partitions`."""
        async with self._confirmed(command.transactional_id):
            try:
                self._decide(command.transactional_id, partial(lifecycle.add_partitions, command))
            except ConcurrentTransactionsError:
                raise self._being_completed(command.transactional_id) from None
        self._ahead.pop(command.transactional_id, None)
        await self.log.wait_until_safe()

    async def end_transaction(self, command: EndTransaction, deadline: float) -> Ended:
        """Raises the errors of `lifecycle.end`. Returns when the decision is replicated; markers may follow later."""
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
        """Abort on behalf of an operator; fences the producer. InvalidTransactionStateError: none is open."""
        await self._until_next_begins(transactional_id, deadline)
        async with self._confirmed(transactional_id):
            self._abort(transactional_id, await self._fresh_id(transactional_id))
        await self.log.wait_until_safe()
        await self._until_ended(transactional_id, deadline)

    async def describe(self, transactional_id: str) -> TransactionValue | None:
        """None: unknown id."""
        self.log.check()
        found = self.values.get(transactional_id)
        await self.log.wait_until_safe()
        return found

    async def decide(
        self, transactional_id: str, decide: Callable[[TransactionValue | None, int], TransactionDecision[R]]
    ) -> R:
        """Carry out a decision on one id; return its response once it is replicated."""
        response = self._decide(transactional_id, decide)
        await self.log.wait_until_safe()
        return response

    @asynccontextmanager
    async def _confirmed(self, transactional_id: str) -> AsyncIterator[None]:
        """Around a command. A non-retriable error, like a decision, is returned only once the state that it rests on is
        replicated. A replaced coordinator that does not know it yet would refuse on stale state; so the id's state is
        written again, which such a coordinator cannot replicate. A fenced epoch needs no such write: it stays fenced.
        """
        try:
            yield
        except StreamlogError as error:
            if not error.retriable:
                if not isinstance(error, ProducerFencedError):
                    self.log.write([encode(TransactionRecord(transactional_id, self.values.get(transactional_id)))])
                await self.log.wait_until_safe()
            raise

    # -- background work

    def completed(
        self, transactional_id: str, prepared: TransactionValue, ended: frozenset[TopicPartition] = frozenset()
    ) -> None:
        """All markers of this end are replicated; `ended`: the partitions that had records."""
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
        """Abort where it needs another producer id: once in 32,766 transactions."""
        try:
            fresh = await self._fresh_id(transactional_id)
            value = self.values.get(transactional_id)
            if value is not None and self._deadlines.left_ms(transactional_id, value) == 0:
                self._abort(transactional_id, fresh)
        except StreamlogError:
            if self.log.is_active:
                self._timers.set(transactional_id, RETRY_MS)

    # -- steps

    async def _fresh_id(self, transactional_id: str) -> ProducerId:
        """A new producer id, if one is needed; otherwise NO_PRODUCER_ID."""
        self.log.check()
        fresh = NO_PRODUCER_ID
        while fresh == NO_PRODUCER_ID and lifecycle.needs_fresh_id(self.values.get(transactional_id)):
            fresh = await self._producer_ids.next()
        return fresh

    def _abort(
        self,
        transactional_id: str,
        fresh_producer_id: ProducerId,
        claimed_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    ) -> TransactionValue:
        def decide(value: TransactionValue | None, now_ms: int) -> TransactionDecision[TransactionValue]:
            before = lifecycle.known(transactional_id, value)
            return lifecycle.abort_open(transactional_id, before, fresh_producer_id, claimed_epoch, now_ms)

        return self._decide(transactional_id, decide)

    def _decide(
        self, transactional_id: str, decide: Callable[[TransactionValue | None, int], TransactionDecision[R]]
    ) -> R:
        self.log.check()
        decision = decide(self.values.get(transactional_id), self._clock.wall_ms())
        self._carry_out(transactional_id, decision)
        return decision.response

    def _carry_out(self, transactional_id: str, decision: TransactionDecision[object], *, write: bool = True) -> None:
        """`write`: False where the next record of the id implies this one."""
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
        """Close a transaction that was opened in advance, unless it has been used."""
        epoch, value = self._ahead.get(transactional_id), self.values.get(transactional_id)
        if epoch is None or value is None:
            return  # it has ended meanwhile
        grant = Grant(producer_id=value.producer_id, producer_epoch=epoch, partitions=tuple(sorted(value.partitions)))
        try:
            used = await self._markers.take_back(grant)
            if self._ahead.get(transactional_id) != epoch or not self.log.is_active:
                return  # used meanwhile, or ended
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
        name, is_known = record.transactional_id, record.transactional_id in self.values
        if record.value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = record.value
        if self._names is None or is_known == (record.value is not None):
            return
        if is_known:
            del self._names[bisect_left(self._names, name)]
        else:
            insort(self._names, name)

    def transactions_behind(self, start: str) -> Iterator[tuple[str, TransactionValue]]:
        """Those with ids behind `start`, by id. To be taken within one turn of the event loop."""
        if self._names is None:
            self._names = sorted(self.values)
        for index in range(bisect_right(self._names, start), len(self._names)):
            yield self._names[index], self.values[self._names[index]]

    def _follow(self, transactional_id: str, value: TransactionValue) -> None:
        """Start what the new state needs: markers or a timer."""
        if value.state in PREPARED:
            self._timers.set(transactional_id, None)
            epoch = self.log.replica.leader_epoch
            prepared = PreparedEnd(transactional_id=transactional_id, value=value, coordinator_epoch=epoch)
            self._missing[transactional_id] = self._markers.write(self, prepared)
        else:
            self._missing.pop(transactional_id, None)
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

    # -- waiting for a transaction to complete

    async def _until_ended(self, transactional_id: str, deadline: float) -> None:
        """ConcurrentTransactionsError at the deadline, and the errors of `log.check`."""
        while True:
            self.log.check()
            value = self.values.get(transactional_id)
            if value is None or value.state not in PREPARED:
                return
            changed = self._changed.setdefault(transactional_id, asyncio.Event())
            try:
                async with timeout(max(0.0, deadline - self._clock.monotonic())):
                    await changed.wait()
            except TimeoutError:
                raise self._being_completed(transactional_id) from None

    def _being_completed(self, transactional_id: str) -> ConcurrentTransactionsError:
        missing = sorted(map(str, self._missing.get(transactional_id, ())))
        named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        where = f": markers are missing in {named}" if missing else ""
        remedy = (
            "; if it stays so, 'streamlogctl topic describe --unavailable-partitions' lists partitions without a leader"
        )
        return ConcurrentTransactionsError(
            f"the previous transaction of {transactional_id!r} is still being completed{where}; retry"
            f"{remedy if missing else ''}"
        )

    async def _until_next_begins(self, transactional_id: str, deadline: float) -> None:
        """Where a next transaction is open already, until it is the current one. As `_until_ended`."""
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
    """Whether both are in the same prepared end: each end has its own epoch."""
    return (
        one.state is other.state
        and one.state in PREPARED
        and (one.producer_id, one.producer_epoch) == (other.producer_id, other.producer_epoch)
    )
