"""Some cases of `make damage`, and that the finder finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlog.model import LeaderEpoch
from streamlog.records import scan_headers
from streamlog.storage.log import examination, reading
from streamlog.storage.segments.batch_checks import BatchContext, IntactBatches
from tests.damage import __main__ as damage
from tests.damage.__main__ import chosen
from tests.damage.case import REPAIRED, REPORTED, WRONG, Case, _Look, outcome_of, scene
from tests.damage.harm import harms, kinds

EVERY = 200


def test_nothing_is_wrong_after_damage() -> None:
    found = [(str(case), outcome_of(case)) for case in chosen(quick=False, match="")[7::EVERY]]
    assert len(found) >= 15
    assert [(case, outcome.why) for case, outcome in found if outcome.what == WRONG] == []
    assert {outcome.what for _, outcome in found} >= {REPAIRED}


@pytest.mark.parametrize("target", ["leader", "all"])
def test_a_topic_id_that_has_become_another_costs_no_records(target: str) -> None:
    """All nodes are killed; the leader takes its log for another topic's, and starts with an empty one."""
    (case,) = chosen(quick=False, match=f"partition.metadata count line flipped (plain) on {target}, killed")
    outcome = outcome_of(case)
    assert outcome.what != WRONG, outcome.why


@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_aborted_records_are_not_given_where_the_segment_of_the_marker_is_lost(state: str) -> None:
    """On all nodes; their index of aborted transactions is there, and one record is in the segment before."""
    (case,) = chosen(quick=False, match=f"closed log all removed (tx) on all, {state}")
    outcome = outcome_of(case)
    assert outcome.what == REPORTED, outcome.why
    assert "partition repair tx-0" in outcome.why


def test_a_node_that_serves_what_it_reads_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finder sees damage that is served: verification is left out."""
    made = scene(False)
    leader = made.leaders["plain"]
    path = kinds(made.files[leader], "plain")["closed log"]
    harm = next(
        one
        for one in harms("closed log", path, made.files[leader][path])
        if (one.region, one.how) == ("tail", "flipped")  # of a value: only the checksum covers it
    )
    monkeypatch.setattr(reading, "check_batches", _believed)
    monkeypatch.setattr(examination, "intact_prefix", lambda data, context: (_believed(data, context), None))
    assert outcome_of(Case("plain", harm, "leader", "stopped")).what == WRONG


def test_a_read_without_end_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """All copies are damaged, so the partition has no leader: right only because the nodes say why."""
    (case,) = chosen(quick=False, match="active log crc cut (plain) on all, stopped")
    outcome = outcome_of(case)
    assert outcome.what == REPORTED
    assert "path=/data/plain-0/" in outcome.why
    monkeypatch.setattr(_Look, "_news", lambda look: [])
    assert outcome_of(case).what == WRONG


def test_a_run_goes_on_where_its_log_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, ran = tmp_path / "damage.log", []

    def run_case(case: Case) -> damage.Result:
        ran.append(str(case))
        what = WRONG if case.target == "all" else REPAIRED
        return damage.Result(case=str(case), kind=case.harm.kind, what=what, why="why", cpu_s=0.5)

    monkeypatch.setattr(damage, "run_case", run_case)
    arguments = ["--match", "meta.properties all removed (plain)", "--jobs", "1", "--log", str(log)]
    assert damage.main(arguments) == 1
    before = len(ran)
    log.write_bytes(log.read_bytes()[:-10])  # stopped while the last line was written
    capsys.readouterr()
    assert damage.main(arguments) == 1
    assert before == 6  # leader, follower, all; stopped, killed
    assert ran == [*ran[:before], ran[before - 1]]
    assert capsys.readouterr().out.splitlines()[-1] == "6 cases, 0.50 s of CPU each, 2 wrong"


def _believed(data: bytes, context: BatchContext) -> IntactBatches:
    found = [
        (context.position + position, header)
        for position, header in scan_headers(data, 0, min(len(data), context.stop - context.position))
    ]
    last = found[-1] if found else None
    end = context.position if last is None else last[0] + last[1].size_bytes
    return IntactBatches(end, context.expected if last is None else last[1].next_offset, LeaderEpoch(0), found)
