"""Disks that fail, directories that are missing, logs that are damaged: which replicas go, and which go on."""

from __future__ import annotations

import pytest

from streamlog.errors import (
    DamagedFileError,
    NotLeaderError,
    StorageError,
)
from streamlog.model import NO_BROKER, Acks, BrokerEpoch, BrokerId, Offset
from streamlog.replication.follower import PartitionFollower
from streamlog.storage.recovery.recovery import Recovery
from tests.broker.rig import ME, OTHER, P0, THIRD, Recorder, Rig, topic_id, values_in
from tests.broker.table.moving import commit_inside
from tests.storage.batches import batch


def test_a_failed_disk_takes_its_replicas_and_leaves_the_others() -> None:
    rig = Rig("disks", directories=2)
    rig.start()
    rig.create("t", 1, replicas=(ME, OTHER))
    rig.rest()
    rig.create("u", 2, replicas=(ME, OTHER))
    rig.rest()
    assert (rig.names(0), rig.names(1)) == (["t-0"], ["u-0"])
    leader = rig.leader("t")
    watcher = Recorder(leader)
    leader.watch(watcher)
    appended = rig.append(b"lost", acks=Acks.ALL, name="t")
    waiting = rig.do(lambda: leader.wait_for(appended))
    rig.machine.disk.faults.sync_errors = 1
    rig.rest()
    assert isinstance(watcher.error, StorageError)
    assert waiting.done()
    assert waiting.exception() is not None
    with pytest.raises(StorageError):
        rig.leader("t")
    assert rig.controller.reported == [(topic_id(1), P0)]
    rig.change(1, offline=(ME,), isr=(OTHER,), leader=OTHER)
    rig.rest(5)
    reported = len(rig.controller.reported)
    rig.rest(5)
    assert len(rig.controller.reported) == reported  # the cluster knows
    with pytest.raises(NotLeaderError):
        rig.leader("t")
    rig.append(b"fine", name="u")
    errors = [description.error for description in rig.replicas.describe_log_dirs()]
    assert isinstance(errors[0], StorageError)
    assert errors[1] is None
    # A new registration of this node clears the mark: then it is reported again.
    rig.change(1, offline=())
    rig.rest()
    assert len(rig.controller.reported) == reported + 1
    rig.stop()
    rig.machine.close()


def test_the_node_ends_with_its_last_disk(rig: Rig) -> None:
    rig.create()
    rig.rest()
    rig.append(b"a")
    rig.machine.disk.faults.sync_errors = 1
    rig.rest()
    assert rig.task.done()
    assert isinstance(rig.task.exception(), StorageError)
    rig.commit()  # the metadata goes on until the node is gone
    rig.machine.run(rig.replicas.close())


def test_what_may_be_on_a_missing_disk_is_not_recreated() -> None:
    rig = Rig("missing", directories=2)
    rig.start()
    rig.create("t", 1, replicas=(ME, OTHER))
    rig.rest()
    rig.create("u", 2, replicas=(ME, OTHER))
    rig.rest()
    rig.stop()
    rig.machine.disk.faults.sync_errors = 1  # the first directory cannot be opened
    rig.start()
    rig.rest()
    assert list(rig.directories.offline) == ["/data0"]
    with pytest.raises(StorageError):
        rig.leader("t")
    assert rig.leader("u").topic_id == topic_id(2)
    assert (topic_id(1), P0) in rig.controller.reported
    rig.create("v", 3)  # a new one cannot be there
    rig.rest()
    assert rig.leader("v").topic_id == topic_id(3)
    rig.stop()
    rig.machine.close()


def damage_the_middle(rig: Rig) -> None:
    """Three batches, synced; the first byte of the second one's records is rotten, and the stop was not clean."""
    for value in (b"a", b"b", b"c"):
        rig.produce(value)
    rig.rest(6)  # the checkpoint says that they are durable
    size = len(batch([b"a"]))
    rig.machine.disk.damage("/data0/t-0/00000000000000000000.log", size + 62, b"\xff\xff")


def test_damage_in_a_follower_is_cut_away_and_fetched(rig: Rig) -> None:
    rig.create()
    rig.rest()
    damage_the_middle(rig)
    rig.change(replicas=(ME, OTHER), isr=(OTHER,), leader=NO_BROKER)
    rig.crash()
    rig.rest()
    assert rig.replicas.clean_epoch is None
    rig.change(leader=OTHER)
    rig.rest()
    follower = rig.follower
    assert follower.log.damage is None
    assert follower.position().fetch_offset == 1


def test_a_damaged_replica_does_not_lead_where_another_may(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER), isr=(ME,))
    rig.rest()
    damage_the_middle(rig)
    rig.crash()
    rig.rest()
    assert rig.replicas.clean_epoch is None
    with pytest.raises(StorageError):
        rig.leader()
    assert (topic_id(1), P0) in rig.controller.reported
    rig.change(offline=(ME,), leader=OTHER, isr=(OTHER,))
    rig.rest()
    assert rig.follower.log.damage is None  # the leader has the records: it fetches them
    reported = len(rig.controller.reported)
    rig.rest(5)
    assert len(rig.controller.reported) == reported


