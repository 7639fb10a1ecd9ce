"""Calls a record of the hot paths are the committed ones (`make bench-count`)."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from streamlog.records import encode_batch
from streamlog.sim.process import PROCESS, Process
from tests.calls.committed import PYTHONS, changes, committed
from tests.calls.counting import Call, by_process, counted_calls
from tests.calls.paths import count_all


@pytest.mark.skipif(sys.hexversion not in PYTHONS, reason="the figures are those of Python 3.11, from 3.11.3 on")
@pytest.mark.timeout(300)
def test_calls_a_record_are_the_committed_ones() -> None:
    different = changes(committed(), count_all()[0])
    assert not different, "\n".join([*different, "if that is meant: .venv/bin/python -m tests.calls --write"])


def test_what_is_counted() -> None:
    def encode() -> None:
        encode_batch([b"v"], timestamps=1)

    encode()
    with counted_calls() as first:
        encode()
    with counted_calls() as second:
        for _ in range(3):
            encode()
        Process("other").context().run(encode)
        sorted([3, 1, 2])  # by the test, not by streamlog
    once = first.total()
    assert once > 3
    assert by_process(second) == Counter({"": 3 * once, "other": once})
    assert second[Call("other", "records/batch.py:encode_batch")] == 1
    assert PROCESS.get() is None


def test_changes_in_both_directions_are_seen() -> None:
    before = {"send": {"leader": 100.0, "client": 50.0}, "old": {"leader": 1.0}}
    now = {"send": {"leader": 97.9, "client": 51.0}, "new": {"leader": 1.0}}
    assert changes(before, now) == [
        "new, leader: None committed, 1.0 now",
        "old, leader: 1.0 committed, None now",
        "send, leader: 100.0 calls a record committed, 97.9 now",
    ]
    assert changes(before, before) == []
