"""The first batch of a transaction: appended only after its coordinator has confirmed it (KIP-890).

    begin --coordinator confirms--> the previous transaction's marker is here --> append with the guard
      |                                                                           refused if the guard is not valid
      +--marker or guard of a newer epoch in between--> the guard is permanently invalid

A producer that was cut off from the cluster may send a batch of a transaction that has ended. Appended, it would open
a transaction that no coordinator knows and none will end. So a leader appends the batch that opens a transaction only
with a guard, which is taken before the coordinator is called: a marker in between invalidates it.

The coordinator opens a transaction while markers of the previous one are still on their way. Each partition orders the
two itself: the batch that opens the next transaction waits until the marker of the previous one has been appended. If
that marker says that the next transaction is open in this partition, the coordinator need not be called: this grant is
valid until it is used, until the next marker, or until the coordinator revokes it. So a marker that is on its way is
awaited for MARKER_SOON_S before the coordinator is called.

Batches of one producer that arrive while its first one is being verified queue behind it, in order of arrival. Other
producers do not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from msgspec import Struct, field

from streamlog.aio.timeouts import timeout
from streamlog.broker.append.held_markers import HeldMarkers
from streamlog.errors import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    ProducerFencedError,
    StreamlogError,
)
from streamlog.model import ProducerEpoch, ProducerId
from streamlog.ports import Buffer
from streamlog.records import BatchHeader, read_header
from streamlog.records.header import HEADER_SIZE, MAGIC, MAGIC_POSITION, TRANSACTIONAL_BIT
from streamlog.storage.log.log import Log

MARKER_SOON_S: Final = 0.1
"""Most markers arrive within this time, also on a busy node. Calling the coordinator instead costs it a call."""
_LOW_ATTRIBUTES_POSITION: Final = 22


class VerificationGuard(Struct, eq=False, kw_only=True):
    """One verification in progress. Made by `Verifications.begin` alone."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_valid: bool = True


class _Turn(Struct):
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # fair: first come, first served
    users: int = 0


