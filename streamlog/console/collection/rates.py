"""Rates between two samples, and the points of a sample's history. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from streamlog.console.collection.sample import Sample
from streamlog.model import TopicPartition

Series = tuple[str, str]
"""(what, name): ("topic.records", "orders"); for the cluster, the name is empty."""

PARTITION_LAGS_MAX: Final = 5_000
"""Of all groups in one sample: more would be most of the history, for charts of few."""


class Rate(Struct):
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0  # growth of the logs, minus what retention deletes


def topic_rates(before: Sample | None, now: Sample) -> dict[str, Rate]:
    """Of topics in both samples. A partition whose end offset went back (recreated, or truncated) counts as 0."""
    if before is None or now.monotonic_s <= before.monotonic_s:
        return {}
    passed_s = now.monotonic_s - before.monotonic_s
    rates: dict[str, Rate] = defaultdict(Rate)
    for at, end in now.ends.items():
        old = before.ends.get(at)
        if old is not None:
            rate = rates[at.topic]
            rate.records_per_s += max(0, end.log_end - old.log_end) / passed_s
            rate.bytes_per_s += max(0, end.size_bytes - old.size_bytes) / passed_s
    return dict(rates)


def total(rates: Mapping[str, Rate]) -> Rate:
    return Rate(sum(one.records_per_s for one in rates.values()), sum(one.bytes_per_s for one in rates.values()))


def consumed_per_s(before: Sample | None, now: Sample, group: str) -> float:
    """Records per second that the group committed."""
    if before is None or now.monotonic_s <= before.monotonic_s:
        return 0.0
    old, new = before.committed.get(group, {}), now.committed.get(group, {})
    moved = sum(max(0, offset - old[at]) for at, offset in new.items() if at in old)
    return moved / (now.monotonic_s - before.monotonic_s)


def lag_by_topic(lags: Mapping[TopicPartition, int]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for at, lag in lags.items():
        found[at.topic] += lag
    return dict(found)


def partition_lag_series(group: str, at: TopicPartition) -> Series:
    return "group.partition_lag", f"{group}\n{at.topic}\n{at.partition}"


def _partition_lags(now: Sample) -> dict[Series, float]:
    """Of all groups, or the PARTITION_LAGS_MAX first ones in order of their names."""
    found: dict[Series, float] = {}
    for group in sorted(one.group for one in now.groups):
        for at, lag in now.lag(group).items():
            if len(found) >= PARTITION_LAGS_MAX:
                return found
            found[partition_lag_series(group, at)] = lag
    return found


def points_of(before: Sample | None, now: Sample) -> dict[Series, float]:
    """The points of a sample that are kept."""
    cluster = now.state.cluster
    if cluster is None:
        return {("cluster.nodes", ""): 0}
    rates = topic_rates(before, now)
    whole = total(rates)
    points: dict[Series, float] = {
        ("cluster.nodes", ""): sum(node.state.value == "active" for node in cluster.nodes),
        ("cluster.under_replicated", ""): cluster.under_replicated_partition_count,
        ("cluster.offline", ""): cluster.offline_partition_count,
    }
    if before is not None:
        points["cluster.records", ""] = whole.records_per_s
        points["cluster.bytes", ""] = whole.bytes_per_s
        for name, rate in rates.items():
            points["topic.records", name] = rate.records_per_s
            points["topic.bytes", name] = rate.bytes_per_s
    for node in now.state.log_dirs:
        used = sum(replica.size_bytes for directory in node.log_dirs for replica in directory.replicas)
        points["node.log_bytes", str(node.node_id)] = used
    for group in now.groups:
        for topic, lag in lag_by_topic(now.lag(group.group)).items():
            points["group.lag", f"{group.group}\n{topic}"] = lag
    return points | _partition_lags(now)
