"""The demo's own parts, and all of it as `make demo` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from demo.lines import log_lines
from demo.reading import Verdict, compare
from demo.writing import Ack, Written
from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.model import Offset

LINES = {0: b"zero", 3: b"three", 6: b"six"}


def record(number: int, value: bytes | None = None) -> ConsumerRecord:
    return ConsumerRecord("t", 0, Offset(0), 0, b"%d" % number, LINES[number] if value is None else value, ())


def test_the_lines_are_all_there() -> None:
    lines = log_lines()
    assert len(lines) == 8_445
    assert all(lines)


def test_what_was_acknowledged_is_there_once_and_in_order() -> None:
    found = compare([0, 3, 6], [record(0), record(3), record(6)], LINES)
    assert found == Verdict(there=3, missing=0, twice=0, out_of_order=0)
    assert found.good


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([record(0), record(6)], Verdict(there=2, missing=1, twice=0, out_of_order=0)),
        ([record(0), record(3), record(3), record(6)], Verdict(there=2, missing=0, twice=1, out_of_order=0)),
        ([record(0), record(6), record(3)], Verdict(there=3, missing=0, twice=0, out_of_order=1)),
        ([record(0), record(3, b"other"), record(6)], Verdict(there=2, missing=1, twice=0, out_of_order=0)),
    ],
)
def test_what_is_wrong_is_seen(records: list[ConsumerRecord], expected: Verdict) -> None:
    found = compare([0, 3, 6], records, LINES)
    assert found == expected
    assert not found.good


def test_a_line_more_than_acknowledged_is_no_fault() -> None:
    assert compare([0, 3], [record(0), record(3), record(6)], LINES).good


def test_the_longest_pause_begins_with_the_first_line() -> None:
    acks = [Ack(0, Offset(0), 1.0, 1.5), Ack(1, Offset(1), 1.1, 3.0), Ack(2, Offset(2), 1.2, 3.1)]
    assert Written(acks={0: acks}).longest_pause_s(0) == 1.5
    assert Written(acks={0: acks[:1]}).longest_pause_s(0) == 0.5
    assert Written().longest_pause_s(0) == 0.0


@pytest.mark.process
def test_the_whole_demo(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--dir", str(tmp_path / "cluster")],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Produced 8,445 real log lines" in done.stdout
    assert "Consumed 8,445 lines" in done.stdout
    assert "kill -9 of node" in done.stdout
    assert "are identical, by SHA-256" in done.stdout
    assert "Every acknowledged line was read once and in order." in done.stdout
    assert done.stdout.endswith("All nodes are stopped.\n")
    assert done.stderr == ""
