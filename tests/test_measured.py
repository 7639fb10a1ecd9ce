"""docs/performance.md says what `make bench-peers WRITE=1` has measured, and its writer changes nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.peers import report
from bench.peers.clients import Row
from bench.peers.report import BEGIN, END, MeasuredPart


def row(ratio: float | None, target: float | None = None) -> Row:
    return Row(
        cell="send",
        client="streamlog" if ratio is None else "another",
        unit="records/s",
        median=123_456.0,
        smallest=1.5,
        largest=200_000.0,
        ratio=ratio,
        target=target,
        cpu_us=None,
    )


def test_the_page_has_the_measured_figures() -> None:
    page = report.PAGE.read_text()
    written, measured = page.partition(BEGIN)[2].partition(END)[0], report.measured()
    assert written == report.render(measured)
    assert report.PICTURE.exists() == bool(measured)


def test_a_part_measured_again_replaces_that_part_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(report, "draw", lambda *_: None)
    report.write({"sends": [row(None), row(2.0, 1.2)], "singles": [row(0.5, 1.0)]}, 5)
    report.write({"singles": [row(0.75, 1.0)]}, 7)
    written = page.read_text()
    assert written.startswith(f"before\n{BEGIN}")
    assert written.endswith(f"{END}after\n")
    assert "old" not in written
    assert "| 2.00 | 1.2 |" in written
    assert "**0.75**" in written, "a target that is missed stands out"
    assert "0.50" not in written
    assert "7 rounds" in written
    assert list(report.measured()) == ["sends", "singles"]


def test_what_ran_together_shares_a_table() -> None:
    now = report.conditions(5)
    parts = {part: MeasuredPart(conditions=now, rows=[row(2.0)]) for part in ("sends", "bulk")}
    parts["loops"] = MeasuredPart(conditions=msgspec.structs.replace(now, load=now.load + 1.5), rows=[row(2.0)])
    written = report.render(parts)
    assert written.count("| client |") == 1
    assert f"load average {now.load:g} to {now.load + 1.5:g} at the end" in written
