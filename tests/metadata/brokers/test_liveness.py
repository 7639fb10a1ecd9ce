"""Heartbeats, sessions, fencing, controlled shutdown: SEMANTICS 8."""

from __future__ import annotations

import pytest

from streamlog.errors import BrokerIdNotRegisteredError, StaleBrokerEpochError
from streamlog.metadata.brokers.liveness import BrokerHeartbeat, ExpireSession, FenceBroker
from streamlog.metadata.cluster import TakeOver
from streamlog.metadata.decision import BATCH_RECORDS, BalanceTimer, BrokerSessionTimer, SetControllerTimer, Then
from streamlog.metadata.image.roles import Role
from streamlog.metadata.partitions.isr import ReportOfflineReplicas
from streamlog.metadata.partitions.settle import Settle
from streamlog.metadata.records import BrokerChangeRecord, PartitionChangeRecord
from streamlog.metadata.settings import ControllerSettings
from streamlog.model import NO_BROKER, BrokerEpoch, BrokerId, RaftIndex
from tests.metadata.examples import ids
from tests.metadata.rig import Rig


def three_nodes() -> Rig:
    """t-0 on 1, 2, 3; t-1 on 2, 3, 1; t-2 on 3, 1, 2."""
    rig = Rig()
    rig.start_all(1, 2, 3)
    rig.create(assignments=(ids(1, 2, 3), ids(2, 3, 1), ids(3, 1, 2)))
    return rig


class TestHeartbeat:
    def test_unfenced_once_it_has_applied_its_registration(self) -> None:
        rig = Rig()
        rig.register(1)
        response = rig.heartbeat(1, applied_index=RaftIndex(rig.epoch(1) - 1))
        assert (response.caught_up, response.fenced) == (False, True)
        response = rig.heartbeat(1, applied_index=RaftIndex(rig.epoch(1)))
        assert (response.caught_up, response.fenced) == (True, False)
        assert rig.broker(1).active

    def test_it_makes_no_records_and_starts_the_session_again(self) -> None:
        rig = Rig(settings=ControllerSettings(session_timeout_ms=1_234))
        rig.start(1)
        beat = BrokerHeartbeat(broker_id=BrokerId(1), broker_epoch=rig.epoch(1), applied_index=rig.image.index)
        decision = rig.decide(beat)
        assert decision.records == ()
        assert decision.timers == (SetControllerTimer(BrokerSessionTimer(BrokerId(1)), 1_234),)

    def test_a_node_may_fence_itself_and_stay_in_session(self) -> None:
        rig = three_nodes()
        assert rig.heartbeat(1, want_fence=True).fenced
        assert rig.partition(partition_id=0).leader == 2
        assert BrokerSessionTimer(BrokerId(1)) in rig.timers
        assert not rig.heartbeat(1).fenced

    @pytest.mark.parametrize("difference", [-1, 1])
    def test_another_epoch_is_stale(self, difference: int) -> None:
        rig = Rig()
        rig.start(1)
        epoch = BrokerEpoch(rig.epoch(1) + difference)
        with pytest.raises(StaleBrokerEpochError):
            rig.do(BrokerHeartbeat(broker_id=BrokerId(1), broker_epoch=epoch, applied_index=rig.image.index))

    def test_an_unknown_node_must_register(self) -> None:
        with pytest.raises(BrokerIdNotRegisteredError):
            Rig().do(BrokerHeartbeat(broker_id=BrokerId(1), broker_epoch=BrokerEpoch(1), applied_index=RaftIndex(1)))


