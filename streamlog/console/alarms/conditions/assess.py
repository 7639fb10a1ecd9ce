"""Which subjects breach a rule, according to a sample. Pure.

What a sample could not read is `unknown`, which is neither a breach nor its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from streamlog.client.admin.values import LogDir, NodeState, PartitionDescription
from streamlog.console.alarms.conditions.assessments import (
    CLUSTER,
    PARTITIONS,
    Assessment,
    Breach,
    Subject,
    View,
    all_unknown,
    none_unknown,
)
from streamlog.console.alarms.conditions.topics import lag_records, lag_seconds, no_writes
from streamlog.console.alarms.durations import duration_text
from streamlog.console.alarms.rules import AlarmRule, RuleKind, matches

NAMED_MAX: Final = 5
"""Maximum number of partitions that a summary names; the others are counted."""
BREACHES_MAX: Final = 1_000
"""Maximum number of subjects of one rule."""


def assess(rule: AlarmRule, view: View) -> Assessment:
    if rule.kind is not RuleKind.CLUSTER_UNREACHABLE and view.sample.state.cluster is None:
        return Assessment(unknown=all_unknown)
    found = _CONDITIONS[rule.kind](rule, view)
    if len(found.breaches) <= BREACHES_MAX:
        return found
    largest = sorted(found.breaches.items(), key=lambda one: (-one[1].value, one[0]))[:BREACHES_MAX]
    return Assessment(dict(largest), lambda subject: subject in found.breaches or found.unknown(subject))


def _unreachable(_: AlarmRule, view: View) -> Assessment:
    state = view.sample.state
    if state.cluster is not None:
        return Assessment()
    reason = next((error.message for error in state.missing.values()), "no answer")
    what = "No node of the cluster answers"
    if state.is_refused:
        what = "The cluster refuses the console's user"
    elif state.is_throttled:
        what = "The cluster is throttling the console"
    return Assessment({CLUSTER: Breach(1, f"{what}: {reason.rstrip('.')}.")})


def _node_down(rule: AlarmRule, view: View) -> Assessment:
    cluster = view.sample.state.cluster
    assert cluster is not None
    breaches: dict[Subject, Breach] = {
        ("node", str(one.node_id)): Breach(1, f"Node {one.node_id} ({one.address}) is {one.state.value}.")
        for one in cluster.nodes
        if one.state in (NodeState.FENCED, NodeState.STOPPING) and (not rule.nodes or one.node_id in rule.nodes)
    }
    # Without a controller nothing decides on the states of nodes: what is shown may be old.
    return Assessment(breaches, all_unknown if cluster.controller is None else none_unknown)


def _no_quorum(_: AlarmRule, view: View) -> Assessment:
    cluster = view.sample.state.cluster
    assert cluster is not None
    if cluster.controller is not None:
        return Assessment()
    voters = len(cluster.voters)
    summary = f"The metadata quorum has no leader: fewer than {voters // 2 + 1} of {voters} voters agree on one."
    return Assessment({CLUSTER: Breach(1, summary)})


Partitions = Iterator[tuple[str, PartitionDescription]]


def _partitions(rule: AlarmRule, view: View) -> Partitions:
    for topic in view.sample.topics:
        if matches(rule.topics, topic.name):
            for one in topic.partitions:
                yield topic.name, one


def _counted(
    what: str, is_breach: Callable[[View, str, PartitionDescription], bool], needs: Sequence[str] = ("topics",)
) -> Condition:
    """A count of partitions is one subject: a node that is down would otherwise be an alarm for each partition."""

    def condition(rule: AlarmRule, view: View) -> Assessment:
        if any(part in view.sample.state.missing for part in needs):
            return Assessment(unknown=all_unknown)
        named = [f"{topic}-{one.partition}" for topic, one in _partitions(rule, view) if is_breach(view, topic, one)]
        if len(named) <= rule.above:
            return Assessment()
        partitions = "1 partition has" if len(named) == 1 else f"{len(named)} partitions have"
        return Assessment({PARTITIONS: Breach(len(named), f"{partitions} {what}: {_listed(named)}.")})

    return condition


def _is_offline(_: View, __: str, one: PartitionDescription) -> bool:
    return one.leader is None


def _is_under_min_isr(view: View, topic: str, one: PartitionDescription) -> bool:
    return one.leader is not None and len(one.isr) < view.sample.state.min_insync_replicas.get(topic, 1)


def _is_under_replicated(_: View, __: str, one: PartitionDescription) -> bool:
    return one.leader is not None and len(one.isr) < len(one.replicas)


def _directories(rule: AlarmRule, view: View) -> Iterator[tuple[Subject, int, LogDir]]:
    for node in view.sample.state.log_dirs:
        if node.error is None and (not rule.nodes or node.node_id in rule.nodes):
            for directory in node.log_dirs:
                yield ("node", str(node.node_id), "log_dir", directory.path), node.node_id, directory


def _is_node_unknown(view: View) -> Callable[[Subject], bool]:
    """Nodes that are registered and whose log directories could not be read."""
    state = view.sample.state
    assert state.cluster is not None
    if "log directories" in state.missing:
        return all_unknown
    answered = {str(node.node_id) for node in state.log_dirs if node.error is None}
    unknown = {str(node.node_id) for node in state.cluster.nodes} - answered
    return lambda subject: subject[1] in unknown


def _disk_used(rule: AlarmRule, view: View) -> Assessment:
    breaches: dict[Subject, Breach] = {}
    unread: set[Subject] = set()
    for subject, node_id, one in _directories(rule, view):
        if one.usable_bytes is None or not one.total_bytes:
            unread.add(subject)
            continue
        used = 1 - one.usable_bytes / one.total_bytes
        if used > rule.above:
            breaches[subject] = Breach(used, f"{used:.1%} of the disk of {one.path} on node {node_id} is used.")
    is_unknown = _is_node_unknown(view)
    return Assessment(breaches, lambda subject: subject in unread or is_unknown(subject))


def _log_dir_offline(rule: AlarmRule, view: View) -> Assessment:
    breaches = {
        subject: Breach(1, f"Log directory {one.path} of node {node_id} is offline: {one.error.message.rstrip('.')}.")
        for subject, node_id, one in _directories(rule, view)
        if one.error is not None
    }
    return Assessment(breaches, _is_node_unknown(view))


def _sync_latency(rule: AlarmRule, view: View) -> Assessment:
    breaches: dict[Subject, Breach] = {
        ("node", str(node_id), "log_dir", path): Breach(
            p99_s, f"Syncs of {path} on node {node_id} take {duration_text(p99_s)} (99th percentile)."
        )
        for (node_id, path), p99_s in view.syncs.items()
        if p99_s > rule.above and (not rule.nodes or node_id in rule.nodes)
    }
    cluster = view.sample.state.cluster
    assert cluster is not None
    registered = {one.node_id for one in cluster.nodes} if view.scrapes else set()
    unknown = {str(node_id) for node_id in registered - view.syncs_known}
    return Assessment(breaches, lambda subject: subject[1] in unknown)


def _hanging(rule: AlarmRule, view: View) -> Assessment:
    state = view.sample.state
    if "open transactions" in state.missing or state.transaction_errors:
        return Assessment(unknown=all_unknown)
    breaches: dict[Subject, Breach] = {}
    for one in state.hanging:
        if matches(rule.topics, one.partition.topic):
            open_s = max(0.0, view.sample.at_s - one.since_ms / 1000)
            breaches["partition", str(one.partition), "producer", str(one.producer_id)] = Breach(
                open_s,
                f"A transaction of producer {one.producer_id} hangs in {one.partition} since offset "
                f"{one.first_offset}: read_committed consumers wait there.",
            )
    return Assessment(breaches)


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")


Condition = Callable[[AlarmRule, View], Assessment]
_CONDITIONS: Final[Mapping[RuleKind, Condition]] = {
    RuleKind.CLUSTER_UNREACHABLE: _unreachable,
    RuleKind.NODE_DOWN: _node_down,
    RuleKind.NO_QUORUM: _no_quorum,
    RuleKind.OFFLINE_PARTITIONS: _counted("no leader", _is_offline),
    RuleKind.UNDER_MIN_ISR: _counted(
        "fewer in-sync replicas than min.insync.replicas", _is_under_min_isr, ("topics", "configs of topics")
    ),
    RuleKind.UNDER_REPLICATED: _counted("a replica out of sync", _is_under_replicated),
    RuleKind.LAG_RECORDS: lag_records,
    RuleKind.LAG_SECONDS: lag_seconds,
    RuleKind.NO_WRITES: no_writes,
    RuleKind.DISK_USED: _disk_used,
    RuleKind.LOG_DIR_OFFLINE: _log_dir_offline,
    RuleKind.SYNC_LATENCY: _sync_latency,
    RuleKind.HANGING_TRANSACTION: _hanging,
}
