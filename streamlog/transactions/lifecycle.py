"""The life of a transactional id, as its coordinator decides it.

    (none) --init----------------------------------> EMPTY
    EMPTY, COMPLETE_* --init-----------------------> EMPTY, under the next epoch: whoever had the id before is fenced
                      --add partitions-------------> ONGOING
                      --end: abort-----------------> COMPLETE_ABORT, under the next epoch: what is late of the
                                                     transaction opens none any more
    ONGOING --add partitions-----------------------> ONGOING, with those too
            --end: commit | abort------------------> PREPARE_COMMIT | PREPARE_ABORT, under the next epoch
            --init, or its time is over------------> PREPARE_ABORT, under the next epoch: the producer is fenced
            --init that keeps what is prepared-----> ONGOING, under the next epoch (two-phase commit)
    PREPARE_* --add partitions, under that epoch---> PREPARE_*, with the next transaction open behind it
              --all markers are written------------> COMPLETE_*; ONGOING where the next transaction is open
    EMPTY, COMPLETE_* --long not used--------------> (none)

A producer that writes to the same partitions in each transaction has the next one opened by the record that decides
the end (`EndTransaction.recurring`), so that no leader waits for a record of its own. Until a leader or the producer
has used that transaction it can be closed again (`close_unused`).

Retries are answered as the first time: ending a transaction that has already ended with the same outcome succeeds,
under the old epoch as under the new one; the other outcome is refused. An answer without a record holds at every later
coordinator; where it would not, a record that changes nothing is written first (`_commit_of_nothing`).

Errors: ProducerFencedError for an epoch that is over; ConcurrentTransactionsError (retriable) while markers are being
written; InvalidTransactionStateError for what cannot be now.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from streamlog.errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    InvalidTransactionStateError,
    ProducerFencedError,
    UnknownProducerIdError,
)
from streamlog.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from streamlog.transactions.records import (
    NO_TIME,
    PREPARED,
    TWO_PHASE,
    TransactionRecord,
    TransactionStatus,
    TransactionValue,
)

R_co = TypeVar("R_co", covariant=True)

EPOCH_MAX: Final = 32_766
"""The last epoch that a producer gets; the one above it is left for fencing. Then it gets another producer id."""
AHEAD_MS: Final = 1_000
"""For how long a transaction that was opened with the end before it waits to be used."""


class TransactionDecision(Struct, Generic[R_co], frozen=True, kw_only=True):
    response: R_co
    record: TransactionRecord | None = None  # None: nothing changes


class TransactionalProducer(Struct, frozen=True, kw_only=True):
    """Who may go on under a transactional id."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    # Of a transaction that an outside coordinator has yet to end, by the ids that it has written under; NO_*: none.
    open_producer_id: ProducerId = NO_PRODUCER_ID
    open_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class InitProducer(Struct, frozen=True, kw_only=True):
    """A producer begins. `fresh_producer_id` is for an id that has none, or has used up its epochs."""

    transactional_id: str
    timeout_ms: int  # or TWO_PHASE
    fresh_producer_id: ProducerId
    producer_id: ProducerId = NO_PRODUCER_ID  # what it had, where it goes on after an error; both or none
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    keep_prepared: bool = False


