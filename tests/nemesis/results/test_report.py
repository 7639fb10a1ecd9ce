"""The page and the summary of a run that never was."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.sim.history import OperationHistory
from tests.cluster.checking.checks import PRODUCE
from tests.nemesis.faults.machine import Needs
from tests.nemesis.faults.plan import Event, Fault, Kind
from tests.nemesis.faults.striker import Came, Struck
from tests.nemesis.observer import Seen
from tests.nemesis.results.findings import Findings
from tests.nemesis.results.report import Run, page, summary
from tests.nemesis.round import Result

PARTITION = TopicPartition("plain", PartitionId(0))


def result(*, wrong: bool) -> Result:
    now = [0.0]
    history = OperationHistory(lambda: now[0])
    for number in range(20):
        row = history.invoke("p0", PRODUCE, partition=PARTITION, sequence=number, value=b"%d" % number)
        now[0] += 0.5
        history.ok(row, offset=Offset(number))
    findings = Findings(lambda what: None)
    if wrong:
        findings.wrong("I1", "a <record> is gone")
    fault = Fault(kind=Kind.POWER, target="leader", lasts_s=2.0)
    event = Event(1, (fault,), 1.0)
    seen = Seen(
        leaders={PARTITION: [(0.0, 1), (3.0, 0), (4.0, 2)]},
        controller=[(0.0, 3)],
        memory={1: [(0.0, 80 << 20), (5.0, 90 << 20)]},
        up={1: [(0.0, True), (3.0, False), (5.0, True)]},
    )
    return Result(
        seed=7,
        plan=[event],
        findings=findings,
        history=history,
        seen=seen,
        struck=[Struck(event=1, fault=fault, target=1, begin=3.0, end=5.0)],
        came=[Came(event=event, begin=3.0, repaired=5.0, pause_s=1.5, back_s=None)],
        counts=Counter({"sends ok": 20}),
        errors=Counter({"member: REQUEST_TIMED_OUT": 2}),
        error_texts={"member: REQUEST_TIMED_OUT": "no answer"},
        transactions=[(1.0, 1.5)],
        ended=10.0,
    )


def test_the_page_holds_a_timeline_that_is_sound_svg() -> None:
    run = Run(command="nemesis", lacking={Needs.SHIM: "needs gcc"}, results=[result(wrong=True)])
    text = page(run)
    drawn = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])
    texts = [element.text for element in drawn.iter() if element.text and element.text.strip()]
    assert {"plain-0", "controller", "node 1", "acknowledged", "findings"} <= set(texts)
    assert "a &lt;record&gt; is gone" in text
    assert "<script" not in text


def test_the_summary_tells_what_was_found_and_what_was_skipped() -> None:
    run = Run(command="nemesis", lacking={Needs.SHIM: "needs gcc"}, results=[result(wrong=True)])
    lines = list(summary(run))
    assert lines[-1] == "1 findings"
    assert any(line.startswith("power ") and "never" in line for line in lines)
    assert any("needs gcc" in line and "clock" in line for line in lines)


def test_a_run_without_findings_says_so() -> None:
    assert list(summary(Run(command="nemesis", lacking={}, results=[result(wrong=False)])))[-1] == "nothing found"
