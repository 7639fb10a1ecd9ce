"""What pages show of a sample, computed once a sample: by topic, by node, by group. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from streamlog.client.admin.values import TopicDescription
from streamlog.console.collection.rates import Rate, consumed_per_s, lag_by_topic, topic_rates
from streamlog.console.collection.sample import Sample
from streamlog.model import BrokerId, TopicPartition

RATE_ERROR: Final = 0.01
"""Of a rate between two samples, as a part of it: offsets are read one after another."""
PACE_RATIO: Final = 0.9
PACE_S: Final = 10.0
"""A group keeps pace if it commits at least PACE_RATIO of what is written, and has what was written PACE_S ago."""


class GroupFigures(Struct, frozen=True):
    lag: Mapping[str, int]  # by topic
    committed_per_s: float
    incoming_per_s: float  # records written to its topics

    @property
    def total_lag(self) -> int:
        return sum(self.lag.values())

    @property
    def keeps_pace(self) -> bool:
        """Its lag is that of its polls and commits."""
        is_close = 0 < self.total_lag <= PACE_S * self.incoming_per_s
        return is_close and self.committed_per_s >= PACE_RATIO * self.incoming_per_s

    @property
    def caught_up_s(self) -> float | None:
        """At the present rates; None: the lag does not shrink, or by less than rates can be measured."""
        if self.total_lag == 0:
            return 0.0
        gain = self.committed_per_s - self.incoming_per_s
        return self.total_lag / gain if gain > RATE_ERROR * self.incoming_per_s else None


class TopicFigures(Struct):
    size_bytes: int = 0  # of the leaders' logs
    offsets_held: int = 0  # between their starts and ends
    groups: list[str] = field(default_factory=list)  # with committed offsets in it


class NodeFigures(Struct):
    """Of the partitions that the node leads, and of its disks."""

    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    log_bytes: int = 0


class Figures(Struct, frozen=True, kw_only=True):
    rates: Mapping[str, Rate]  # by topic
    topics: Mapping[str, TopicFigures]
    nodes: Mapping[int, NodeFigures]
    groups: Mapping[str, GroupFigures]  # whose offsets are known


def figures_of(before: Sample | None, now: Sample) -> Figures:
    """`before`: what rates are measured from; None: there are none yet."""
    rates = topic_rates(before, now)
    topics: dict[str, TopicFigures] = defaultdict(TopicFigures)
    for at, end in now.ends.items():
        topic = topics[at.topic]
        topic.size_bytes += end.size_bytes
        topic.offsets_held += end.log_end - end.log_start
    groups = {}
    for group in now.committed:
        lag = lag_by_topic(now.lag(group))
        incoming = sum(rates[topic].records_per_s for topic in lag if topic in rates)
        groups[group] = GroupFigures(lag, consumed_per_s(before, now, group), incoming)
        for name in lag:
            topics[name].groups.append(group)
    return Figures(rates=rates, topics=dict(topics), nodes=_nodes(before, now), groups=groups)


def _nodes(before: Sample | None, now: Sample) -> Mapping[int, NodeFigures]:
    found: dict[int, NodeFigures] = defaultdict(NodeFigures)
    for node in now.state.log_dirs:
        for directory in node.log_dirs:
            found[node.node_id].log_bytes += sum(replica.size_bytes for replica in directory.replicas)
    passed_s = 0.0 if before is None else now.monotonic_s - before.monotonic_s
    if before is None or passed_s <= 0:
        return dict(found)
    for at, leader in _leaders(now.topics):
        end, old = now.ends.get(at), before.ends.get(at)
        if end is not None and old is not None:
            found[leader].records_per_s += max(0, end.log_end - old.log_end) / passed_s
            found[leader].bytes_per_s += max(0, end.size_bytes - old.size_bytes) / passed_s
    return dict(found)


def _leaders(topics: Sequence[TopicDescription]) -> list[tuple[TopicPartition, BrokerId]]:
    return [
        (TopicPartition(topic.name, one.partition), one.leader)
        for topic in topics
        for one in topic.partitions
        if one.leader is not None
    ]
