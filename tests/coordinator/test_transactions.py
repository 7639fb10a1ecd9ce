"""The coordinator of transactions over a real log on a simulated machine: markers, loading, waiting, timers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from streamlog.coordinator.transactions import TRANSACTIONS_TOPIC
from streamlog.errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    InvalidTransactionStateError,
    NotCoordinatorError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.records import Partition, PartitionRecord
from streamlog.model import BrokerId, PartitionId, ProducerEpoch, TopicPartition
from streamlog.transactions.lifecycle import Ended, TransactionalProducer
from streamlog.transactions.markers import Grant
from streamlog.transactions.records import TransactionRecord, TransactionStatus
from tests.broker.rig import ME, OTHER, P0, topic_id
from tests.support.transaction_bench import (
    T_0,
    T_1,
    WAIT_S,
    Bench,
    check_that_no_marker_comes_before_its_decision_is_replicated,
)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.end()
    bench.rig.stop()
    bench.rig.machine.close()


def test_no_marker_comes_before_its_decision_is_replicated(bench: Bench) -> None:
    check_that_no_marker_comes_before_its_decision_is_replicated(bench)


def test_the_next_transaction_opens_behind_the_markers_and_does_not_end_before_them(bench: Bench) -> None:
    producer = bench.init()
    bench.run(bench.adding(producer))
    bench.link.reachable = False
    following = bench.run(bench.ending(producer)).producer
    bench.run(bench.adding(following))
    assert bench.state() is TransactionStatus.PREPARE_COMMIT
    with pytest.raises(ConcurrentTransactionsError, match="markers are missing in t-0; retry; if it stays so"):
        bench.run(bench.ending(following))
    bench.settle()
    with pytest.raises(ConcurrentTransactionsError, match="markers are missing in t-0; retry; if it stays so"):
        bench.run(bench.adding(following, T_1))
    ending = bench.start(bench.ending(following, commit=False))
    bench.link.reachable = True
    bench.settle()
    assert ending.result().was_open
    assert bench.state() is TransactionStatus.COMPLETE_ABORT
    assert [marker.marker.commit for _, marker in bench.link.written] == [True, False]


def test_what_waits_for_the_markers_is_answered_when_the_node_stops(bench: Bench) -> None:
    producer = bench.init()
    bench.run(bench.adding(producer))
    bench.link.reachable = False
    following = bench.run(bench.ending(producer)).producer
    bench.run(bench.adding(following))
    ending = bench.start(bench.ending(following))
    assert not ending.done()
    bench.end()
    bench.rig.rest()
    assert isinstance(ending.exception(), NotCoordinatorError)


def twice(bench: Bench) -> TransactionalProducer:
    """Two transactions with the same partition: the third one is open ahead."""
    producer = bench.init()
    for _ in range(2):
        bench.run(bench.adding(producer))
        producer = bench.run(bench.ending(producer)).producer
    return producer


def appended(bench: Bench) -> int:
    return bench.rig.leader(TRANSACTIONS_TOPIC).log_end_offset


def test_the_third_transaction_with_the_same_partitions_costs_no_record_to_open(bench: Bench) -> None:
    producer = twice(bench)
    bench.link.written.clear()
    bench.rig.rest(0.1)
    assert bench.state() is TransactionStatus.ONGOING
    before = appended(bench)
    bench.run(bench.adding(producer))
    assert appended(bench) == before
    bench.run(bench.adding(producer, T_1))
    assert appended(bench) == before + 1
    bench.run(bench.ending(producer))
    bench.settle()
    assert {marker.partition for _, marker in bench.link.written} == {T_0, T_1}


def test_the_markers_say_that_the_next_transaction_is_open(bench: Bench) -> None:
    twice(bench)
    bench.rig.rest(0.1)
    assert [marker.opens_next for _, marker in bench.link.written] == [False, True]


def test_a_partition_without_records_does_not_recur(bench: Bench) -> None:
    producer = twice(bench)
    bench.link.records = {T_1}
    for _ in range(2):  # T_0 is part of them, for they were opened with it
        bench.run(bench.adding(producer, T_1))
        producer = bench.run(bench.ending(producer)).producer
        bench.rig.rest(0.1)
        assert {marker.partition for _, marker in bench.link.written} == {T_0, T_1}
    bench.link.written.clear()
    bench.run(bench.adding(producer, T_1))
    bench.run(bench.ending(producer))
    bench.settle()
    assert {marker.partition for _, marker in bench.link.written} == {T_1}


def test_one_that_is_open_ahead_and_not_used_is_closed_without_a_word(bench: Bench) -> None:
    producer = twice(bench)
    bench.settle()
    assert bench.state() is TransactionStatus.COMPLETE_COMMIT
    assert bench.link.taken_back == [
        Grant(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, partitions=(T_0,))
    ]
    with pytest.raises(InvalidTransactionStateError, match="no open transaction to commit"):
        bench.run(bench.ending(producer))
    bench.run(bench.adding(producer))
    assert bench.run(bench.ending(producer)).was_open


def test_one_that_a_leader_has_used_without_asking_stays_open(bench: Bench) -> None:
    producer = twice(bench)
    bench.link.used = True
    bench.settle()
    assert bench.state() is TransactionStatus.ONGOING
    assert len(bench.link.taken_back) == 1
    assert bench.run(bench.ending(producer)).was_open


def test_one_whose_use_is_unknown_stays_open(bench: Bench) -> None:
    twice(bench)
    bench.rig.rest(0.1)
    bench.link.reachable = False
    bench.settle()
    assert bench.state() is TransactionStatus.ONGOING
    bench.link.reachable = True
    bench.settle()
    assert bench.state() is TransactionStatus.COMPLETE_COMMIT


def test_one_that_somebody_asks_about_while_it_is_taken_back_stays_open(bench: Bench) -> None:
    producer = twice(bench)
    asking = bench.adding(producer)

    async def take_back(node: BrokerId, grant: Grant) -> bool:
        await asking
        return False

    with patch.object(bench.link, "take_back", take_back):
        bench.settle()
    assert bench.state() is TransactionStatus.ONGOING


def test_another_producer_aborts_what_is_open_ahead(bench: Bench) -> None:
    producer = twice(bench)
    following = bench.init()
    assert following.producer_epoch == producer.producer_epoch + 2
    bench.settle()
    with pytest.raises(ProducerFencedError):
        bench.run(bench.adding(producer))


def test_who_takes_over_cannot_know_whether_one_is_used_and_leaves_it_open(bench: Bench) -> None:
    """A leader may have been granted it. Its time-out ends it, and its epoch."""
    producer = bench.init(timeout_ms=5_000)
    for _ in range(2):
        bench.run(bench.adding(producer))
        former, producer = producer, bench.run(bench.ending(producer)).producer
    bench.rig.change(2, leader=ME)
    bench.settle()
    assert bench.state() is TransactionStatus.ONGOING
    again = bench.run(bench.ending(former))
    assert (again.was_open, again.producer) == (False, producer), "the answer had been lost"
    for _ in range(3):
        bench.settle()
    assert bench.state() is TransactionStatus.COMPLETE_ABORT
    assert not bench.run(bench.ending(former)).was_open
    with pytest.raises(ProducerFencedError):
        bench.run(bench.ending(former, commit=False))


def test_a_verified_transaction_stays_open(bench: Bench) -> None:
    producer = twice(bench)
    bench.run(bench.adding(producer))
    bench.settle()
    assert bench.state() is TransactionStatus.ONGOING


def test_who_takes_over_ends_what_was_decided(bench: Bench) -> None:
    producer = bench.init()
    bench.run(bench.adding(producer))
    bench.link.reachable = False
    bench.run(bench.ending(producer))
    bench.rig.change(2, leader=ME)  # a new epoch: the state is rebuilt from the log
    bench.link.reachable = True
    bench.settle()
    assert bench.state() is TransactionStatus.COMPLETE_COMMIT
    assert {marker.marker.coordinator_epoch for _, marker in bench.link.written} == {1}


def test_a_partition_that_is_gone_needs_no_marker(bench: Bench) -> None:
    producer = bench.init()
    bench.run(bench.adding(producer))
    bench.link.reachable = False
    bench.run(bench.ending(producer))
    bench.rig.delete(1)
    bench.settle()
    assert (bench.state(), bench.link.written) == (TransactionStatus.COMPLETE_COMMIT, [])


@pytest.mark.parametrize("partition", [TopicPartition("new", P0), TopicPartition("t", PartitionId(1))])
def test_a_partition_is_added_once_the_coordinator_knows_it(bench: Bench, partition: TopicPartition) -> None:
    """Its leader may have applied it earlier. Taken for a deleted one at the end, it would get no marker."""
    producer = bench.init()
    adding = bench.start(bench.adding(producer, partition))
    bench.copied()
    bench.rig.rest(1)
    assert not adding.done()
    if partition.topic == "new":
        bench.rig.create("new", 4)
    else:
        added = Partition(replicas=(ME,), isr=(ME,), leader=ME)
        bench.rig.commit(PartitionRecord(topic_id=topic_id(1), partition_id=partition.partition, partition=added))
    bench.settle()
    adding.result()
    bench.run(bench.ending(producer))
    bench.settle()
    assert [marker.partition for _, marker in bench.link.written] == [partition]


def test_a_partition_that_the_coordinator_does_not_know_is_refused(bench: Bench) -> None:
    """Retriable: the producer has it added later."""
    producer = bench.init()
    with pytest.raises(UnknownTopicOrPartitionError, match="does not know new-0"):
        bench.run(bench.adding(producer, T_0, TopicPartition("new", P0)))
    assert bench.state() is TransactionStatus.EMPTY


def test_time_outs_run_on_after_loading(bench: Bench) -> None:
    bench.run(bench.adding(bench.init(timeout_ms=3_000)))
    bench.rig.change(2, leader=ME)
    bench.settle()
    assert bench.state() is TransactionStatus.ONGOING
    bench.settle()
    assert bench.state() is TransactionStatus.COMPLETE_ABORT


@pytest.mark.parametrize("jump_ms", [-1_000_000, 1_000_000])
def test_time_outs_do_not_jump_with_the_clock(bench: Bench, jump_ms: int) -> None:
    bench.run(bench.adding(bench.init(timeout_ms=3_000)))
    bench.rig.machine.clock.jump_ms += jump_ms
    bench.settle()
    assert bench.state() is TransactionStatus.ONGOING
    bench.settle()
    assert bench.state() is TransactionStatus.COMPLETE_ABORT


def test_whoever_takes_over_gives_no_more_than_the_whole_time(bench: Bench) -> None:
    """Its clock, or that of the one before, is wrong by hours."""
    bench.run(bench.adding(bench.init(timeout_ms=3_000)))
    bench.rig.machine.clock.jump_ms -= 10_000_000
    bench.rig.change(2, leader=ME)
    bench.settle()
    assert bench.state() is TransactionStatus.ONGOING
    bench.settle()
    assert bench.state() is TransactionStatus.COMPLETE_ABORT


# -- a coordinator that has been replaced, and does not know it


UNHEARD = [pytest.param(0, id="a commit of nothing"), pytest.param(2, id="an epoch that is not known here")]


def end_of_what_it_has_not_heard_of(bench: Bench, epoch: int) -> asyncio.Task[Ended]:
    """Else the commit of a transaction that another one coordinates by now would be a success, and no end of it."""
    producer = replace(bench.init(), producer_epoch=ProducerEpoch(epoch))
    ending = bench.start(bench.ending(producer))
    bench.rig.rest(1)
    assert not ending.done()
    return ending


@pytest.mark.parametrize("epoch", UNHEARD)
def test_a_replaced_coordinator_returns_no_unchanged_state(bench: Bench, epoch: int) -> None:
    ending = end_of_what_it_has_not_heard_of(bench, epoch)
    bench.rig.change(2, leader=OTHER)
    bench.rig.rest(1)
    assert isinstance(ending.exception(), NotCoordinatorError)


@pytest.mark.parametrize("epoch", UNHEARD)
def test_the_coordinator_returns_unchanged_state(bench: Bench, epoch: int) -> None:
    ending = end_of_what_it_has_not_heard_of(bench, epoch)
    bench.settle()
    if epoch:
        assert isinstance(ending.exception(), InvalidRequestError)
    else:
        assert not ending.result().was_open


def test_a_fenced_producer_gets_its_error_once_the_decision_is_replicated(bench: Bench) -> None:
    producer = bench.init()
    bench.run(bench.adding(producer))
    aborting = bench.start(bench.coordinator.abort("x", WAIT_S))
    ending = bench.start(bench.ending(producer))
    bench.rig.rest(1)
    assert not ending.done()
    bench.settle()
    assert isinstance(ending.exception(), ProducerFencedError)
    assert aborting.done()


def test_ids_are_listed_in_order_whatever_comes_and_goes(bench: Bench) -> None:
    bench.init()
    (shard,) = bench.coordinator._shards
    ((_, value),) = bench.coordinator.own_transactions("", 2)
    for step in range(200):
        name = f"x{step * 7 % 31}"
        shard._apply(TransactionRecord(name, None if step % 3 == 0 else value))
        listed = [one for one, _ in bench.coordinator.own_transactions("x1", 100)]
        assert listed == sorted(one for one in shard.values if one > "x1")
        assert [one for one, _ in bench.coordinator.own_transactions("", 3)] == sorted(shard.values)[:3]


def test_a_partition_that_another_node_had_meanwhile_was_not_listed_completely(bench: Bench) -> None:
    """A list goes on for several turns of the event loop: what was loaded again has lacked ids in between."""
    since = bench.coordinator.coordinated()
    assert since() == [P0]
    bench.rig.change(2, leader=OTHER)
    bench.rig.change(2, leader=ME)
    bench.settle()
    assert since() == []
    assert bench.coordinator.coordinated()() == [P0]
