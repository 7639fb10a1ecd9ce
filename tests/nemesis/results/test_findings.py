"""What was found is kept once, in bounds; and what the files of a run show is seen."""

from __future__ import annotations

from pathlib import Path

from streamlog.model import BrokerId, LeaderEpoch, Offset, PartitionId, TopicPartition
from tests.cluster.checking.checks import SHOWN_MAX
from tests.cluster.checking.replicas import Replica, StoredBatch
from tests.nemesis.nodes import Node
from tests.nemesis.results.evidence import LOG_LINES_MAX_PER_S, bad_lines, expired, gaps
from tests.nemesis.results.findings import Findings


def test_a_finding_is_reported_once() -> None:
    said: list[str] = []
    findings = Findings(said.append)
    for number in range(SHOWN_MAX + 2):
        findings.wrong("I1", f"record {number}")
        findings.wrong("I1", "record 0")
    assert len(said) == SHOWN_MAX
    assert findings.lines()[-1] == "... and 2 more of I1"


def replica(*batches: tuple[int, int], log_start: int = 0) -> Replica:
    stored = [StoredBatch(Offset(b), Offset(n), LeaderEpoch(0), 0, LeaderEpoch(0)) for b, n in batches]
    return Replica(
        broker=BrokerId(1),
        partition=TopicPartition("plain", PartitionId(0)),
        log_start=Offset(log_start),
        high_watermark=stored[-1].next_offset,
        log_end=stored[-1].next_offset,
        batches=tuple(stored),
    )


def test_offsets_must_join() -> None:
    assert not list(gaps([replica((0, 3), (3, 5))], frozenset()))
    assert list(gaps([replica((0, 3), (4, 5))], frozenset()))
    assert not list(gaps([replica((0, 3), (4, 5))], frozenset({"plain"})))


def test_nothing_may_have_been_deleted() -> None:
    assert not list(expired([replica((0, 3))]))
    assert list(expired([replica((0, 3), log_start=2)]))


def node_with_log(folder: Path, lines: list[str]) -> Node:
    node = Node(1, folder, "127.0.0.1:1", disk=None, shim=None)
    node.log.write_text("\n".join(lines))
    return node


def test_tracebacks_and_floods_in_a_log(tmp_path: Path) -> None:
    calm = ["2026-11-23 10:00:00.000 INFO  node 1: ready"] * 10
    assert not list(bad_lines(node_with_log(tmp_path, calm)))
    assert "line 11" in next(bad_lines(node_with_log(tmp_path, [*calm, "Traceback (most recent call last):"])))
    flood = ["2026-11-23 10:00:00.000 WARN  node 1: again"] * (LOG_LINES_MAX_PER_S + 1)
    assert "10:00:00" in next(bad_lines(node_with_log(tmp_path, flood)))
