"""The lifecycle of a transactional id, as its coordinator decides it.

    (none) --init----------------------------------> EMPTY
    EMPTY, COMPLETE_* --init-----------------------> EMPTY, with the next epoch: the previous producer is fenced
                      --add partitions-------------> ONGOING
                      --end: abort-----------------> COMPLETE_ABORT, with the next epoch: late batches of the
                                                     transaction cannot open another
    ONGOING --add partitions-----------------------> ONGOING, with these partitions too
            --end: commit | abort------------------> PREPARE_COMMIT | PREPARE_ABORT, with the next epoch
            --init, or timed out-------------------> PREPARE_ABORT, with the next epoch: the producer is fenced
            --init with keep_prepared--------------> ONGOING, with the next epoch (two-phase commit)
    PREPARE_* --add partitions, with that epoch----> PREPARE_*, and the next transaction is open; refused once the
                                                     markers are late (`NEXT_MS`)
              --all markers are written------------> COMPLETE_*; ONGOING where the next transaction is open
    EMPTY, COMPLETE_* --expired--------------------> (none)

A producer that writes to the same partitions in each transaction has the next one opened by the record that decides
the end (`EndTransaction.recurring`), so that no leader waits for a record of its own. Until a leader or the producer
has used that transaction it can be closed again (`close_unused`).

Retries are answered as the first time: ending a transaction that has already ended with the same outcome succeeds,
under the old epoch as under the new one; the other outcome is refused. A producer that named its id and epoch to be
initialized may name them again until it has used the new ones (`claimed_epoch`), and one that keeps a transaction gets
the same epoch of it each time (`kept_epoch`). An answer without a record holds at every later
coordinator; where it would not, a record that changes nothing is written first (`_commit_of_nothing`).

Errors: ProducerFencedError for a stale epoch; ConcurrentTransactionsError (retriable) while markers are being written;
InvalidTransactionStateError for a command that the state does not allow.
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
from streamlog.model import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PRODUCER_EPOCH_MAX,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from streamlog.transactions.records import (
    NO_TIME,
    PREPARED,
    TWO_PHASE,
    TransactionRecord,
    TransactionStatus,
    TransactionValue,
)

R_co = TypeVar("R_co", covariant=True)

TRANSACTION_EPOCH_MAX: Final = PRODUCER_EPOCH_MAX - 1
"""The last epoch of a producer id; the one above is reserved for fencing. Then another producer id is used."""
AHEAD_MS: Final = 1_000
"""How long a transaction that was opened in advance stays open unused."""
NEXT_MS: Final = 5_000
"""How long the next transaction may be opened, and get partitions, while markers are missing. A partition without a
leader may take hours, and nothing can end the next transaction before: not even its time-out."""


class TransactionDecision(Struct, Generic[R_co], frozen=True, kw_only=True):
    response: R_co
    record: TransactionRecord | None = None  # None: nothing changes


class TransactionalProducer(Struct, frozen=True, kw_only=True):
    """The current producer of a transactional id."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    # The id and epoch of an open transaction that an external coordinator has to end; NO_*: none.
    open_producer_id: ProducerId = NO_PRODUCER_ID
    open_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class InitProducer(Struct, frozen=True, kw_only=True):
    """Initialize a producer. `fresh_producer_id` is for an id without one, or one with exhausted epochs."""

    transactional_id: str
    timeout_ms: int  # or TWO_PHASE
    fresh_producer_id: ProducerId
    producer_id: ProducerId = NO_PRODUCER_ID  # its current id and epoch, to continue after an error; both or none
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    keep_prepared: bool = False


