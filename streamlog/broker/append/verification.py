"""The first batch of a transaction, and the coordinator's word that it may be appended (KIP-890).

    begin --coordinator asked--> the marker of the one before is here --> append with the guard
      |                                                                   refused where it is not valid any more
      +--marker of a newer epoch, or a guard for one, in between--> not valid, for good

A producer that was cut off from the cluster may send a batch of a transaction that is over: appended, it would open a
transaction that nobody knows of and nobody ends. So a leader appends the batch that opens one only with a guard, which
was got before the coordinator was asked: what has happened in between takes it back.

The coordinator opens a transaction while the markers of the one before are still on their way. Each partition sees to
the order for itself: what opens the next one waits until the marker of the one before has been appended. Where that
marker says that the next one is open here, the coordinator need not be asked: this grant holds until it is used, until
the next marker, or until the coordinator takes it back. So the marker has a moment to come before the coordinator is
asked.

Batches of one producer that come while its first one is being verified queue behind it, in their order. Other
producers do not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from msgspec import Struct, field

from streamlog.errors import InvalidRecordError, InvalidTransactionStateError, ProducerFencedError
from streamlog.model import Appended, ProducerEpoch, ProducerId
from streamlog.ports import Buffer
from streamlog.records import BatchHeader, read_header
from streamlog.records.header import HEADER_SIZE, MAGIC, MAGIC_POSITION, TRANSACTIONAL_BIT

_LOW_ATTRIBUTES_POSITION = 22


class VerificationGuard(Struct, eq=False, kw_only=True):
    """One verification under way. Made by `Verifications.begin` alone."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_valid: bool = True


class _Turn(Struct):
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # fair: first come, first served
    users: int = 0


class Verifications:
    """Of one leadership. What nobody uses any more is forgotten: bounded by the calls under way."""

    __slots__ = ("_awaited", "_granted", "_guards", "_turns")

    def __init__(self) -> None:
        self._guards: dict[ProducerId, list[VerificationGuard]] = {}
        self._turns: dict[ProducerId, _Turn] = {}
        self._awaited: dict[ProducerId, asyncio.Event] = {}  # markers that somebody waits for
        self._granted: dict[ProducerId, ProducerEpoch] = {}  # transactions that may be opened without a question

    @contextmanager
    def begin(self, producer_id: ProducerId, epoch: ProducerEpoch) -> Iterator[VerificationGuard]:
        """Around asking the coordinator and the append. ProducerFencedError where a newer epoch is being verified."""
        newest = max((guard.producer_epoch for guard in self._guards.get(producer_id, ())), default=epoch)
        if epoch < newest:
            raise ProducerFencedError(
                f"producer {producer_id} sent epoch {epoch}, but epoch {newest} is about to begin a transaction",
                producer_id=producer_id,
                field="producer_epoch",
                limit=newest,
            )
        if epoch > newest:
            self.invalidate(producer_id, epoch)
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

    def invalidate(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        """A marker of this epoch was appended, or a batch of it is about to be: what comes before it is over.

        Guards of the marker's own epoch stay: they are of the transaction behind it, and wait for this very marker.
        """
        guards = self._guards.pop(producer_id, [])
        for guard in guards:
            guard.is_valid = guard.is_valid and guard.producer_epoch >= epoch
        left = [guard for guard in guards if guard.is_valid]
        if left:
            self._guards[producer_id] = left

    def on_marker(self, producer_id: ProducerId, epoch: ProducerEpoch, *, opens_next: bool) -> None:
        """A marker of this epoch was appended; `opens_next`: the transaction of its epoch is open here."""
        self.invalidate(producer_id, epoch)
        self._granted.pop(producer_id, None)
        if opens_next:
            self._granted[producer_id] = epoch
        awaited = self._awaited.pop(producer_id, None)
        if awaited is not None:
            awaited.set()

    def is_awaited(self, producer_id: ProducerId) -> bool:
        """Whether somebody waits in `next_marker`."""
        return producer_id in self._awaited

    async def next_marker(self, producer_id: ProducerId) -> None:
        """Until a marker of this producer has been appended, or the leadership is over. The caller bounds the wait."""
        await self._awaited.setdefault(producer_id, asyncio.Event()).wait()

    def is_granted(self, guard: VerificationGuard) -> bool:
        """Whether this transaction may be opened without a question."""
        return self._granted.get(guard.producer_id) == guard.producer_epoch

    def take_back(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """The grant for this transaction. Whether a batch that opens it is about to be appended."""
        if self._granted.get(producer_id) == epoch:
            del self._granted[producer_id]
        return any(guard.producer_epoch == epoch for guard in self._guards.get(producer_id, ()))

    def end(self) -> None:
        """The leadership is over."""
        awaited, self._awaited = self._awaited, {}
        for event in awaited.values():
            event.set()

    def check(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """InvalidTransactionStateError unless `guard` lets this batch open a transaction."""
        of_this = (header.producer_id, header.producer_epoch)
        if guard is None or not guard.is_valid or (guard.producer_id, guard.producer_epoch) != of_this:
            raise InvalidTransactionStateError(
                f"producer {header.producer_id} has no transaction open here in epoch {header.producer_epoch}, and its"
                " coordinator has not confirmed that this batch may open one",
                producer_id=header.producer_id,
                field="producer_epoch",
            )

    async def append(
        self,
        batches: Buffer,
        opens_transaction: Callable[[BatchHeader], bool],
        allow: Callable[[VerificationGuard], Awaitable[None]],
        append: Callable[[VerificationGuard | None], Awaitable[Appended]],
    ) -> Appended:
        """In turn: `allow` where the batch still opens a transaction by then, and append."""
        header = transactional_header(batches)
        if header is None:
            raise InvalidRecordError("a batch that is not transactional has nothing to verify")
        async with self._turn(header.producer_id):
            if not opens_transaction(header):
                return await append(None)
            with self.begin(header.producer_id, header.producer_epoch) as guard:
                await allow(guard)
                return await append(guard)

    @asynccontextmanager
    async def _turn(self, producer_id: ProducerId) -> AsyncIterator[None]:
        """Wait for all that have come before for this producer."""
        turn = self._turns.setdefault(producer_id, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[producer_id]

    def is_queued(self, producer_id: ProducerId) -> bool:
        """Whether batches of this producer wait: what comes now has its turn behind them."""
        return producer_id in self._turns


def transactional_header(batches: Buffer) -> BatchHeader | None:
    """That of the first batch, where it is a transactional one; nothing of it is checked. A look at one byte for all
    others.
    """
    if len(batches) < HEADER_SIZE or not batches[_LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT:
        return None
    return read_header(batches, 0) if batches[MAGIC_POSITION] == MAGIC else None
