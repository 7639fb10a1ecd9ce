"""Leader and followers over real logs (SEMANTICS 1, 2, 3, 5; FAULTS I1, I8, I9, I11)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamlog.errors import FencedLeaderEpochError, UnknownLeaderEpochError
from streamlog.model import BrokerId, LeaderEpoch
from tests.replication.cluster import LAG_MAX_MS, Cluster
from tests.replication.lives import ReplicatedLives, round_of


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(1)
    yield cluster
    cluster.close()


def high_watermark(cluster: Cluster) -> int:
    leader = cluster.leader.leader
    assert leader is not None
    return leader.high_watermark


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


def test_a_follower_whose_log_differs_leaves_also_if_it_has_caught_up(cluster: Cluster) -> None:
    """It notes its log as incomplete, and only entering the ISR ends that."""
    leader = cluster.leader.leader
    assert leader is not None
    cluster.produce(b"a")
    cluster.sync(0)
    round_of(cluster, 1)
    round_of(cluster, 2)
    cluster.now_ms += 1
    leader.on_differing(BrokerId(2))
    round_of(cluster, 2)
    cluster.look_at_isr()
    assert cluster.isr == (0, 1)
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
    cluster.isr, cluster.partition_epoch = (BrokerId(0), BrokerId(1)), proposal.partition_epoch + 1
    cluster.leader.do(
        lambda: leader.on_isr(cluster.isr, cluster.partition_epoch, others_eligible=False, by_metadata=False)
    )
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


TestReplicatedLives = ReplicatedLives.TestCase
