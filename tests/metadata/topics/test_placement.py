"""Where replicas go (SEMANTICS 12): known answers by hand, and what holds for all clusters."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.metadata.brokers.drain import DrainBroker
from streamlog.metadata.records import Broker, Replicas
from streamlog.metadata.topics.placement import Tally, TopicPlacer, candidates
from streamlog.model import BrokerId
from tests.metadata.examples import ids
from tests.metadata.rig import Rig, broker


def placed(
    nodes: list[Broker], partitions: int, replication_factor: int, cluster: Tally | None = None
) -> list[Replicas]:
    placer = TopicPlacer(nodes, cluster or Tally())
    return [placer.place(replication_factor) for _ in range(partitions)]


def spread(counts: Counter[BrokerId], nodes: list[Broker]) -> int:
    values = [counts[node.broker_id] for node in nodes]
    return max(values) - min(values)


def test_three_nodes_by_hand() -> None:
    """Leaders 0, 1, 2 in turn; the followers of 0 are led by 0 once more at the second time round, the other way."""
    nodes = [broker(0), broker(1), broker(2)]
    assert placed(nodes, 3, 1) == [ids(0), ids(1), ids(2)]
    assert placed(nodes, 3, 3) == [ids(0, 1, 2), ids(1, 0, 2), ids(2, 0, 1)]
    # p0: leader 0, follower 1 (all equal, first in order). p1: 1 and 2 lead nothing, 2 has fewer replicas; follower 1
    # or 0, both have one, 0 leads already (1 will still become a leader). p2: leader 1, follower 2 (0 has two).
    assert placed(nodes, 3, 2) == [ids(0, 1), ids(2, 0), ids(1, 2)]


def test_two_racks_by_hand() -> None:
    """Nodes 0, 1 in rack a, 2, 3 in rack b: leaders alternate, and every partition has a replica in each rack."""
    nodes = [broker(0, "a"), broker(1, "a"), broker(2, "b"), broker(3, "b")]
    assert placed(nodes, 4, 2) == [ids(0, 2), ids(3, 1), ids(1, 3), ids(2, 0)]


def test_followers_of_one_leader_differ() -> None:
    """What a dead node led falls on all the others, not on one pair of nodes."""
    replicas = placed([broker(b) for b in range(6)], 60, 3)
    for node in range(6):
        heirs = Counter(r[1] for r in replicas if r[0] == node)
        assert len(heirs) == 5


def test_a_new_node_gets_its_share_of_a_new_topic_and_not_all_of_it() -> None:
    cluster = Tally()
    nodes = [broker(b) for b in range(3)]
    placed(nodes, 30, 2, cluster)
    replicas = placed([*nodes, broker(3)], 8, 2, cluster)
    assert Counter(r[0] for r in replicas) == {0: 2, 1: 2, 2: 2, 3: 2}


def test_topics_of_one_partition_are_spread_over_the_cluster() -> None:
    cluster = Tally()
    nodes = [broker(b) for b in range(3)]
    leaders = Counter(placed(nodes, 1, 3, cluster)[0][0] for _ in range(9))
    assert leaders == {0: 3, 1: 3, 2: 3}


@pytest.mark.parametrize("count", range(1, 13))
def test_without_racks_everything_is_within_one(count: int) -> None:
    nodes = [broker(b) for b in range(count)]
    for factor in range(1, min(count, 5) + 1):
        leaders: Counter[BrokerId] = Counter()
        replicas: Counter[BrokerId] = Counter()
        placer = TopicPlacer(nodes, Tally())
        for _ in range(3 * count + 2):
            partition = placer.place(factor)
            leaders[partition[0]] += 1
            replicas.update(partition)
            assert spread(leaders, nodes) <= 1
            assert spread(replicas, nodes) <= 1


@pytest.mark.parametrize(("racks", "count"), [(2, 4), (2, 8), (3, 6), (3, 9), (4, 8)])
def test_with_equal_racks_leaders_alternate_and_replicas_are_within_two(racks: int, count: int) -> None:
    nodes = [broker(b, f"rack{b % racks}") for b in range(count)]
    for factor in range(1, 5):
        replicas = placed(nodes, 30, factor)
        assert all(a[0] % racks != b[0] % racks for a, b in pairwise(replicas))
        assert spread(Counter(r[0] for r in replicas), nodes) <= 1
        assert spread(Counter(b for r in replicas for b in r), nodes) <= 2


RACKS = st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=9)


@settings(max_examples=200)
@given(RACKS, st.integers(1, 9), st.integers(1, 25), st.lists(st.integers(0, 50), min_size=9, max_size=9))
def test_any_cluster(racks: list[str], factor: int, partitions: int, load: list[int]) -> None:
    nodes = [broker(b, rack) for b, rack in enumerate(racks)]
    factor = min(factor, len(nodes))
    cluster = Tally()
    cluster.replicas = {BrokerId(b): load[b] for b in range(9)}
    cluster.leaders = {BrokerId(b): load[b] // 2 for b in range(9)}
    replicas = placed(nodes, partitions, factor, cluster)
    assert spread(Counter(r[0] for r in replicas), nodes) <= 1
    if len(set(racks)) == 1:
        assert spread(Counter(b for r in replicas for b in r), nodes) <= 1
    for partition in replicas:
        assert len(partition) == len(set(partition)) == factor
        used = Counter(racks[b] for b in partition)
        assert len(used) == min(factor, len(set(racks))), "as many racks as there are"
    assert sum(cluster.replicas.values()) == sum(load) + partitions * factor


@given(RACKS, st.integers(1, 3), st.integers(1, 12), st.integers(1, 12))
def test_a_topic_that_grows_stays_within_one(racks: list[str], factor: int, first: int, more: int) -> None:
    nodes = [broker(b, rack) for b, rack in enumerate(racks)]
    factor = min(factor, len(nodes))
    topic = Tally()
    before = placed(nodes, first, factor)
    for partition in before:
        topic.add_leader(partition[0])
        for follower in partition[1:]:
            topic.add_replica(follower)
    placer = TopicPlacer(nodes, Tally(), topic)
    after = before + [placer.place(factor) for _ in range(more)]
    assert spread(Counter(r[0] for r in after), nodes) <= 1


def test_extending_keeps_what_is_there() -> None:
    placer = TopicPlacer([broker(b, "ab"[b % 2]) for b in range(4)], Tally())
    assert placer.extend(ids(2), 1) == ids(2, 1)
    assert placer.extend(ids(9, 2), 2)[:2] == ids(9, 2)


def test_only_live_nodes_that_stay_get_replicas() -> None:
    rig = Rig()
    rig.start_all(1, 2, 3, 4)
    rig.register(5)
    rig.fence(1)
    rig.do(DrainBroker(broker_id=BrokerId(2)))
    rig.heartbeat(3, want_shut_down=True)
    assert [node.broker_id for node in candidates(rig.image)] == [4]


def test_the_tally_of_a_cluster() -> None:
    rig = Rig()
    rig.start_all(1, 2, 3)
    rig.create("a", assignments=(ids(1, 2), ids(1, 3)))
    rig.create("b", assignments=(ids(2, 3),))
    tally = Tally.of_cluster(rig.image)
    assert tally.leaders == {1: 2, 2: 1, 3: 0}
    assert tally.replicas == {1: 2, 2: 2, 3: 2}
    topic = Tally.of_topic(rig.image, rig.topic("a").topic_id)
    assert topic.leaders == {1: 2, 2: 0, 3: 0}
    assert topic.replicas == {1: 2, 2: 1, 3: 1}
