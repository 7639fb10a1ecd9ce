"""What is called wrong with a cluster, and what is not."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from msgspec import structs

from streamlog.cli.main import main
from streamlog.client.admin.transaction_values import OpenTransaction
from streamlog.client.admin.values import (
    LogDir,
    NodeLogDirs,
    NodeState,
    PartitionDescription,
    TopicDescription,
)
from streamlog.errors import (
    BrokerNotAvailableError,
    ClusterAuthorizationError,
    RequestTimedOutError,
    SaslAuthenticationError,
    StorageError,
    ThrottledError,
    TopicAuthorizationError,
)
from streamlog.model import NO_BROKER, BrokerId, PartitionId, TopicPartition
from streamlog.monitor import ClusterState, HealthFinding, Severity, findings_of
from streamlog.monitor.cluster_state import effective_min_isr
from tests.support.counted_text import CountedText
from tests.support.health_samples import cluster, node, state


def topic(name: str, *isrs: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> TopicDescription:
    """A partition for each ISR; without one there is no leader."""
    partitions = tuple(
        PartitionDescription(
            partition=PartitionId(number),
            leader=BrokerId(isr[0]) if isr else None,
            leader_epoch=0,  # type: ignore[arg-type]
            partition_epoch=0,  # type: ignore[arg-type]
            replicas=replicas,  # type: ignore[arg-type]
            isr=isr,  # type: ignore[arg-type]
            elr=(),
            adding=(),
            removing=(),
            offline=(),
        )
        for number, isr in enumerate(isrs)
    )
    return TopicDescription(
        name=name,
        topic_id=b"",  # type: ignore[arg-type]
        partition_count=len(isrs),
        replication_factor=len(replicas),
        configs={},
        partitions=partitions,
        internal=False,
        error=None,
    )


def found(state: ClusterState) -> list[tuple[Severity, str]]:
    return [(one.severity, one.problem) for one in findings_of(state)]


HEALTHY = state(cluster(held=(5000, 5000, 4990)), topic("orders", (1, 2, 3)), topic("one", (1,), replicas=(1,)))


def test_a_healthy_cluster_has_nothing_to_say() -> None:
    assert findings_of(HEALTHY) == []


def test_no_node_answers() -> None:
    unreachable = ClusterState(cluster=None, missing={"x": BrokerNotAvailableError("connection refused by h:1")})
    assert found(unreachable) == [(Severity.CRITICAL, "No node answers.")]


def test_a_login_that_is_slowed_down() -> None:
    reason = ThrottledError("too many failed logins of this user: the next password is checked in 7 s")
    [finding] = findings_of(ClusterState(cluster=None, missing={"x": reason}))
    assert finding.problem == "The cluster is throttling this user."
    assert finding.cause.endswith("is checked in 7 s.")
    assert finding.remedy.startswith("Try again after that time")


def test_a_clock_that_differs_from_most() -> None:
    nodes = node(1, clock_skew_ms=10_000), node(2, clock_skew_ms=3_600_001), node(3, clock_skew_ms=-10_900)
    assert found(state(cluster(*nodes, held=(5000,)))) == [
        (Severity.WARNING, "The clock of node 2 (h:9092) is 3,600 s ahead of most nodes'."),
        (Severity.WARNING, "The clock of node 3 (h:9092) is 11 s behind most nodes'."),
    ]


def test_a_clock_is_compared_with_the_limit_of_its_node() -> None:
    nodes = node(1, clock_skew_ms=20_000), node(2, clock_skew_ms=600), node(3, clock_skew_ms=-20_000)
    limits = {BrokerId(1): 60_000, BrokerId(2): 500}
    first, second = findings_of(state(cluster(*nodes, held=(5000,)), clock_skew_max_ms=limits))
    assert first.problem == "The clock of node 2 (h:9092) is 0.6 s ahead of most nodes'."
    assert "clock.skew.max.ms (500 ms)" in first.cause
    assert second.problem == "The clock of node 3 (h:9092) is 20 s behind most nodes'."
    assert "clock.skew.max.ms (10000 ms)" in second.cause


def test_partitions_are_not_compared_with_each_other() -> None:
    """When a node fails, half of all partitions may be out of sync."""
    count = 300
    topics = [topic(CountedText(f"t{number}"), (1,), (1, 3)) for number in range(count)]
    sample = state(cluster(held=(5000,)), *topics)
    sample = structs.replace(sample, min_insync_replicas={one.name: 2 for one in topics})
    CountedText.compared = 0
    assert [problem.split(" ")[0] for _, problem in found(sample)] == [str(count)] * 2
    assert CountedText.compared < 10 * count


def test_partitions_of_one_kind_are_one_finding_and_the_worst_come_first() -> None:
    dead = cluster(node(1), node(2, NodeState.FENCED), node(3), held=(5000,))
    problems = found(state(dead, topic("a", (1, 3), (1,), ()), topic("b", *[(3, 1)] * 7)))
    assert problems == [
        (Severity.CRITICAL, "Node 2 (h:9092) is fenced: it leads no partition and is in no ISR."),
        (Severity.CRITICAL, "1 partition has no leader, and can be neither written nor read: a-2."),
        (
            Severity.CRITICAL,
            "1 partition has fewer in-sync replicas than min.insync.replicas, and refuse acks=all: a-1.",
        ),
        (Severity.WARNING, "8 partitions have a replica out of sync: a-0, b-0, b-1, b-2, b-3 and 3 more."),
    ]


def test_partitions_without_a_leader_are_known_without_the_topics() -> None:
    described = structs.replace(cluster(held=(5000,)), offline_partition_count=3)
    assert found(state(described, missing={"topics": RequestTimedOutError("x")})) == [
        (Severity.CRITICAL, "3 partitions have no leader, and can be neither written nor read."),
        (Severity.WARNING, "The state of topics is unknown: the request failed."),
    ]


def test_a_lacking_right_is_no_outage() -> None:
    refused = ClusterAuthorizationError("User:nora may not DESCRIBE cluster")
    [nothing] = findings_of(ClusterState(cluster=None, missing={"x": refused}))
    assert (nothing.problem, nothing.cause) == (
        "The cluster refuses this user.",
        "User:nora may not DESCRIBE cluster.",
    )
    assert "streamlogctl acl add" in nothing.remedy
    [part] = findings_of(state(cluster(held=(5000,)), missing={"configs of topics": TopicAuthorizationError("x")}))
    assert part.problem == "The state of configs of topics is unknown: the request was refused."
    assert part.remedy == nothing.remedy


def test_a_login_that_fails_needs_credentials_first() -> None:
    wrong = SaslAuthenticationError("wrong user name or password (sasl.username, sasl.password)")
    [nothing] = findings_of(ClusterState(cluster=None, missing={"x": wrong}))
    assert (nothing.problem, nothing.cause) == (
        "The cluster refuses this user.",
        "wrong user name or password (sasl.username, sasl.password).",
    )
    credentials, right = map(nothing.remedy.index, ("sasl.username and sasl.password", "streamlogctl acl add"))
    assert credentials < nothing.remedy.index("streamlogctl user rotate") < right


def test_topics_that_the_caller_may_not_see_are_counted() -> None:
    assert state(cluster()).hidden_topic_count == 1, "of the one topic in the description"
    assert state(cluster(), topic("t", (1,))).hidden_topic_count == 0
    assert state(cluster(), missing={"topics": RequestTimedOutError("x")}).hidden_topic_count == 0, "it is unknown"
    assert ClusterState(cluster=None).hidden_topic_count == 0


def test_the_cause_names_who_is_missing() -> None:
    dead = cluster(node(1), node(2, NodeState.FENCED), node(3), held=(5000,))
    [_, finding] = findings_of(state(dead, topic("a", (1,), replicas=(1, 2))))
    assert finding.cause == "Node 2 is not active."
    [_, finding] = findings_of(state(dead, topic("a", (1,), replicas=(1, 2, 3))))
    assert finding.cause == "Node 2 is not active and node 3 is not caught up, or too slow."


def test_the_quorum() -> None:
    assert found(state(cluster(controller=None, held=(None, None, None)))) == [
        (Severity.CRITICAL, "There is no active controller: nothing can be created, altered or elected.")
    ]
    assert found(state(cluster(held=(5000, 3999, 4000)))) == [(Severity.WARNING, "Voter 2 is 1001 entries behind.")]


def test_a_voter_that_lost_its_vote_with_its_disk() -> None:
    described = cluster(held=(5000, 0, 5000))
    voters = [structs.replace(one, without_vote=one.node_id == 2) for one in described.voters]
    [finding] = findings_of(state(structs.replace(described, voters=tuple(voters))))
    assert (finding.severity, finding.subject) == (Severity.WARNING, "voter 2")
    assert finding.problem == "Voter 2 has no vote: the quorum tolerates one failure less."
    assert finding.remedy.endswith("streamlogctl cluster restore-voter 2.")


def directory(usable: int | None, error: StorageError | None = None) -> NodeLogDirs:
    one = LogDir(path="/d", directory_id=b"", total_bytes=1000, usable_bytes=usable, replicas=(), error=error)
    return NodeLogDirs(node_id=BrokerId(2), log_dirs=(one,), error=None)


@pytest.mark.parametrize(
    ("dirs", "expected"),
    [
        (directory(101), []),
        (directory(None), []),
        (directory(99), [(Severity.WARNING, "9.9% of the disk of /d on node 2 is free.")]),
        (
            NodeLogDirs(node_id=BrokerId(2), log_dirs=(), error=RequestTimedOutError("x")),
            [(Severity.WARNING, "The state of the log directories of node 2 is unknown.")],
        ),
        (directory(500, StorageError("EIO")), [(Severity.CRITICAL, "Log directory /d of node 2 is offline.")]),
    ],
)
def test_disks(dirs: NodeLogDirs, expected: list[tuple[Severity, str]]) -> None:
    assert found(state(cluster(held=(5000,)), log_dirs=(dirs,))) == expected


def test_of_a_fenced_node_it_says_only_that() -> None:
    dirs = NodeLogDirs(node_id=BrokerId(2), log_dirs=(), error=RequestTimedOutError("x"))
    nodes = cluster(node(1), node(2, NodeState.FENCED), held=(5000,))
    (finding,) = findings_of(state(nodes, log_dirs=(dirs,)))
    assert "Start it" in finding.remedy


@pytest.mark.parametrize("nodes", [(1, 2, 3), (1, 2, 3, 4)])
def test_a_lost_node_is_drained_where_others_can_take_its_replicas(nodes: tuple[int, ...]) -> None:
    described = cluster(*(node(one, NodeState.FENCED if one == 2 else NodeState.ACTIVE) for one in nodes), held=(5000,))
    remedy = findings_of(state(described, topic("t", (1, 2, 3))))[0].remedy
    assert "cluster drain 2, then unregister" in remedy
    assert ("add a node first" in remedy) == (len(nodes) == 3)


def test_hanging_transactions_and_what_could_not_be_asked() -> None:
    hanging = OpenTransaction(
        partition=TopicPartition("t", PartitionId(0)),
        producer_id=1,  # type: ignore[arg-type]
        producer_epoch=0,  # type: ignore[arg-type]
        first_offset=0,  # type: ignore[arg-type]
        since_ms=0,
        transactional_id=None,
        hanging=True,
    )
    missing = {"log directories": RequestTimedOutError("node 2 did not answer")}
    assert found(state(cluster(held=(5000,)), hanging=(hanging,), missing=missing)) == [
        (Severity.WARNING, "Hanging transactions in t-0: read_committed consumers wait there."),
        (Severity.WARNING, "The state of log directories is unknown: the request failed."),
    ]


def test_nodes_whose_open_transactions_could_not_be_read() -> None:
    errors = {BrokerId(2): RequestTimedOutError("node 2 did not answer"), NO_BROKER: RequestTimedOutError("x")}
    [finding] = findings_of(state(cluster(held=(5000,)), transaction_errors=errors))
    assert (finding.severity, finding.subject) == (Severity.WARNING, "node 2")
    assert finding.problem == "The state of the open transactions of node 2 is unknown."
    assert finding.cause == "node 2 did not answer."


def every_finding() -> list[HealthFinding]:
    dead = cluster(node(1), node(2, NodeState.FENCED), controller=None, held=(1,))
    unread = NodeLogDirs(node_id=BrokerId(3), log_dirs=(), error=RequestTimedOutError("x"))
    bad = state(dead, topic("a", (), (1,), (1, 3)), log_dirs=(directory(1), directory(1, StorageError("EIO")), unread))
    blind = state(structs.replace(dead, offline_partition_count=1), missing={"topics": StorageError("z")})
    return [
        *findings_of(bad),
        *findings_of(blind),
        *findings_of(ClusterState(cluster=None, missing={"x": StorageError("y")})),
    ]


@pytest.mark.parametrize("finding", every_finding(), ids=lambda one: one.subject)
def test_findings_are_sentences_and_their_commands_exist(finding: HealthFinding) -> None:
    for text in (finding.problem, finding.cause, finding.remedy):
        assert text.endswith((".", "?"))
    for command in re.findall(r"streamlogctl ((?:[a-z-]+ ?){2})", finding.remedy):
        assert CliRunner().invoke(main, [*command.split(), "--help"]).exit_code == 0, command


@pytest.mark.parametrize(
    ("text", "replicas", "expected"), [(None, 3, 2), (None, 2, 1), ("2", 3, 2), ("3", 2, 2), ("1", 5, 1)]
)
def test_the_effective_minimum(text: str | None, replicas: int, expected: int) -> None:
    assert effective_min_isr(text, replicas) == expected
