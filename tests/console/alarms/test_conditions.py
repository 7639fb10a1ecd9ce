"""Which subjects breach a rule, and which are unknown."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from streamlog.client.admin.transaction_values import OpenTransaction
from streamlog.client.admin.values import NodeState
from streamlog.console.alarms.conditions.assess import assess
from streamlog.console.alarms.conditions.assessments import Assessment, View
from streamlog.console.alarms.conditions.tracks import POINTS_MAX, SampleTracks
from streamlog.console.alarms.rules import DEFAULT_RULES, KINDS, AlarmRule, RuleKind, matches
from streamlog.errors import ClusterAuthorizationError, StreamlogError, ThrottledError
from streamlog.monitor import ClusterState
from tests.console.alarms.samples import at, group, log_dirs, sample, topic, unreachable, view
from tests.support.health_samples import node

DOWN = StreamlogError("no answer")


def found(kind: RuleKind, seen: View, **more: Any) -> Assessment:
    return assess(AlarmRule(name="r", kind=kind, **more), seen)


def test_every_kind_is_assessed_and_no_sample_of_a_healthy_cluster_breaches_the_defaults() -> None:
    seen = view(sample(topics=[topic("orders", (1, 2, 3))], ends={at("orders"): 5}))
    for kind in RuleKind:
        assert not found(kind, seen, above=KINDS[kind].above or 10).breaches, kind
    assert {rule.kind for rule in DEFAULT_RULES} == set(RuleKind) - {RuleKind.NO_WRITES}


def test_a_cluster_that_does_not_answer_breaches_one_kind_and_hides_the_others() -> None:
    refused = ClusterState(cluster=None, missing={"x": ClusterAuthorizationError("User:x may not DESCRIBE cluster")})
    seen = view(replace(unreachable(), state=refused))
    summary = found(RuleKind.CLUSTER_UNREACHABLE, seen).breaches["cluster",].summary
    assert summary == "The cluster refuses the console's user: User:x may not DESCRIBE cluster."
    slowed = ClusterState(cluster=None, missing={"x": ThrottledError("the next password is checked in 7 s")})
    summary = (
        found(RuleKind.CLUSTER_UNREACHABLE, view(replace(unreachable(), state=slowed))).breaches["cluster",].summary
    )
    assert summary == "The cluster is throttling the console: the next password is checked in 7 s."
    seen = view(unreachable())
    for kind in RuleKind:
        assessed = found(kind, seen)
        if kind is RuleKind.CLUSTER_UNREACHABLE:
            assert "no node answers" in assessed.breaches["cluster",].summary
        else:
            assert not assessed.breaches
            assert assessed.unknown(("node", "2"))


def test_subjects_beyond_the_maximum_are_unknown_while_they_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise they would be announced as resolved when others breach more."""
    monkeypatch.setattr("streamlog.console.alarms.conditions.assess.BREACHES_MAX", 1)
    nodes = (node(1, NodeState.FENCED), node(2, NodeState.FENCED), node(3))
    assessed = found(RuleKind.NODE_DOWN, view(sample(nodes=nodes)))
    assert set(assessed.breaches) == {("node", "1")}
    assert assessed.unknown(("node", "2"))
    assert not assessed.unknown(("node", "3"))


def test_nodes_that_are_not_active() -> None:
    nodes = (node(1), node(2, NodeState.FENCED), node(3, NodeState.STOPPING))
    assessed = found(RuleKind.NODE_DOWN, view(sample(nodes=nodes)))
    assert set(assessed.breaches) == {("node", "2"), ("node", "3")}
    assert not assessed.unknown(("node", "1"))
    assert set(found(RuleKind.NODE_DOWN, view(sample(nodes=nodes)), nodes=(2,)).breaches) == {("node", "2")}
    without = view(sample(controller=None))
    assert found(RuleKind.NODE_DOWN, without).unknown(("node", "2")), "no controller decides on nodes"
    assert ("cluster",) in found(RuleKind.NO_QUORUM, without).breaches


