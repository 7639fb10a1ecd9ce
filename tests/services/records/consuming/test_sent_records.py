"""What of the records sent to a member may be committed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidRequestError
from streamlog.model import LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.services.records.consuming.sent_records import SentRecords

A, B = TopicPartition("t", PartitionId(0)), TopicPartition("t", PartitionId(1))
E3 = LeaderEpoch(3)


def offsets(first: int, end: int) -> list[Offset]:
    return [Offset(number) for number in range(first, end)]


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
