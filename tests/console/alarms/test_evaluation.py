"""pending -> firing -> resolved: when, how often, and through restarts, silences and clocks that jump."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from hypothesis import given
from hypothesis import strategies as st

from streamlog.console.alarms.conditions.assessments import Assessment, Breach, Subject
from streamlog.console.alarms.evaluation import (
    PASSED_MAX_S,
    AlarmChange,
    AlarmState,
    AlarmStatus,
    Evaluation,
    Key,
    Silence,
    acknowledged,
    evaluate,
    shifted,
)
from streamlog.console.alarms.rules import AlarmRule, RuleKind

NODE: Subject = ("node", "2")
RULE = AlarmRule(name="down", kind=RuleKind.NODE_DOWN, for_s=20, keep_firing_for_s=10)
BREACH = {NODE: Breach(1, "Node 2 is down.")}


class Clock:
    """Evaluates one rule, sample after sample."""

    def __init__(self, rule: AlarmRule = RULE) -> None:
        self.rule = rule
        self.alarms: Mapping[Key, AlarmState] = {}
        self.silences: list[Silence] = []
        self.now_s = 1000.0
        self.announced = 0
        self.resolved = 0

    def after(self, passed_s: float, breaches: Mapping[Subject, Breach], **more: Any) -> Evaluation:
        unknown: Iterable[Subject] = more.pop("unknown", ())
        self.now_s += passed_s
        assessed = more.pop("assessed", [(self.rule, Assessment(breaches, lambda subject: subject in unknown))])
        found = evaluate(self.alarms, assessed, self.silences, at_s=self.now_s, passed_s=passed_s, **more)
        self.alarms = found.alarms
        self.announced += len(found.announce)
        self.resolved += len(found.resolved)
        return found

    @property
    def status(self) -> AlarmStatus | None:
        alarm = self.alarms.get((self.rule.name, NODE))
        return None if alarm is None else alarm.status

    def fire(self) -> None:
        for passed_s in (0, 10, 10):
            self.after(passed_s, BREACH)
        assert self.status is AlarmStatus.FIRING

    def silence(self, seconds: float, subject: str = "*") -> None:
        self.silences.append(
            Silence(
                silence_id="s",
                rule="down",
                subject=subject,
                until_s=self.now_s + seconds,
                comment="",
                created_by="",
                created_at_s=0,
            )
        )


def test_it_fires_once_after_its_duration_and_resolves() -> None:
    clock = Clock()
    clock.after(5, BREACH)
    assert clock.status is AlarmStatus.PENDING, "what was before the first breach does not count"
    clock.after(19, BREACH)
    assert clock.status is AlarmStatus.PENDING
    fired = clock.after(1, BREACH)
    assert [one.change for one in fired.transitions] == [AlarmChange.FIRED]
    for _ in range(5):
        assert not clock.after(5, BREACH).transitions
    assert not clock.after(5, {}).transitions, "it keeps firing for 10 s"
    ended = clock.after(5, {})
    assert [one.change for one in ended.transitions] == [AlarmChange.RESOLVED]
    assert (clock.announced, clock.resolved, clock.status) == (1, 1, None)


def test_a_condition_that_flaps_fires_once() -> None:
    clock = Clock()
    clock.fire()
    for _ in range(10):
        clock.after(5, {})
        clock.after(5, BREACH)
    assert (clock.announced, clock.resolved) == (1, 0)


def test_a_short_breach_is_forgotten() -> None:
    clock = Clock()
    clock.after(0, BREACH)
    clock.after(15, BREACH)
    assert not clock.after(1, {}).transitions
    clock.after(1, BREACH)
    clock.after(15, BREACH)
    assert clock.status is AlarmStatus.PENDING


def test_a_rule_without_duration_fires_at_once() -> None:
    clock = Clock(msgspec.structs.replace(RULE, for_s=0.0))
    assert clock.after(0, BREACH).announce


def test_what_is_unknown_stands_still() -> None:
    clock = Clock()
    clock.after(0, BREACH)
    for _ in range(10):
        clock.after(10, {}, unknown=[NODE])
    assert clock.status is AlarmStatus.PENDING
    clock.after(20, BREACH)
    clock.after(5, {})
    for _ in range(10):
        clock.after(10, {}, unknown=[NODE])
    assert clock.status is AlarmStatus.FIRING
    assert clock.after(5, {}).resolved


def test_a_rule_that_is_removed_ends_its_alarms_unless_the_file_is_not_valid() -> None:
    clock = Clock()
    clock.fire()
    clock.after(5, {}, assessed=[], rules_complete=False)
    assert clock.status is AlarmStatus.FIRING
    ended = clock.after(5, {}, assessed=[])
    assert [one.change for one in ended.transitions] == [AlarmChange.REMOVED]
    assert len(ended.resolved) == 1


def test_a_silence_holds_the_notification_back_and_not_the_alarm() -> None:
    clock = Clock()
    clock.silence(100, "node ?")
    clock.fire()
    assert clock.announced == 0
    clock.after(50, BREACH)
    clock.after(50, BREACH)
    assert clock.announced == 1, "the silence has ended, and it still fires"

    quiet = Clock()
    quiet.silence(100)
    quiet.fire()
    quiet.after(10, {})
    assert (quiet.announced, quiet.resolved, quiet.status) == (0, 0, None), "what was not announced is not resolved"

    other = Clock()
    other.silence(100, "node 3")
    other.fire()
    assert other.announced == 1


def test_an_acknowledged_alarm_is_not_announced_when_a_silence_ends() -> None:
    clock = Clock()
    clock.silence(30)
    clock.fire()
    key, alarm = next(iter(clock.alarms.items()))
    clock.alarms = {key: acknowledged(alarm, "ann", clock.now_s)}
    clock.after(50, BREACH)
    assert clock.announced == 0
    assert clock.alarms[key].acknowledged_by == "ann"


def test_a_rule_that_changes_its_kind_starts_again() -> None:
    clock = Clock()
    clock.fire()
    clock.rule = msgspec.structs.replace(RULE, kind=RuleKind.DISK_USED)
    clock.after(5, BREACH)
    assert clock.status is AlarmStatus.PENDING


@pytest.mark.parametrize("jumped_s", [-1e6, -3600, 3600, 1e6])
def test_a_wall_clock_that_jumps_changes_nothing(jumped_s: float) -> None:
    clock = Clock()
    clock.silence(60)
    clock.fire()
    clock.now_s += jumped_s
    clock.silences = shifted(clock.silences, jumped_s)
    clock.after(5, BREACH)
    assert (clock.status, clock.announced, clock.resolved) == (AlarmStatus.FIRING, 0, 0)
    for _ in range(10):
        clock.after(5, BREACH)
    assert clock.announced == 1, "the silence lasted as long as was chosen"


def test_a_process_that_was_suspended_has_seen_nothing() -> None:
    clock = Clock(msgspec.structs.replace(RULE, for_s=PASSED_MAX_S + 1))
    clock.after(0, BREACH)
    clock.after(10 * PASSED_MAX_S, BREACH)
    assert clock.status is AlarmStatus.PENDING
    clock.after(-100, BREACH)
    assert clock.alarms[RULE.name, NODE].held_s == PASSED_MAX_S


def restarted(alarms: Mapping[Key, AlarmState]) -> dict[Key, AlarmState]:
    """What is stored of them, read again."""
    kept = [one for one in alarms.values() if one.status is AlarmStatus.FIRING]
    found = [msgspec.json.decode(msgspec.json.encode(one), type=AlarmState) for one in kept]
    return {one.key: msgspec.structs.replace(one, clear_s=0.0) for one in found}


STEP = st.tuples(st.sampled_from(["breach", "clear", "unknown", "restart", "jump"]), st.integers(0, 30))


@given(st.lists(STEP, max_size=60))
def test_announcements_and_resolutions_alternate(steps: list[tuple[str, int]]) -> None:
    """Whatever comes: one announcement for each firing, one resolution after it, and never before its duration."""
    clock = Clock()
    held_s: float | None = None
    for what, passed_s in steps:
        if what == "restart":
            clock.alarms = restarted(clock.alarms)
            held_s = None if clock.status is None else held_s
            continue
        if what == "jump":
            clock.now_s += passed_s * 1e5 - 1e6
            continue
        fired_before = clock.announced
        found = clock.after(passed_s, BREACH if what == "breach" else {}, unknown=[NODE] if what == "unknown" else ())
        if what == "breach":
            held_s = 0.0 if held_s is None else held_s + passed_s
        elif what == "clear" and clock.status is None:
            held_s = None
        if clock.announced > fired_before:
            assert held_s is not None
            assert held_s >= RULE.for_s
        assert clock.announced - clock.resolved == (1 if clock.status is AlarmStatus.FIRING else 0)
        ids = [one.alarm_id for one in (*found.announce, *found.resolved)]
        assert len(ids) <= 1


def test_the_remedy_names_the_group_as_a_shell_takes_it() -> None:
    rule = AlarmRule(name="lag", kind=RuleKind.LAG_RECORDS, above=1, for_s=0)
    subject: Subject = ("group", "nightly report", "topic", "orders")
    found = evaluate(
        {}, [(rule, Assessment({subject: Breach(2, "x")}, lambda _: False))], [], at_s=1.0, passed_s=1.0
    ).alarms[rule.name, subject]
    assert found.remedy.endswith("streamlogctl group describe 'nightly report' --members.")
