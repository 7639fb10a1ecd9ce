"""Comparing the end of a follower's log with the leader's (I20)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamlog.model import LeaderEpoch, Offset
from streamlog.records.held_batch import HeldBatch
from streamlog.replication.joining import UnprovenEpochs, first_difference, first_epoch_difference


def held(base: int, size: int = 1, *, epoch: int = 0, crc: int | None = None, origin: int | None = None) -> HeldBatch:
    said = base if crc is None else crc
    return HeldBatch(Offset(base), Offset(base + size), LeaderEpoch(epoch), said, said if origin is None else origin)


LOG = [held(base) for base in range(20)]


def difference(
    theirs: Sequence[HeldBatch], *, gaps: bool = False, fetch: int | None = None, start: int = 0
) -> int | None:
    return first_difference(
        theirs,
        LOG,
        fetch_offset=theirs[-1].next_offset if fetch is None else Offset(fetch),
        log_start=Offset(start),
        has_gaps=gaps,
    )


@pytest.mark.parametrize("gaps", [False, True])
def test_the_same_batches_differ_nowhere(gaps: bool) -> None:
    assert difference(LOG, gaps=gaps) is None
    assert difference(LOG[3:9], gaps=gaps) is None


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize(
    "moved", [held(11, crc=8), held(8, epoch=3), held(8, crc=5), held(8, 2, crc=8), held(7, 3, crc=8)]
)
def test_a_damaged_last_batch_differs_from_its_begin_on(moved: HeldBatch, gaps: bool) -> None:
    assert difference([*LOG[4:8], moved], gaps=gaps) in (7, 8)


def test_a_hole_differs_from_its_begin_on() -> None:
    assert difference([*LOG[4:8], *LOG[9:12]]) == 8
    assert difference([*LOG[4:8], *LOG[9:12]], gaps=True) is None  # 8 may have been cleaned away
    assert difference(LOG[4:8], fetch=11) == 8


def test_where_none_agrees_the_first_is_where_to_look_further_back() -> None:
    assert difference([held(base, crc=77) for base in range(6, 9)]) == 6


def test_what_compaction_may_have_done_is_no_difference() -> None:
    cleaned = [held(4, 3, crc=99), held(7)]
    ours = [held(4, 3, crc=4, origin=99), held(7)]
    ends = {"fetch_offset": Offset(8), "log_start": Offset(0)}
    assert first_difference(cleaned, ours, has_gaps=True, **ends) is None
    assert first_difference(cleaned, ours, has_gaps=False, **ends) == 4


def test_what_the_leader_has_deleted_is_not_compared() -> None:
    assert difference([held(2, crc=99), *LOG[3:6]], start=3) is None


OURS = [(LeaderEpoch(1), Offset(0)), (LeaderEpoch(4), Offset(60)), (LeaderEpoch(7), Offset(90))]


@pytest.mark.parametrize(
    ("start", "theirs", "fetch", "expected"),
    [
        (0, [(1, 0), (4, 60), (7, 90)], 100, None),
        (30, [(1, 30), (4, 60)], 80, None),  # the end of its log is in epoch 4
        (0, [(0, 0), (1, 3), (4, 60)], 80, 0),  # its first batch was of epoch 1
        (0, [(1, 0), (3, 42), (4, 60)], 80, 42),  # the last batch of epoch 1
        (0, [(1, 0), (4, 61)], 80, 60),  # the first batch of epoch 4
        (60, [(5, 60)], 80, 60),
        (0, [(4, 60)], 80, 0),  # a batch without an epoch
        (0, [(1, 0), (4, 60), (8, 90)], 90, None),  # no record of epoch 8
    ],
)
def test_epochs_that_the_follower_cannot_prove_are_the_leaders(
    start: int, theirs: list[tuple[int, int]], fetch: int, expected: int | None
) -> None:
    unproven = UnprovenEpochs(Offset(start), [(LeaderEpoch(epoch), Offset(first)) for epoch, first in theirs])
    assert first_epoch_difference(unproven, OURS, fetch_offset=Offset(fetch)) == expected


def test_epochs_below_the_leaders_log_start_are_not_compared() -> None:
    unproven = UnprovenEpochs(Offset(0), [(LeaderEpoch(3), Offset(0)), (LeaderEpoch(4), Offset(60))])
    assert first_epoch_difference(unproven, OURS[1:], fetch_offset=Offset(80)) is None
    assert first_epoch_difference(unproven, [], fetch_offset=Offset(80)) is None
