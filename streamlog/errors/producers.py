"""Idempotent producers and transactions."""

from __future__ import annotations

from typing import Final, Self

from streamlog.errors.base import StreamlogError

_SEQUENCES: Final = 1 << 31  # 2^31-1 is followed by 0


class OutOfOrderSequenceError(StreamlogError):
    """Details: `limit` (the sequence that was expected). Of a leader that knows the producer: `end_offset`, below which
    a batch that ends before `limit` is in the log, and with acks=all `high_watermark`.
    """

    code = "OUT_OF_ORDER_SEQUENCE"

    def written_of(self, first: int, count: int) -> int:
        """How many of the batch's records come before what was expected: they are in the log, at offsets that are not
        known. All: it is older than all that the leader remembers, or was written in batches of other sizes. Some: an
        earlier request in batches of other sizes was written in part.
        """
        limit = self._number("limit") or 0
        if limit == 0 and "end_offset" not in self.details:
            return 0  # the leader knows nothing of this producer, or of its epoch
        before = (limit - first) % _SEQUENCES
        return min(before, count) if before < _SEQUENCES // 2 else 0

    def is_repeat(self, first: int, count: int) -> bool:
        """Whether all of it is in the log."""
        return self.written_of(first, count) == count

    @property
    def is_committed(self) -> bool:
        """Of a repeat. Before that its records may be lost, when another replica leads."""
        end, high_watermark = self._number("end_offset"), self._number("high_watermark")
        return end is None or high_watermark is None or end <= high_watermark

    def known_at(self, high_watermark: int) -> Self:
        return self.restored(self.message, {**self.details, "high_watermark": high_watermark})


class ProducerFencedError(StreamlogError):
    code = "PRODUCER_FENCED"


class UnknownProducerIdError(StreamlogError):
    code = "UNKNOWN_PRODUCER_ID"


class ConcurrentTransactionsError(StreamlogError):
    """The previous transaction's end is decided, but its markers are not written everywhere yet."""

    code = "CONCURRENT_TRANSACTIONS"
    retriable = True


class InvalidTransactionStateError(StreamlogError):
    """The request does not fit the transaction's state."""

    code = "INVALID_TXN_STATE"


class TransactionCoordinatorFencedError(StreamlogError):
    """A later leader of the coordinator's partition has already written a marker of this producer."""

    code = "TRANSACTION_COORDINATOR_FENCED"


class TransactionAbortableError(StreamlogError):
    """Part of the transaction was not written, so it cannot be committed: abort it, and begin another one."""

    code = "TRANSACTION_ABORTABLE"