class AddPartitions(Struct, frozen=True, kw_only=True):
    """Asked by the leaders of the partitions, and by group coordinators, before the first append."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]


class EndTransaction(Struct, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: bool
    fresh_producer_id: ProducerId = NO_PRODUCER_ID  # needed where the epochs are used up (`needs_fresh_id`)
    recurring: frozenset[TopicPartition] = frozenset()  # what the next transaction is opened with; empty: it is not


class Ended(Struct, frozen=True, kw_only=True):
    """`producer`: for the next transaction, once the markers are written."""

    producer: TransactionalProducer
    was_open: bool  # False: there was nothing to end, or it had ended so already


def init(
    command: InitProducer, before: TransactionValue | None, now_ms: int
) -> TransactionDecision[TransactionalProducer]:
    """ConcurrentTransactionsError: the transaction of before is being ended, by this decision or by an earlier one; ask
    again. ProducerFencedError: somebody else has begun under the id meanwhile.
    """
    if before is None:
        value = _empty(command, command.fresh_producer_id, ProducerEpoch(0), now_ms)
        return TransactionDecision(response=_producer(value), record=TransactionRecord(command.transactional_id, value))
    _check_claim(command, before)
    if before.state in PREPARED:
        raise _being_ended(command.transactional_id)
    if before.state is TransactionStatus.ONGOING:
        if not command.keep_prepared:
            raise InvalidTransactionStateError(
                f"the transaction of {command.transactional_id!r} is open: it is to be aborted first"
            )
        return _keep(command, before, now_ms)
    producer_id, epoch = _next_epoch(before, command.fresh_producer_id)
    value = _empty(command, producer_id, epoch, now_ms)
    return TransactionDecision(response=_producer(value), record=TransactionRecord(command.transactional_id, value))


def must_abort_first(command: InitProducer, before: TransactionValue | None) -> bool:
    """Whether the open transaction of the id is to be aborted (`abort_open`) before `init` can be decided."""
    if before is None or before.state is not TransactionStatus.ONGOING or command.keep_prepared:
        return False
    _check_claim(command, before)
    return True


def abort_open(
    transactional_id: str, before: TransactionValue, fresh_producer_id: ProducerId, now_ms: int
) -> TransactionDecision[TransactionValue]:
    """Decide to abort, and fence the producer: another one begins, the time is over, or an operator says so.
    InvalidTransactionStateError; ConcurrentTransactionsError while it waits for the end of the one before.
    """
    if before.state in PREPARED and before.has_next:
        raise _being_ended(transactional_id)
    if before.state is not TransactionStatus.ONGOING:
        raise InvalidTransactionStateError(f"{transactional_id!r} has no open transaction")
    value = _prepared(before, commit=False, fresh_producer_id=fresh_producer_id, now_ms=now_ms)
    return TransactionDecision(response=value, record=TransactionRecord(transactional_id, value))


def add_partitions(command: AddPartitions, before: TransactionValue | None, now_ms: int) -> TransactionDecision[None]:
    """Nothing is written where all of them are in it already."""
    value = _check_producer(command.transactional_id, command.producer_id, command.producer_epoch, before)
    if value.state in PREPARED:
        return _add_to_next(command, value, now_ms)
    if value.state is TransactionStatus.ONGOING:
        if command.partitions <= value.partitions:
            return TransactionDecision(response=None)
        grown = replace(value, partitions=value.partitions | command.partitions, updated_ms=now_ms)
    else:
        grown = replace(
            value,
            state=TransactionStatus.ONGOING,
            partitions=command.partitions,
            started_ms=now_ms,
            updated_ms=now_ms,
            former_committed=None,
        )
    return TransactionDecision(response=None, record=TransactionRecord(command.transactional_id, grown))


def _add_to_next(command: AddPartitions, before: TransactionValue, now_ms: int) -> TransactionDecision[None]:
    """Its producer has been told how the one before ends. The partitions see to it that it follows: nothing is appended
    under its epoch before the marker.
    """
    if before.has_next and command.partitions <= before.next_partitions:
        return TransactionDecision(response=None)
    value = replace(
        before,
        next_partitions=before.next_partitions | command.partitions,
        next_started_ms=before.next_started_ms if before.has_next else now_ms,
        updated_ms=now_ms,
    )
    return TransactionDecision(response=None, record=TransactionRecord(command.transactional_id, value))


def verify(command: AddPartitions, before: TransactionValue | None) -> None:
    """Whether the transaction is open and has these partitions. As `add_partitions`, and nothing changes."""
    value = _check_producer(command.transactional_id, command.producer_id, command.producer_epoch, before)
    is_open, partitions = (
        (value.has_next, value.next_partitions)
        if value.state in PREPARED
        else (value.state is TransactionStatus.ONGOING, value.partitions)
    )
    if not is_open or not command.partitions <= partitions:
        raise InvalidTransactionStateError(
            f"{command.transactional_id!r} has no open transaction with these partitions"
        )


def end(command: EndTransaction, before: TransactionValue | None, now_ms: int) -> TransactionDecision[Ended]:
    """Decide on the outcome, or find that it has been decided so."""
    if before is not None and _has_ended_so(command, before):
        return TransactionDecision(response=Ended(producer=_producer(before), was_open=False))
    value = _check_producer(command.transactional_id, command.producer_id, command.producer_epoch, before)
    if value.state in PREPARED:
        raise _being_ended(command.transactional_id)
    if value.state is not TransactionStatus.ONGOING:
        if not command.commit:
            return _abort_of_nothing(command, value, now_ms)
        if value.state is TransactionStatus.EMPTY:
            return _commit_of_nothing(command, value, now_ms)
        raise InvalidTransactionStateError(f"{command.transactional_id!r} has no open transaction to commit")
    ended = _prepared(value, commit=command.commit, fresh_producer_id=command.fresh_producer_id, now_ms=now_ms)
    if command.recurring and _may_open_ahead(value, ended):
        ended = replace(ended, next_partitions=command.recurring, next_started_ms=now_ms)
    return TransactionDecision(
        response=Ended(producer=_producer(ended), was_open=True),
        record=TransactionRecord(command.transactional_id, ended),
    )


def _may_open_ahead(before: TransactionValue, ended: TransactionValue) -> bool:
    """Not where nobody would end it, nor next to a change of the producer id, which a retry is told apart by."""
    return ended.timeout_ms != TWO_PHASE and ended.producer_id == before.producer_id and not needs_fresh_id(ended)


def complete(transactional_id: str, before: TransactionValue, now_ms: int) -> TransactionDecision[None]:
    """All partitions have their markers."""
    if before.state not in PREPARED:
        raise InvalidTransactionStateError(f"{transactional_id!r} has no end that is decided")
    committed = before.state is TransactionStatus.PREPARE_COMMIT
    value = replace(
        before,
        state=TransactionStatus.ONGOING if before.has_next else _complete(committed=committed),
        partitions=before.next_partitions,
        started_ms=before.next_started_ms,
        updated_ms=now_ms,
        next_partitions=frozenset(),
        next_started_ms=NO_TIME,
        former_committed=committed if before.has_next else before.former_committed,
    )
    return TransactionDecision(response=None, record=TransactionRecord(transactional_id, value))


def close_unused(transactional_id: str, before: TransactionValue, now_ms: int) -> TransactionDecision[None]:
    """Take back a transaction that was opened with the end before it. Only for the coordinator that has opened it, and
    knows that it has told nobody that it is open: its epoch stays, for the producer goes on with it.
    """
    if before.state in PREPARED and before.has_next:
        value = replace(before, next_partitions=frozenset(), next_started_ms=NO_TIME, updated_ms=now_ms)
    elif before.state is TransactionStatus.ONGOING and before.former_committed is not None:
        value = replace(
            before,
            state=_complete(committed=before.former_committed),
            partitions=frozenset(),
            started_ms=NO_TIME,
            updated_ms=now_ms,
            former_committed=None,
        )
    else:
        raise InvalidTransactionStateError(f"{transactional_id!r} has no transaction that was opened ahead")
    return TransactionDecision(response=None, record=TransactionRecord(transactional_id, value))


def expire(
    transactional_id: str, before: TransactionValue, now_ms: int, expiration_ms: int
) -> TransactionDecision[bool]:
    """Forget an id that has long not been used."""
    idle = before.state not in PREPARED and before.state is not TransactionStatus.ONGOING
    if not idle or now_ms - before.updated_ms < expiration_ms:
        return TransactionDecision(response=False)
    return TransactionDecision(response=True, record=TransactionRecord(transactional_id, None))


def left_ms(value: TransactionValue, now_ms: int) -> int | None:
    """How much longer an open transaction may stay open, 0: no longer; None: as long as it likes.

    Never more than its whole time, wherever the clocks of this node and of the one that opened it stand. One that was
    open before its first record has so much longer.
    """
    if value.state is not TransactionStatus.ONGOING or value.timeout_ms == TWO_PHASE:
        return None
    whole_ms = value.timeout_ms + (0 if value.former_committed is None else AHEAD_MS)
    return min(max(0, value.started_ms + whole_ms - now_ms), whole_ms)


def needs_fresh_id(value: TransactionValue | None) -> bool:
    """Whether the next epoch will be another producer id's."""
    return value is None or value.producer_epoch >= EPOCH_MAX


