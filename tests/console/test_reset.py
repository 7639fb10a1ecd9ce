"""Where a group's offsets are reset to, as a user chooses and types it."""

from __future__ import annotations

import pytest

from streamlog.client.admin.offset_resets import ResetKind, ResetTo, inside
from streamlog.console.pages.groups.reset import reset_to
from streamlog.model import Offset, PartitionId, TopicPartition

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("place", "text", "expected"),
    [
        ("earliest", "", ResetTo(ResetKind.EARLIEST)),
        ("latest", "", ResetTo(ResetKind.LATEST)),
        ("offset", "17", ResetTo(ResetKind.OFFSET, 17)),
        ("shift", "-100", ResetTo(ResetKind.SHIFT, -100)),
        ("time", "2026-11-23T15:00:00+01:00", ResetTo(ResetKind.TIME, 1_795_442_400_000)),
        ("duration", "PT1H", ResetTo(ResetKind.TIME, NOW_MS - 3_600_000)),
        ("duration", "P999999D", ResetTo(ResetKind.TIME, 0)),
    ],
)
def test_places(place: str, text: str, expected: ResetTo) -> None:
    assert reset_to(place, text, NOW_MS) == expected


@pytest.mark.parametrize(
    ("place", "text"), [("offset", "-1"), ("offset", ""), ("shift", "x"), ("time", "noon"), ("duration", "1h")]
)
def test_what_is_no_place_is_refused_with_an_example(place: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"such as|number from 0"):
        reset_to(place, text, NOW_MS)


def test_offsets_outside_of_the_log_become_its_nearer_end() -> None:
    a, b = (TopicPartition("t", PartitionId(number)) for number in (0, 1))
    wanted = {a: Offset(3), b: Offset(900)}
    assert inside(wanted, {a: Offset(5), b: Offset(5)}, {a: Offset(10), b: Offset(10)}) == {a: 5, b: 10}
