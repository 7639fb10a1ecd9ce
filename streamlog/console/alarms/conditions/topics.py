"""Conditions about who reads and writes topics: lags, and topics without writes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from streamlog.console.alarms.conditions.assessments import Assessment, Breach, Subject, View, all_unknown
from streamlog.console.alarms.conditions.tracks import Age
from streamlog.console.alarms.durations import duration_text
from streamlog.console.alarms.rules import AlarmRule, matches
from streamlog.model import TopicPartition


def lag_records(rule: AlarmRule, view: View) -> Assessment:
    breaches: dict[Subject, Breach] = {}
    partial: set[Subject] = set()
    ends = view.sample.ends
    for group, topic, offsets in _readers(rule, view):
        subject = ("group", group, "topic", topic)
        lag = sum(max(0, ends[at].log_end - offset) for at, offset in offsets.items() if at in ends)
        if lag > rule.above:
            breaches[subject] = Breach(lag, f"Group {group} is {lag:,} records behind on topic {topic}.")
        elif any(at not in ends for at in offsets):
            partial.add(subject)
    return Assessment(breaches, lambda subject: subject in partial or _is_group_unknown(view, subject))


def lag_seconds(rule: AlarmRule, view: View) -> Assessment:
    breaches: dict[Subject, Breach] = {}
    partial: set[Subject] = set()
    for group, topic, offsets in _readers(rule, view):
        subject = ("group", group, "topic", topic)
        found = [view.tracks.lag_age(at, offset) if at in view.sample.ends else None for at, offset in offsets.items()]
        ages = [age for age in found if age is not None]
        oldest = max(ages, key=lambda age: age.seconds, default=Age(0.0, exact=False))
        if oldest.seconds > rule.above:
            least = "" if oldest.exact else "at least "
            age = duration_text(round(oldest.seconds))
            breaches[subject] = Breach(oldest.seconds, f"Group {group} is {least}{age} behind on topic {topic}.")
        elif len(ages) < len(found) or not all(age.exact for age in ages):
            partial.add(subject)
    return Assessment(breaches, lambda subject: subject in partial or _is_group_unknown(view, subject))


def _readers(rule: AlarmRule, view: View) -> Iterator[tuple[str, str, dict[TopicPartition, int]]]:
    """(group, topic, committed offsets of its partitions)."""
    for group, offsets in view.sample.committed.items():
        if not matches(rule.groups, group):
            continue
        by_topic: dict[str, dict[TopicPartition, int]] = {}
        for at, offset in offsets.items():
            by_topic.setdefault(at.topic, {})[at] = offset
        for topic, committed in by_topic.items():
            if matches(rule.topics, topic):
                yield group, topic, committed


def _is_group_unknown(view: View, subject: Subject) -> bool:
    """Its coordinator did not answer; a group that was deleted is known to have no lag."""
    group = subject[1]
    if group in view.sample.committed:
        return False
    return not view.sample.groups_complete or any(one.group == group for one in view.sample.groups)


def no_writes(rule: AlarmRule, view: View) -> Assessment:
    if "topics" in view.sample.state.missing:
        return Assessment(unknown=all_unknown)
    breaches: dict[Subject, Breach] = {}
    unknown: set[Subject] = set()
    for topic in view.sample.topics:
        if not matches(rule.topics, topic.name):
            continue
        subject = ("topic", topic.name)
        idle = view.tracks.idle(topic.name)
        if idle is None:
            unknown.add(subject)
        elif idle.seconds >= rule.above:
            age = duration_text(round(idle.seconds))
            breaches[subject] = Breach(idle.seconds, f"Nothing was written to topic {topic.name} for {age}.")
        elif not idle.exact:
            unknown.add(subject)
    return Assessment(breaches, lambda subject: subject in unknown)