def known(transactional_id: str, value: TransactionValue | None) -> TransactionValue:
    """UnknownProducerIdError where there is none."""
    if value is None:
        raise UnknownProducerIdError(
            f"transactional id {transactional_id!r} is not known here; begin with InitProducerId",
            field="transactional_id",
        )
    return value


# -- within


def _check_claim(command: InitProducer, before: TransactionValue) -> None:
    """A producer that names what it had must be the one that has it."""
    if command.producer_id == NO_PRODUCER_ID:
        return
    if command.producer_id == before.producer_id and command.producer_epoch == before.producer_epoch:
        return
    if command.producer_id == before.previous_producer_id and command.producer_epoch >= EPOCH_MAX:
        return
    raise _fenced(command.transactional_id, command.producer_epoch, before)


def _check_producer(
    transactional_id: str, producer_id: ProducerId, epoch: ProducerEpoch, before: TransactionValue | None
) -> TransactionValue:
    before = known(transactional_id, before)
    if producer_id != before.producer_id or epoch < before.producer_epoch:
        raise _fenced(transactional_id, epoch, before)
    if epoch > before.producer_epoch:
        raise InvalidRequestError(
            f"{transactional_id!r} is in epoch {before.producer_epoch}, not {epoch}",
            field="producer_epoch",
            limit=before.producer_epoch,
        )
    return before


