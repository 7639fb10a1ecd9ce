"""Offsets inside of transactions: which of several counts (KIP-447)."""

from __future__ import annotations

from streamlog.groups.pending import PendingOffsets
from streamlog.groups.records import GroupRecord, OffsetKey, OffsetValue
from streamlog.model import Offset, PartitionId, ProducerId

P0, P1 = (OffsetKey("g", "t", PartitionId(n)) for n in range(2))
ONE, OTHER = ProducerId(1), ProducerId(2)


def at(offset: int) -> OffsetValue:
    return OffsetValue(offset=Offset(offset), commit_timestamp_ms=0)


def test_a_marker_settles_what_its_producer_has_pending_and_nothing_else() -> None:
    pending = PendingOffsets()
    pending.add(ONE, P0, at(1))
    pending.add(OTHER, P1, at(2))
    pending.add(ONE, P0, at(3))
    assert list(pending.of_group("g")) == [P0, P1]
    assert pending.end(ONE, commit=True) == (GroupRecord(P0, at(3)),)
    assert (P0 in pending, P1 in pending) == (False, True)
    assert pending.end(OTHER, commit=False) == ()
    assert pending.end(ONE, commit=True) == ()
    assert len(pending) == 0


def test_a_later_record_of_no_transaction_overtakes_what_is_pending() -> None:
    pending = PendingOffsets()
    pending.add(ONE, P0, at(1))
    pending.add(ONE, P1, at(1))
    pending.on_record(P0)
    assert pending.end(ONE, commit=True) == (GroupRecord(P1, at(1)),)


def test_of_two_transactions_the_later_record_counts_whichever_marker_comes_first() -> None:
    for first, second, left in ((ONE, OTHER, (GroupRecord(P0, at(2)),)), (OTHER, ONE, ())):
        pending = PendingOffsets()
        pending.add(ONE, P0, at(1))
        pending.add(OTHER, P0, at(2))
        assert len(pending.end(first, commit=True)) == 1
        assert pending.end(second, commit=True) == left