class Verifications:
    """Of one leadership. Bounded by the calls in progress: what no call uses is dropped."""

    __slots__ = ("_awaited", "_ended", "_granted", "_guards", "_held_markers", "_log", "_turns")

    def __init__(self, log: Log, held_markers: HeldMarkers) -> None:
        self._log = log
        self._held_markers = held_markers
        self._guards: dict[ProducerId, list[VerificationGuard]] = {}
        self._turns: dict[ProducerId, _Turn] = {}
        self._awaited: dict[ProducerId, asyncio.Event] = {}  # markers that `_wait_for_next_marker` waits for
        self._granted: dict[ProducerId, ProducerEpoch] = {}  # transactions that may be opened without a call
        self._ended: StreamlogError | None = None

    # -- before an append

    def is_needed(self, header: BatchHeader) -> bool:
        """Whether a batch opens a transaction, or must queue behind one of its producer that does."""
        return self.opens_transaction(header) or header.producer_id in self._turns

    def opens_transaction(self, header: BatchHeader) -> bool:
        return not self._log.producers.has_open(header.producer_id, header.producer_epoch)

    @asynccontextmanager
    async def turn(self, producer_id: ProducerId) -> AsyncIterator[None]:
        """Wait for all earlier batches of this producer that are being verified."""
        turn = self._turns.setdefault(producer_id, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[producer_id]

    @asynccontextmanager
    async def verified(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        confirm: Callable[[], Awaitable[None]],
        wait_s: float,
    ) -> AsyncIterator[VerificationGuard]:
        """A guard for the append that opens the transaction, once the previous transaction has ended here and its
        marker, or the coordinator, says that this one is open. `confirm` calls the coordinator; it raises if the
        coordinator refuses.

        Raises ProducerFencedError; ConcurrentTransactionsError if the marker has not arrived `wait_s` seconds after
        the answer; the error that ended the leadership.
        """
        with self.begin(producer_id, producer_epoch) as guard:
            if not await self._is_granted(guard):
                await confirm()
            try:
                async with timeout(wait_s):
                    await self._wait_for_marker(guard)
            except TimeoutError:
                raise ConcurrentTransactionsError(
                    f"{self._log.partition}: the previous transaction of producer {producer_id} is still being ended:"
                    " retry"
                ) from None
            yield guard

    @contextmanager
    def begin(self, producer_id: ProducerId, epoch: ProducerEpoch) -> Iterator[VerificationGuard]:
        """Around the coordinator's confirmation and the append. ProducerFencedError if a newer epoch is being verified.

        Invalidates guards of older epochs.
        """
        newest = max((guard.producer_epoch for guard in self._guards.get(producer_id, ())), default=epoch)
        if epoch < newest:
            raise ProducerFencedError(
                f"producer {producer_id} sent epoch {epoch}, but a transaction of epoch {newest} is being opened",
                producer_id=producer_id,
                field="producer_epoch",
                limit=newest,
            )
        if epoch > newest:
            self._invalidate(producer_id, epoch)
        guard = VerificationGuard(producer_id=producer_id, producer_epoch=epoch)
        self._guards.setdefault(producer_id, []).append(guard)
        try:
            yield guard
        finally:
            guard.is_valid = False
            left = [one for one in self._guards.get(producer_id, ()) if one is not guard]
            if left:
                self._guards[producer_id] = left
            else:
                self._guards.pop(producer_id, None)

    async def _is_granted(self, guard: VerificationGuard) -> bool:
        """Whether the previous marker has granted this transaction. A marker on its way is awaited for a moment only:
        the previous transaction may be one that ends only after this one.
        """
        try:
            async with timeout(MARKER_SOON_S):
                await self._wait_for_marker(guard)
        except TimeoutError:
            return False
        return self._granted.get(guard.producer_id) == guard.producer_epoch

    async def _wait_for_marker(self, guard: VerificationGuard) -> None:
        self._held_markers.release(guard.producer_id)
        while self.has_older_open(guard.producer_id, guard.producer_epoch):
            await self._awaited.setdefault(guard.producer_id, asyncio.Event()).wait()
            if self._ended is not None:
                raise self._ended

    def has_older_open(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
        """Whether a transaction of a lower epoch is open in this partition."""
        producer = self._log.producers.get(producer_id)
        return producer is not None and producer.transaction_start >= 0 and producer.epoch < producer_epoch

    # -- in the step that appends

    def check(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """InvalidTransactionStateError if the batch opens a transaction and `guard` does not allow that."""
        if not self.opens_transaction(header):
            return
        opened = (header.producer_id, header.producer_epoch)
        if guard is None or not guard.is_valid or (guard.producer_id, guard.producer_epoch) != opened:
            raise InvalidTransactionStateError(
                f"producer {header.producer_id} has no transaction of epoch {header.producer_epoch} open in this"
                " partition, and its coordinator has not confirmed that this batch may open one",
                producer_id=header.producer_id,
                field="producer_epoch",
            )

    # -- markers

    def on_marker(self, producer_id: ProducerId, epoch: ProducerEpoch, *, opens_next: bool) -> None:
        """A marker of this epoch was appended; `opens_next`: the transaction of its epoch is open in this partition."""
        self._invalidate(producer_id, epoch)
        self._granted.pop(producer_id, None)
        if opens_next:
            self._granted[producer_id] = epoch
        awaited = self._awaited.pop(producer_id, None)
        if awaited is not None:
            awaited.set()

    def on_repeated_marker(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        """A marker of this epoch was in the log already."""
        self._invalidate(producer_id, epoch)

    def is_awaited(self, producer_id: ProducerId) -> bool:
        """Whether a batch waits for the producer's next marker."""
        return producer_id in self._awaited

    def revoke(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Withdraw the grant for this transaction. Whether a batch that opens it is about to be appended."""
        if self._granted.get(producer_id) == epoch:
            del self._granted[producer_id]
        return any(guard.producer_epoch == epoch for guard in self._guards.get(producer_id, ()))

    def end(self, error: StreamlogError) -> None:
        """The leadership has ended."""
        self._ended = error
        awaited, self._awaited = self._awaited, {}
        for event in awaited.values():
            event.set()

    def _invalidate(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        """Invalidate the guards of epochs below `epoch`.

        Guards of the marker's own epoch stay valid: they belong to the next transaction, and wait for this marker.
        """
        guards = self._guards.pop(producer_id, [])
        for guard in guards:
            guard.is_valid = guard.is_valid and guard.producer_epoch >= epoch
        left = [guard for guard in guards if guard.is_valid]
        if left:
            self._guards[producer_id] = left


def transactional_header(batches: Buffer) -> BatchHeader | None:
    """The header of the first batch if it is transactional, unchecked. For all others this looks at one byte."""
    if len(batches) < HEADER_SIZE or not batches[_LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT:
        return None
    return read_header(batches, 0) if batches[MAGIC_POSITION] == MAGIC else None
