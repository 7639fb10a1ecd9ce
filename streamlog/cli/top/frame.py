"""One frame of `streamlogctl top`: rates, lags and nodes, from two samples of the cluster. Pure.

Rates are the growth of offsets between two samples over the time between them, as in the console; a frame of a single
sample has none. Rows are in the order of interest: topics by records a second, groups by lag.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from streamlog.console.collection.figures import GroupFigures
from streamlog.console.collection.rates import consumed_per_s, lag_by_topic, topic_rates, total
from streamlog.console.collection.sample import Sample
from streamlog.monitor import findings_of


class NodeRow(Struct, frozen=True, kw_only=True):
    node: int
    state: str
    controller: bool
    leaders: int
    replicas: int
    records_per_s: float | None  # of the partitions that it leads
    size_bytes: int
    free_bytes: int | None  # of all its log directories; None: unknown
    total_bytes: int | None


class TopicRow(Struct, frozen=True, kw_only=True):
    topic: str
    partitions: int
    under_replicated: int
    records_per_s: float | None
    bytes_per_s: float | None  # growth of the leaders' logs
    size_bytes: int  # of the leaders' logs


class GroupRow(Struct, frozen=True, kw_only=True):
    group: str
    state: str
    members: int
    lag: int | None  # records that are not committed; None: unknown
    records_per_s: float | None  # committed
    catch_up_s: float | None  # until the lag is 0, at the present rates; None: never, or unknown
    keeps_pace: bool  # its lag is that of its polls and commits


class Frame(Struct, frozen=True, kw_only=True):
    at_s: float  # wall clock
    cluster_id: str | None  # None: the cluster does not answer
    has_quorum: bool  # False: too few voters answer, and the states may be out of date
    controller: int | None
    records_per_s: float | None
    bytes_per_s: float | None
    offline_partitions: int
    under_replicated_partitions: int
    problems: tuple[str, ...]
    nodes: tuple[NodeRow, ...]
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]


def frame_of(before: Sample | None, now: Sample, no_quorum: str = "") -> Frame:
    """`no_quorum`: that too few voters answer; empty: enough do."""
    cluster = now.state.cluster
    has_rates = before is not None and before.state.cluster is not None and now.monotonic_s > before.monotonic_s
    whole = total(topic_rates(before, now))
    return Frame(
        at_s=now.at_s,
        cluster_id=None if cluster is None else cluster.cluster_id,
        has_quorum=not no_quorum,
        controller=None if cluster is None else cluster.controller,
        records_per_s=whole.records_per_s if has_rates else None,
        bytes_per_s=whole.bytes_per_s if has_rates else None,
        offline_partitions=0 if cluster is None else cluster.offline_partition_count,
        under_replicated_partitions=0 if cluster is None else cluster.under_replicated_partition_count,
        problems=_problems(now, no_quorum),
        nodes=_nodes(before if has_rates else None, now),
        topics=_topics(before if has_rates else None, now),
        groups=_groups(before if has_rates else None, now),
    )


def _problems(now: Sample, no_quorum: str) -> tuple[str, ...]:
    found = [one.problem for one in findings_of(now.state)]
    missing = ", ".join(now.state.missing)
    if missing:
        missing += " could not be read"
    elif now.state.cluster is not None and not now.groups_complete:
        missing = "groups of nodes that do not answer are missing"
    if no_quorum:
        fact, place, command = no_quorum.partition(" (see: ")
        found.insert(0, f"{fact}{missing and '; '}{missing}{place}{command}.")
    elif missing and not now.state.missing:  # else it is a finding
        found.append(f"{missing[0].upper()}{missing[1:]}.")
    return tuple(found)


def _nodes(before: Sample | None, now: Sample) -> tuple[NodeRow, ...]:
    cluster = now.state.cluster
    if cluster is None:
        return ()
    rates = _rates_by_leader(before, now)
    disks = {node.node_id: node.log_dirs for node in now.state.log_dirs}
    rows = []
    for node in cluster.nodes:
        directories = [one for one in disks.get(node.node_id, ()) if one.error is None]
        known = bool(directories) and all(
            one.usable_bytes is not None and one.total_bytes is not None for one in directories
        )
        rows.append(
            NodeRow(
                node=node.node_id,
                state=node.state.value,
                controller=node.node_id == cluster.controller,
                leaders=node.leader_count,
                replicas=node.replica_count,
                records_per_s=None if before is None else rates.get(node.node_id, 0.0),
                size_bytes=sum(replica.size_bytes for one in directories for replica in one.replicas),
                free_bytes=sum(one.usable_bytes or 0 for one in directories) if known else None,
                total_bytes=sum(one.total_bytes or 0 for one in directories) if known else None,
            )
        )
    return tuple(rows)


def _rates_by_leader(before: Sample | None, now: Sample) -> dict[int, float]:
    rates: dict[int, float] = defaultdict(float)
    if before is None:
        return rates
    passed_s = now.monotonic_s - before.monotonic_s
    leaders = {(topic.name, one.partition): one.leader for topic in now.topics for one in topic.partitions}
    for at, end in now.ends.items():
        leader, old = leaders.get((at.topic, at.partition)), before.ends.get(at)
        if leader is not None and old is not None:
            rates[leader] += max(0, end.log_end - old.log_end) / passed_s
    return rates


def _topics(before: Sample | None, now: Sample) -> tuple[TopicRow, ...]:
    rates, sizes = topic_rates(before, now), defaultdict[str, int](int)
    for at, end in now.ends.items():
        sizes[at.topic] += end.size_bytes
    rows = [
        TopicRow(
            topic=topic.name,
            partitions=topic.partition_count,
            under_replicated=sum(len(one.isr) < len(one.replicas) for one in topic.partitions),
            records_per_s=rates[topic.name].records_per_s if topic.name in rates else None,
            bytes_per_s=rates[topic.name].bytes_per_s if topic.name in rates else None,
            size_bytes=sizes[topic.name],
        )
        for topic in now.topics
    ]
    return tuple(sorted(rows, key=lambda row: (-(row.records_per_s or 0), row.topic)))


def _groups(before: Sample | None, now: Sample) -> tuple[GroupRow, ...]:
    rates = topic_rates(before, now)
    rows = []
    for group in now.groups:
        known = group.group in now.committed
        lags = lag_by_topic(now.lag(group.group))
        read = None if before is None else consumed_per_s(before, now, group.group)
        written = sum(rates[topic].records_per_s for topic in lags if topic in rates)
        figures = GroupFigures(lags, read or 0.0, written)
        rows.append(
            GroupRow(
                group=group.group,
                state=group.state.value,
                members=group.member_count,
                lag=figures.total_lag if known else None,
                records_per_s=read if known else None,
                catch_up_s=figures.caught_up_s if known else None,
                keeps_pace=known and figures.keeps_pace,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-(row.lag or 0), row.group)))
