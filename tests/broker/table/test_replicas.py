"""The partition table: from what the metadata wants to what stands on the disk, through starts and cuts."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Mapping
from functools import partial

import pytest

from streamlog.broker.table.partition_metadata import format_topic_id
from streamlog.broker.table.replica_creations import FILES_FREE
from streamlog.errors import (
    FencedLeaderEpochError,
    LeaderNotAvailableError,
    NotLeaderError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from streamlog.model import (
    NO_BROKER,
    Acks,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    RaftIndex,
    TopicPartition,
)
from streamlog.sim.process import Killed
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.files.checkpoints import parse_offsets
from tests.broker.rig import ME, OTHER, P0, THIRD, Recorder, Rig, append_to, topic_id, values_in
from tests.storage.batches import batch

# -- topics and their logs


def test_a_new_topic_gets_a_log_with_its_id(rig: Rig) -> None:
    rig.create()
    with pytest.raises(LeaderNotAvailableError):
        rig.leader()  # not before its log is durable
    rig.rest()
    assert rig.leader().topic_id == topic_id(1)
    content = rig.machine.fs.open("/data0/t-0/partition.metadata").pread(100, 0)
    assert content == format_topic_id(topic_id(1)) == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"


def test_a_topic_deleted_is_renamed_and_removed_later(rig: Rig) -> None:
    rig.create()
    rig.rest()
    leader = rig.leader()
    watcher = Recorder(leader)
    leader.watch(watcher)
    rig.delete()
    assert isinstance(watcher.error, UnknownTopicOrPartitionError)
    with pytest.raises(UnknownTopicOrPartitionError):
        rig.leader()
    rig.rest()
    assert rig.names() == ["t-0-delete"]
    rig.rest(120)
    assert rig.names() == []


def test_a_topic_recreated_does_not_inherit_the_log(rig: Rig) -> None:
    rig.create()
    rig.rest()
    rig.produce(b"old")
    rig.delete()
    rig.create(number=2)
    rig.rest()
    assert rig.leader().topic_id == topic_id(2)
    assert rig.leader().log_end_offset == 0
    assert rig.names() == ["t-0", "t-0-delete"]


def test_a_topic_recreated_in_the_command_that_deletes_it(rig: Rig) -> None:
    rig.create()
    rig.rest()
    rig.produce(b"old")
    rig.stop()
    rig.delete()
    rig.create(number=2)
    rig.start()
    rig.rest()
    assert rig.leader().topic_id == topic_id(2)
    assert rig.leader().log_end_offset == 0
    assert rig.names() == ["t-0", "t-0-stray"]  # this node has not seen the deletion: it is kept


def test_a_log_that_was_set_aside_at_the_start_is_not_replaced_by_an_empty_leader(rig: Rig) -> None:
    """Its topic id may have been damaged: another replica leads, and this one copies it."""
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    rig.stop()
    rig.delete()
    rig.create(number=2, replicas=(ME, OTHER))
    rig.start()
    rig.rest()
    with pytest.raises(StorageError, match="named another topic at the start and was set aside"):
        rig.leader()


def test_a_log_that_was_set_aside_at_the_start_may_lead_by_an_unclean_election(rig: Rig) -> None:
    rig.create(replicas=(OTHER, ME), leader=OTHER)
    rig.rest()
    rig.stop()
    rig.delete()
    rig.create(number=2, replicas=(OTHER, ME), leader=OTHER, isr=(OTHER,))
    rig.start()
    rig.rest()
    rig.change(number=2, isr=(), leader=NO_BROKER)
    rig.change(number=2, isr=(ME,), leader=ME)
    rig.rest()
    assert rig.leader(number=2).log_end_offset == 0
    rig.change(number=2, isr=(OTHER,), leader=OTHER)
    rig.change(number=2, isr=(ME,), leader=ME)
    rig.rest()
    assert rig.names() == ["t-0", "t-0-stray"]
    assert rig.leader(number=2).log_end_offset == 0


def test_a_topic_recreated_just_after_the_start_has_a_leader(rig: Rig) -> None:
    """What was found at the start cannot be its log (tests/broker/test_lives.py)."""
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    rig.stop()
    rig.delete()
    rig.start()
    rig.create(number=2, replicas=(ME, OTHER))
    rig.rest()
    assert rig.leader().topic_id == topic_id(2)
    assert rig.names() == ["t-0", "t-0-stray"]


def test_a_topic_recreated_while_the_replica_waits_for_its_log_has_a_leader(rig: Rig) -> None:
    """The topic that the start displaced was deleted before it had a log again."""
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    rig.stop()
    rig.delete()
    rig.create(number=2, replicas=(ME, OTHER))
    rig.machine.disk.faults.free_descriptors = 0
    rig.start()
    rig.rest()
    assert rig.names() == ["t-0-stray"]
    rig.delete(2)
    rig.create(number=3, replicas=(ME, OTHER))
    rig.machine.disk.faults.free_descriptors = FILES_FREE
    rig.rest(2)
    assert rig.leader().topic_id == topic_id(3)


def test_unassigned_logs_at_the_start_are_kept_as_strays(rig: Rig) -> None:
    rig.create()
    rig.rest()
    rig.stop()
    rig.delete()
    rig.start()
    rig.rest(600)
    assert rig.names() == ["t-0-stray"]


def test_a_replica_moved_away_goes(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    rig.change(replicas=(OTHER,), isr=(OTHER,), leader=OTHER)
    rig.rest()
    assert rig.names() == ["t-0-delete"]
    with pytest.raises(NotLeaderError):
        rig.leader()


def test_a_making_cut_short_is_finished_at_the_next_start() -> None:
    for changes in range(40):
        rig = Rig(changes)
        rig.create()
        rig.machine.cut_after(changes)
        with contextlib.suppress(Killed):
            rig.start()
        with contextlib.suppress(Killed):
            if rig.machine.process.alive:
                rig.rest()
        if not rig.machine.process.alive:
            rig.power_cut()
            rig.rest()
        rig.machine.cut_after(None)
        rig.produce(b"a")
        assert rig.leader().topic_id == topic_id(1)
        rig.stop()
        rig.machine.close()


def test_a_log_without_an_id_is_adopted(rig: Rig) -> None:
    rig.create()
    rig.rest()
    rig.produce(b"a")
    rig.stop()
    rig.machine.fs.unlink("/data0/t-0/partition.metadata")
    rig.start()
    rig.rest()
    assert values_in(rig.read()) == [b"a"]
    assert rig.machine.fs.exists("/data0/t-0/partition.metadata")


def test_a_log_with_a_damaged_id_is_left_alone(rig: Rig) -> None:
    rig.create()
    rig.rest()
    rig.produce(b"a")
    rig.stop()
    rig.machine.disk.damage("/data0/t-0/partition.metadata", 0, b"#")
    rig.start()
    rig.rest()
    with pytest.raises(StorageError):
        rig.leader()
    assert rig.controller.reported[0] == (topic_id(1), P0)
    assert rig.names() == ["t-0"]


# -- roles


def test_roles_follow_the_metadata(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    first = rig.leader()
    rig.change(leader=OTHER)
    follower = rig.follower
    assert (follower.leader, follower.leader_epoch, follower.topic_id) == (OTHER, 1, topic_id(1))
    assert first.ended is not None
    rig.change(isr=(ME, OTHER))  # nothing for a follower
    assert rig.follower is follower
    rig.change(leader=OTHER)  # another epoch: another time of following
    assert rig.follower is not follower
    assert follower.ended
    rig.change(leader=NO_BROKER)
    assert rig.links.following == []
    rig.change(leader=ME)
    assert rig.leader().leader_epoch == 4
    assert rig.links.following == []


def test_a_follower_joins_again_at_once_where_the_metadata_settle_the_proposal_before_its_result(rig: Rig) -> None:
    """As on the controller's node. It has reported that it is at the end, and reports nothing more."""
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    leader = rig.leader()

    def follow() -> None:
        leader.on_differing(OTHER)
        leader.on_saved_log_start(OTHER, Offset(0))
        leader.on_position(OTHER, Offset(0))

    rig.do(follow)
    assert [proposal.isr for proposal in rig.isr.proposals] == [(ME,)]
    rig.change(isr=(ME,), elr=(OTHER,))
    assert [proposal.isr for proposal in rig.isr.proposals] == [(ME,), (ME, OTHER)]


