"""The state of each alarm: pending -> firing -> resolved. Pure.

                breach for `for_s`               clear for `keep_firing_for_s`
    (none) -> PENDING ------------> FIRING ------------------------------------> (none)
                 | clear                | rule removed or disabled
                 v                      v
              (none)                 (none)

A firing alarm is announced once: `announced` is set when its notification is made. While it is silenced or
acknowledged it is not announced; when a silence ends and it still fires, it is. Only what was announced is announced
as resolved. Time is what passed between samples by the monotonic clock, at most PASSED_MAX_S of each: a process that
was suspended has not seen what happened meanwhile. An unknown subject keeps its state, and its times stand still.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Final

import msgspec
from msgspec import Struct

from streamlog.console.alarms.conditions.assessments import Assessment, Breach, Subject
from streamlog.console.alarms.rules import KINDS, AlarmRule, RuleKind, matches
from streamlog.monitor import Severity

PASSED_MAX_S: Final = 60.0
Key = tuple[str, Subject]
"""(rule, subject)."""


class AlarmStatus(enum.Enum):
    PENDING = "pending"
    FIRING = "firing"


class AlarmState(Struct, frozen=True, kw_only=True):
    """`at` times are of the wall clock, for display alone."""

    alarm_id: str  # the same in all notifications of one firing
    rule: str
    kind: RuleKind
    subject: Subject
    severity: Severity
    status: AlarmStatus
    value: float
    summary: str
    above: float
    channels: tuple[str, ...]
    began_at_s: float
    held_s: float = 0.0  # while pending: for how long it has been a breach
    fired_at_s: float | None = None
    clear_s: float = 0.0  # while firing: for how long it has not been one
    announced: bool = False
    acknowledged_by: str = ""  # empty: not acknowledged
    acknowledged_at_s: float | None = None

    @property
    def key(self) -> Key:
        return self.rule, self.subject

    @property
    def subject_text(self) -> str:
        return " ".join(self.subject)

    @property
    def remedy(self) -> str:
        """What to do; its commands name the subject."""
        text = KINDS[self.kind].remedy
        return text.replace("GROUP", quote(self.subject[1])) if self.subject[:1] == ("group",) else text


class Silence(Struct, frozen=True, kw_only=True):
    """No notifications about alarms that match, until its end."""

    silence_id: str
    rule: str  # a pattern
    subject: str  # a pattern of the subject's text
    until_s: float  # wall clock; `shifted` moves it when that jumps
    comment: str
    created_by: str
    created_at_s: float

    def covers(self, alarm: AlarmState) -> bool:
        return matches((self.rule,), alarm.rule) and matches((self.subject,), alarm.subject_text)


class AlarmChange(enum.Enum):
    FIRED = "fired"
    RESOLVED = "resolved"
    REMOVED = "removed"  # its rule was removed or disabled while it fired
    ACKNOWLEDGED = "acknowledged"


class Transition(Struct, frozen=True):
    change: AlarmChange
    alarm: AlarmState


class Evaluation(Struct, frozen=True, kw_only=True):
    """`alarms`: all states from now on. `announce`: alarms to send as firing, `resolved`: to send as resolved."""

    alarms: Mapping[Key, AlarmState]
    transitions: Sequence[Transition] = ()
    announce: Sequence[AlarmState] = ()
    resolved: Sequence[AlarmState] = ()


def evaluate(
    alarms: Mapping[Key, AlarmState],
    assessed: Sequence[tuple[AlarmRule, Assessment]],
    silences: Iterable[Silence],
    *,
    at_s: float,
    passed_s: float,
    rules_complete: bool = True,
) -> Evaluation:
    """`passed_s`: since the last evaluation. `rules_complete` is False while the file of rules cannot be read: then
    alarms of unknown rules stay.
    """
    passed_s = min(max(0.0, passed_s), PASSED_MAX_S)
    current = [one for one in silences if one.until_s > at_s]
    after: dict[Key, AlarmState] = {}
    transitions: list[Transition] = []
    resolved: list[AlarmState] = []
    ended: list[tuple[AlarmChange, AlarmState]] = []
    for rule, assessment in assessed:
        for subject, breach in assessment.breaches.items():
            alarm = _breached(alarms.get((rule.name, subject)), rule, subject, breach, at_s, passed_s)
            before = alarms.get(alarm.key)
            if alarm.status is AlarmStatus.FIRING and (before is None or before.status is not AlarmStatus.FIRING):
                transitions.append(Transition(AlarmChange.FIRED, alarm))
            after[alarm.key] = alarm
    by_name = {rule.name: (rule, assessment) for rule, assessment in assessed}
    for key, alarm in alarms.items():
        if key in after:
            continue
        if alarm.rule not in by_name:
            if rules_complete:
                ended.append((AlarmChange.REMOVED, alarm))
            else:
                after[key] = alarm
            continue
        rule, assessment = by_name[alarm.rule]
        if assessment.unknown(alarm.subject):
            after[key] = alarm
        elif alarm.status is AlarmStatus.FIRING and alarm.clear_s + passed_s < rule.keep_firing_for_s:
            after[key] = msgspec.structs.replace(alarm, clear_s=alarm.clear_s + passed_s)
        else:
            ended.append((AlarmChange.RESOLVED, alarm))
    for change, alarm in ended:
        if alarm.status is AlarmStatus.FIRING:
            transitions.append(Transition(change, alarm))
            if alarm.announced:
                resolved.append(alarm)
    announce = _to_announce(after, current)
    for alarm in announce:
        after[alarm.key] = msgspec.structs.replace(alarm, announced=True)
    return Evaluation(alarms=after, transitions=transitions, announce=announce, resolved=resolved)


def _breached(
    alarm: AlarmState | None, rule: AlarmRule, subject: Subject, breach: Breach, at_s: float, passed_s: float
) -> AlarmState:
    if alarm is None or alarm.kind is not rule.kind:
        alarm = AlarmState(
            alarm_id=f"{rule.name}/{' '.join(subject)}/{round(at_s * 1000)}",
            rule=rule.name,
            kind=rule.kind,
            subject=subject,
            severity=rule.severity,
            status=AlarmStatus.PENDING,
            value=breach.value,
            summary=breach.summary,
            above=rule.above,
            channels=rule.channels,
            began_at_s=at_s,
        )
        passed_s = 0.0
    held_s = alarm.held_s + passed_s
    fires = alarm.status is AlarmStatus.FIRING or held_s >= rule.for_s
    return msgspec.structs.replace(
        alarm,
        severity=rule.severity,
        above=rule.above,
        channels=rule.channels,
        value=breach.value,
        summary=breach.summary,
        status=AlarmStatus.FIRING if fires else AlarmStatus.PENDING,
        held_s=0.0 if fires else held_s,
        fired_at_s=(at_s if alarm.fired_at_s is None else alarm.fired_at_s) if fires else None,
        clear_s=0.0,
    )


def _to_announce(alarms: Mapping[Key, AlarmState], silences: Sequence[Silence]) -> list[AlarmState]:
    return [
        alarm
        for alarm in alarms.values()
        if alarm.status is AlarmStatus.FIRING
        and not alarm.announced
        and not alarm.acknowledged_by
        and alarm.clear_s == 0
        and not any(one.covers(alarm) for one in silences)
    ]


def acknowledged(alarm: AlarmState, by: str, at_s: float) -> AlarmState:
    return msgspec.structs.replace(alarm, acknowledged_by=by, acknowledged_at_s=at_s)


JUMP_S: Final = 10.0


def shifted(silences: Sequence[Silence], jumped_s: float) -> list[Silence]:
    """After the wall clock jumped by `jumped_s`: they last as long as was chosen."""
    if abs(jumped_s) < JUMP_S:
        return list(silences)
    return [msgspec.structs.replace(one, until_s=one.until_s + jumped_s) for one in silences]
