"""A leader and its followers: acknowledgements, ISR, high watermark, the end of a leadership."""

from __future__ import annotations

import pytest

from streamlog.errors import (
    NotEnoughReplicasError,
    NotLeaderError,
    OutcomeUnknownError,
)
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import MetadataVersionRecord
from streamlog.model import Acks, Offset
from tests.broker.rig import (
    ME,
    OTHER,
    THIRD,
    Recorder,
    Rig,
    append_to,
    values_in,
)
from tests.storage.batches import batch


def test_acks_all_waits_for_the_sync_of_the_only_replica(rig: Rig) -> None:
    rig.create()
    rig.rest()
    appended = rig.append(b"a", b"b", acks=Acks.ALL)
    assert (appended.first_offset, appended.next_offset) == (0, 2)
    assert rig.leader().high_watermark == 0
    rig.rest()
    assert rig.leader().high_watermark == 2
    assert values_in(rig.read()) == [b"a", b"b"]


def test_watchers_get_the_bytes_then_the_high_watermark_then_the_end(rig: Rig) -> None:
    rig.create()
    rig.rest()
    watcher = Recorder(rig.leader())
    rig.leader().watch(watcher)
    rig.produce(b"a")
    assert watcher.events == ["appended 0..1", "readable 0..1"]
    assert watcher.appended == rig.read()
    rig.change(leader=OTHER, replicas=(ME, OTHER), isr=(ME, OTHER))
    assert watcher.events[2:] == ["ended"]
    assert isinstance(watcher.error, NotLeaderError)
    assert watcher.error.details["leader"] == OTHER
    assert watcher.error.details["address"] == "node2:9092"


def test_watchers_are_notified_when_the_isr_changes(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER), isr=(ME,))
    rig.rest()
    watcher = Recorder(rig.leader())
    rig.leader().watch(watcher)
    rig.change(isr=(ME, OTHER))
    rig.change(isr=(ME, OTHER))
    assert watcher.events == ["readable 0..0"]


def test_the_high_watermark_waits_for_all_in_sync(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER, THIRD))
    rig.rest()
    leader = rig.leader()
    rig.append(b"a", acks=Acks.ALL)
    rig.rest()
    rig.do(lambda: leader.on_position(OTHER, Offset(1)))
    assert leader.high_watermark == 0
    for _ in range(20):  # from the page cache, and from the device
        assert rig.read() == b""  # not readable yet
    rig.do(lambda: leader.on_position(THIRD, Offset(1)))
    assert leader.high_watermark == 1
    assert values_in(rig.read()) == [b"a"]


def test_too_few_in_sync_refuse_acks_all_before_the_append_and_take_the_rest(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER, THIRD), isr=(ME,))
    rig.rest()
    with pytest.raises(NotEnoughReplicasError):
        rig.append(b"a", acks=Acks.ALL)
    assert rig.append(b"a", acks=Acks.LEADER).first_offset == 0
    assert rig.append(b"b", acks=Acks.NONE).first_offset == 1


def test_min_insync_replicas_changes_while_running(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER, THIRD), isr=(ME,))
    rig.rest()
    rig.configure("min.insync.replicas", "1")
    rig.produce(b"a")
    rig.configure("min.insync.replicas", "2")
    with pytest.raises(NotEnoughReplicasError):
        rig.append(b"a", acks=Acks.ALL)


@pytest.mark.parametrize("others", ["elr", "last_known_elr"])
def test_nothing_is_acknowledged_while_another_replica_is_eligible(rig: Rig, others: str) -> None:
    """min.insync.replicas is 1 in this node's file, and 2 in the controller's: a rolling restart changes it."""
    rig.commit(MetadataVersionRecord(level=METADATA_VERSION_MAX))
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    leader = rig.leader()
    assert leader.state.min_isr == 1
    waiting = rig.do(lambda: leader.wait_for(append_to(leader, batch([b"a"]), Acks.ALL)))
    rig.rest()
    rig.change(1, isr=(ME,), **{others: (OTHER,)})
    assert rig.leader() is leader
    assert leader.high_watermark == 0
    assert leader.state.min_isr == 2
    with pytest.raises(NotEnoughReplicasError):
        rig.append(b"b", acks=Acks.ALL)
    rig.change(1, **{others: ()})
    assert waiting.done()
    assert leader.high_watermark == 1


def test_a_leader_that_begins_without_eligible_replicas_acknowledges_nothing(rig: Rig) -> None:
    rig.create(replicas=(OTHER, ME), leader=OTHER)
    rig.rest()
    rig.change(isr=(ME,), elr=(OTHER,), leader=ME)
    rig.rest()
    with pytest.raises(NotEnoughReplicasError):
        rig.append(b"a", acks=Acks.ALL)


