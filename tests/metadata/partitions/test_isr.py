"""AlterPartition: SEMANTICS 3, FAULTS "Bad input"."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NewLeaderElectedError,
    NotControllerError,
    StaleBrokerEpochError,
    StreamlogError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.partitions.isr import PARTITIONS_PER_REQUEST_MAX, AlterPartition
from streamlog.metadata.partitions.reassignment import AlterReassignments, PartitionReassignment
from streamlog.model import BrokerEpoch, BrokerId, PartitionId, TopicId
from tests.metadata.examples import ids
from tests.metadata.rig import Rig


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.start_all(1, 2, 3)
    rig.create(assignments=(ids(1, 2, 3),))
    return rig


def test_a_follower_that_lags_leaves_and_comes_back(rig: Rig) -> None:
    result = rig.alter_isr([1, 3])
    assert result.partition == rig.partition()
    assert (rig.partition().isr, rig.partition().partition_epoch, rig.partition().leader_epoch) == (ids(1, 3), 1, 0)
    result = rig.alter_isr([3, 2, 1])
    assert (rig.partition().isr, rig.partition().partition_epoch) == (ids(1, 2, 3), 2)
    assert result.error is None


def test_the_same_isr_changes_nothing(rig: Rig) -> None:
    before = rig.image
    result = rig.alter_isr([1, 2, 3])
    assert result.partition == rig.partition()
    assert rig.image is before


def test_below_the_minimum_those_who_leave_stay_eligible(rig: Rig) -> None:
    rig.alter_isr([1])
    assert (rig.partition().isr, rig.partition().elr) == (ids(1), ids(2, 3))
    rig.alter_isr([1, 3])
    assert (rig.partition().isr, rig.partition().elr) == (ids(1, 3), ())


class TestRefusals:
    """SEMANTICS 3 names the errors; what is refused changes nothing."""

    def refused(self, rig: Rig, error: type[StreamlogError], isr: list[int], **what: Any) -> StreamlogError:
        before = rig.image
        result = rig.alter_isr(isr, **what)
        assert type(result.error) is error
        assert result.partition is None
        assert rig.image is before
        return result.error

    def test_a_stale_leader_epoch(self, rig: Rig) -> None:
        rig.fence(1)
        rig.start(1)
        epoch = rig.partition().leader_epoch
        self.refused(rig, FencedLeaderEpochError, [1, 2], leader=BrokerId(1), leader_epoch=epoch - 1)

    def test_a_stale_partition_epoch(self, rig: Rig) -> None:
        rig.alter_isr([1, 2])
        error = self.refused(rig, InvalidUpdateVersionError, [1, 3], partition_epoch=0)
        assert error.details["limit"] == 1

    @pytest.mark.parametrize("which", ["leader_epoch", "partition_epoch"])
    def test_an_epoch_of_the_future_says_that_this_controller_is_behind(self, rig: Rig, which: str) -> None:
        self.refused(rig, NotControllerError, [1, 2], **{which: 9})

    def test_somebody_who_does_not_lead(self, rig: Rig) -> None:
        self.refused(rig, InvalidRequestError, [1, 2], leader=BrokerId(2))

    @pytest.mark.parametrize("isr", [[1, 1], [1, 4], [2, 3], []])
    def test_an_isr_that_is_none(self, rig: Rig, isr: list[int]) -> None:
        rig.start(4)
        self.refused(rig, InvalidRequestError, isr)

    def test_a_fenced_member(self, rig: Rig) -> None:
        rig.fence(2)
        self.refused(rig, IneligibleReplicaError, [1, 2, 3])

    def test_a_member_that_is_stopping(self, rig: Rig) -> None:
        rig.heartbeat(2, want_shut_down=True)
        self.refused(rig, IneligibleReplicaError, [1, 2, 3])

    def test_a_member_that_has_restarted_since_it_fetched(self, rig: Rig) -> None:
        """KIP-903."""
        epoch = rig.epoch(2)
        rig.fence(2)
        rig.start(2)
        error = self.refused(rig, IneligibleReplicaError, [1, 2, 3], epochs={2: epoch})
        assert error.details["limit"] == rig.epoch(2)

    def test_an_unknown_topic(self, rig: Rig) -> None:
        proposal = replace(rig.proposal([1, 2]), topic_id=TopicId(bytes(16)))
        command = AlterPartition(broker_id=BrokerId(1), broker_epoch=rig.epoch(1), proposals=(proposal,))
        assert type(rig.do(command)[0].error) is UnknownTopicIdError

    def test_an_unknown_partition(self, rig: Rig) -> None:
        proposal = replace(rig.proposal([1, 2]), partition_id=PartitionId(1))
        command = AlterPartition(broker_id=BrokerId(1), broker_epoch=rig.epoch(1), proposals=(proposal,))
        assert type(rig.do(command)[0].error) is UnknownTopicOrPartitionError


class TestRequests:
    def test_a_stale_broker_epoch_refuses_all_of_it(self, rig: Rig) -> None:
        epoch = BrokerEpoch(rig.epoch(1) - 1)
        command = AlterPartition(broker_id=BrokerId(1), broker_epoch=epoch, proposals=(rig.proposal([1]),))
        with pytest.raises(StaleBrokerEpochError):
            rig.do(command)

    def test_one_refusal_does_not_hold_up_the_others(self, rig: Rig) -> None:
        rig.create("u", assignments=(ids(1, 2),))
        proposals = (rig.proposal([1], partition_epoch=-1), rig.proposal([1], "u"))
        command = AlterPartition(broker_id=BrokerId(1), broker_epoch=rig.epoch(1), proposals=proposals)
        first, second = rig.do(command)
        assert type(first.error) is InvalidUpdateVersionError
        assert second.error is None
        assert rig.partition("u").isr == ids(1)

    def test_a_partition_twice(self, rig: Rig) -> None:
        command = AlterPartition(
            broker_id=BrokerId(1), broker_epoch=rig.epoch(1), proposals=(rig.proposal([1]), rig.proposal([1, 2]))
        )
        with pytest.raises(InvalidRequestError, match="twice"):
            rig.do(command)

    def test_too_many_partitions(self, rig: Rig) -> None:
        proposals = (rig.proposal([1]),) * (PARTITIONS_PER_REQUEST_MAX + 1)
        command = AlterPartition(broker_id=BrokerId(1), broker_epoch=rig.epoch(1), proposals=proposals)
        with pytest.raises(InvalidRequestError) as refused:
            rig.do(command)
        assert refused.value.details["limit"] == PARTITIONS_PER_REQUEST_MAX


def test_the_leader_is_notified_when_its_change_has_given_the_partition_to_another(rig: Rig) -> None:
    rig.start(4)
    target = PartitionReassignment(topic="t", partition_id=PartitionId(0), replicas=ids(4, 2))
    rig.do(AlterReassignments(reassignments=(target,)))
    result = rig.alter_isr([1, 2, 3, 4])
    assert type(result.error) is NewLeaderElectedError
    assert result.partition == rig.partition()
    assert (rig.partition().leader, rig.partition().replicas) == (4, ids(4, 2))
