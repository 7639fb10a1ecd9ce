"""What of the records sent to a member may be committed."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidRequestError
from streamlog.model import LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.services.records.consuming import sent_records
from streamlog.services.records.consuming.sent_records import SentRecords

A, B = TopicPartition("t", PartitionId(0)), TopicPartition("t", PartitionId(1))
E3 = LeaderEpoch(3)


def offsets(first: int, end: int) -> Sequence[Offset]:
    return cast(Sequence[Offset], range(first, end))


def test_what_is_acknowledged_is_taken_once_and_no_more() -> None:
    sent = SentRecords()
    assert sent.is_idle
    sent.add(A, offsets(5, 10), E3, in_order=False)
    assert sent.take() == {}
    sent.acknowledge(A, Offset(6))
    assert sent.take() == {A: (7, None)}
    assert sent.take() == {}
    sent.acknowledge(A, Offset(5))  # late
    assert sent.take() == {}
    sent.acknowledge(A, Offset(9))
    assert sent.is_idle
    assert sent.take() == {A: (10, E3)}
    sent.put_back([A, B])
    assert sent.take() == {A: (10, E3)}


def test_what_was_not_sent_cannot_be_acknowledged() -> None:
    sent = SentRecords()
    sent.add(A, offsets(0, 3), E3, in_order=False)
    with pytest.raises(InvalidRequestError, match="only records below 3 were sent"):
        sent.acknowledge(A, Offset(3))
    sent.acknowledge(B, Offset(8))  # perhaps once this member's
    assert sent.take() == {}


def test_acknowledgements_of_an_earlier_life_do_not_count() -> None:
    sent = SentRecords()
    sent.add(A, offsets(0, 9), E3, in_order=False)
    sent.forget([A])
    sent.acknowledge(A, Offset(8))
    sent.add(A, offsets(0, 2), E3, in_order=False)
    sent.acknowledge(A, Offset(8))
    assert sent.take() == {}
    sent.acknowledge(A, Offset(1))
    assert sent.take() == {A: (2, E3)}


def test_credits_acknowledge_in_the_order_of_the_stream_across_what_was_lost() -> None:
    sent = SentRecords()
    sent.add(A, offsets(0, 3), E3, in_order=True)
    sent.add(B, offsets(7, 9), E3, in_order=True)
    sent.acknowledge_oldest(1)
    assert sent.take() == {A: (1, None)}
    sent.forget([A])
    sent.acknowledge_oldest(3)
    assert sent.take() == {B: (8, None)}
    sent.acknowledge_oldest(5)
    assert sent.take() == {B: (9, E3)}
    assert sent.is_idle


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 5), st.integers(0, 6)), max_size=30))
def test_never_more_than_was_sent_and_acknowledged(steps: list[tuple[TopicPartition, int, int]]) -> None:
    sent, model = SentRecords(), {A: 0, B: 0}
    order: list[TopicPartition] = []
    done = {A: 0, B: 0}
    for partition, count, credits in steps:
        sent.add(partition, offsets(model[partition], model[partition] + count), E3, in_order=True)
        model[partition] += count
        order += [partition] * count
        sent.acknowledge_oldest(credits)
        for one in order[:credits]:
            done[one] += 1
        order = order[credits:]
        for one, (at, _) in sent.take().items():
            assert at == done[one]
        assert sent.is_idle == (not order)


def test_what_is_skipped_counts_as_acknowledged_where_all_before_it_is() -> None:
    sent = SentRecords()
    sent.skip(A, Offset(3))
    assert sent.take() == {A: (3, None)}
    sent.add(A, offsets(3, 5), E3, in_order=False)
    sent.skip(A, Offset(6))  # the records before it are not acknowledged
    assert sent.take() == {}
    sent.acknowledge(A, Offset(4))
    assert sent.take() == {A: (5, E3)}
    sent.skip(A, Offset(7))
    assert sent.is_idle
    assert sent.take() == {A: (7, None)}


class PlainRecords(SentRecords):
    """The model: each record in flight by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.order: deque[tuple[TopicPartition | None, Offset]] = deque()

    def add(self, partition: TopicPartition, offsets: Sequence[Offset], epoch: LeaderEpoch, *, in_order: bool) -> None:
        super().add(partition, offsets, epoch, in_order=False)
        if in_order:
            self.order.extend((partition, offset) for offset in offsets)

    def acknowledge_oldest(self, count: int) -> None:
        for _ in range(min(count, len(self.order))):
            partition, offset = self.order.popleft()
            if partition is not None:
                self.acknowledge(partition, offset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = list(partitions)
        super().forget(gone)
        self.order = deque((None if one in gone else one, offset) for one, offset in self.order)


some = st.sampled_from([A, B])
sending = st.tuples(st.just("add"), some, st.lists(st.integers(1, 3), min_size=1, max_size=4))
others = st.tuples(st.sampled_from(["acknowledge", "skip", "forget"]), some, st.integers(0, 20))
crediting = st.tuples(st.just("credits"), st.just(A), st.integers(0, 9))


@given(st.lists(st.one_of(sending, sending, crediting, crediting, others), max_size=40), st.booleans())
def test_runs_of_offsets_are_acknowledged_as_the_records_are(
    steps: list[tuple[str, TopicPartition, Any]], small: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(sent_records, "_TAKEN_MAX", 0)
            patch.setattr(sent_records, "_RUNS_AT_ONCE", 2)
        sent, model = SentRecords(), PlainRecords()
        end = {A: 0, B: 0}  # of what was sent since the partition was assigned
        for what, partition, value in steps:
            there = [Offset(at) for at in accumulate(value, initial=end[partition])][1:] if what == "add" else []
            for one in (sent, model):
                if what == "add":
                    one.add(partition, there, E3, in_order=True)
                elif what == "credits":
                    one.acknowledge_oldest(value)
                elif what == "skip":
                    one.skip(partition, Offset(end[partition] + value + 1))
                elif what == "forget":
                    one.forget([partition])
                elif value <= end[partition]:
                    with suppress(InvalidRequestError):
                        one.acknowledge(partition, Offset(value))
            if what in ("add", "forget"):
                end[partition] = there[-1] if there else 0
            assert sent.take() == model.take()
            assert sent.is_idle == model.is_idle


def memory_of(sent: SentRecords, parts: Iterable[tuple[TopicPartition, Sequence[Offset]]]) -> int:
    tracemalloc.start()
    try:
        for partition, some in parts:
            sent.add(partition, some, E3, in_order=True)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_million_unacknowledged_records_take_kilobytes() -> None:
    """A client may grant as many credits; where each response has one record it is the same."""
    sent = SentRecords()
    parts = ((one, offsets(at, at + 1_000)) for at in range(0, 500_000, 1_000) for one in (A, B))
    assert memory_of(sent, parts) < 30_000
    single = SentRecords()
    assert memory_of(single, ((A, offsets(at, at + 1)) for at in range(20_000))) < 5_000
    sent.acknowledge_oldest(999_999)
    assert sent.take() == {A: (500_000, E3), B: (499_999, None)}
    sent.acknowledge_oldest(1)
    assert sent.is_idle


@pytest.mark.parametrize("step", [1, 2])
def test_records_that_each_stand_alone_take_few_bytes(step: int) -> None:
    """Of partitions in turn, or with gaps between their offsets."""
    sent = SentRecords()
    both = [(one, offsets(at, at + 1)) for at in range(0, 20_000, step) for one in ((A, B) if step == 1 else (A,))]
    assert memory_of(sent, both) < 20 * len(both) + 5_000
    for _ in range(len(both) - 1):  # what is acknowledged is freed meanwhile
        sent.acknowledge_oldest(1)
    assert not sent.is_idle
    sent.acknowledge_oldest(1)
    assert sent.is_idle


def test_the_memory_of_acknowledged_records_is_freed() -> None:
    """Of a client that always has some that are unacknowledged."""

    def parts() -> Iterable[tuple[TopicPartition, Sequence[Offset]]]:
        for at in range(50_000):
            yield (A if at % 2 else B), offsets(at, at + 1)
            if at > 10:
                sent.acknowledge_oldest(1)

    sent = SentRecords()
    assert memory_of(sent, parts()) < 250_000
    assert not sent.is_idle
