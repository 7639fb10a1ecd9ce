"""The problems of a cluster: each finding has the problem, its cause, and the command that repairs it. Pure.

CRITICAL: clients cannot write or read now, or the metadata has lost redundancy. WARNING: it becomes critical if no one
acts. Critical findings come first. Partitions with the same cause are one finding.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence, Set
from typing import Final

from msgspec import Struct

from streamlog.client.admin.values import ClusterDescription, NodeDescription, NodeState, PartitionDescription
from streamlog.errors import SaslAuthenticationError, StreamlogError
from streamlog.model import NO_BROKER
from streamlog.monitor.cluster_state import ClusterState, is_refusal

DISK_USABLE_MIN: Final = 0.1
"""Minimum share of free bytes of a file system; less is a warning."""
VOTER_LAG_MAX: Final = 1_000
"""Maximum number of entries of the metadata log that a voter may be behind."""
CLOCK_SKEW_MAX_MS: Final = 10_000
"""How far a node's clock may differ from most nodes', where its clock.skew.max.ms could not be read: its default."""
NAMED_MAX: Final = 5
"""Maximum number of partitions that a finding names; the others are counted."""

_ALLOW: Final = "Let an administrator allow it (streamlogctl acl add), or use another user (--command-config)."
_LOG_IN: Final = (
    "Correct the login in --command-config: sasl.username and sasl.password, or the token. An administrator sets "
    "another password with streamlogctl user rotate, and allows what the user may do with streamlogctl acl add."
)


class Severity(enum.Enum):
    CRITICAL = "critical"
    WARNING = "warning"


class HealthFinding(Struct, frozen=True, kw_only=True):
    """Sentences. `remedy`: what to do, with the command where there is one."""

    severity: Severity
    subject: str  # `node 2`, `orders-0`, `quorum`
    problem: str
    cause: str
    remedy: str


Partitions = Sequence[tuple[str, PartitionDescription]]


def findings_of(state: ClusterState, not_answering: Set[int] = frozenset()) -> list[HealthFinding]:
    """Critical ones first; empty: healthy.

    `not_answering`: ids of nodes of which the caller has a finding already; that their log directories and
    transactions could not be read has the same cause, and is not a finding of its own.
    """
    found = list(_all(state, not_answering))
    return sorted(found, key=lambda one: one.severity is not Severity.CRITICAL)


def _all(state: ClusterState, not_answering: Set[int]) -> Iterator[HealthFinding]:
    cluster = state.cluster
    if cluster is None:
        reason = next(iter(state.missing.values()))
        yield HealthFinding(
            severity=Severity.CRITICAL,
            subject="cluster",
            problem=_unavailable(state),
            cause=_sentence(reason.message),
            remedy=_making_available(state, reason),
        )
        return
    yield from _quorum(cluster)
    for node in cluster.nodes:
        skew_max_ms = state.clock_skew_max_ms.get(node.node_id, CLOCK_SKEW_MAX_MS)
        drainable = node.state is not NodeState.FENCED or _drainable(node, state, cluster)
        yield from _node(node, skew_max_ms, drainable=drainable)
    yield from _partitions(state, cluster)
    fenced = {node.node_id for node in cluster.nodes if node.state is NodeState.FENCED}  # a finding already
    silent = fenced | not_answering
    yield from _disks(state, silent)
    yield from _transactions(state, silent)
    for what, error in state.missing.items():
        refused = is_refusal(error)
        yield HealthFinding(
            severity=Severity.WARNING,
            subject=what,
            problem=f"The state of {what} is unknown: the request {'was refused' if refused else 'failed'}.",
            cause=_sentence(error.message),
            remedy=_allowing(error) if refused else "Try again in a moment: streamlogctl cluster health.",
        )


def _unavailable(state: ClusterState) -> str:
    if state.is_refused:
        return "The cluster refuses this user."
    return "The cluster is throttling this user." if state.is_throttled else "No node answers."


def _making_available(state: ClusterState, reason: StreamlogError) -> str:
    if state.is_refused:
        return _allowing(reason)
    if state.is_throttled:
        return "Try again after that time: streamlogctl cluster health. Failed logins slow down those that follow."
    return "Start the nodes, or give the address of a running one with --bootstrap-server."


def _allowing(refusal: StreamlogError) -> str:
    """What is wrong comes first: without a login, access control lists change nothing."""
    return _LOG_IN if isinstance(refusal, SaslAuthenticationError) else _ALLOW


def _quorum(cluster: ClusterDescription) -> Iterator[HealthFinding]:
    if cluster.controller is None:
        yield HealthFinding(
            severity=Severity.CRITICAL,
            subject="quorum",
            problem="There is no active controller: nothing can be created, altered or elected.",
            cause="No majority of the voters has elected a leader; the state of nodes shown here may be out of date.",
            remedy="Start the voters that are down: streamlogctl cluster quorum.",
        )
    for voter in cluster.voters:
        if voter.without_vote:
            yield HealthFinding(
                severity=Severity.WARNING,
                subject=f"voter {voter.node_id}",
                problem=f"Voter {voter.node_id} has no vote: the quorum tolerates one failure less.",
                cause="It returned without its metadata directory, or with another one, as after the loss of its disk.",
                remedy="With controller.quorum.voter.restore.enable it gets its vote back within seconds; otherwise: "
                f"streamlogctl cluster restore-voter {voter.node_id}.",
            )
        elif voter.match_index is not None and cluster.commit_index - voter.match_index > VOTER_LAG_MAX:
            yield HealthFinding(
                severity=Severity.WARNING,
                subject=f"voter {voter.node_id}",
                problem=f"Voter {voter.node_id} is {cluster.commit_index - voter.match_index} entries behind.",
                cause="It is down, disconnected, or its disk is slow; one more such voter may stop metadata changes.",
                remedy=f"Check that node {voter.node_id} ({voter.address}) is running, and check its log.",
            )


def _node(node: NodeDescription, skew_max_ms: int, *, drainable: bool) -> Iterator[HealthFinding]:
    if node.state is NodeState.FENCED:
        yield HealthFinding(
            severity=Severity.CRITICAL if node.replica_count else Severity.WARNING,
            subject=f"node {node.node_id}",
            problem=f"Node {node.node_id} ({node.address}) is fenced: it leads no partition and is in no ISR.",
            cause="The controller receives no heartbeats from it: it is down, disconnected, or has just started.",
            remedy="Start it; if it is running, its log has the reason. If it is permanently lost: "
            + ("" if drainable else "add a node first, since no other one can take its replicas, then ")
            + f"streamlogctl cluster drain {node.node_id}, then unregister.",
        )
    skew_ms = node.clock_skew_ms or 0
    if abs(skew_ms) > skew_max_ms:
        seconds = abs(skew_ms) / 1000
        yield HealthFinding(
            severity=Severity.WARNING,
            subject=f"node {node.node_id}",
            problem=f"The clock of node {node.node_id} ({node.address}) is {seconds:,.{0 if seconds >= 10 else 1}f} s "
            f"{'ahead of' if skew_ms > 0 else 'behind'} most nodes'.",
            cause=f"Its time is not synchronized. Beyond clock.skew.max.ms ({skew_max_ms} ms) it deletes nothing by "
            "time.",
            remedy="Set the clock of its machine and check NTP; the node need not be restarted.",
        )


def _drainable(node: NodeDescription, state: ClusterState, cluster: ClusterDescription) -> bool:
    """Whether each of its partitions could have a replica on another active node, which has none yet."""
    active = {one.node_id for one in cluster.nodes if one.state is NodeState.ACTIVE}
    return all(
        active - set(at.replicas) for topic in state.topics for at in topic.partitions if node.node_id in at.replicas
    )


def _partitions(state: ClusterState, cluster: ClusterDescription) -> Iterator[HealthFinding]:
    everything = [(topic.name, one) for topic in state.topics for one in topic.partitions]
    leaderless = [(name, one) for name, one in everything if one.leader is None]
    led = [(name, one) for name, one in everything if one.leader is not None]

    def is_below(name: str, one: PartitionDescription) -> bool:
        return len(one.isr) < state.min_insync_replicas.get(name, 1)

    below = [(name, one) for name, one in led if is_below(name, one)]
    lacking = [(name, one) for name, one in led if len(one.isr) < len(one.replicas) and not is_below(name, one)]
    if "topics" in state.missing and cluster.offline_partition_count:
        yield HealthFinding(
            severity=Severity.CRITICAL,
            subject="partitions",
            problem=f"{_count(cluster.offline_partition_count)} no leader, and can be neither written nor read.",
            cause="None of their in-sync or eligible replicas is active; which ones they are could not be read.",
            remedy="Start the nodes that are down: streamlogctl topic describe --unavailable-partitions.",
        )
    if leaderless:
        yield HealthFinding(
            severity=Severity.CRITICAL,
            subject="partitions",
            problem=f"{_count(len(leaderless))} no leader, and can be neither written nor read: {_named(leaderless)}.",
            cause=f"None of their in-sync or eligible replicas is active; they are on {_nodes(_absent(leaderless))}.",
            remedy="Start these nodes. If they are permanently lost: streamlogctl partition elect --all "
            "--election-type unclean, which may lose records.",
        )
    if below:
        yield HealthFinding(
            severity=Severity.CRITICAL,
            subject="partitions",
            problem=f"{_count(len(below))} fewer in-sync replicas than min.insync.replicas, and refuse acks=all: "
            f"{_named(below)}.",
            cause=_why_out_of_sync(below, cluster),
            remedy="Start the nodes that are down: streamlogctl topic describe --under-min-isr-partitions.",
        )
    if lacking:
        yield HealthFinding(
            severity=Severity.WARNING,
            subject="partitions",
            problem=f"{_count(len(lacking))} a replica out of sync: {_named(lacking)}.",
            cause=_why_out_of_sync(lacking, cluster),
            remedy="Start the nodes that are down, or wait until they have caught up: streamlogctl topic describe "
            "--under-replicated-partitions.",
        )


def _why_out_of_sync(partitions: Partitions, cluster: ClusterDescription) -> str:
    absent = _absent(partitions)
    active = {node.node_id for node in cluster.nodes if node.state is NodeState.ACTIVE}
    down, slow = absent - active, absent & active
    parts = [f"{_nodes(down)} {'is' if len(down) == 1 else 'are'} not active"] if down else []
    parts += [f"{_nodes(slow)} {'is' if len(slow) == 1 else 'are'} not caught up, or too slow"] if slow else []
    text = " and ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _disks(state: ClusterState, silent: Set[int]) -> Iterator[HealthFinding]:
    for node in state.log_dirs:
        if node.error is not None and node.node_id not in silent:
            yield _unread(node.node_id, "log directories", node.error)
        for directory in node.log_dirs:
            if directory.error is not None:
                yield HealthFinding(
                    severity=Severity.CRITICAL,
                    subject=f"node {node.node_id}",
                    problem=f"Log directory {directory.path} of node {node.node_id} is offline.",
                    cause=_sentence(directory.error.message),
                    remedy="If it is full, make space and restart the node. Otherwise see that its partitions have a "
                    "leader (streamlogctl topic describe --unavailable-partitions), replace the disk and restart the "
                    "node with an empty directory: it copies its replicas from the leaders.",
                )
            elif directory.usable_bytes is not None and directory.total_bytes:
                usable = directory.usable_bytes / directory.total_bytes
                if usable < DISK_USABLE_MIN:
                    yield HealthFinding(
                        severity=Severity.WARNING,
                        subject=f"node {node.node_id}",
                        problem=f"{usable:.1%} of the disk of {directory.path} on node {node.node_id} is free.",
                        cause="Records, or other programs, fill the disk; a full disk takes the directory offline.",
                        remedy="Lower the retention of large topics (streamlogctl cluster log-dirs --replicas), or "
                        "move replicas away: streamlogctl partition reassign.",
                    )


def _unread(node_id: int, what: str, error: StreamlogError) -> HealthFinding:
    return HealthFinding(
        severity=Severity.WARNING,
        subject=f"node {node_id}",
        problem=f"The state of the {what} of node {node_id} is unknown.",
        cause=_sentence(error.message),
        remedy=f"Try again in a moment: streamlogctl cluster health. If it stays so, check the log of node {node_id}.",
    )


def _transactions(state: ClusterState, silent: Set[int]) -> Iterator[HealthFinding]:
    skipped = {NO_BROKER, *silent}  # findings already: partitions without a leader, nodes that are silent
    for node_id, error in state.transaction_errors.items():
        if node_id not in skipped:
            yield _unread(node_id, "open transactions", error)
    partitions = sorted({str(one.partition) for one in state.hanging})
    if partitions:
        yield HealthFinding(
            severity=Severity.WARNING,
            subject="transactions",
            problem=f"Hanging transactions in {_listed(partitions)}: read_committed consumers wait there.",
            cause="Their coordinator has no state for them, so it will not end them.",
            remedy="List them: streamlogctl transaction find-hanging; end them: streamlogctl transaction abort.",
        )


def _absent(partitions: Partitions) -> set[int]:
    return {broker for _, one in partitions for broker in one.replicas if broker not in one.isr}


def _count(partitions: int) -> str:
    return "1 partition has" if partitions == 1 else f"{partitions} partitions have"


def _named(partitions: Partitions) -> str:
    return _listed([f"{name}-{one.partition}" for name, one in partitions])


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")


def _nodes(ids: Sequence[int] | set[int]) -> str:
    text = ", ".join(str(one) for one in sorted(ids))
    return f"node {text}" if len(ids) == 1 else f"nodes {text}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."