def test_partitions_are_counted_in_one_subject() -> None:
    seen = view(sample(topics=[topic("orders", (1, 2, 3), (1, 2), (1,)), topic("off", (1,), leader=None)]))
    behind = found(RuleKind.UNDER_REPLICATED, seen).breaches["partitions",]
    assert (behind.value, behind.summary) == (2, "2 partitions have a replica out of sync: orders-1, orders-2.")
    assert found(RuleKind.UNDER_MIN_ISR, seen).breaches["partitions",].value == 1
    assert found(RuleKind.OFFLINE_PARTITIONS, seen).breaches["partitions",].summary.endswith("no leader: off-0.")
    assert not found(RuleKind.UNDER_REPLICATED, seen, above=2).breaches
    assert not found(RuleKind.OFFLINE_PARTITIONS, seen, topics=("*", "!off")).breaches
    blind = view(sample(missing={"topics": DOWN, "configs of topics": DOWN}))
    for kind in (RuleKind.UNDER_REPLICATED, RuleKind.UNDER_MIN_ISR, RuleKind.OFFLINE_PARTITIONS):
        assert found(kind, blind).unknown(("partitions",))


BILLING = ("group", "billing", "topic", "orders")


def test_lag_in_records() -> None:
    committed = {"billing": {at("orders"): 10, at("orders", 1): 10}, "idle": {at("orders"): 100}}
    groups = (group("billing"), group("idle"))
    both = {at("orders"): 100, at("orders", 1): 50}
    lagging = found(RuleKind.LAG_RECORDS, view(sample(ends=both, committed=committed, groups=groups)), above=129)
    assert {subject: one.value for subject, one in lagging.breaches.items()} == {BILLING: 130}
    one_end = {at("orders"): 100}
    partial = found(RuleKind.LAG_RECORDS, view(sample(ends=one_end, committed=committed, groups=groups)), above=129)
    assert not partial.breaches
    assert partial.unknown(BILLING), "the end of one partition is missing"
    at_least = found(RuleKind.LAG_RECORDS, view(sample(ends=one_end, committed=committed, groups=groups)), above=80)
    assert at_least.breaches[BILLING].value == 90
    assert not found(RuleKind.LAG_RECORDS, view(sample(ends=both, committed=committed)), groups=("x*",)).breaches


def test_a_coordinator_that_does_not_answer_hides_its_groups() -> None:
    listed = found(RuleKind.LAG_RECORDS, view(sample(groups=(group("billing"),))))
    assert listed.unknown(BILLING), "its offsets could not be read"
    assert found(RuleKind.LAG_RECORDS, view(sample(groups_complete=False))).unknown(BILLING)
    assert not found(RuleKind.LAG_RECORDS, view(sample())).unknown(BILLING), "the group was deleted"


def lagging(second: float, end: int, committed: int) -> Any:
    return sample(
        second,
        topics=[topic("orders", (1, 2, 3))],
        ends={at("orders"): end},
        committed={"billing": {at("orders"): committed}},
        groups=(group("billing"),),
    )


def test_lag_in_seconds() -> None:
    samples = [lagging(0, 10, 10), lagging(10, 20, 10), lagging(20, 30, 10), lagging(70, 30, 10)]
    behind = found(RuleKind.LAG_SECONDS, view(*samples), above=59).breaches[BILLING]
    assert (behind.value, behind.summary) == (60, "Group billing is 1m behind on topic orders.")
    caught_up = found(RuleKind.LAG_SECONDS, view(*samples, lagging(75, 30, 30)), above=59)
    assert not caught_up.breaches
    assert not caught_up.unknown(BILLING)
    assert found(RuleKind.LAG_SECONDS, view(*samples, lagging(75, 30, 20)), above=50).breaches[BILLING].value == 55


def test_a_lag_from_before_the_console_is_a_lower_bound() -> None:
    early = found(RuleKind.LAG_SECONDS, view(lagging(0, 10, 5), lagging(30, 10, 5)), above=60)
    assert not early.breaches
    assert early.unknown(BILLING), "it may be older: it does not resolve"
    late = found(RuleKind.LAG_SECONDS, view(lagging(0, 10, 5), lagging(90, 10, 5)), above=60)
    assert late.breaches[BILLING].summary == "Group billing is at least 1m30s behind on topic orders."


def test_what_is_tracked_is_bounded_and_forgotten() -> None:
    tracks = SampleTracks()
    last = 50 * POINTS_MAX
    for second in range(last + 1):
        tracks.add(lagging(second, second, 0))
    assert len(tracks._ends[at("orders")].ends) <= POINTS_MAX
    for written_at in range(1, last):  # the record at offset N is in the sample of second N + 1
        age = tracks.lag_age(at("orders"), written_at - 1)
        assert age is not None
        assert age.exact
        assert (last - written_at) * 2 / 3 <= age.seconds <= last - written_at
    tracks.add(sample(last + 1))
    assert not tracks._ends
    assert not tracks._idle


