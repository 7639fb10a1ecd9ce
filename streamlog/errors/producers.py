"""Idempotent producers and transactions."""

from __future__ import annotations

from streamlog.errors.base import StreamlogError


class OutOfOrderSequenceError(StreamlogError):
    code = "OUT_OF_ORDER_SEQUENCE"


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
