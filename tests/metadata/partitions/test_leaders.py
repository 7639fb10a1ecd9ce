"""Elections by request, and the balance of leaderships: SEMANTICS 4."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidRequestError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.cluster import TakeOver
from streamlog.metadata.decision import BalanceTimer
from streamlog.metadata.partitions.isr import AlterPartition, IsrProposal
from streamlog.metadata.partitions.leaders import (
    BALANCE_MAX,
    BALANCE_STEP_MS,
    BalanceLeaders,
    ElectionResult,
    ElectLeaders,
    RequestedElection,
    ResignLeadership,
)
from streamlog.metadata.partitions.recovery import PartitionAnswers
from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.metadata.settings import ControllerSettings
from streamlog.model import NO_BROKER, BrokerId, LeaderEpoch, PartitionId
from tests.metadata.examples import ids
from tests.metadata.rig import Rig


def elect(rig: Rig, kind: RequestedElection, *partition_ids: int, topic: str = "t") -> list[ElectionResult]:
    wanted = tuple((topic, PartitionId(p)) for p in partition_ids) or None
    return list(rig.do(ElectLeaders(type=kind, partitions=wanted)))


def elect_unclean(rig: Rig, *wanted: tuple[str, int], dry_run: bool = False, **logs: tuple[int, int]) -> Any:
    """`n2=(last epoch, log end)`: what node 2 says of each partition that has no leader."""
    logs_of_nodes = {int(name[1:]): log for name, log in logs.items()}
    answers = [
        rig.answers(logs_of_nodes, topic.name, at)
        for topic in rig.image.topics.values()
        for at, partition in enumerate(topic.partitions)
        if partition.leader == NO_BROKER
    ]
    answers = [replace(one, states=_of_replicas(rig, one)) for one in answers]
    named = tuple((name, PartitionId(at)) for name, at in wanted) or None
    command = ElectLeaders(type=RequestedElection.UNCLEAN, partitions=named, dry_run=dry_run, answers=tuple(answers))
    return list(rig.do(command))


def _of_replicas(rig: Rig, answers: PartitionAnswers) -> tuple[ReplicaState, ...]:
    replicas = rig.image.partition(answers.key).replicas
    return tuple(state for state in answers.states if state.broker_id in replicas)


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
        [result] = elect(rig, RequestedElection.PREFERRED, 0)
        assert (result.leader, result.error) == (1, None)
        assert [p.leader for p in rig.topic().partitions] == [1, 3, 2]
        assert rig.partition().isr == ids(1, 2, 3)

    def test_all(self, rig: Rig) -> None:
        results = elect(rig, RequestedElection.PREFERRED)
        assert [(r.partition_id, r.leader) for r in results] == [(0, 1), (1, 1)]
        assert [p.leader for p in rig.topic().partitions] == [1, 1, 2]
        assert elect(rig, RequestedElection.PREFERRED) == []

    def test_errors(self, rig: Rig) -> None:
        rig.alter_isr([2, 3], "t", 0)
        not_in_sync, good, not_needed, unknown = elect(rig, RequestedElection.PREFERRED, 0, 1, 2, 3)
        assert type(not_in_sync.error) is PreferredLeaderNotAvailableError
        assert good.error is None
        assert type(not_needed.error) is ElectionNotNeededError
        assert type(unknown.error) is UnknownTopicOrPartitionError

    def test_a_partition_twice(self, rig: Rig) -> None:
        with pytest.raises(InvalidRequestError):
            elect(rig, RequestedElection.PREFERRED, 0, 0)


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
        good, not_needed = elect_unclean(rig, ("t", 0), ("t", 1), n2=(0, 7))
        assert (good.leader, good.error) == (2, None)
        assert type(not_needed.error) is ElectionNotNeededError
        assert (rig.partition().leader, rig.partition().isr) == (2, ids(2))

    def test_nobody_is_alive(self, rig: Rig) -> None:
        [result] = elect_unclean(rig, ("u", 0), n2=(0, 7))
        assert type(result.error) is EligibleLeadersNotAvailableError

    def test_all(self, rig: Rig) -> None:
        found = elect_unclean(rig, n2=(0, 7))
        assert sorted((r.topic, r.leader) for r in found) == [("t", 2), ("u", NO_BROKER)]
        assert rig.partition("u").leader == NO_BROKER

    def test_not_before_all_live_nodes_have_answered(self, rig: Rig) -> None:
        [result] = elect_unclean(rig, ("t", 0))
        assert type(result.error) is EligibleLeadersNotAvailableError
        assert "[2] have not yet reported" in str(result.error)

    def test_the_longest_log_and_not_the_first(self) -> None:
        rig = Rig()
        rig.start_all(1, 2, 3)
        rig.create(assignments=(ids(1, 2, 3),), configs={"min.insync.replicas": "1"})
        rig.alter_isr([1])
        rig.fence(1)
        [result] = elect_unclean(rig, ("t", 0), n2=(0, 50), n3=(0, 100))
        assert (result.leader, rig.partition().leader) == (3, 3)

    def test_a_dry_run_says_what_each_choice_would_lose_and_changes_nothing(self) -> None:
        rig = Rig()
        rig.start_all(1, 2, 3)
        rig.create(assignments=(ids(1, 2, 3),), configs={"min.insync.replicas": "1"})
        rig.alter_isr([1])
        rig.fence(1)
        before = rig.image
        [result] = elect_unclean(rig, ("t", 0), n2=(0, 50), n3=(0, 100), dry_run=True)
        rows = [(c.broker_id, c.condition, c.lost_records, c.known, c.would_lead) for c in result.candidates]
        assert rows == [(1, "fenced", None, True, False), (2, "alive", 50, False, False), (3, "alive", 0, False, True)]
        assert (result.leader, rig.image) == (3, before)


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
        elect(rig, RequestedElection.PREFERRED, *range(18))
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


class TestResignation:
    """A leader that needs a moment without a role gets a new leader epoch."""

    @pytest.fixture
    def rig(self) -> Rig:
        rig = Rig()
        rig.start_all(1, 2, 3)
        rig.create("t", assignments=(ids(1, 2, 3),))
        rig.create("u", assignments=(ids(1),))
        return rig

    def resign(self, rig: Rig, node: int, leader_epoch: int, topic: str = "t") -> None:
        key, epoch = rig.key(topic), LeaderEpoch(leader_epoch)
        rig.do(ResignLeadership(broker_id=BrokerId(node), broker_epoch=rig.epoch(node), key=key, leader_epoch=epoch))

    def test_another_replica_in_sync_leads(self, rig: Rig) -> None:
        self.resign(rig, 1, 0)
        after = rig.partition()
        assert (after.leader, after.leader_epoch, after.isr) == (2, 1, ids(1, 2, 3))

    def test_the_only_one_leads_again_in_a_new_epoch(self, rig: Rig) -> None:
        self.resign(rig, 1, 0, "u")
        after = rig.partition("u")
        assert (after.leader, after.leader_epoch, after.isr) == (1, 1, ids(1))

    def test_a_stale_request_changes_nothing(self, rig: Rig) -> None:
        before = rig.partition()
        self.resign(rig, 2, 0)  # it does not lead
        self.resign(rig, 1, 7)
        assert rig.partition() == before