def test_a_proposals_result_with_an_elr_counts_before_the_metadata_show_it(rig: Rig) -> None:
    """The controller knows of a larger min.insync.replicas before this node does."""
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    leader = rig.leader()
    rig.append(b"a")
    rig.rest(0.1)
    rig.do(lambda: leader.on_isr((ME,), 2, others_eligible=True))
    assert leader.high_watermark == 0
    rig.change(isr=(ME, OTHER))  # partition epoch 1: older than the result
    assert leader.high_watermark == 0
    rig.change(isr=(ME,), elr=(OTHER,))
    assert leader.high_watermark == 0
    rig.change(elr=())
    assert leader.high_watermark == 1


def test_another_isr_within_the_leadership_lets_producers_on(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    leader = rig.leader()
    waiting = rig.do(lambda: leader.wait_for(append_to(leader, batch([b"a"]), Acks.ALL)))
    rig.rest()
    assert not waiting.done()
    rig.change(isr=(ME,))
    assert rig.leader() is leader
    assert waiting.done()


def test_a_replica_that_a_reassignment_brings_may_join(rig: Rig) -> None:
    rig.create()
    rig.rest()
    rig.produce(b"a")
    rig.change(replicas=(ME, OTHER), adding=(OTHER,))
    leader = rig.leader()
    rig.do(lambda: leader.on_position(THIRD, Offset(1)))  # none of the replicas: passed over
    assert rig.isr.proposals == []
    rig.do(lambda: leader.on_position(OTHER, Offset(1)))
    assert [proposal.isr for proposal in rig.isr.proposals] == [(ME, OTHER)]


@pytest.mark.parametrize("reports", [True, False])
def test_a_replica_joins_once_its_log_start_is_in_its_checkpoint(rig: Rig, reports: bool) -> None:
    """A replica of a release that does not report that joins as before."""
    rig.create()
    rig.rest()
    rig.produce(b"a", b"b")
    rig.change(replicas=(ME, OTHER), adding=(OTHER,))
    leader = rig.leader()
    rig.do(lambda: leader.log.advance_log_start(Offset(1)))
    rig.do(lambda: leader.on_saved_log_start(OTHER, Offset(0) if reports else None))
    rig.do(lambda: leader.on_position(OTHER, Offset(2)))
    assert bool(rig.isr.proposals) != reports
    rig.do(lambda: leader.on_saved_log_start(OTHER, Offset(1)))
    rig.do(lambda: leader.on_position(OTHER, Offset(2)))
    assert [proposal.isr for proposal in rig.isr.proposals] == [(ME, OTHER)]


def test_who_lags_is_proposed_out(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER, THIRD))
    rig.rest()
    leader = rig.leader()
    rig.append(b"a")
    rig.rest(0.1)
    rig.do(lambda: leader.on_position(OTHER, Offset(1)))
    rig.rest(8)  # replica.lag.time.max.ms is 10 s
    assert not rig.isr.proposals
    rig.rest(2)  # it is looked at when it is due
    assert [proposal.isr for proposal in rig.isr.proposals] == [(ME, OTHER)]
    assert leader.high_watermark == 0  # the larger set governs until the quorum has decided
    rig.do(lambda: leader.on_isr((ME, OTHER), 1, others_eligible=False))
    assert leader.high_watermark == 1


def test_who_is_at_the_end_of_a_quiet_partition_has_its_whole_time_after_the_next_append(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    leader = rig.leader()
    rig.do(lambda: leader.on_position(OTHER, Offset(0)))
    rig.rest(100)
    rig.append(b"a")
    rig.do(leader.review_isr)
    rig.rest(9.5)
    assert not rig.isr.proposals
    rig.rest(0.6)
    assert [proposal.isr for proposal in rig.isr.proposals] == [(ME,)]


def test_a_follower_that_is_gone_leaves_sooner_than_a_slow_one(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    leader = rig.leader()
    rig.do(lambda: leader.on_position(OTHER, Offset(0)))
    rig.do(lambda: leader.on_gone(OTHER))
    rig.rest(100)
    assert not rig.isr.proposals  # it has all there is
    rig.append(b"a")
    rig.rest(2.5)
    rig.do(lambda: leader.on_position(OTHER, Offset(0)))  # it is back, and has still to copy
    rig.rest(3)
    assert not rig.isr.proposals
    rig.do(lambda: leader.on_gone(OTHER))
    rig.rest(2.8)
    assert [proposal.isr for proposal in rig.isr.proposals] == []
    rig.rest(0.4)
    assert [proposal.isr for proposal in rig.isr.proposals] == [(ME,)]


def test_the_end_of_a_leadership_leaves_the_outcome_open(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    leader = rig.leader()
    appended = rig.append(b"a", acks=Acks.ALL)
    waiting = rig.do(lambda: leader.wait_for(appended))
    rig.change(leader=OTHER)
    assert isinstance(waiting.exception(), OutcomeUnknownError)
    late = rig.do(lambda: leader.wait_for(appended))
    assert isinstance(late.exception(), OutcomeUnknownError)
    with pytest.raises(NotLeaderError):
        rig.do(lambda: append_to(leader, batch([b"b"]), Acks.LEADER))