@pytest.mark.parametrize(("flush", "is_damage"), [("1", True), ("9223372036854775807", False)])
def test_a_torn_tail_of_a_topic_that_does_not_sync_is_cut_once_its_settings_are_known(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, flush: str, is_damage: bool
) -> None:
    """The log is opened before that, with the defaults: by these what lies before intact batches had been synced."""

    async def beyond(recovery: Recovery, *_: object) -> bool:
        return recovery._config.syncs_each_append

    monkeypatch.setattr(Recovery, "_intact_beyond", beyond)
    rig.create(configs={"flush.messages": flush})
    rig.rest()
    for value in (b"a", b"b", b"c"):
        rig.append(value)
    rig.machine.disk.damage("/data0/t-0/00000000000000000000.log", len(batch([b"a"])) + 62, b"\xff\xff")
    rig.crash()
    rig.rest()
    assert (rig.leader().log.damage is not None) is is_damage
    if not is_damage:
        rig.produce(b"d")
        assert values_in(rig.read()) == [b"a"]
        assert values_in(rig.read(1)) == [b"d"]


def test_the_only_replica_serves_what_is_sound(rig: Rig) -> None:
    rig.create()
    rig.rest()
    damage_the_middle(rig)
    rig.crash()
    rig.rest()
    assert values_in(rig.read()) == [b"a"]
    with pytest.raises(DamagedFileError):
        rig.append(b"d")


def truncated_as_differing(rig: Rig) -> None:
    """OTHER has compared this node's log with its own, and this node has truncated what differed."""
    rig.create(replicas=(OTHER, ME), leader=OTHER)
    rig.rest()
    copy(rig)
    rig.change(isr=(OTHER,), elr=(ME,))
    rig.machine.run(rig.follower.on_differing(Offset(0)))


def copy(rig: Rig) -> None:
    rig.do(lambda: rig.follower.on_batches(batch([b"a", b"b"], epoch=0), Offset(2), Offset(0)))
    rig.rest()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_replica_that_has_truncated_what_differed_does_not_lead_as_an_eligible_one(
    rig: Rig, *, restarts: bool
) -> None:
    truncated_as_differing(rig)
    if restarts:
        rig.restart()
    state = rig.replicas.replica_state((topic_id(1), P0), BrokerEpoch(1))
    assert state is not None
    assert (state.log_end, state.durable, state.incomplete) == (0, False, True)
    rig.change(isr=(ME,), elr=(OTHER,), leader=ME)  # OTHER has died
    rig.rest()
    with pytest.raises(StorageError, match=r"may lack acknowledged records.*then restart this one"):
        rig.leader()
    assert (topic_id(1), P0) in rig.controller.reported


def test_a_replica_that_has_truncated_what_differed_leads_once_it_was_in_sync(rig: Rig) -> None:
    truncated_as_differing(rig)
    copy(rig)
    rig.change(isr=(OTHER, ME), elr=())
    rig.change(isr=(ME,), leader=ME)
    rig.rest()
    assert rig.leader().log_end_offset == 2


def test_a_join_proposed_before_the_difference_was_found_completes_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = PartitionFollower.on_differing

    async def joining(follower: PartitionFollower, offset: Offset) -> None:
        commit_inside(rig, isr=(OTHER, ME), elr=())
        await original(follower, offset)

    monkeypatch.setattr(PartitionFollower, "on_differing", joining)
    truncated_as_differing(rig)
    assert rig.follower.log.incomplete
    rig.change(isr=(OTHER,), elr=())
    rig.change(isr=(OTHER, ME))  # it is committed only after the truncation
    assert rig.follower.log.incomplete
    rig.change(isr=(OTHER,), elr=())
    copy(rig)
    rig.change(isr=(OTHER, ME))
    assert not rig.follower.log.incomplete


@pytest.mark.parametrize("leader", [THIRD, ME])
def test_nor_does_one_that_completes_a_reassignment_and_changes_the_leader(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, leader: BrokerId
) -> None:
    original = PartitionFollower.on_differing

    async def joining(follower: PartitionFollower, offset: Offset) -> None:
        commit_inside(rig, replicas=(THIRD, ME), isr=(THIRD, ME), leader=leader)
        await original(follower, offset)

    monkeypatch.setattr(PartitionFollower, "on_differing", joining)
    rig.create(replicas=(THIRD, ME, OTHER), leader=OTHER, isr=(OTHER,))
    rig.rest()
    copy(rig)
    follower = rig.follower
    rig.machine.run(follower.on_differing(Offset(0)))
    rig.rest()
    assert follower.log.log_end_offset == 0
    assert follower.log.incomplete
    if leader == ME:
        with pytest.raises(StorageError, match="may lack acknowledged records"):
            rig.leader()


def test_a_replica_that_has_truncated_what_differed_leads_by_an_unclean_election(rig: Rig) -> None:
    truncated_as_differing(rig)
    rig.change(isr=(), elr=(), leader=NO_BROKER)
    rig.change(isr=(ME,), leader=ME)
    rig.rest()
    assert rig.leader().log_end_offset == 0
