"""The transactional ids of one partition of `__transaction_state`: commands in, decisions of streamlog.transactions
carried out.

    command --decided at once--> record in the log --replicated--> answer
                                   PREPARE_* --replicated--> markers to all partitions --all written--> COMPLETE_*

Markers are written once the decision is replicated, never before: a decision that is lost with its leader must not
have been seen by anybody. Who meets a transaction that is being ended waits for its end, for as long as the caller
says; most often that is a moment.

An id has one timer: of its open transaction, or of its expiry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from streamlog.broker.leader_replica import LeaderReplica
from streamlog.coordinator.shard import Shard
from streamlog.coordinator.timers import Timers
from streamlog.errors import ConcurrentTransactionsError, StreamlogError, UnsupportedVersionError
from streamlog.model import NO_PRODUCER_ID, LeaderEpoch, ProducerId
from streamlog.ports import Clock, Probe
from streamlog.transactions import deciding
from streamlog.transactions.codec import decode, encode
from streamlog.transactions.deciding import AddPartitions, Decision, End, Ended, Init, Producer
from streamlog.transactions.records import PREPARED, TWO_PHASE, Record, TransactionState, TransactionValue

R = TypeVar("R")

RETRY_MS: Final = 500
"""Until something that no client waits for is tried again, when the log takes nothing."""
TIMER_MS_MAX: Final = 24 * 3_600_000
"""A timer is set anew at least so often: wall clocks are put right, and loops are not made for weeks."""


class ProducerIds(Protocol):
    """streamlog.broker.ProducerIds."""

    async def next(self) -> ProducerId: ...


class Prepared(Struct, frozen=True, kw_only=True):
    """A decided end whose markers are to be written."""

    transactional_id: str
    value: TransactionValue  # PREPARE_*
    coordinator_epoch: LeaderEpoch


class Ends(Protocol):
    """Whoever has markers written: streamlog.coordinator.marker_writer."""

    def write(self, shard: TransactionShard, prepared: Prepared) -> None:
        """See to it that all partitions get their markers, then call `shard.completed`."""
        ...


class TransactionShard:
    """Owned by the coordinator; `shard.run` is a task of it."""

    def __init__(
        self,
        replica: LeaderReplica,
        ends: Ends,
        producer_ids: ProducerIds,
        expiration_ms: Callable[[], int],
        spawn: Callable[[Coroutine[object, object, None]], object],
        clock: Clock,
        probe: Probe,
    ) -> None:
        """`spawn`: makes a task of the coordinator's group."""
        self.shard = Shard(replica, self, clock, probe)
        self.values: dict[str, TransactionValue] = {}
        self._ends = ends
        self._producer_ids = producer_ids
        self._expiration_ms = expiration_ms
        self._spawn = spawn
        self._clock = clock
        self._probe = probe
        self._timers: Timers[str] = Timers(self._on_due)
        self._changed: dict[str, asyncio.Event] = {}  # of ids that somebody waits for
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
            self._probe("transaction_records_unknown", partition=str(self.shard.replica.partition), count=self._unknown)
        for transactional_id, value in list(self.values.items()):
            self._follow(transactional_id, value)

    def end(self) -> None:
        """The leadership is over: who waits is told by the shard's errors."""
        self._timers.stop()
        waiting, self._changed = self._changed, {}
        for changed in waiting.values():
            changed.set()

    # -- commands; `deadline` on the monotonic clock: how long to wait for the end of the transaction before

    async def init(self, command: Init, deadline: float) -> Producer:
        """What `deciding.init` raises; an open transaction is aborted first, and its end waited for."""
        transactional_id = command.transactional_id
        while True:
            command = replace(command, fresh_producer_id=await self._fresh_id(transactional_id))
            before = self.values.get(transactional_id)
            if before is None or before.state not in PREPARED:
                if not deciding.must_abort_first(command, before):
                    return await self.decide(transactional_id, partial(deciding.init, command))
                command = self._abort_for(command)
            await self._until_ended(transactional_id, deadline)

    def _abort_for(self, command: Init) -> Init:
        """Who said what producer it had goes on as the one that the abort has made of it."""
        aborted = self._abort(command.transactional_id, command.fresh_producer_id)
        if command.producer_id == NO_PRODUCER_ID:
            return command
        return replace(command, producer_id=aborted.producer_id, producer_epoch=aborted.producer_epoch)

    async def add_partitions(self, command: AddPartitions, deadline: float) -> None:
        """What `deciding.add_partitions` raises."""
        while True:
            try:
                return await self.decide(command.transactional_id, partial(deciding.add_partitions, command))
            except ConcurrentTransactionsError:
                await self._until_ended(command.transactional_id, deadline)

    async def end_transaction(self, command: End, deadline: float) -> Ended:
        """What `deciding.end` raises. Answers when the decision is replicated; the markers may follow."""
        transactional_id = command.transactional_id
        while True:
            self.shard.check()
            deciding.known(transactional_id, self.values.get(transactional_id))
            command = replace(command, fresh_producer_id=await self._fresh_id(transactional_id))
            try:
                return await self.decide(transactional_id, partial(deciding.end, command))
            except ConcurrentTransactionsError:
                await self._until_ended(transactional_id, deadline)

    async def abort(self, transactional_id: str, deadline: float) -> None:
        """By an operator; the producer is fenced. InvalidTransactionStateError where none is open."""
        self._abort(transactional_id, await self._fresh_id(transactional_id))
        await self.shard.wait_until_safe()
        await self._until_ended(transactional_id, deadline)

    async def describe(self, transactional_id: str) -> TransactionValue | None:
        """None: the id is not known."""
        self.shard.check()
        found = self.values.get(transactional_id)
        await self.shard.wait_until_safe()
        return found

    async def decide(self, transactional_id: str, decide: Callable[[TransactionValue | None, int], Decision[R]]) -> R:
        """Carry out a decision on one id, and give its response when it is safe."""
        response = self._decide(transactional_id, decide)
        await self.shard.wait_until_safe()
        return response

    # -- what nobody asks for

    def completed(self, transactional_id: str, prepared: TransactionValue) -> None:
        """All markers of this end are written, and replicated."""
        if not self.shard.is_active or self.values.get(transactional_id) is not prepared:
            return
        try:
            self._decide(transactional_id, lambda _, now_ms: deciding.complete(transactional_id, prepared, now_ms))
        except StreamlogError:
            loop = asyncio.get_running_loop()
            loop.call_later(RETRY_MS / 1000, self.completed, transactional_id, prepared)

    def _on_due(self, transactional_id: str) -> None:
        value = self.values.get(transactional_id)
        if value is None or not self.shard.is_active:
            return
        try:
            self._carry_out_due(transactional_id, value)
        except StreamlogError:
            self._timers.set(transactional_id, RETRY_MS)

    def _carry_out_due(self, transactional_id: str, value: TransactionValue) -> None:
        now_ms = self._clock.wall_ms()
        if deciding.is_overdue(value, now_ms):
            if deciding.needs_fresh_id(value):
                self._spawn(self._abort_overdue(transactional_id))
                return
            self._abort(transactional_id, NO_PRODUCER_ID)
            self._probe("transaction_timed_out", transactional_id=transactional_id, timeout_ms=value.timeout_ms)
        elif not self._decide(
            transactional_id,
            lambda _, now: deciding.expire(transactional_id, value, now, self._expiration_ms()),
        ):
            self._set_timer(transactional_id, value)

    async def _abort_overdue(self, transactional_id: str) -> None:
        """Where the abort takes another producer id: once in 32,766 transactions."""
        try:
            fresh = await self._fresh_id(transactional_id)
            value = self.values.get(transactional_id)
            if value is not None and deciding.is_overdue(value, self._clock.wall_ms()):
                self._abort(transactional_id, fresh)
        except StreamlogError:
            if self.shard.is_active:
                self._timers.set(transactional_id, RETRY_MS)

    # -- the steps

    async def _fresh_id(self, transactional_id: str) -> ProducerId:
        """NO_PRODUCER_ID where none is needed."""
        self.shard.check()
        fresh = NO_PRODUCER_ID
        while fresh == NO_PRODUCER_ID and deciding.needs_fresh_id(self.values.get(transactional_id)):
            fresh = await self._producer_ids.next()
        return fresh

    def _abort(self, transactional_id: str, fresh_producer_id: ProducerId) -> TransactionValue:
        def decide(value: TransactionValue | None, now_ms: int) -> Decision[TransactionValue]:
            return deciding.abort_open(
                transactional_id, deciding.known(transactional_id, value), fresh_producer_id, now_ms
            )

        return self._decide(transactional_id, decide)

    def _decide(self, transactional_id: str, decide: Callable[[TransactionValue | None, int], Decision[R]]) -> R:
        self.shard.check()
        decision = decide(self.values.get(transactional_id), self._clock.wall_ms())
        if decision.record is not None:
            self.shard.write([encode(decision.record)])
            self._apply(decision.record)
            self._note(transactional_id)
            if decision.record.value is not None:
                self._follow(transactional_id, decision.record.value)
        return decision.response

    def _apply(self, record: Record) -> None:
        if record.value is None:
            self.values.pop(record.transactional_id, None)
        else:
            self.values[record.transactional_id] = record.value

    def _follow(self, transactional_id: str, value: TransactionValue) -> None:
        """What the new state asks for."""
        if value.state in PREPARED:
            self._timers.set(transactional_id, None)
            epoch = self.shard.replica.leader_epoch
            prepared = Prepared(transactional_id=transactional_id, value=value, coordinator_epoch=epoch)
            self._ends.write(self, prepared)
        else:
            self._set_timer(transactional_id, value)

    def _set_timer(self, transactional_id: str, value: TransactionValue) -> None:
        if value.state is TransactionState.ONGOING:
            due_ms = None if value.timeout_ms == TWO_PHASE else value.started_ms + value.timeout_ms
        else:
            due_ms = value.updated_ms + self._expiration_ms()
        after_ms = None if due_ms is None else min(max(0, due_ms - self._clock.wall_ms()), TIMER_MS_MAX)
        self._timers.set(transactional_id, after_ms)

    # -- waiting for the end of a transaction

    async def _until_ended(self, transactional_id: str, deadline: float) -> None:
        """ConcurrentTransactionsError when the time is over, and what the shard raises."""
        while True:
            self.shard.check()
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

    def _note(self, transactional_id: str) -> None:
        changed = self._changed.pop(transactional_id, None)
        if changed is not None:
            changed.set()