class AddPartitions(Struct, frozen=True, kw_only=True):
    """Sent by the leaders of the partitions, and by group coordinators, before the first append."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]


class EndTransaction(Struct, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: bool
    fresh_producer_id: ProducerId = NO_PRODUCER_ID  # needed when the epochs are exhausted (`needs_fresh_id`)
    recurring: frozenset[TopicPartition] = frozenset()  # opens the next transaction with these; empty: it is not opened


class Ended(Struct, frozen=True, kw_only=True):
    """`producer`: the id and epoch of the next transaction."""

    producer: TransactionalProducer
    was_open: bool  # False: nothing was open, or a retry


def init(
    command: InitProducer, before: TransactionValue | None, now_ms: int
) -> TransactionDecision[TransactionalProducer]:
    """ConcurrentTransactionsError: the previous transaction is being completed; retry. ProducerFencedError: another
    producer has been initialized with the id.
    """
    if before is None:
        value = _empty(command, command.fresh_producer_id, ProducerEpoch(0), now_ms)
        return TransactionDecision(response=_producer(value), record=TransactionRecord(command.transactional_id, value))
    _check_claim(command, before)
    if before.state in PREPARED:
        raise _being_ended(command.transactional_id)
    if before.state is TransactionStatus.EMPTY and _is_claimed_again(command, before):
        value = replace(before, updated_ms=now_ms)
        return TransactionDecision(response=_producer(value), record=TransactionRecord(command.transactional_id, value))
    if before.state is TransactionStatus.ONGOING:
        if not command.keep_prepared:
            raise InvalidTransactionStateError(
                f"the transaction of {command.transactional_id!r} is open; abort it first"
            )
        return _keep(command, before, now_ms)
    producer_id, epoch = _next_epoch(before, command.fresh_producer_id)
    value = _empty(command, producer_id, epoch, now_ms)
    return TransactionDecision(response=_producer(value), record=TransactionRecord(command.transactional_id, value))


def must_abort_first(command: InitProducer, before: TransactionValue | None) -> bool:
    """Whether the open transaction has to be aborted (`abort_open`) before `init`."""
    if before is None or before.state is not TransactionStatus.ONGOING or command.keep_prepared:
        return False
    _check_claim(command, before)
    return True


def abort_open(
    transactional_id: str,
    before: TransactionValue,
    fresh_producer_id: ProducerId,
    claimed_epoch: ProducerEpoch,
    now_ms: int,
) -> TransactionDecision[TransactionValue]:
    """Abort and fence the producer: for another producer, after the time-out, or for an operator. Raises
    InvalidTransactionStateError; ConcurrentTransactionsError while the previous transaction is being completed.
    `claimed_epoch`: of the producer that named itself to be initialized; NO_PRODUCER_EPOCH: none did.
    """
    if before.state in PREPARED and before.has_next:
        raise _being_ended(transactional_id)
    if before.state is not TransactionStatus.ONGOING:
        raise InvalidTransactionStateError(f"{transactional_id!r} has no open transaction")
    value = _prepared(before, commit=False, fresh_producer_id=fresh_producer_id, now_ms=now_ms)
    value = replace(value, claimed_epoch=claimed_epoch)
    return TransactionDecision(response=value, record=TransactionRecord(transactional_id, value))


def add_partitions(command: AddPartitions, before: TransactionValue | None, now_ms: int) -> TransactionDecision[None]:
    """No record if all partitions are in the transaction already."""
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
            claimed_epoch=NO_PRODUCER_EPOCH,
        )
    return TransactionDecision(response=None, record=TransactionRecord(command.transactional_id, grown))


def _add_to_next(command: AddPartitions, before: TransactionValue, now_ms: int) -> TransactionDecision[None]:
    """Add to the next transaction, whose producer knows the outcome of the previous one. Partitions accept no batch of
    its epoch before the marker. ConcurrentTransactionsError: the markers are late.
    """
    if before.has_next and command.partitions <= before.next_partitions:
        return TransactionDecision(response=None)
    if now_ms - (before.next_started_ms if before.has_next else before.updated_ms) > NEXT_MS:
        raise _being_ended(command.transactional_id)
    value = replace(
        before,
        next_partitions=before.next_partitions | command.partitions,
        next_started_ms=before.next_started_ms if before.has_next else now_ms,
        updated_ms=now_ms,
    )
    return TransactionDecision(response=None, record=TransactionRecord(command.transactional_id, value))


def verify(command: AddPartitions, before: TransactionValue | None) -> None:
    """Check that the transaction is open and has these partitions. Errors as of `add_partitions`."""
    value = _check_producer(command.transactional_id, command.producer_id, command.producer_epoch, before)
    is_open, partitions = (
        (value.has_next, value.next_partitions)
        if value.state in PREPARED
        else (value.state is TransactionStatus.ONGOING, value.partitions)
    )
    if not is_open or not command.partitions <= partitions:
        raise InvalidTransactionStateError(
            f"{command.transactional_id!r} has no open transaction with all of these partitions"
        )


def end(command: EndTransaction, before: TransactionValue | None, now_ms: int) -> TransactionDecision[Ended]:
    """Decide the outcome; a retry of the same outcome succeeds."""
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
    """Not without a time-out, which would leave it open, nor at a change of producer id, which identifies retries."""
    return ended.timeout_ms != TWO_PHASE and ended.producer_id == before.producer_id and not needs_fresh_id(ended)


def complete(transactional_id: str, before: TransactionValue, now_ms: int) -> TransactionDecision[None]:
    """All markers are written."""
    if before.state not in PREPARED:
        raise InvalidTransactionStateError(f"{transactional_id!r} has no prepared commit or abort")
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
    """Close a transaction that was opened in advance. Only for the coordinator that opened it and knows that no leader
    has used it: its epoch stays, since the producer continues with it.
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
        raise InvalidTransactionStateError(f"{transactional_id!r} has no transaction that was opened in advance")
    return TransactionDecision(response=None, record=TransactionRecord(transactional_id, value))