def _has_ended_so(command: EndTransaction, before: TransactionValue) -> bool:
    """A retry, by the epoch that the transaction had: its answer was lost. The next one may have been opened, and have
    been aborted since its time was over; the producer that asks cannot have used it.
    """
    if command.producer_id != before.producer_id:
        changed_id = command.producer_id == before.previous_producer_id and before.producer_epoch == 0
        return changed_id and _committed(before) == command.commit
    if command.producer_epoch == before.producer_epoch - 1:
        is_next_open = before.state is TransactionStatus.ONGOING
        return (before.former_committed if is_next_open else _committed(before)) == command.commit
    if command.producer_epoch == before.producer_epoch - 2:
        return before.state is not TransactionStatus.ONGOING and before.former_committed == command.commit
    return False


def _committed(value: TransactionValue) -> bool | None:
    """How the transaction ended that the state tells of; None: it tells of none that has."""
    if value.state in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT):
        return True
    return False if value.state in (TransactionStatus.PREPARE_ABORT, TransactionStatus.COMPLETE_ABORT) else None


def _complete(*, committed: bool) -> TransactionStatus:
    return TransactionStatus.COMPLETE_COMMIT if committed else TransactionStatus.COMPLETE_ABORT


def _prepared(
    before: TransactionValue, *, commit: bool, fresh_producer_id: ProducerId, now_ms: int
) -> TransactionValue:
    """The next transaction's id and epoch stand in the record from now on; `marker_of` tells those of the markers."""
    producer_id, epoch = _next_epoch(before, fresh_producer_id)
    return replace(
        before,
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=before.producer_id if producer_id != before.producer_id else NO_PRODUCER_ID,
        state=TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT,
        updated_ms=now_ms,
    )


