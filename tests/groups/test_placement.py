"""The partition of a group, by Kafka's rule."""

from __future__ import annotations

import pytest

from streamlog.groups.placement import java_hash, partition_of


@pytest.mark.parametrize(("group", "partition"), [("group_demo", 41), ("xx", 40), ("", 0)])
def test_known_answers(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


def test_hash_of_java() -> None:
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_of("polygenelubricants", 50) == 0
    assert java_hash("😀") == 1772899  # two UTF-16 units