class TestFencing:
    def test_silence(self) -> None:
        """3 s of silence: fenced, out of every ISR, its leaderships moved."""
        rig = three_nodes()
        rig.fire(BrokerSessionTimer(BrokerId(1)))
        assert rig.broker(1).fenced
        assert [p.leader for p in rig.topic().partitions] == [2, 2, 3]
        assert [p.isr for p in rig.topic().partitions] == [ids(2, 3), ids(2, 3), ids(3, 2)]
        assert not rig.image.roles.any(Role.LEADER, BrokerId(1))

    def test_a_broken_stream(self) -> None:
        rig = three_nodes()
        rig.fence(2)
        assert [p.leader for p in rig.topic().partitions] == [1, 3, 3]
        assert BrokerSessionTimer(BrokerId(2)) not in rig.timers

    def test_by_whom_knows_another_registration_only(self) -> None:
        rig = three_nodes()
        with pytest.raises(StaleBrokerEpochError):
            rig.do(FenceBroker(broker_id=BrokerId(2), broker_epoch=BrokerEpoch(rig.epoch(2) - 1)))

    def test_twice_is_once(self) -> None:
        rig = three_nodes()
        rig.fence(2)
        before = rig.image
        rig.fence(2)
        assert rig.image is before

    def test_in_one_command(self) -> None:
        rig = three_nodes()
        decision = rig.decide(ExpireSession(broker_id=BrokerId(1)))
        assert [type(record) for record in decision.records] == [BrokerChangeRecord] + [PartitionChangeRecord] * 3
        assert decision.then is Then.NOTHING

    def test_its_leaderships_first(self) -> None:
        rig = three_nodes()
        changes = rig.decide(ExpireSession(broker_id=BrokerId(1))).records[1:]
        assert isinstance(changes[0], PartitionChangeRecord)
        assert (changes[0].partition_id, changes[0].leader) == (0, 2)

    def test_the_last_one_in_sync_stays_eligible(self) -> None:
        rig = three_nodes()
        for node in (1, 2, 3):
            rig.fence(node)
        partition = rig.partition()
        assert (partition.leader, partition.isr, partition.elr) == (NO_BROKER, (), ids(2, 3))
        rig.start(1)
        assert rig.partition().leader == NO_BROKER, "it left while there were enough"
        rig.start(3)
        assert (rig.partition().leader, rig.partition().isr, rig.partition().elr) == (3, ids(3), ids(2))

    def test_back_again_it_does_not_lead_until_it_is_in_sync(self) -> None:
        rig = three_nodes()
        rig.fence(1)
        rig.start(1)
        assert rig.partition().leader == 2
        assert rig.partition().isr == ids(2, 3)

    def test_the_session_of_an_unregistered_node_is_nothing(self) -> None:
        rig = Rig()
        assert rig.decide(ExpireSession(broker_id=BrokerId(9))).records == ()

    def test_more_than_one_command_can_hold(self) -> None:
        """The rest follows as `Settle`, also under the next controller; nothing is left out."""
        rig = Rig()
        rig.start_all(1, 2)
        rig.create(assignments=(ids(1, 2),) * BATCH_RECORDS)
        rig.create("u", assignments=(ids(1, 2),) * 10)
        decision = rig.decide(FenceBroker(broker_id=BrokerId(1), broker_epoch=rig.epoch(1)))
        assert len(decision.records) == BATCH_RECORDS
        assert decision.then is Then.SETTLE
        rig.commit(decision.records)
        assert rig.image.roles.count(Role.LEADER, BrokerId(1)) == 11
        rig.do(TakeOver())
        assert all(p.leader == 2 and p.isr == ids(2) for _, p in rig.image.partitions())
        assert rig.decide(Settle()).records == ()


