"""Elections by request, and the balance of leaderships: SEMANTICS 4."""

from __future__ import annotations

import pytest

from streamlog.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidRequestError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.cluster import TakeOver
from streamlog.metadata.decision import BalanceTimer
from streamlog.metadata.isr import AlterPartition, IsrProposal
from streamlog.metadata.leaders import (
    BALANCE_MAX,
    BALANCE_STEP_MS,
    BalanceLeaders,
    ElectionResult,
    ElectionType,
    ElectLeaders,
)
from streamlog.metadata.settings import ControllerSettings
from streamlog.model import NO_BROKER, BrokerId, PartitionId
from tests.metadata.examples import ids
from tests.metadata.rig import Rig


def elect(rig: Rig, kind: ElectionType, *partition_ids: int, topic: str = "t") -> list[ElectionResult]:
    wanted = tuple((topic, PartitionId(p)) for p in partition_ids) or None
    return list(rig.do(ElectLeaders(type=kind, partitions=wanted)))


def come_back(rig: Rig, node: int) -> None:
    """Fenced and back in every ISR, but no leader any more."""
    rig.fence(node)
    rig.start(node)
    proposals: dict[BrokerId, list[IsrProposal]] = {}
    for topic in rig.image.topics.values():
        for at, partition in enumerate(topic.partitions):
            if node in partition.replicas:
                proposal = rig.proposal([*partition.isr, node], topic.name, at)
                proposals.setdefault(partition.leader, []).append(proposal)
    for leader, wanted in proposals.items():
        rig.do(AlterPartition(broker_id=leader, broker_epoch=rig.epoch(leader), proposals=tuple(wanted)))


class TestPreferred:
    @pytest.fixture
    def rig(self) -> Rig:
        rig = Rig()
        rig.start_all(1, 2, 3)
        rig.create(assignments=(ids(1, 2, 3), ids(1, 3, 2), ids(2, 1, 3)))
        come_back(rig, 1)
        assert [p.leader for p in rig.topic().partitions] == [2, 3, 2]
        return rig

    def test_some(self, rig: Rig) -> None:
        [result] = elect(rig, ElectionType.PREFERRED, 0)
        assert (result.leader, result.error) == (1, None)
        assert [p.leader for p in rig.topic().partitions] == [1, 3, 2]
        assert rig.partition().isr == ids(1, 2, 3)

    def test_all(self, rig: Rig) -> None:
        results = elect(rig, ElectionType.PREFERRED)
        assert [(r.partition_id, r.leader) for r in results] == [(0, 1), (1, 1)]
        assert [p.leader for p in rig.topic().partitions] == [1, 1, 2]
        assert elect(rig, ElectionType.PREFERRED) == []

    def test_errors(self, rig: Rig) -> None:
        rig.alter_isr([2, 3], "t", 0)
        not_in_sync, good, not_needed, unknown = elect(rig, ElectionType.PREFERRED, 0, 1, 2, 3)
        assert type(not_in_sync.error) is PreferredLeaderNotAvailableError
        assert good.error is None
        assert type(not_needed.error) is ElectionNotNeededError
        assert type(unknown.error) is UnknownTopicOrPartitionError

    def test_a_partition_twice(self, rig: Rig) -> None:
        with pytest.raises(InvalidRequestError):
            elect(rig, ElectionType.PREFERRED, 0, 0)


class TestUnclean:
    @pytest.fixture
    def rig(self) -> Rig:
        """t-0 was on 1 (in sync) and 2 (not); t-1 on 2; t-2 on 1 alone; 1 is dead."""
        rig = Rig()
        rig.start_all(1, 2)
        rig.create(assignments=(ids(1, 2), ids(2, 1)))
        rig.create("u", assignments=(ids(1),))
        rig.alter_isr([1], "t", 0)
        rig.fence(1)
        assert [p.leader for p in rig.topic().partitions] == [NO_BROKER, 2]
        return rig

    def test_some(self, rig: Rig) -> None:
        good, not_needed = elect(rig, ElectionType.UNCLEAN, 0, 1)
        assert (good.leader, good.error) == (2, None)
        assert type(not_needed.error) is ElectionNotNeededError
        assert (rig.partition().leader, rig.partition().isr) == (2, ids(2))

    def test_nobody_is_alive(self, rig: Rig) -> None:
        [result] = elect(rig, ElectionType.UNCLEAN, 0, topic="u")
        assert type(result.error) is EligibleLeadersNotAvailableError

    def test_all(self, rig: Rig) -> None:
        assert [(r.topic, r.leader) for r in elect(rig, ElectionType.UNCLEAN)] == [("t", 2)]
        assert rig.partition("u").leader == NO_BROKER


class TestBalance:
    def cluster(self, partitions: int, **settings: int | bool) -> Rig:
        rig = Rig(settings=ControllerSettings(**settings))  # type: ignore[arg-type]  # ints and bools by name
        rig.start_all(1, 2)
        rig.create(assignments=(ids(1, 2),) * partitions)
        rig.do(TakeOver())
        return rig

    def test_a_node_that_is_back_leads_again(self) -> None:
        rig = self.cluster(10)
        come_back(rig, 1)
        assert {p.leader for p in rig.topic().partitions} == {2}
        rig.fire(BalanceTimer())
        assert {p.leader for p in rig.topic().partitions} == {1}
        assert rig.timers[BalanceTimer()] == 300_000

    def test_a_little_imbalance_is_left_alone(self) -> None:
        """leader.imbalance.per.broker.percentage = 10."""
        rig = self.cluster(20)
        come_back(rig, 1)
        elect(rig, ElectionType.PREFERRED, *range(18))
        assert sum(p.leader == 2 for p in rig.topic().partitions) == 2
        rig.do(BalanceLeaders())
        assert sum(p.leader == 2 for p in rig.topic().partitions) == 2
        rig.settings = ControllerSettings(leader_imbalance_per_broker_percentage=9)
        rig.do(BalanceLeaders())
        assert sum(p.leader == 2 for p in rig.topic().partitions) == 0

    def test_it_is_bounded_and_goes_on_soon(self) -> None:
        rig = self.cluster(BALANCE_MAX + 3)
        come_back(rig, 1)
        rig.fire(BalanceTimer())
        assert sum(p.leader == 1 for p in rig.topic().partitions) == BALANCE_MAX
        assert rig.timers[BalanceTimer()] == BALANCE_STEP_MS

    def test_it_can_be_switched_off(self) -> None:
        rig = self.cluster(2, auto_leader_rebalance_enable=False)
        come_back(rig, 1)
        rig.fire(BalanceTimer())
        assert {p.leader for p in rig.topic().partitions} == {2}
        assert BalanceTimer() in rig.timers

    def test_who_is_not_in_sync_gets_nothing(self) -> None:
        rig = self.cluster(2)
        rig.fence(1)
        rig.start(1)
        before = rig.image
        rig.do(BalanceLeaders())
        assert rig.image is before
