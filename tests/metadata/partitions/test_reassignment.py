"""Replicas move: KIP-455, and nodes are drained."""

from __future__ import annotations

import pytest

from streamlog.errors import (
    BrokerIdNotRegisteredError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.brokers.drain import DrainBroker
from streamlog.metadata.brokers.registration import UnregisterBroker
from streamlog.metadata.partitions.drain_moves import DrainStatus
from streamlog.metadata.partitions.reassignment import AlterReassignments, PartitionReassignment, reassignments
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.placement import candidates
from streamlog.model import NO_BROKER, BrokerId, PartitionId
from tests.metadata.examples import ids
from tests.metadata.rig import Rig


def reassign(rig: Rig, replicas: tuple[int, ...] | None, topic: str = "t", at: int = 0) -> StreamlogError | None:
    target = None if replicas is None else ids(*replicas)
    wanted = PartitionReassignment(topic=topic, partition_id=PartitionId(at), replicas=target)
    [result] = rig.do(AlterReassignments(reassignments=(wanted,)))
    error: StreamlogError | None = result.error
    return error


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.start_all(1, 2, 3, 4, 5)
    rig.create(assignments=(ids(1, 2, 3),))
    return rig


class TestReassignment:
    def test_from_start_to_end(self, rig: Rig) -> None:
        assert reassign(rig, (4, 5, 1)) is None
        partition = rig.partition()
        assert (partition.replicas, partition.adding, partition.removing) == (ids(4, 5, 1, 2, 3), ids(4, 5), ids(2, 3))
        assert (partition.isr, partition.leader, partition.leader_epoch) == (ids(1, 2, 3), 1, 0)
        assert [key for key, _ in reassignments(rig.image)] == [rig.key()]
        rig.alter_isr([1, 2, 3, 4])
        assert rig.partition().removing == ids(2, 3)
        assert rig.alter_isr([1, 2, 3, 4, 5]).error is None
        partition = rig.partition()
        assert (partition.replicas, partition.isr) == (ids(4, 5, 1), ids(4, 5, 1))
        assert (partition.adding, partition.removing) == ((), ())
        assert (partition.leader, partition.leader_epoch) == (1, 1), "the leader stays, in a new epoch"
        assert list(reassignments(rig.image)) == []

    def test_another_order_is_done_at_once(self, rig: Rig) -> None:
        assert reassign(rig, (3, 1, 2)) is None
        partition = rig.partition()
        assert (partition.replicas, partition.adding, partition.removing) == (ids(3, 1, 2), (), ())
        assert (partition.leader, partition.leader_epoch) == (1, 0)

    def test_fewer_are_done_at_once(self, rig: Rig) -> None:
        assert reassign(rig, (2, 3)) is None
        partition = rig.partition()
        assert (partition.replicas, partition.isr, partition.leader) == (ids(2, 3), ids(2, 3), 2)
        assert partition.leader_epoch == 1

    def test_fewer_wait_for_one_that_is_in_sync(self, rig: Rig) -> None:
        rig.alter_isr([1, 2])
        reassign(rig, (3,))
        assert (rig.partition().replicas, rig.partition().removing) == (ids(3, 1, 2), ids(1, 2))
        rig.alter_isr([1, 2, 3])
        assert (rig.partition().replicas, rig.partition().leader) == (ids(3), 3)

    def test_it_goes_on_when_a_node_dies(self, rig: Rig) -> None:
        reassign(rig, (4, 5, 1))
        rig.fence(1)
        assert (rig.partition().leader, rig.partition().isr) == (2, ids(2, 3))
        rig.alter_isr([2, 3, 4, 5])
        assert (rig.partition().replicas, rig.partition().isr, rig.partition().leader) == (ids(4, 5, 1), ids(4, 5), 4)

    def test_another_target_takes_the_place_of_the_first(self, rig: Rig) -> None:
        reassign(rig, (4, 2, 3))
        rig.alter_isr([1, 2, 3])
        reassign(rig, (5, 2, 3))
        partition = rig.partition()
        assert (partition.replicas, partition.adding, partition.removing) == (ids(5, 2, 3, 4, 1), ids(5), ids(4, 1))

    def test_back_to_where_it_was_is_done_at_once(self, rig: Rig) -> None:
        reassign(rig, (4, 2, 3))
        reassign(rig, (1, 2, 3))
        partition = rig.partition()
        assert (partition.replicas, partition.adding, partition.removing) == (ids(1, 2, 3), (), ())

    def test_growing_from_one_replica_does_not_stop_it(self, rig: Rig) -> None:
        """SEMANTICS 5: the minimum is that of the replicas which it had."""
        rig.create("u", assignments=(ids(1),))
        reassign(rig, (1, 2, 3), "u")
        assert (rig.partition("u").isr, rig.partition("u").elr) == (ids(1), ())
        rig.alter_isr([1, 2, 3], "u")
        assert rig.partition("u").isr == ids(1, 2, 3)

    @pytest.mark.parametrize("replicas", [(), (1, 1), (9,), (1, 2, 6)], ids=str)
    def test_no_replicas(self, rig: Rig, replicas: tuple[int, ...]) -> None:
        rig.register(6)
        before = rig.image
        assert type(reassign(rig, replicas)) is InvalidReplicaAssignmentError
        assert rig.image is before

    def test_unknown(self, rig: Rig) -> None:
        assert type(reassign(rig, (1,), "u")) is UnknownTopicOrPartitionError
        assert type(reassign(rig, (1,), "t", 1)) is UnknownTopicOrPartitionError

    def test_a_partition_twice(self, rig: Rig) -> None:
        wanted = PartitionReassignment(topic="t", partition_id=PartitionId(0), replicas=None)
        with pytest.raises(InvalidRequestError):
            rig.do(AlterReassignments(reassignments=(wanted, wanted)))


class TestCancelling:
    def test_it_is_as_it_was(self, rig: Rig) -> None:
        before = rig.partition()
        reassign(rig, (1, 2, 4))
        rig.alter_isr([1, 2, 3])
        assert reassign(rig, None) is None
        after = rig.partition()
        assert (after.replicas, after.isr, after.leader) == (before.replicas, before.isr, before.leader)
        assert (after.adding, after.removing) == ((), ())
        assert after.leader_epoch == 1, "4 is no replica any more"

    def test_the_new_ones_go_even_when_one_leads(self, rig: Rig) -> None:
        reassign(rig, (4, 5))
        rig.alter_isr([1, 4])
        rig.fence(1)
        assert rig.partition().leader == 4
        error = reassign(rig, None)
        assert type(error) is InvalidReplicaAssignmentError, "the data would go with it"
        rig.start(1)
        rig.alter_isr([1, 4])
        assert reassign(rig, None) is None
        assert (rig.partition().leader, rig.partition().isr) == (1, ids(1))

    @pytest.mark.parametrize("clean", [True, False])
    def test_not_while_only_new_ones_have_everything_and_none_leads(self, rig: Rig, *, clean: bool) -> None:
        """4 has acknowledged records alone, in the ELR or the last known ELR: a cancellation would delete its log."""
        rig.create("u", assignments=(ids(1),))
        reassign(rig, (4, 5), "u")
        rig.alter_isr([1, 4], "u")
        rig.fence(1)
        rig.fence(4)
        if not clean:
            rig.register(4, clean=False)
        before = rig.partition("u")
        assert (before.isr, before.leader) == ((), NO_BROKER)
        assert (before.elr, before.last_known_elr) == ((ids(4), ()) if clean else ((), ids(4)))
        assert type(reassign(rig, None, "u")) is InvalidReplicaAssignmentError
        assert rig.partition("u") == before

    def test_where_there_is_none(self, rig: Rig) -> None:
        assert type(reassign(rig, None)) is NoReassignmentInProgressError


class TestDrain:
    def drain(self, rig: Rig, node: int, **how: bool) -> DrainStatus:
        progress: DrainStatus = rig.do(DrainBroker(broker_id=BrokerId(node), **how))
        return progress

    def catch_up(self, rig: Rig) -> int:
        """All replicas that are being added are in sync. How many partitions that were."""
        moving = list(reassignments(rig.image))
        for (topic_id, at), _ in moving:
            name = rig.image.topics[topic_id].name
            live = [b for b in rig.partition(name, at).replicas if rig.broker(b).active]
            rig.alter_isr(live, name, at)
        return len(moving)

    def test_everything_goes_some_at_a_time(self) -> None:
        rig = Rig(settings=ControllerSettings(drain_partitions_max=4))
        rig.start_all(1, 2, 3, 4)
        rig.create("u", partitions=20, replication_factor=3)
        assert self.drain(rig, 1) == DrainStatus(replicas=15, moving=0)
        rounds = []
        while moved := self.catch_up(rig):
            rounds.append(moved)
        assert rounds == [4, 4, 4, 3]
        assert self.drain(rig, 1) == DrainStatus(replicas=0, moving=0)
        assert not any(1 in p.replicas for p in rig.topic("u").partitions)
        assert all(len(p.replicas) == len(p.isr) == 3 for p in rig.topic("u").partitions)
        leaders = [p.leader for p in rig.topic("u").partitions]
        assert max(leaders.count(BrokerId(b)) for b in (2, 3, 4)) <= 9
        rig.fence(1)
        rig.do(UnregisterBroker(broker_id=BrokerId(1)))

    def test_a_dead_node_is_replaced(self, rig: Rig) -> None:
        rig.fence(1)
        self.drain(rig, 1)
        assert self.catch_up(rig) == 1
        assert rig.partition().replicas[:2] == ids(2, 3)
        assert rig.partition().replicas[2] in (4, 5)

    def test_it_gets_no_new_replicas(self, rig: Rig) -> None:
        self.drain(rig, 4)
        assert [node.broker_id for node in candidates(rig.image)] == [1, 2, 3, 5]
        assert type(reassign(rig, (1, 2, 4))) is InvalidReplicaAssignmentError
        with pytest.raises(InvalidReplicaAssignmentError, match="node 4 is being drained"):
            rig.create("u", assignments=(ids(4),))

    def test_cancelled(self, rig: Rig) -> None:
        before = rig.partition()
        self.drain(rig, 1)
        assert rig.partition().removing == ids(1)
        assert self.drain(rig, 1, cancel=True) == DrainStatus(replicas=1, moving=0)
        assert not rig.broker(1).draining
        assert set(rig.partition().replicas) == set(before.replicas)
        assert rig.partition().removing == ()
        assert self.drain(rig, 1, cancel=True) == DrainStatus(replicas=1, moving=0)

    def test_there_must_be_room_elsewhere(self, rig: Rig) -> None:
        rig.fence(4)
        rig.fence(5)
        before = rig.image
        with pytest.raises(InvalidRequestError, match=r"partition t-0 has 3 replicas, and no other active node"):
            self.drain(rig, 1)
        assert rig.image is before

    def test_a_partition_without_a_leader_comes_later(self, rig: Rig) -> None:
        rig.create("u", assignments=(ids(1),))
        rig.fence(1)
        self.drain(rig, 1)
        assert rig.partition("u").leader == NO_BROKER
        assert rig.partition("u").adding == ()
        rig.start(1)
        assert rig.partition("u").removing == ids(1)

    def test_an_unknown_node(self, rig: Rig) -> None:
        with pytest.raises(BrokerIdNotRegisteredError):
            self.drain(rig, 9)
