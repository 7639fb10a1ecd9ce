"""What is said about alarms, in notifications and on the page. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from streamlog.console.alarms.durations import duration_text
from streamlog.console.alarms.evaluation import AlarmState
from streamlog.console.alarms.rules import KINDS, AlarmRule, RuleKind, Unit

NAMED_MAX: Final = 10
"""Maximum number of alarms in a text; the others are counted."""
LISTED_MAX: Final = 200
"""Maximum number of alarms in the generic JSON."""


class NoticeStatus(enum.Enum):
    FIRING = "firing"
    RESOLVED = "resolved"
    TEST = "test"


class NoticeAlarm(Struct, frozen=True, kw_only=True):
    alarm_id: str
    rule: str
    kind: str
    severity: str
    subject: str
    summary: str
    value: float
    above: float
    remedy: str
    began_at_s: float
    fired_at_s: float | None


class Notice(Struct, frozen=True, kw_only=True):
    """One notification: the alarms that fired, or were resolved, in one evaluation."""

    notice_id: str
    status: NoticeStatus
    cluster: str
    at_s: float
    alarms: Sequence[NoticeAlarm] = ()
    alarm_count: int = 0

    @property
    def title(self) -> str:
        where = f" on {self.cluster}" if self.cluster else ""
        if self.status is NoticeStatus.TEST:
            return f"[TEST] streamlog{where}"
        names = sorted({one.rule for one in self.alarms})
        named = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return f"[{self.status.value.upper()}] {named}{where}"

    @property
    def lines(self) -> list[str]:
        """The body of a text."""
        if self.status is NoticeStatus.TEST:
            return ["A test of this channel. Nothing is wrong."]
        shown = []
        for one in self.alarms[:NAMED_MAX]:
            if self.status is NoticeStatus.FIRING:
                shown.append(f"{one.severity}: {one.summary} {one.remedy}")
            else:
                shown.append(f"resolved: {one.summary}")
        rest = self.alarm_count - len(shown)
        return [*shown, f"and {rest} more"] if rest > 0 else shown

    def to_json(self) -> dict[str, Any]:
        """The generic webhook's body. Fields are added in later releases, never removed."""
        return {
            "version": 1,
            "id": self.notice_id,
            "status": self.status.value,
            "cluster": self.cluster,
            "at": iso(self.at_s),
            "title": self.title,
            "count": self.alarm_count,
            "alarms": [
                {
                    "id": one.alarm_id,
                    "rule": one.rule,
                    "kind": one.kind,
                    "severity": one.severity,
                    "subject": one.subject,
                    "summary": one.summary,
                    "value": one.value,
                    "above": one.above,
                    "remedy": one.remedy,
                    "began_at": iso(one.began_at_s),
                    "fired_at": None if one.fired_at_s is None else iso(one.fired_at_s),
                }
                for one in self.alarms
            ],
        }


def notice(status: NoticeStatus, alarms: Sequence[AlarmState], cluster: str, at_s: float, notice_id: str) -> Notice:
    return Notice(
        notice_id=notice_id,
        status=status,
        cluster=cluster,
        at_s=at_s,
        alarm_count=len(alarms),
        alarms=tuple(
            NoticeAlarm(
                alarm_id=one.alarm_id,
                rule=one.rule,
                kind=one.kind.value,
                severity=one.severity.value,
                subject=one.subject_text,
                summary=one.summary,
                value=one.value,
                above=one.above,
                remedy=one.remedy,
                began_at_s=one.began_at_s,
                fired_at_s=one.fired_at_s,
            )
            for one in alarms[:LISTED_MAX]
        ),
    )


def iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def threshold_text(kind: RuleKind, above: float) -> str:
    unit = KINDS[kind].unit
    if unit is Unit.SECONDS:
        return duration_text(above)
    if unit is Unit.SHARE:
        return f"{above:.0%}"
    return f"{above:,.0f}" if unit is Unit.COUNT else ""


def condition_text(rule: AlarmRule) -> str:
    """As a sentence, such as "a group is more than 100,000 records behind on a topic, for 5m"."""
    text = KINDS[rule.kind].text.replace("`above`", threshold_text(rule.kind, rule.above))
    filters = []
    names = KINDS[rule.kind].filters
    if "groups" in names and rule.groups != ("*",):
        filters.append(f"groups {', '.join(rule.groups)}")
    if "topics" in names and rule.topics != ("*",):
        filters.append(f"topics {', '.join(rule.topics)}")
    if "nodes" in names and rule.nodes:
        filters.append(f"nodes {', '.join(map(str, rule.nodes))}")
    held = f", for {duration_text(rule.for_s)}" if rule.for_s else ""
    return f"{text}{held}" + (f" ({'; '.join(filters)})" if filters else "")