def expire(
    transactional_id: str, before: TransactionValue, now_ms: int, expiration_ms: int
) -> TransactionDecision[bool]:
    """Delete an id that has not been used for `expiration_ms`."""
    idle = before.state not in PREPARED and before.state is not TransactionStatus.ONGOING
    if not idle or now_ms - before.updated_ms < expiration_ms:
        return TransactionDecision(response=False)
    return TransactionDecision(response=True, record=TransactionRecord(transactional_id, None))


def left_ms(value: TransactionValue, now_ms: int) -> int | None:
    """Remaining time of an open transaction; 0: timed out; None: no time-out.

    At most its whole time-out, whatever the clocks of this node and the one that opened it show. A transaction opened
    in advance has AHEAD_MS more.
    """
    if value.state is not TransactionStatus.ONGOING or value.timeout_ms == TWO_PHASE:
        return None
    whole_ms = value.timeout_ms + (0 if value.former_committed is None else AHEAD_MS)
    return min(max(0, value.started_ms + whole_ms - now_ms), whole_ms)


def needs_fresh_id(value: TransactionValue | None) -> bool:
    """Whether the next epoch needs another producer id."""
    return value is None or value.producer_epoch >= TRANSACTION_EPOCH_MAX


def known(transactional_id: str, value: TransactionValue | None) -> TransactionValue:
    """UnknownProducerIdError where there is none."""
    if value is None:
        raise UnknownProducerIdError(
            f"unknown transactional id {transactional_id!r}; call InitProducerId first",
            field="transactional_id",
        )
    return value


# -- internals


def _check_claim(command: InitProducer, before: TransactionValue) -> None:
    """A producer that sends its id and epoch must be the current one."""
    if command.producer_id == NO_PRODUCER_ID:
        return
    if command.producer_id == before.producer_id and command.producer_epoch == before.producer_epoch:
        return
    if before.state is not TransactionStatus.ONGOING and _is_last_of_previous_id(command, before):
        return  # ONGOING: its producer has used the id that came after
    if _is_claimed_again(command, before):
        return
    raise _fenced(command.transactional_id, command.producer_epoch, before)


def _is_last_of_previous_id(command: InitProducer | EndTransaction, before: TransactionValue) -> bool:
    """Whether the command is of the producer whose id was replaced. Those of earlier epochs have been fenced."""
    return command.producer_id == before.previous_producer_id and command.producer_epoch >= TRANSACTION_EPOCH_MAX


def _is_claimed_again(command: InitProducer, before: TransactionValue) -> bool:
    """The call that led to this state, whose response was lost."""
    is_named = command.producer_id != NO_PRODUCER_ID and command.producer_epoch == before.claimed_epoch
    return is_named and command.producer_id in (before.producer_id, before.previous_producer_id)


def _check_producer(
    transactional_id: str, producer_id: ProducerId, epoch: ProducerEpoch, before: TransactionValue | None
) -> TransactionValue:
    before = known(transactional_id, before)
    if producer_id != before.producer_id or epoch < before.producer_epoch:
        raise _fenced(transactional_id, epoch, before)
    if epoch > before.producer_epoch:
        raise InvalidRequestError(
            f"unknown producer epoch {epoch} of {transactional_id!r}; current is {before.producer_epoch}",
            field="producer_epoch",
            limit=before.producer_epoch,
        )
    return before


def _has_ended_so(command: EndTransaction, before: TransactionValue) -> bool:
    """Whether this is a retry with the transaction's epoch, after a lost response. The next transaction may have been
    opened, and aborted by its time-out; the retrying producer cannot have used it.
    """
    if command.producer_id != before.producer_id:
        changed_id = _is_last_of_previous_id(command, before) and before.producer_epoch == 0
        return changed_id and _committed(before) == command.commit
    if command.producer_epoch == before.producer_epoch - 1:
        is_next_open = before.state is TransactionStatus.ONGOING
        return (before.former_committed if is_next_open else _committed(before)) == command.commit
    if command.producer_epoch == before.producer_epoch - 2:
        return before.state is not TransactionStatus.ONGOING and before.former_committed == command.commit
    return False


def _committed(value: TransactionValue) -> bool | None:
    """The outcome in the current state; None: it has none."""
    if value.state in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT):
        return True
    return False if value.state in (TransactionStatus.PREPARE_ABORT, TransactionStatus.COMPLETE_ABORT) else None


def _complete(*, committed: bool) -> TransactionStatus:
    return TransactionStatus.COMPLETE_COMMIT if committed else TransactionStatus.COMPLETE_ABORT


def _prepared(
    before: TransactionValue, *, commit: bool, fresh_producer_id: ProducerId, now_ms: int
) -> TransactionValue:
    """The record has the next transaction's id and epoch from now on; `marker_of` has those of the markers."""
    producer_id, epoch = _next_epoch(before, fresh_producer_id)
    return replace(
        before,
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=before.producer_id if producer_id != before.producer_id else NO_PRODUCER_ID,
        state=TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT,
        updated_ms=now_ms,
        kept_epoch=NO_PRODUCER_EPOCH,
        claimed_epoch=NO_PRODUCER_EPOCH,
    )