def test_a_follower_is_notified_when_it_joins_the_isr(rig: Rig) -> None:
    rig.create(leader=OTHER, replicas=(ME, OTHER), isr=(OTHER,))
    rig.rest()
    joined: list[tuple[BrokerId, ...]] = []
    rig.follower.on_joined = lambda: joined.append(rig.view.image.partition((topic_id(1), P0)).isr)
    rig.change(isr=(ME, OTHER))
    rig.change(isr=(ME, OTHER))
    rig.change(isr=(OTHER,))
    assert joined == [(ME, OTHER)]


def test_what_a_follower_got_is_led_with_its_high_watermark(rig: Rig) -> None:
    rig.create(replicas=(OTHER, ME), leader=OTHER)
    rig.rest()
    follower, moves = rig.follower, []
    follower.on_ackable_end = lambda: moves.append(follower.position().ackable_end)
    rig.do(lambda: follower.on_batches(batch([b"a", b"b"], epoch=0), Offset(1), Offset(0)))
    assert moves == []
    rig.rest()
    assert moves == [2]
    rig.change(leader=ME)
    assert rig.leader().high_watermark == 1
    with pytest.raises(FencedLeaderEpochError):
        rig.do(lambda: follower.on_batches(batch([b"c"], base_offset=2, epoch=0), Offset(1), Offset(0)))
    assert rig.leader().log_end_offset == 2


