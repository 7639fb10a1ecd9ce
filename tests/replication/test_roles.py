"""What roles live through without a new epoch: other replicas, a log that starts inside of a batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamlog.model import BrokerId, LeaderEpoch, Offset
from streamlog.replication.follower import PartitionFollower
from streamlog.sim.machine import Machine
from tests.replication.cluster import Cluster
from tests.storage.rig import Rig


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(1)
    yield cluster
    cluster.close()


def test_a_reassignment_brings_and_takes_replicas_while_the_leader_stays(cluster: Cluster) -> None:
    leader = cluster.leader.leader
    assert leader is not None
    seven = BrokerId(7)
    assert seven not in leader.replicas
    leader.on_assignment((BrokerId(0), BrokerId(1), seven), 2, 5)
    assert leader.replicas == (0, 1, seven)
    cluster.leader.do(lambda: leader.on_position(seven, Offset(0), 6))
    assert leader.min_isr == 2


def test_a_follower_begins_with_the_batch_that_the_leaders_start_lies_in() -> None:
    leader, other = Rig(Machine("leader")), Rig(Machine("follower"))
    leader.append(b"a", b"b", b"c", b"d")
    leader.do(lambda: leader.log.advance_log_start(Offset(2)))
    follower = PartitionFollower(other.log, LeaderEpoch(0), high_watermark=Offset(0))
    other.machine.run(follower.on_out_of_range(Offset(2), Offset(4)))
    data = leader.read(2)
    assert follower.straddles(data)
    other.machine.run(follower.on_straddling(data, Offset(4), Offset(2)))
    assert (other.log.log_start_offset, other.log.log_end_offset, follower.high_watermark) == (2, 4, 4)
    assert other.values() == [(2, b"c"), (3, b"d")]
    assert not follower.straddles(data)
