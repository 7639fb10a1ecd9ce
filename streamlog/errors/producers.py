"""Idempotent producers and transactions."""

from __future__ import annotations

from typing import Final, Self

from streamlog.errors.base import StreamlogError

_SEQUENCES: Final = 1 << 31  # 2^31-1 is followed by 0


class OutOfOrderSequenceError(StreamlogError):
    """Details: `limit` (the sequence that was expected), `oldest` (the first one that the leader still remembers), and
    `oldest_offset` (of that one).
    """

    code = "OUT_OF_ORDER_SEQUENCE"

    def is_repeat(self, first: int, count: int) -> bool:
        """Whether the batch ends below all that the leader remembers of its producer: so it is in the log, at an offset
        that is no longer known. One that only overlaps with these is another batch.
        """
        oldest = self._number("oldest")
        return oldest is not None and count <= (oldest - first) % _SEQUENCES < _SEQUENCES // 2

    def committed(self, high_watermark: int) -> Self:
        """Without `oldest` while what is before it may still be lost: then it is no proof of a repeat."""
        offset = self._number("oldest_offset")
        if offset is None or offset <= high_watermark:
            return self
        return self.restored(self.message, {name: value for name, value in self.details.items() if name != "oldest"})


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
