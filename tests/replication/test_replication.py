"""Leader and followers over real logs (SEMANTICS 1, 2, 3, 5; FAULTS I1, I8, I9, I11)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamlog.errors import FencedLeaderEpochError, UnknownLeaderEpochError
from streamlog.model import BrokerId, LeaderEpoch
from tests.replication.cluster import LAG_MAX_MS, Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(1)
    yield cluster
    cluster.close()


def high_watermark(cluster: Cluster) -> int:
    leader = cluster.leader.leader
    assert leader is not None
    return leader.high_watermark


def round_of(cluster: Cluster, *brokers: int) -> None:
    for broker in brokers:
        cluster.replicate(broker)
        cluster.sync(broker)
        cluster.report(broker)


def test_the_high_watermark_is_the_lowest_ackable_end_of_the_isr(cluster: Cluster) -> None:
    cluster.produce(b"a")
    cluster.sync(0)
    round_of(cluster, 1)
    assert high_watermark(cluster) == 0
    cluster.replicate(2)
    cluster.report(2)
    assert high_watermark(cluster) == 0  # written there, not synced
    assert cluster.acknowledged == {}
    cluster.sync(2)
    cluster.report(2)
    assert high_watermark(cluster) == 1
    assert cluster.acknowledged == {0: b"a"}


def test_the_leader_counts_itself_only_for_what_is_synced(cluster: Cluster) -> None:
    cluster.produce(b"a")
    round_of(cluster, 1, 2)
    assert high_watermark(cluster) == 0
    cluster.sync(0)
    assert high_watermark(cluster) == 1


def test_a_laggard_is_proposed_out_and_back_in(cluster: Cluster) -> None:
    """SEMANTICS 3: out after replica.lag.time.max.ms, in at the high watermark."""
    cluster.produce(b"a")
    cluster.sync(0)
    round_of(cluster, 1)
    cluster.now_ms += LAG_MAX_MS
    cluster.look_at_isr()
    assert cluster.isr == (0, 1, 2)
    cluster.now_ms += 1
    cluster.look_at_isr()
    assert cluster.isr == (0, 1)
    assert cluster.acknowledged == {0: b"a"}
    round_of(cluster, 2)
    cluster.look_at_isr()
    assert cluster.isr == (0, 1, 2)


def test_while_a_change_is_pending_the_larger_set_governs(cluster: Cluster) -> None:
    leader = cluster.leader.leader
    assert leader is not None
    cluster.produce(b"a")
    cluster.sync(0)
    round_of(cluster, 1)
    cluster.now_ms += LAG_MAX_MS + 1
    proposal = leader.propose_isr(cluster.now_ms)
    assert proposal is not None
    assert proposal.isr == (0, 1)
    cluster.report(1)
    assert high_watermark(cluster) == 0  # 2 may still be in
    assert leader.propose_isr(cluster.now_ms) is None  # one in flight
    cluster.leader.do(lambda: leader.on_isr((BrokerId(0), BrokerId(1)), proposal.partition_epoch + 1))
    assert high_watermark(cluster) == 1


def test_a_joiner_governs_from_its_proposal_on(cluster: Cluster) -> None:
    leader = cluster.leader.leader
    assert leader is not None
    cluster.die(2, power=False)
    cluster.come_back(2)
    round_of(cluster, 2)
    proposal = leader.propose_isr(cluster.now_ms)
    assert proposal is not None
    assert proposal.isr == (0, 1, 2)
    cluster.produce(b"a")
    cluster.sync(0)
    round_of(cluster, 1)
    assert high_watermark(cluster) == 0
    cluster.leader.do(lambda: leader.on_refused(proposal))
    assert high_watermark(cluster) == 1


def test_too_few_in_sync_refuse_before_the_append_and_hold_the_high_watermark(cluster: Cluster) -> None:
    cluster.die(1, power=False)
    cluster.die(2, power=False)
    assert cluster.isr == (0,)
    cluster.produce(b"refused")
    cluster.sync(0)
    assert cluster.leader.log.log_end_offset == 0
    assert cluster.acknowledged == {}


def test_an_isr_that_shrinks_after_the_append_says_so(cluster: Cluster) -> None:
    cluster.produce(b"a")
    (future, _, _) = cluster.unanswered[0]
    cluster.die(1, power=False)
    cluster.die(2, power=False)
    cluster.sync(0)
    assert high_watermark(cluster) == 0
    assert not future.done()
    cluster.die(0, power=False)
    assert future.done()
    assert future.exception() is not None


def test_a_deposed_leader_is_cut_to_what_both_have(cluster: Cluster) -> None:
    """SEMANTICS 2: by epoch, never by the high watermark."""
    for value in (b"a", b"b"):
        cluster.produce(value)
    cluster.sync(0)
    round_of(cluster, 1, 2)
    for value in (b"lost 1", b"lost 2"):
        cluster.produce(value)
    cluster.sync(0)
    cluster.elect(BrokerId(1))
    cluster.produce(b"c")
    cluster.heal()
    assert cluster.records(0) == {0: b"a", 1: b"b", 2: b"c"}
    assert cluster.records(0) == cluster.records(1) == cluster.records(2)


def test_what_is_above_a_followers_high_watermark_is_kept_when_both_have_it(cluster: Cluster) -> None:
    """KIP-101's first scenario: truncating to the high watermark would lose an acknowledged record."""
    cluster.produce(b"a")
    cluster.sync(0)
    round_of(cluster, 1, 2)
    assert cluster.acknowledged == {0: b"a"}
    assert cluster.replicas[1].follower is not None
    assert cluster.replicas[1].follower.high_watermark == 0  # it does not know it yet
    cluster.die(1, power=False)
    cluster.come_back(1)
    cluster.isr = (BrokerId(0), BrokerId(1))
    cluster.die(0, power=False)
    cluster.heal()
    assert cluster.records(1) == {0: b"a"}