def _commit_of_nothing(command: EndTransaction, before: TransactionValue, now_ms: int) -> TransactionDecision[Ended]:
    """Nothing changes, and it is written all the same: a coordinator that has been replaced, and does not know it, has
    not heard that the transaction was begun. It cannot have this record replicated.
    """
    value = replace(before, updated_ms=now_ms)
    response = Ended(producer=_producer(value), was_open=False)
    return TransactionDecision(response=response, record=TransactionRecord(command.transactional_id, value))


def _abort_of_nothing(command: EndTransaction, before: TransactionValue, now_ms: int) -> TransactionDecision[Ended]:
    """The producer gave up what it had sent. A batch of it that is still on its way, or the question whether it may be
    appended, must not open a transaction under the epoch of the next one (KIP-890).
    """
    prepared = _prepared(before, commit=False, fresh_producer_id=command.fresh_producer_id, now_ms=now_ms)
    value = replace(prepared, state=TransactionStatus.COMPLETE_ABORT, former_committed=None)
    response = Ended(producer=_producer(value), was_open=False)
    return TransactionDecision(response=response, record=TransactionRecord(command.transactional_id, value))


def marker_of(value: TransactionValue) -> tuple[ProducerId, ProducerEpoch]:
    """Under which id and epoch the markers of a decided end are written: the epoch above that of the transaction, so
    that what is late of it is refused. Where its id's epochs are used up that is the one left for fencing.
    """
    if value.previous_producer_id != NO_PRODUCER_ID and value.producer_epoch == 0:
        return value.previous_producer_id, ProducerEpoch(EPOCH_MAX + 1)
    return value.producer_id, value.producer_epoch


def _next_epoch(before: TransactionValue, fresh_producer_id: ProducerId) -> tuple[ProducerId, ProducerEpoch]:
    if not needs_fresh_id(before):
        return before.producer_id, ProducerEpoch(before.producer_epoch + 1)
    if fresh_producer_id == NO_PRODUCER_ID:
        raise ConcurrentTransactionsError("another producer id is being allocated: ask again")
    return fresh_producer_id, ProducerEpoch(0)


def _keep(command: InitProducer, before: TransactionValue, now_ms: int) -> TransactionDecision[TransactionalProducer]:
    """Two-phase commit: the transaction stays open, under an epoch of the new producer's."""
    if before.timeout_ms != TWO_PHASE:
        raise InvalidTransactionStateError(
            f"the transaction of {command.transactional_id!r} is none of an outside coordinator, and is not kept"
        )
    if needs_fresh_id(before):
        raise InvalidTransactionStateError(
            f"{command.transactional_id!r} has used up its epochs while its transaction was open: end it first"
        )
    value = replace(
        before, producer_epoch=ProducerEpoch(before.producer_epoch + 1), updated_ms=now_ms, former_committed=None
    )
    response = replace(_producer(value), open_producer_id=before.producer_id, open_producer_epoch=before.producer_epoch)
    return TransactionDecision(response=response, record=TransactionRecord(command.transactional_id, value))


def _empty(command: InitProducer, producer_id: ProducerId, epoch: ProducerEpoch, now_ms: int) -> TransactionValue:
    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=command.timeout_ms,
        state=TransactionStatus.EMPTY,
        updated_ms=now_ms,
    )


def _producer(value: TransactionValue) -> TransactionalProducer:
    return TransactionalProducer(producer_id=value.producer_id, producer_epoch=value.producer_epoch)


def _being_ended(transactional_id: str) -> ConcurrentTransactionsError:
    return ConcurrentTransactionsError(f"the transaction of {transactional_id!r} is being ended: ask again")


def _fenced(transactional_id: str, epoch: ProducerEpoch, before: TransactionValue) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer epoch {epoch} of {transactional_id!r} is over, {before.producer_epoch} has begun",
        field="producer_epoch",
        limit=before.producer_epoch,
    )