def test_a_cut_under_way_ends_before_the_next_role_begins(rig: Rig) -> None:
    """Were it not so, the new leader's log would be cut below what it has just appended."""
    rig.create(replicas=(OTHER, ME), leader=OTHER)
    rig.rest()
    follower = rig.follower
    rig.do(
        lambda: follower.on_batches(
            batch([b"a"], epoch=0) + batch([b"b"], base_offset=1, epoch=0), Offset(1), Offset(0)
        )
    )
    rig.rest(6)  # a checkpoint: the cut has to lower it first, which takes time

    leader_change = encode_batch([PartitionChangeRecord(topic_id=topic_id(1), partition_id=P0, leader=ME)])

    async def cutting() -> tuple[bool, bool]:
        cut = asyncio.get_running_loop().create_task(follower.on_diverging(LeaderEpoch(0), Offset(1)))
        await asyncio.sleep(0)
        busy = follower.busy
        rig.view.machine.apply(RaftIndex(rig.index + 1), leader_change)
        early = list(rig.replicas.leaders())
        await cut
        return busy, bool(early)

    assert rig.machine.run(cutting()) == (True, False)
    rig.rest()
    assert rig.leader().log_end_offset == 1


def test_the_next_role_knows_the_high_watermark_of_what_ended_after_its_role(rig: Rig) -> None:
    """A follower that began again was given what is before its log start, and its role ended meanwhile (cluster seed
    121 with deletions): the next one took over an outdated high watermark.
    """
    rig.create(replicas=(OTHER, ME), leader=OTHER)
    rig.rest()
    follower = rig.follower
    rig.do(lambda: follower.on_batches(batch([b"a"], epoch=0), Offset(1), Offset(0)))
    rig.rest(6)  # a checkpoint: beginning again has to change it first, which takes time
    leader_change = encode_batch([PartitionChangeRecord(topic_id=topic_id(1), partition_id=P0, leader=ME)])

    async def beginning_again() -> bool:
        await follower.on_out_of_range(Offset(3), Offset(5))
        data = batch([b"c", b"d", b"e"], base_offset=2, epoch=0)
        straddling = asyncio.get_running_loop().create_task(follower.on_straddling(data, Offset(5), Offset(3)))
        await asyncio.sleep(0)
        busy = follower.busy
        rig.view.machine.apply(RaftIndex(rig.index + 1), leader_change)
        await straddling
        return busy

    assert rig.machine.run(beginning_again())
    rig.rest()
    leader = rig.leader()
    assert (leader.log_start_offset, leader.high_watermark, leader.log_end_offset) == (3, 5, 5)