def test_wrong_epochs_are_distinguished(cluster: Cluster) -> None:
    cluster.elect(BrokerId(0))
    leader = cluster.leader.leader
    assert leader is not None
    leader.check_epoch(LeaderEpoch(1))
    with pytest.raises(FencedLeaderEpochError):
        leader.check_epoch(LeaderEpoch(0))
    with pytest.raises(UnknownLeaderEpochError):
        leader.check_epoch(LeaderEpoch(2))


def test_a_follower_far_behind_the_leaders_start_restarts_there(cluster: Cluster) -> None:
    cluster.die(2, power=False)
    for i in range(5):
        cluster.produce(b"%d" % i)
    cluster.sync(0)
    round_of(cluster, 1)
    cluster.leader.do(lambda: cluster.leader.log.advance_log_start(cluster.leader.log.log_end_offset))
    cluster.heal()
    assert cluster.replicas[2].log.log_start_offset == 5
    assert cluster.isr == (0, 1, 2)


class ReplicatedLives(RuleBasedStateMachine):
    """Whatever order things happen in: what was acknowledged stays, at its offset, on the current leader."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.cluster = Cluster(seed)
        self.count = 0
        self.high_watermark = (-1, 0)

    @rule()
    def produce(self) -> None:
        self.count += 1
        self.cluster.produce(b"%d" % self.count)

    @rule(broker=st.integers(0, 2))
    def sync(self, broker: int) -> None:
        self.cluster.sync(broker)

    @rule(broker=st.integers(0, 2), size_max=st.sampled_from([1, 200, 100_000]))
    def replicate(self, broker: int, size_max: int) -> None:
        self.cluster.replicate(broker, size_max)

    @rule(broker=st.integers(0, 2))
    def report(self, broker: int) -> None:
        self.cluster.report(broker)

    @rule(broker=st.integers(0, 2))
    def whole_round(self, broker: int) -> None:
        round_of(self.cluster, broker)

    @rule(passed_ms=st.sampled_from([1, 600, LAG_MAX_MS + 1]))
    def look_at_isr(self, passed_ms: int) -> None:
        self.cluster.now_ms += passed_ms
        self.cluster.look_at_isr()

    @rule(broker=st.integers(0, 2), power=st.booleans())
    def die(self, broker: int, power: bool) -> None:
        self.cluster.die(broker, power=power)

    @rule(broker=st.integers(0, 2))
    def come_back(self, broker: int) -> None:
        self.cluster.come_back(broker)

    @rule()
    def calm_down(self) -> None:
        """Else most lives pass with one replica in sync, where nothing is acknowledged and nothing can be lost."""
        self.cluster.heal()

    @rule(syncs=st.lists(st.integers(0, 2), max_size=2), power=st.booleans())
    def produce_and_lose_the_leader(self, syncs: list[int], power: bool) -> None:
        self.produce()
        for broker in syncs:
            self.cluster.sync(broker)
        if self.cluster.leader_id is not None:
            self.cluster.die(self.cluster.leader_id, power=power)

    @rule(broker=st.integers(0, 2), power=st.booleans(), replicated=st.booleans())
    def produce_and_lose_a_replica(self, broker: int, power: bool, replicated: bool) -> None:
        self.produce()
        if replicated:
            for other in range(3):
                self.cluster.replicate(other)
                self.cluster.report(other)
        self.cluster.die(broker, power=power)
        self.cluster.come_back(broker)

    @rule(choice=st.integers(0, 2))
    def move_leader(self, choice: int) -> None:
        candidates = [b for b in self.cluster.isr if self.cluster.replicas[b].up]
        if candidates:
            self.cluster.elect(candidates[choice % len(candidates)])

    @rule()
    def power_cut_of_all(self) -> None:
        for broker in range(3):
            self.cluster.die(broker, power=True)
        for broker in range(3):
            self.cluster.come_back(broker)

    @invariant()
    def the_leader_has_what_was_acknowledged(self) -> None:
        if not hasattr(self, "cluster") or self.cluster.leader_id is None:
            return
        cluster = self.cluster
        found = cluster.records(cluster.leader.broker)
        for offset, value in cluster.acknowledged.items():
            assert found.get(offset) == value, f"acknowledged {value!r} is not at {offset}"
        leader = cluster.leader.leader
        assert leader is not None
        now = (cluster.epoch, leader.high_watermark)
        if now[0] == self.high_watermark[0]:
            assert now[1] >= self.high_watermark[1]  # I9
        self.high_watermark = now

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.cluster.heal()
        records = [self.cluster.records(broker) for broker in range(3)]
        assert records[0] == records[1] == records[2]  # I8
        assert self.cluster.acknowledged.items() <= records[0].items()  # I1
        self.cluster.close()


ReplicatedLives.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestReplicatedLives = ReplicatedLives.TestCase
