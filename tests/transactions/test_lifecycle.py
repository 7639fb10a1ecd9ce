"""The life of a transactional id, transition by transition (SEMANTICS 7, KIP-98, KIP-890, KIP-939)."""

from __future__ import annotations

from typing import TypeVar

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from streamlog.errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    InvalidTransactionStateError,
    ProducerFencedError,
    UnknownProducerIdError,
)
from streamlog.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, PartitionId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.transactions import lifecycle
from streamlog.transactions.codec import decode, encode
from streamlog.transactions.lifecycle import (
    TRANSACTION_EPOCH_MAX,
    AddPartitions,
    Ended,
    EndTransaction,
    InitProducer,
    TransactionalProducer,
    TransactionDecision,
)
from streamlog.transactions.records import TWO_PHASE, TransactionStatus, TransactionValue

T_0, T_1 = (TopicPartition("t", PartitionId(n)) for n in range(2))
TIMEOUT_MS = 60_000
R = TypeVar("R")


class Coordinator(Struct):
    """Of one id, `x`. What is decided is replayed at once, through the bytes."""

    value: TransactionValue | None = None
    now_ms: int = 1_000
    fresh: int = 100
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def carry_out(self, decision: TransactionDecision[R]) -> R:
        if decision.record is not None:
            self.log.append(encode(decision.record))
            self.value = decode(*self.log[-1]).value
        return decision.response

    def init(
        self, before: TransactionalProducer | None = None, *, timeout_ms: int = TIMEOUT_MS, keep: bool = False
    ) -> TransactionalProducer:
        """As the shell does it: an open transaction is aborted first."""
        self.fresh += 1
        command = InitProducer(
            transactional_id="x",
            timeout_ms=timeout_ms,
            fresh_producer_id=ProducerId(self.fresh),
            producer_id=NO_PRODUCER_ID if before is None else before.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if before is None else before.producer_epoch,
            keep_prepared=keep,
        )
        if lifecycle.must_abort_first(command, self.value):
            self.abort(command.producer_epoch)
            self.complete()
        return self.carry_out(lifecycle.init(command, self.value, self.now_ms))

    def abort(self, claimed_epoch: ProducerEpoch = NO_PRODUCER_EPOCH) -> None:
        assert self.value is not None
        self.fresh += 1
        self.carry_out(lifecycle.abort_open("x", self.value, ProducerId(self.fresh), claimed_epoch, self.now_ms))

    def add(self, producer: TransactionalProducer, *partitions: TopicPartition) -> None:
        self.carry_out(lifecycle.add_partitions(adding(producer, *partitions), self.value, self.now_ms))

    def verify(self, producer: TransactionalProducer, *partitions: TopicPartition) -> None:
        lifecycle.verify(adding(producer, *partitions), self.value)

    def end(self, producer: TransactionalProducer, *recurring: TopicPartition, commit: bool = True) -> Ended:
        self.fresh += 1
        command = EndTransaction(
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            commit=commit,
            fresh_producer_id=ProducerId(self.fresh),
            recurring=frozenset(recurring),
        )
        return self.carry_out(lifecycle.end(command, self.value, self.now_ms))

    def complete(self) -> None:
        assert self.value is not None
        self.carry_out(lifecycle.complete("x", self.value, self.now_ms))

    @property
    def state(self) -> TransactionStatus:
        assert self.value is not None
        return self.value.state