def _commit_of_nothing(command: EndTransaction, before: TransactionValue, now_ms: int) -> TransactionDecision[Ended]:
    """The state stays the same and is still written: a replaced coordinator that does not know it yet may have missed
    that the transaction was opened. It cannot replicate this record.
    """
    value = replace(before, updated_ms=now_ms, previous_producer_id=NO_PRODUCER_ID, claimed_epoch=NO_PRODUCER_EPOCH)
    response = Ended(producer=_producer(value), was_open=False)
    return TransactionDecision(response=response, record=TransactionRecord(command.transactional_id, value))


def _abort_of_nothing(command: EndTransaction, before: TransactionValue, now_ms: int) -> TransactionDecision[Ended]:
    """The producer aborted what it had sent. A late batch of it, or its verification, must not open a transaction with
    the epoch of the next one (KIP-890).
    """
    prepared = _prepared(before, commit=False, fresh_producer_id=command.fresh_producer_id, now_ms=now_ms)
    value = replace(prepared, state=TransactionStatus.COMPLETE_ABORT, former_committed=None)
    response = Ended(producer=_producer(value), was_open=False)
    return TransactionDecision(response=response, record=TransactionRecord(command.transactional_id, value))


def marker_of(value: TransactionValue) -> tuple[ProducerId, ProducerEpoch]:
    """Id and epoch of the markers of a prepared end: the epoch above the transaction's, so that its late batches are
    refused. With exhausted epochs it is the one reserved for fencing.
    """
    if value.previous_producer_id != NO_PRODUCER_ID and value.producer_epoch == 0:
        return value.previous_producer_id, ProducerEpoch(TRANSACTION_EPOCH_MAX + 1)
    return value.producer_id, value.producer_epoch


def _next_epoch(before: TransactionValue, fresh_producer_id: ProducerId) -> tuple[ProducerId, ProducerEpoch]:
    if not needs_fresh_id(before):
        return before.producer_id, ProducerEpoch(before.producer_epoch + 1)
    if fresh_producer_id == NO_PRODUCER_ID:
        raise ConcurrentTransactionsError("another producer id is being allocated; retry")
    return fresh_producer_id, ProducerEpoch(0)


def _keep(command: InitProducer, before: TransactionValue, now_ms: int) -> TransactionDecision[TransactionalProducer]:
    """Two-phase commit: the transaction stays open, and the new producer gets its own epoch."""
    if before.timeout_ms != TWO_PHASE:
        raise InvalidTransactionStateError(
            f"the transaction of {command.transactional_id!r} is not a two-phase commit; it cannot be kept"
        )
    if needs_fresh_id(before):
        raise InvalidTransactionStateError(
            f"{command.transactional_id!r} has exhausted its epochs in an open transaction; end it first"
        )
    kept_epoch = before.producer_epoch if before.kept_epoch == NO_PRODUCER_EPOCH else before.kept_epoch
    value = replace(
        before,
        producer_epoch=ProducerEpoch(before.producer_epoch + 1),
        updated_ms=now_ms,
        former_committed=None,
        kept_epoch=kept_epoch,
    )
    response = replace(_producer(value), open_producer_id=before.producer_id, open_producer_epoch=kept_epoch)
    return TransactionDecision(response=response, record=TransactionRecord(command.transactional_id, value))


def _empty(command: InitProducer, producer_id: ProducerId, epoch: ProducerEpoch, now_ms: int) -> TransactionValue:
    """The claim of `command` has been checked: another id that it names is the one before `producer_id`."""
    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=NO_PRODUCER_ID if command.producer_id == producer_id else command.producer_id,
        timeout_ms=command.timeout_ms,
        state=TransactionStatus.EMPTY,
        updated_ms=now_ms,
        claimed_epoch=command.producer_epoch,
    )


def _producer(value: TransactionValue) -> TransactionalProducer:
    return TransactionalProducer(producer_id=value.producer_id, producer_epoch=value.producer_epoch)


def _being_ended(transactional_id: str) -> ConcurrentTransactionsError:
    """Clients get that of `TransactionShard._being_completed` instead, which names the partitions without markers."""
    return ConcurrentTransactionsError(f"the transaction of {transactional_id!r} is still being completed; retry")


def _fenced(transactional_id: str, epoch: ProducerEpoch, before: TransactionValue) -> ProducerFencedError:
    return ProducerFencedError(
        f"stale producer epoch {epoch} of {transactional_id!r}; current is {before.producer_epoch}",
        field="producer_epoch",
        limit=before.producer_epoch,
    )