def test_a_snapshot_of_the_metadata_is_carried_out_whole(rig: Rig) -> None:
    rig.create()
    rig.create("u", 2)
    rig.rest()
    leader = rig.leader()
    other = Rig("other")
    other.create()
    other.create("v", 3)
    other.start()
    picture = other.view.image
    rig.do(lambda: rig.view.machine.install(picture.index, picture))
    rig.rest()
    assert rig.leader() is leader
    assert rig.leader("v").topic_id == topic_id(3)
    assert rig.names() == ["t-0", "u-0-delete", "v-0"]
    other.stop()
    other.machine.close()


# -- high watermarks


def checkpoint_of(rig: Rig) -> dict[str, int]:
    path = "/data0/replication-offset-checkpoint"
    if not rig.machine.fs.exists(path):
        return {}
    content = rig.machine.fs.open(path).pread(10_000, 0)
    return {str(partition): offset for partition, offset in parse_offsets(path, content).items()}


def test_high_watermarks_are_written_now_and_then_and_at_the_stop(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    leader = rig.leader()
    rig.append(b"a")
    rig.rest()
    rig.do(lambda: leader.on_position(OTHER, Offset(1)))
    rig.rest(6)
    assert checkpoint_of(rig) == {"t-0": 1}
    rig.crash()
    rig.rest()
    assert rig.leader().high_watermark == 1
    rig.append(b"b")
    rig.rest()
    again = rig.leader()
    rig.do(lambda: again.on_position(OTHER, Offset(2)))
    rig.stop()
    assert checkpoint_of(rig) == {"t-0": 2}
    rig.start()


def test_the_next_topic_of_the_name_does_not_inherit_the_high_watermark(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    rig.append(b"a")
    rig.rest()
    leader = rig.leader()
    rig.do(lambda: leader.on_position(OTHER, Offset(1)))
    rig.rest(6)
    rig.delete()
    rig.create(number=2, replicas=(ME, OTHER))
    rig.rest(0.1)
    assert checkpoint_of(rig) == {}
    rig.append(b"uncommitted")
    rig.rest(0.1)
    rig.crash()
    rig.rest(0.1)
    assert rig.leader().log_end_offset == 1
    assert rig.leader().high_watermark == 0


# -- configurations, retention


def test_topics_that_are_deleted_together_share_the_checkpoint_of_high_watermarks(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = range(1, 11)
    for number in numbers:
        rig.create(f"t{number}", number)
    rig.rest(6)
    high_watermarks, passes = rig.replicas._high_watermarks, []
    of = high_watermarks._of

    def counted(directory: LogDirectory) -> Mapping[TopicPartition, Offset]:
        passes.append(found := of(directory))
        return found

    monkeypatch.setattr(high_watermarks, "_of", counted)
    rig.commit(*(RemoveTopicRecord(topic_id=topic_id(number)) for number in numbers))
    rig.rest()
    assert set(rig.names()) == {f"t{number}-0-delete" for number in numbers}
    assert [len(found) for found in passes] == [9, 0]


def test_topic_configs_reach_the_log_while_it_runs(rig: Rig) -> None:
    rig.create(configs={"retention.ms": "1000", "segment.bytes": "1048576"})
    rig.rest()
    assert rig.leader().log.config.retention_ms == 1000
    rig.configure("retention.ms", "5000")
    assert rig.leader().log.config.retention_ms == 5000
    rig.configure("flush.messages", "9223372036854775807")
    appended = rig.append(b"a", acks=Acks.ALL)
    assert rig.leader().high_watermark == appended.next_offset  # the page cache is enough now
    rig.configure("flush.messages", "1")
    rig.rest()
    assert rig.leader().log.ackable_end == 1


def test_topic_configs_hold_after_a_start(rig: Rig) -> None:
    rig.create(configs={"max.message.bytes": "1000", "retention.ms": "1234"})
    rig.create("idle", 2, replicas=(ME, OTHER), leader=NO_BROKER, configs={"retention.ms": "1234"})
    rig.rest()
    rig.restart()
    rig.rest()
    assert rig.leader().settings.limits.message_bytes_max == 1000
    assert [log.config.retention_ms for log in rig.directories.online[0].logs.values()] == [1234, 1234]


def test_a_topic_recreated_does_not_inherit_the_configs(rig: Rig) -> None:
    rig.create(configs={"max.message.bytes": "1000"})
    rig.rest()
    rig.delete()
    rig.create(number=2)
    rig.rest()
    assert rig.leader().settings.limits.message_bytes_max > 1000
    assert rig.leader().log.config.max_message_bytes > 1000


@pytest.mark.parametrize(("delay_ms", "after_s", "left"), [("0", 1, []), ("3600000", 3000, ["t-0-delete"])])
def test_the_files_of_a_deleted_topic_stay_as_long_as_its_own_settings_say(
    rig: Rig, delay_ms: str, after_s: float, left: list[str]
) -> None:
    """It is gone, and its settings with it, before its logs are."""
    rig.create("waits", 2, configs={"file.delete.delay.ms": "36000000"})
    rig.create(configs={"file.delete.delay.ms": delay_ms})
    rig.rest()
    rig.delete(2)
    rig.delete()
    rig.rest(after_s)
    assert rig.names() == [*left, "waits-0-delete"]


def test_retention_stops_at_the_high_watermark_and_tells_readers(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER), configs={"retention.ms": "1000"})
    rig.rest()
    leader = rig.leader()
    watcher = Recorder(leader)
    rig.append(b"old")
    rig.rest(700)
    assert leader.log_start_offset == 0  # not replicated: not deleted
    rig.do(lambda: leader.on_position(OTHER, Offset(1)))
    leader.watch(watcher)
    rig.rest(300)
    assert leader.log_start_offset == 1
    assert watcher.events == ["readable 1..1"]
    with pytest.raises(OffsetOutOfRangeError):
        rig.read(0)


def test_compaction_stops_at_the_high_watermark(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER), configs={"cleanup.policy": "compact", "segment.bytes": "1048576"})
    rig.rest()
    leader = rig.leader()
    for index in range(8):
        data = batch([bytes(300_000)], keys=[b"the same"], timestamp=index)
        rig.do(partial(append_to, leader, data))
    rig.rest(100)
    assert len(leader.log.segments) > 2
    assert values_in(rig.machine.run(leader.log.read(Offset(0), 1))) == [bytes(300_000)]
    size = leader.log.size_bytes
    assert size > 8 * 300_000
    rig.do(lambda: leader.on_position(OTHER, Offset(8)))
    rig.rest(100)
    assert leader.log.size_bytes < size / 2
    assert leader.log_end_offset == 8


# -- for people


def test_digests_of_equal_ranges_are_equal(rig: Rig) -> None:
    rig.create()
    rig.rest()
    for value in (b"a", b"b", b"c"):
        rig.produce(value)
    found = rig.machine.run(rig.replicas.digest("t", None, P0))
    assert (found.start_offset, found.end_offset, found.batch_count) == (0, 3, 3)
    assert found.digest == hashlib.sha256(rig.read()).digest()
    assert [tuple(entry) for entry in found.epochs] == [(0, 0)]
    part = rig.machine.run(rig.replicas.digest("t", None, P0, Offset(1), Offset(2)))
    assert part.batch_count == 1
    assert part.digest == hashlib.sha256(rig.read()[len(batch([b"a"])) : 2 * len(batch([b"a"]))]).digest()
    with pytest.raises(OffsetOutOfRangeError):
        rig.machine.run(rig.replicas.digest("t", None, P0, Offset(0), Offset(9)))


def test_log_dirs_are_described(rig: Rig) -> None:
    rig.create()
    rig.create("u", 2)
    rig.rest()
    rig.produce(b"a")
    (described,) = rig.replicas.describe_log_dirs(["t"])
    (replica,) = described.replicas
    assert (str(replica.partition), replica.log_end) == ("t-0", 1)
    assert replica.size_bytes == len(batch([b"a"]))
    assert len(described.directory_id) == 16
    assert described.total_bytes > described.usable_bytes > 0


def test_a_clean_stop_is_known_at_the_next_start(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER, THIRD))
    rig.rest()
    rig.restart()
    assert rig.replicas.clean_epoch == BrokerEpoch(7)
    rig.crash()
    assert rig.replicas.clean_epoch is None
