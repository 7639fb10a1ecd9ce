"""Some cases of `make damage`, and that the finder finds."""

from __future__ import annotations

import pytest

from streamlog.model import LeaderEpoch
from streamlog.records import scan_headers
from streamlog.storage.log import examination, reading
from streamlog.storage.segments.batch_checks import BatchContext, IntactBatches
from tests.damage.__main__ import chosen
from tests.damage.case import REPAIRED, WRONG, Case, outcome_of, scene
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


def test_a_node_that_serves_what_it_reads_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finder sees damage that is served: verification is left out."""
    made = scene(False)
    leader = made.leaders["plain"]
    path = kinds(made.files[leader], "plain")["closed log"]
    harm = next(
        one
        for one in harms("closed log", path, made.files[leader][path])
        if (one.region, one.how) == ("base offset", "flipped")
    )
    monkeypatch.setattr(reading, "check_batches", _believed)
    monkeypatch.setattr(examination, "intact_prefix", lambda data, context: (_believed(data, context), None))
    assert outcome_of(Case("plain", harm, "leader", "stopped")).what == WRONG


def _believed(data: bytes, context: BatchContext) -> IntactBatches:
    found = [
        (context.position + position, header)
        for position, header in scan_headers(data, 0, min(len(data), context.stop - context.position))
    ]
    last = found[-1] if found else None
    end = context.position if last is None else last[0] + last[1].size_bytes
    return IntactBatches(end, context.expected if last is None else last[1].next_offset, LeaderEpoch(0), found)