def adding(producer: TransactionalProducer, *partitions: TopicPartition) -> AddPartitions:
    return AddPartitions(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        partitions=frozenset(partitions),
    )


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_a_transaction_from_its_beginning_to_its_end(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    assert (producer.producer_epoch, coordinator.state) == (0, TransactionStatus.EMPTY)
    coordinator.add(producer, T_0)
    coordinator.add(producer, T_0, T_1)
    coordinator.verify(producer, T_0, T_1)
    assert coordinator.state is TransactionStatus.ONGOING
    ended = coordinator.end(producer)
    assert (ended.was_open, ended.producer.producer_epoch) == (True, 1)
    assert coordinator.state is TransactionStatus.PREPARE_COMMIT
    assert coordinator.value is not None
    assert coordinator.value.partitions == {T_0, T_1}
    assert lifecycle.marker_of(coordinator.value) == (producer.producer_id, 1)
    coordinator.complete()
    assert coordinator.state is TransactionStatus.COMPLETE_COMMIT
    assert coordinator.value.partitions == frozenset()
    coordinator.add(ended.producer, T_1)
    assert coordinator.state is TransactionStatus.ONGOING


def test_while_markers_are_late_the_next_transaction_is_not_opened_and_gets_no_partitions(
    coordinator: Coordinator,
) -> None:
    """It could not be ended before they are written, and would hold back the readers of its partitions."""
    producer = coordinator.init()
    coordinator.add(producer, T_0)
    following = coordinator.end(producer).producer
    coordinator.now_ms += lifecycle.NEXT_MS + 1
    with pytest.raises(ConcurrentTransactionsError):
        coordinator.add(following, T_0)
    coordinator.now_ms -= 1
    coordinator.add(following, T_0)
    coordinator.now_ms += lifecycle.NEXT_MS + 1
    coordinator.add(following, T_0)
    with pytest.raises(ConcurrentTransactionsError):
        coordinator.add(following, T_1)
    coordinator.complete()
    coordinator.add(following, T_1)


def test_what_is_added_already_is_not_written_again(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, T_0, T_1)
    written = len(coordinator.log)
    coordinator.add(producer, T_1)
    assert len(coordinator.log) == written


def test_another_producer_fences_the_one_before_and_aborts_its_transaction(coordinator: Coordinator) -> None:
    zombie = coordinator.init()
    coordinator.add(zombie, T_0)
    producer = coordinator.init()
    assert (producer.producer_id, producer.producer_epoch) == (zombie.producer_id, 2)
    for attempt in (
        lambda: coordinator.add(zombie, T_1),
        lambda: coordinator.verify(zombie, T_0),
        lambda: coordinator.end(zombie),
        lambda: coordinator.init(zombie),
    ):
        with pytest.raises(ProducerFencedError):
            attempt()


def test_a_late_batch_of_a_transaction_finds_none_open(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, T_0)
    following = coordinator.end(producer).producer
    with pytest.raises(ProducerFencedError):
        coordinator.add(producer, T_0)
    with pytest.raises(InvalidTransactionStateError):
        coordinator.verify(following, T_0)
    coordinator.complete()
    with pytest.raises(ProducerFencedError):
        coordinator.verify(producer, T_0)
    with pytest.raises(InvalidTransactionStateError):
        coordinator.verify(following, T_0)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("completed", [True, False])
def test_a_retried_end_is_answered_again_and_never_decided_twice(
    coordinator: Coordinator, commit: bool, completed: bool
) -> None:
    producer = coordinator.init()
    coordinator.add(producer, T_0)
    first = coordinator.end(producer, commit=commit)
    if completed:
        coordinator.complete()
    written = len(coordinator.log)
    again = coordinator.end(producer, commit=commit)
    assert (again.producer, again.was_open) == (first.producer, False)
    with pytest.raises(ProducerFencedError):
        coordinator.end(producer, commit=not commit)
    assert len(coordinator.log) == written


def test_the_next_transaction_opens_while_the_markers_are_written(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, T_0)
    following = coordinator.end(producer).producer
    coordinator.now_ms += 5
    coordinator.add(following, T_1)
    coordinator.verify(following, T_1)
    written = len(coordinator.log)
    coordinator.add(following, T_1)
    assert len(coordinator.log) == written
    assert coordinator.value is not None
    assert (coordinator.value.partitions, coordinator.value.next_partitions) == ({T_0}, {T_1})
    for attempt in (lambda: coordinator.end(following), lambda: coordinator.init(), lambda: coordinator.abort()):
        with pytest.raises(ConcurrentTransactionsError):
            attempt()
    coordinator.complete()
    assert coordinator.state is TransactionStatus.ONGOING
    assert (coordinator.value.partitions, coordinator.value.next_partitions) == ({T_1}, frozenset())
    assert coordinator.value.started_ms == coordinator.now_ms
    assert coordinator.end(following).was_open


def ahead(coordinator: Coordinator, *, commit: bool = True) -> tuple[TransactionalProducer, TransactionalProducer]:
    """A transaction that has ended, and the next one that was opened with its end."""
    producer = coordinator.init()
    coordinator.add(producer, T_0, T_1)
    return producer, coordinator.end(producer, T_0, commit=commit).producer


def test_the_next_transaction_can_be_opened_with_the_end(coordinator: Coordinator) -> None:
    _, following = ahead(coordinator)
    coordinator.verify(following, T_0)
    coordinator.complete()
    coordinator.verify(following, T_0)
    assert coordinator.value is not None
    assert coordinator.value.partitions == {T_0}
    used_by_ms = coordinator.now_ms + TIMEOUT_MS + lifecycle.AHEAD_MS
    assert lifecycle.left_ms(coordinator.value, used_by_ms - 1) == 1, "its first record comes later"
    assert lifecycle.left_ms(coordinator.value, used_by_ms) == 0


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("completed", [True, False])
@pytest.mark.parametrize("aborted", [True, False])
def test_an_end_is_answered_again_though_the_next_transaction_is_open_or_is_over(
    coordinator: Coordinator, commit: bool, completed: bool, aborted: bool
) -> None:
    producer, following = ahead(coordinator, commit=commit)
    if completed or aborted:
        coordinator.complete()
    if aborted:
        coordinator.abort()
        if completed:
            coordinator.complete()
    written = len(coordinator.log)
    again = coordinator.end(producer, T_0, commit=commit)
    assert (again.was_open, again.producer.producer_epoch) == (False, following.producer_epoch + aborted)
    with pytest.raises(ProducerFencedError):
        coordinator.end(producer, commit=not commit)
    assert len(coordinator.log) == written


def test_the_outcome_of_an_end_does_not_count_for_later_ones(coordinator: Coordinator) -> None:
    producer, following = ahead(coordinator)
    coordinator.complete()
    third = coordinator.end(following, commit=False).producer
    coordinator.complete()
    assert not coordinator.end(producer).was_open
    coordinator.add(third, T_0)
    for late in (producer, following):
        for commit in (True, False):
            with pytest.raises(ProducerFencedError):
                coordinator.end(late, commit=commit)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("completed", [True, False])
def test_what_was_opened_and_not_used_is_closed_under_its_epoch(
    coordinator: Coordinator, commit: bool, completed: bool
) -> None:
    producer, following = ahead(coordinator, commit=commit)
    if completed:
        coordinator.complete()
    assert coordinator.value is not None
    coordinator.carry_out(lifecycle.close_unused("x", coordinator.value, coordinator.now_ms))
    with pytest.raises(InvalidTransactionStateError):
        coordinator.verify(following, T_0)
    if not completed:
        coordinator.complete()
    assert coordinator.state is (TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT)
    with pytest.raises(InvalidTransactionStateError):
        lifecycle.close_unused("x", coordinator.value, coordinator.now_ms)
    assert coordinator.end(producer, commit=commit).producer == following
    coordinator.add(following, T_1)
    assert coordinator.end(following).was_open


def test_none_is_opened_ahead_for_an_outside_coordinator_nor_under_the_last_epoch(coordinator: Coordinator) -> None:
    producer = coordinator.init(timeout_ms=TWO_PHASE)
    coordinator.add(producer, T_0)
    coordinator.end(producer, T_0)
    assert coordinator.value is not None
    assert not coordinator.value.has_next
    coordinator.complete()
    for epoch in (TRANSACTION_EPOCH_MAX - 1, TRANSACTION_EPOCH_MAX):
        producer = coordinator.init()
        coordinator.value = replace(coordinator.value, producer_epoch=ProducerEpoch(epoch))
        producer = replace(producer, producer_epoch=ProducerEpoch(epoch))
        coordinator.add(producer, T_0)
        coordinator.end(producer, T_0)
        assert not coordinator.value.has_next
        coordinator.complete()


def test_there_is_nothing_to_end(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    assert not coordinator.end(producer).was_open
    coordinator.add(producer, T_0)
    following = coordinator.end(producer).producer
    coordinator.complete()
    with pytest.raises(InvalidTransactionStateError):
        coordinator.end(following)


@pytest.mark.parametrize("completed", [True, False])
def test_what_is_late_of_a_transaction_given_up_before_it_was_open_opens_none(
    coordinator: Coordinator, completed: bool
) -> None:
    """Its batches have the sequences of the next transaction's: there they would be taken for repetitions of those."""
    producer = coordinator.init()
    if completed:
        coordinator.add(producer, T_0)
        producer = coordinator.end(producer).producer
        coordinator.complete()
    given_up = coordinator.end(producer, commit=False)
    assert not given_up.was_open
    assert given_up.producer.producer_epoch == producer.producer_epoch + 1
    assert coordinator.end(producer, commit=False).producer == given_up.producer
    with pytest.raises(ProducerFencedError):
        coordinator.add(producer, T_0)
    coordinator.add(given_up.producer, T_0)


def test_who_is_not_known_and_who_is_ahead(coordinator: Coordinator) -> None:
    unknown = TransactionalProducer(producer_id=ProducerId(1), producer_epoch=ProducerEpoch(0))
    with pytest.raises(UnknownProducerIdError):
        coordinator.add(unknown, T_0)
    producer = coordinator.init()
    with pytest.raises(InvalidRequestError):
        coordinator.add(replace(producer, producer_epoch=ProducerEpoch(5)), T_0)
    with pytest.raises(ProducerFencedError):
        coordinator.add(unknown, T_0)


def test_epochs_that_are_used_up_give_way_to_another_producer_id(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    assert coordinator.value is not None
    coordinator.value = replace(coordinator.value, producer_epoch=ProducerEpoch(TRANSACTION_EPOCH_MAX))
    producer = replace(producer, producer_epoch=ProducerEpoch(TRANSACTION_EPOCH_MAX))
    coordinator.add(producer, T_0)
    assert lifecycle.needs_fresh_id(coordinator.value)
    ended = coordinator.end(producer)
    assert ended.producer.producer_epoch == 0
    assert ended.producer.producer_id != producer.producer_id
    assert lifecycle.marker_of(coordinator.value) == (producer.producer_id, TRANSACTION_EPOCH_MAX + 1)
    assert coordinator.end(producer).producer == ended.producer
    coordinator.complete()
    coordinator.add(ended.producer, T_0)
    with pytest.raises(ProducerFencedError):
        coordinator.add(producer, T_0)


@pytest.mark.parametrize("commit", [True, False])
def test_a_producer_fenced_long_ago_does_not_end_the_last_transaction_of_its_id(
    coordinator: Coordinator, *, commit: bool
) -> None:
    zombie = coordinator.init()
    assert coordinator.value is not None
    coordinator.value = replace(coordinator.value, producer_epoch=ProducerEpoch(TRANSACTION_EPOCH_MAX))
    producer = replace(zombie, producer_epoch=ProducerEpoch(TRANSACTION_EPOCH_MAX))
    coordinator.add(producer, T_0)
    coordinator.end(producer, commit=commit)
    with pytest.raises(ProducerFencedError):
        coordinator.end(zombie, commit=commit)
    coordinator.complete()
    with pytest.raises(ProducerFencedError):
        coordinator.end(zombie, commit=commit)


def test_a_transaction_that_is_open_too_long(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, T_0)
    assert coordinator.value is not None
    assert lifecycle.left_ms(coordinator.value, coordinator.now_ms + TIMEOUT_MS - 1) == 1
    assert lifecycle.left_ms(coordinator.value, coordinator.now_ms + TIMEOUT_MS) == 0
    assert lifecycle.left_ms(coordinator.value, coordinator.now_ms + 10 * TIMEOUT_MS) == 0
    assert lifecycle.left_ms(coordinator.value, coordinator.now_ms - 10 * TIMEOUT_MS) == TIMEOUT_MS, "another clock"
    coordinator.abort()
    assert coordinator.state is TransactionStatus.PREPARE_ABORT
    with pytest.raises(ProducerFencedError):
        coordinator.end(producer)
    with pytest.raises(InvalidTransactionStateError):
        coordinator.abort()


def test_an_outside_coordinator_ends_what_is_prepared(coordinator: Coordinator) -> None:
    producer = coordinator.init(timeout_ms=TWO_PHASE)
    coordinator.add(producer, T_0)
    assert coordinator.value is not None
    assert lifecycle.left_ms(coordinator.value, 2**60) is None
    returned = coordinator.init(timeout_ms=TWO_PHASE, keep=True)
    assert (returned.open_producer_id, returned.open_producer_epoch) == (producer.producer_id, 0)
    assert coordinator.state is TransactionStatus.ONGOING
    with pytest.raises(ProducerFencedError):
        coordinator.end(producer)
    assert coordinator.end(returned).was_open
    assert coordinator.state is TransactionStatus.PREPARE_COMMIT
    with pytest.raises(ConcurrentTransactionsError):
        coordinator.init(timeout_ms=TWO_PHASE, keep=True)


def test_a_transaction_is_kept_under_the_same_epoch_each_time(coordinator: Coordinator) -> None:
    """An outside coordinator compares: with another epoch it would abort what is decided (KIP-939)."""
    producer = coordinator.init(timeout_ms=TWO_PHASE)
    coordinator.add(producer, T_0)
    kept = [coordinator.init(timeout_ms=TWO_PHASE, keep=True) for _ in range(3)]
    assert [one.open_producer_epoch for one in kept] == [0, 0, 0]
    assert [one.producer_epoch for one in kept] == [1, 2, 3]
    following = coordinator.end(kept[-1]).producer
    coordinator.complete()
    coordinator.add(following, T_0)
    kept = [coordinator.init(timeout_ms=TWO_PHASE, keep=True) for _ in range(2)]
    assert [one.open_producer_epoch for one in kept] == [following.producer_epoch] * 2


def test_a_producer_names_itself_again_until_it_has_used_its_new_epoch(coordinator: Coordinator) -> None:
    """The response was lost (KIP-360)."""
    producer = coordinator.init()
    named = coordinator.init(producer)
    assert named.producer_epoch == 1
    assert coordinator.init(producer) == named
    coordinator.add(named, T_0)
    with pytest.raises(ProducerFencedError):
        coordinator.init(producer)


def test_a_producer_whose_transaction_is_aborted_for_it_names_itself_again(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, T_0)
    coordinator.abort(producer.producer_epoch)  # it gives up waiting for the markers
    with pytest.raises(ConcurrentTransactionsError):
        coordinator.init(producer)
    coordinator.complete()
    named = coordinator.init(producer)
    assert coordinator.init(producer) == named
    coordinator.end(named, commit=False)
    with pytest.raises(ProducerFencedError):
        coordinator.init(producer)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_producer_names_itself_again_though_its_epochs_were_used_up(coordinator: Coordinator, is_open: bool) -> None:
    """The response with another producer id was lost, with an open transaction that is aborted first or without."""
    producer = replace(coordinator.init(), producer_epoch=ProducerEpoch(TRANSACTION_EPOCH_MAX))
    assert coordinator.value is not None
    coordinator.value = replace(coordinator.value, producer_epoch=producer.producer_epoch)
    if is_open:
        coordinator.add(producer, T_0)
    named = coordinator.init(producer)
    assert named.producer_id != producer.producer_id
    assert coordinator.init(producer) == named
    with pytest.raises(ProducerFencedError):
        coordinator.init(replace(producer, producer_epoch=ProducerEpoch(0)))
    other = coordinator.init()
    assert other == replace(named, producer_epoch=ProducerEpoch(named.producer_epoch + 1))
    with pytest.raises(ProducerFencedError):
        coordinator.init(producer)


@pytest.mark.parametrize("commits_nothing", [True, False])
def test_a_late_call_of_a_producer_with_the_former_id_does_not_fence_it(
    coordinator: Coordinator, commits_nothing: bool
) -> None:
    producer = replace(coordinator.init(), producer_epoch=ProducerEpoch(TRANSACTION_EPOCH_MAX))
    assert coordinator.value is not None
    coordinator.value = replace(coordinator.value, producer_epoch=producer.producer_epoch)
    named = coordinator.init(producer)
    if commits_nothing:
        coordinator.end(named)
    else:
        coordinator.add(named, T_0)
    with pytest.raises(ProducerFencedError):
        coordinator.init(producer)
    coordinator.add(named, T_1)


@pytest.mark.parametrize("is_aborted_for_it", [True, False])
def test_a_producer_that_another_one_has_replaced_is_fenced(
    coordinator: Coordinator, *, is_aborted_for_it: bool
) -> None:
    producer = coordinator.init()
    coordinator.add(producer, T_0)
    coordinator.abort(producer.producer_epoch if is_aborted_for_it else NO_PRODUCER_EPOCH)
    coordinator.complete()
    if is_aborted_for_it:
        coordinator.init()
    with pytest.raises(ProducerFencedError):
        coordinator.init(producer)


def test_only_two_phase_transactions_are_kept(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, T_0)
    with pytest.raises(InvalidTransactionStateError):
        coordinator.init(keep=True)


def test_an_id_that_is_not_used_is_forgotten(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    assert coordinator.value is not None
    assert not coordinator.carry_out(lifecycle.expire("x", coordinator.value, coordinator.now_ms + 9, 10))
    coordinator.add(producer, T_0)
    assert not coordinator.carry_out(lifecycle.expire("x", coordinator.value, coordinator.now_ms + 99, 10))
    coordinator.end(producer)
    assert not coordinator.carry_out(lifecycle.expire("x", coordinator.value, coordinator.now_ms + 99, 10))
    coordinator.complete()
    assert coordinator.carry_out(lifecycle.expire("x", coordinator.value, coordinator.now_ms + 10, 10))
    assert coordinator.value is None


def test_golden_bytes(coordinator: Coordinator) -> None:
    """After TransactionLogKey.json and TransactionLogValue.json, by hand."""
    producer = coordinator.init()
    coordinator.add(producer, T_0)
    key, value = coordinator.log[-1]
    assert key == bytes.fromhex("0000 0001 78")
    assert value == bytes.fromhex(
        "0001 0000000000000065 0000 0000ea60 0102 02 74 02 00000000 0000000000000003e8 00000000000003e801 02 02 0002"
    )


def test_golden_bytes_of_what_kafka_does_not_have(coordinator: Coordinator) -> None:
    """In tagged fields of our own, behind Kafka's: tag, size, content."""
    ahead(coordinator)
    _, value = coordinator.log[-1]
    assert value is not None
    tagged = bytes.fromhex("02 02 02 0002 904e 11 00000000000003e8 02 02 74 02 00000000 00")
    assert value.endswith(tagged)
    coordinator.complete()
    _, value = coordinator.log[-1]
    assert value is not None
    assert value.endswith(bytes.fromhex("02 02 02 0002 914e 01 01"))


def test_golden_bytes_of_epochs_that_kafka_does_not_have(coordinator: Coordinator) -> None:
    coordinator.init(coordinator.init(timeout_ms=TWO_PHASE), timeout_ms=TWO_PHASE)
    _, value = coordinator.log[-1]
    assert value is not None
    assert value.endswith(bytes.fromhex("02 02 02 0002 934e 02 0000"))
    assert coordinator.value is not None
    producer = TransactionalProducer(producer_id=coordinator.value.producer_id, producer_epoch=ProducerEpoch(1))
    coordinator.add(producer, T_0)
    coordinator.init(timeout_ms=TWO_PHASE, keep=True)
    _, value = coordinator.log[-1]
    assert value is not None
    assert value.endswith(bytes.fromhex("02 02 02 0002 924e 02 0001"))