class TestControlledShutdown:
    def test_it_moves_its_leaderships_leaves_the_isrs_and_goes(self) -> None:
        rig = three_nodes()
        response = rig.heartbeat(1, want_shut_down=True)
        assert response.should_shut_down
        assert [p.leader for p in rig.topic().partitions] == [2, 2, 3]
        assert not rig.image.roles.any(Role.ISR, BrokerId(1))
        assert rig.broker(1).stopping
        assert rig.broker(1).fenced
        assert BrokerSessionTimer(BrokerId(1)) not in rig.timers

    def test_it_is_notified_again(self) -> None:
        rig = three_nodes()
        rig.heartbeat(1, want_shut_down=True)
        before = rig.image
        assert rig.heartbeat(1, want_shut_down=True).should_shut_down
        assert rig.image is before

    def test_it_cannot_change_its_mind(self) -> None:
        """Barred from coming back in until it registers again."""
        rig = three_nodes()
        rig.heartbeat(1, want_shut_down=True)
        assert rig.heartbeat(1).should_shut_down
        assert not rig.broker(1).active
        rig.start(1)
        assert rig.broker(1).active

    def test_of_the_only_replica(self) -> None:
        """No replica can take over; it goes all the same, stays eligible, and leads when it is back."""
        rig = Rig()
        rig.start(1)
        rig.create()
        assert rig.heartbeat(1, want_shut_down=True).should_shut_down
        assert (rig.partition().leader, rig.partition().elr) == (NO_BROKER, ids(1))
        rig.start(1)
        assert (rig.partition().leader, rig.partition().isr, rig.partition().elr) == (1, ids(1), ())

    def test_with_more_partitions_than_one_command_can_hold(self) -> None:
        rig = Rig()
        rig.start_all(1, 2)
        rig.create(assignments=(ids(1, 2),) * BATCH_RECORDS)
        rig.create("u", assignments=(ids(1, 2),) * 5)
        assert not rig.heartbeat(1, want_shut_down=True).should_shut_down
        assert rig.heartbeat(1, want_shut_down=True).should_shut_down


class TestTakeOver:
    def test_sessions_restart_and_no_node_is_fenced(self) -> None:
        rig = three_nodes()
        rig.register(4)
        rig.timers.clear()
        before = rig.image
        rig.do(TakeOver())
        assert rig.image is before
        assert rig.timers == {
            BrokerSessionTimer(BrokerId(1)): 6_000,
            BrokerSessionTimer(BrokerId(2)): 6_000,
            BrokerSessionTimer(BrokerId(3)): 6_000,
            BalanceTimer(): 300_000,
        }

    def test_a_lower_minimum_in_its_file_ends_eligibility(self) -> None:
        """Else nothing would be acknowledged until another replica is in sync."""
        rig = Rig(settings=ControllerSettings(min_insync_replicas=2))
        rig.start_all(1, 2)
        rig.create(assignments=(ids(1, 2),))
        rig.alter_isr([1])
        assert rig.partition().elr == ids(2)
        rig.settings = ControllerSettings(min_insync_replicas=1)
        rig.do(TakeOver())
        assert (rig.partition().isr, rig.partition().elr) == (ids(1), ())


class TestOfflineReplicas:
    """SEMANTICS 5: the log directory goes offline, and its replicas leave their ISRs."""

    def report(self, rig: Rig, node: int, *partition_ids: int) -> None:
        rig.do(
            ReportOfflineReplicas(
                broker_id=BrokerId(node),
                broker_epoch=rig.epoch(node),
                partitions=tuple(rig.key(partition_id=p) for p in partition_ids),
            )
        )

    def test_they_leave_the_isr_and_lead_no_more(self) -> None:
        rig = three_nodes()
        self.report(rig, 1, 0, 1)
        assert [p.leader for p in rig.topic().partitions] == [2, 2, 3]
        assert [p.isr for p in rig.topic().partitions] == [ids(2, 3), ids(2, 3), ids(3, 1, 2)]
        assert [p.offline for p in rig.topic().partitions] == [ids(1), ids(1), ()]

    def test_they_are_not_eligible(self) -> None:
        rig = three_nodes()
        rig.fence(2)
        rig.fence(3)
        self.report(rig, 1, 0)
        assert (rig.partition().leader, rig.partition().elr) == (NO_BROKER, ids(3))

    def test_until_the_node_registers_again(self) -> None:
        rig = three_nodes()
        self.report(rig, 1, 0)
        rig.fence(1)
        rig.start(1, clean=False)
        assert rig.partition().offline == ()
        assert rig.alter_isr([1, 2, 3]).error is None

    def test_what_is_gone_is_passed_over(self) -> None:
        rig = three_nodes()
        rig.create("u", assignments=(ids(2, 3),))
        gone = (rig.key()[0], rig.key("u", 7)[1])
        before = rig.image
        rig.do(ReportOfflineReplicas(broker_id=BrokerId(1), broker_epoch=rig.epoch(1), partitions=(gone, rig.key("u"))))
        assert rig.image is before