def written(second: float, end: int | None) -> Any:
    ends = {} if end is None else {at("orders"): end}
    return sample(second, topics=[topic("orders", (1, 2, 3))], ends=ends)


def test_a_topic_without_writes() -> None:
    def idle(*samples: Any) -> Assessment:
        return found(RuleKind.NO_WRITES, view(*samples), above=60, topics=("orders",))

    subject = ("topic", "orders")
    assert idle(written(0, 5), written(30, 5)).unknown(subject), "the last write is not known"
    assert idle(written(0, 5), written(60, 5)).breaches[subject].value == 60
    wrote = idle(written(0, 5), written(60, 5), written(61, 6))
    assert not wrote.breaches
    assert not wrote.unknown(subject)
    assert idle(written(0, 5), written(60, None)).unknown(subject), "its end is not known"
    assert idle(written(0, 5), written(1, 6), unreachable(50), written(62, 6)).breaches


def test_log_directories() -> None:
    dirs = [log_dirs(1, ("/a", 95, None), ("/b", 50, None)), log_dirs(2, ("/a", None, DOWN))]
    seen = view(sample(log_dirs=dirs))
    used = found(RuleKind.DISK_USED, seen, above=0.9)
    assert {subject: one.summary for subject, one in used.breaches.items()} == {
        ("node", "1", "log_dir", "/a"): "95.0% of the disk of /a on node 1 is used."
    }
    assert not used.unknown(("node", "1", "log_dir", "/b"))
    assert used.unknown(("node", "3", "log_dir", "/a")), "node 3 did not answer"
    assert set(found(RuleKind.LOG_DIR_OFFLINE, seen).breaches) == {("node", "2", "log_dir", "/a")}
    assert found(RuleKind.DISK_USED, view(sample(missing={"log directories": DOWN}))).unknown(("node", "1"))


def test_sync_latency_is_known_of_nodes_that_were_scraped() -> None:
    nodes = (node(1), node(2), node(3))
    seen = view(sample(nodes=nodes), syncs={(1, "/a"): 1.5, (2, "/a"): 0.01}, syncs_known=frozenset({1, 2}))
    slow = found(RuleKind.SYNC_LATENCY, seen, above=1.0)
    assert slow.breaches["node", "1", "log_dir", "/a"].summary.endswith("take 1s500ms (99th percentile).")
    assert not slow.unknown(("node", "2", "log_dir", "/a"))
    assert slow.unknown(("node", "3", "log_dir", "/a"))
    assert not slow.unknown(("node", "4", "log_dir", "/a")), "it was removed from the cluster"
    unconfigured = found(RuleKind.SYNC_LATENCY, view(sample(nodes=nodes), scrapes=False), above=1.0)
    assert not unconfigured.unknown(("node", "3", "log_dir", "/a"))


def test_hanging_transactions() -> None:
    hangs = OpenTransaction(
        partition=at("orders"),
        producer_id=7,  # type: ignore[arg-type]
        producer_epoch=0,  # type: ignore[arg-type]
        first_offset=3,  # type: ignore[arg-type]
        since_ms=40_000,
        transactional_id=None,
        hanging=True,
    )
    breach = found(RuleKind.HANGING_TRANSACTION, view(sample(100, hanging=[hangs]))).breaches
    assert breach["partition", "orders-0", "producer", "7"].value == 60
    for unread in ({"missing": {"open transactions": DOWN}}, {"transaction_errors": {2: DOWN}}):
        assert found(RuleKind.HANGING_TRANSACTION, view(sample(**unread))).unknown(())


@pytest.mark.parametrize(
    ("patterns", "name", "expected"),
    [
        (("*",), "a", True),
        (("orders*",), "orders-eu", True),
        (("orders*", "!orders-tmp"), "orders-tmp", False),
        (("!a",), "b", True),
        (("A",), "a", False),
        (("group [eu] billing*",), "group [eu] billing topic orders", True),
        (("a[1-3]",), "a2", False),
        (("*", "![eu]*"), "[eu]-orders", False),
    ],
)
def test_patterns(patterns: tuple[str, ...], name: str, expected: bool) -> None:
    assert matches(patterns, name) is expected
