"""What producers and readers meet at a leader (SEMANTICS 1, 5, 6; KIP-101, KIP-207, KIP-320)."""

from __future__ import annotations

import asyncio
import struct
from functools import partial

import pytest
from crc32c import crc32c

from streamlog.api.requests import OffsetPlace
from streamlog.broker.append.preparation import INLINE_BYTES_MAX
from streamlog.broker.leading.offset_lookup import offset_for
from streamlog.errors import (
    CorruptMessageError,
    InvalidRecordError,
    LeaderNotAvailableError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    OutOfOrderSequenceError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from streamlog.model import Acks, LeaderEpoch, Offset, PartitionId
from streamlog.records import BatchFields, Codec, codec_of, decode_batch, encode_batch, read_header, record_check
from streamlog.records.header import CRC_POSITION, CRC_START, HEADER_SIZE
from tests.broker.rig import (
    ME,
    OTHER,
    P0,
    QUEUED,
    THIRD,
    UNCOMMITTED,
    Recorder,
    Rig,
    SuspendedError,
    append_to,
    topic_id,
    values_in,
)
from tests.cli.legacy_logs import CODECS, RECORDS, messages
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
    rig.do(lambda: leader.on_isr((ME, OTHER), 1))
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


def test_retries_get_their_first_offsets_and_gaps_are_refused(rig: Rig) -> None:
    rig.create()
    rig.rest()
    leader = rig.leader()
    watcher = Recorder(leader)
    first = batch([b"a", b"b"], producer=(9, 0, 0))
    assert rig.do(lambda: append_to(leader, first, Acks.ALL)).first_offset == 0
    leader.watch(watcher)
    again = rig.do(lambda: append_to(leader, first, Acks.ALL))
    assert (again.first_offset, again.next_offset, again.duplicate) == (0, 2, True)
    assert watcher.events == []
    with pytest.raises(OutOfOrderSequenceError):
        rig.do(lambda: append_to(leader, batch([b"c"], producer=(9, 0, 7)), Acks.ALL))


def test_producers_are_known_to_the_next_leader(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    sent = batch([b"a"], producer=(9, 0, 0))
    rig.do(lambda: append_to(rig.leader(), sent, Acks.LEADER))
    rig.crash()
    rig.rest()
    rig.change(leader=ME)
    rig.rest()
    assert rig.do(lambda: append_to(rig.leader(), sent, Acks.LEADER)).duplicate


def test_bad_input_is_refused_and_nothing_is_written(rig: Rig) -> None:
    rig.create(configs={"max.message.bytes": "1000"})
    rig.rest()
    leader = rig.leader()
    good = batch([b"a"])
    for data, error in (
        (b"", InvalidRecordError),
        (good[:-1], CorruptMessageError),
        (good + b"x", CorruptMessageError),
        (good[:-1] + b"\xff", CorruptMessageError),
        (batch([bytes(1000)]), MessageTooLargeError),
    ):
        assert not leader.appends.needs_worker(data)
        with pytest.raises(error):
            rig.do(partial(append_to, leader, data, Acks.ALL))
    assert leader.log_end_offset == 0
    rig.configure("max.message.bytes", "2000")
    rig.do(lambda: append_to(leader, batch([bytes(1000)]), Acks.ALL))


@pytest.mark.parametrize("size", [10, 1_200_000])
def test_batches_that_no_reader_could_decode_are_refused(rig: Rig, size: int) -> None:
    rig.create(configs={"max.message.bytes": "2000000"})
    rig.rest()
    leader = rig.leader()
    garbled = poisoned(size)
    is_large = size > INLINE_BYTES_MAX
    assert leader.appends.needs_worker(garbled) == is_large

    with pytest.raises(InvalidRecordError):
        rig.machine.run(leader.appends.append(garbled, Acks.LEADER, QUEUED))
    assert leader.log_end_offset == 0
    rig.configure("record.validation.enable", "false")
    assert not leader.appends.needs_worker(garbled)
    rig.do(lambda: append_to(leader, garbled))
    assert leader.log_end_offset == 1


def poisoned(size: int) -> bytes:
    """A batch with a right CRC, whose one record announces 63 bytes more than there are."""
    data = bytearray(batch([bytes(size)]))
    data[HEADER_SIZE] |= 0x7E
    struct.pack_into(">I", data, CRC_POSITION, crc32c(data[CRC_START:]))
    return bytes(data)


@pytest.mark.parametrize(
    ("values", "codec", "is_work"),
    [
        ([bytes(1_000_000)], Codec.NONE, False),
        ([bytes(1_200_000)], Codec.NONE, True),
        ([b""] * 16_384, Codec.NONE, False),
        ([b""] * 16_385, Codec.NONE, True),
        ([bytes(1_000_000)], Codec.GZIP, False),
        ([bytes(1_000_000)], Codec.SNAPPY, False),
        ([bytes(1_000_000)], Codec.LZ4, False),
        ([bytes(1_000_000)], Codec.ZSTD, False),
        ([bytes(1_200_000)], Codec.GZIP, True),
        ([bytes(1_200_000)], Codec.SNAPPY, True),
        ([bytes(1_200_000)], Codec.LZ4, True),
        ([bytes(1_200_000)], Codec.ZSTD, True),
    ],
)
def test_large_batches_are_checked_off_the_loop(rig: Rig, values: list[bytes], codec: Codec, *, is_work: bool) -> None:
    rig.create(configs={"max.message.bytes": "2000000"})
    rig.rest()
    leader = rig.leader()
    data = encode_batch(values, timestamps=1, fields=BatchFields(codec=codec))
    assert leader.appends.needs_worker(data) == is_work
    rig.machine.run(leader.appends.append(data, Acks.LEADER, QUEUED))
    assert leader.log_end_offset == len(values)


@pytest.mark.parametrize("count", [1, 100])
def test_many_headers_are_checked_off_the_loop(rig: Rig, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_check, "valid_times", None)  # with the kernel they are no work
    rig.create()
    rig.rest()
    leader = rig.leader()
    headers = [tuple(("", b"") for _ in range(20_000 // count))] * count
    data = encode_batch([b""] * count, None, headers, timestamps=1)
    assert not leader.appends.needs_worker(data)
    with pytest.raises(SuspendedError):
        rig.do(lambda: append_to(leader, data))
    assert leader.log_end_offset == 0
    rig.machine.run(leader.appends.append(data, Acks.LEADER, QUEUED))
    assert leader.log_end_offset == count


def test_a_stream_that_lies_about_its_size_is_no_work_for_the_loop(rig: Rig) -> None:
    rig.create()
    rig.rest()
    leader = rig.leader()
    packed = bytearray(encode_batch([bytes(300_000)], timestamps=1, fields=BatchFields(codec=Codec.GZIP)))
    packed[-4:] = b"\x09\0\0\0"
    struct.pack_into(">I", packed, CRC_POSITION, crc32c(packed[CRC_START:]))
    assert not leader.appends.needs_worker(bytes(packed))
    with pytest.raises(InvalidRecordError, match="more than the 9 bytes"):
        rig.do(lambda: append_to(leader, bytes(packed), Acks.LEADER))


def test_offsets_outside_the_log_are_refused_with_both_ends(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    rig.append(b"a")
    assert rig.read(1) == rig.read(0) == b""  # not committed yet: to be waited for
    with pytest.raises(OffsetOutOfRangeError) as refused:
        rig.read(2)
    assert (refused.value.details["log_start"], refused.value.details["log_end"]) == (0, 1)


def test_places_and_times(rig: Rig) -> None:
    rig.create()
    rig.rest()
    for index in range(3):
        data = batch([b"v"], timestamp=1000 + 10 * index)
        rig.do(partial(append_to, rig.leader(), data, Acks.LEADER))
    rig.rest()
    leader = rig.leader()

    def offset_of(place: OffsetPlace | int) -> tuple[int, int]:
        found = rig.machine.run(offset_for(leader, place, UNCOMMITTED))
        return found.offset, found.timestamp_ms

    assert offset_of(OffsetPlace.EARLIEST) == (0, -1)
    assert offset_of(OffsetPlace.LATEST) == (3, -1)
    assert offset_of(OffsetPlace.MAX_TIMESTAMP) == (2, 1020)
    assert offset_of(1005) == (1, 1010)
    assert offset_of(1021) == (-1, -1)


def test_kip_207_a_new_leader_waits_before_it_returns_the_end(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    rig.append(b"a")
    rig.change(leader=ME)  # a new epoch; what is in the log was committed by the old leader, for all this one knows
    leader = rig.leader()

    async def latest() -> int:
        return (await offset_for(leader, OffsetPlace.LATEST, UNCOMMITTED)).offset

    async def asking() -> tuple[bool, int]:
        asked = asyncio.get_running_loop().create_task(latest())
        await asyncio.sleep(1)
        early = asked.done()
        leader.on_position(OTHER, Offset(1))
        return early, await asked

    assert rig.machine.run(asking()) == (False, 1)


def test_kip_320_divergence_and_ends_of_epochs(rig: Rig) -> None:
    rig.create()
    rig.rest()
    rig.produce(b"a")
    rig.change(leader=ME)
    rig.produce(b"b")
    leader = rig.leader()
    assert leader.leader_epoch == 1
    end = leader.end_offset_for(LeaderEpoch(0))
    assert (end.epoch, end.end_offset) == (0, 1)
    assert leader.divergence(LeaderEpoch(0), Offset(1)) is None
    diverging = leader.divergence(LeaderEpoch(0), Offset(2))
    assert diverging is not None
    assert (diverging.epoch, diverging.end_offset) == (0, 1)


def test_compacted_topics_refuse_records_without_a_key(rig: Rig) -> None:
    rig.create(configs={"cleanup.policy": "compact"})
    rig.rest()
    leader = rig.leader()
    with pytest.raises(InvalidRecordError):
        rig.append(b"a")
    packed = encode_batch([b"v", b"w"], [b"k", None], timestamps=1, fields=BatchFields(codec=Codec.ZSTD))
    assert leader.appends.needs_worker(packed)
    with pytest.raises(InvalidRecordError):
        rig.machine.run(leader.appends.append(packed, Acks.ALL, QUEUED))
    keyed = encode_batch([b"v"], [b"k"], timestamps=1, fields=BatchFields(codec=Codec.ZSTD))
    assert rig.machine.run(leader.appends.append(keyed, Acks.ALL, QUEUED)).first_offset == 0


def test_a_topic_with_a_codec_of_its_own_recompresses(rig: Rig) -> None:
    rig.create(configs={"compression.type": "zstd"})
    rig.rest()
    leader = rig.leader()
    plain = batch([b"a" * 100, b"b" * 100], producer=(5, 0, 0))
    assert leader.appends.needs_worker(plain)
    rig.machine.run(leader.appends.append(plain, Acks.ALL, QUEUED))
    rig.rest()
    data = rig.read()
    header = read_header(data, 0)
    assert codec_of(header.attributes) is Codec.ZSTD
    assert (header.producer_id, header.base_sequence, header.record_count) == (5, 0, 2)
    assert values_in(data) == [b"a" * 100, b"b" * 100]
    rig.configure("compression.type", "uncompressed")
    assert not leader.appends.needs_worker(plain)
    rig.machine.run(
        leader.appends.append(
            encode_batch([b"c"], timestamps=1, fields=BatchFields(codec=Codec.GZIP)), Acks.ALL, QUEUED
        )
    )
    rig.rest()
    assert codec_of(read_header(rig.read(2), 0).attributes) is Codec.NONE


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_messages_are_converted(rig: Rig, magic: int, codec: str) -> None:
    rig.create()
    rig.rest()
    leader = rig.leader()
    sent = messages(magic, codec, 0)
    assert leader.appends.needs_worker(sent)
    appended = rig.machine.run(leader.appends.append(sent, Acks.ALL, QUEUED))
    assert (appended.first_offset, appended.next_offset) == (0, len(RECORDS))
    rig.rest()
    stored = decode_batch(rig.read())
    assert [(record.key, record.value) for record in stored] == list(RECORDS)
    assert codec_of(read_header(rig.read(), 0).attributes) is Codec(CODECS[codec])
    with pytest.raises(CorruptMessageError):
        rig.machine.run(leader.appends.append(sent[:-1], Acks.ALL, QUEUED))
    with pytest.raises(CorruptMessageError):
        rig.machine.run(leader.appends.append(sent + batch([b"new"]), Acks.ALL, QUEUED))


def test_slow_appends_are_not_overtaken(rig: Rig) -> None:
    rig.create(configs={"compression.type": "zstd"})
    rig.rest()
    leader = rig.leader()

    async def producing() -> list[int]:
        slow = batch([b"slow"])
        fast = encode_batch([b"fast"], timestamps=1, fields=BatchFields(codec=Codec.ZSTD))
        assert not leader.appends.needs_worker(fast)
        first = asyncio.get_running_loop().create_task(leader.appends.append(slow, Acks.ALL, QUEUED))
        await asyncio.sleep(0)
        assert leader.appends.needs_worker(fast)
        second = asyncio.get_running_loop().create_task(leader.appends.append(fast, Acks.ALL, QUEUED))
        return [(await first).first_offset, (await second).first_offset]

    assert rig.machine.run(producing()) == [0, 1]


def test_a_leadership_that_ends_while_the_workers_work_appends_nothing(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER), configs={"compression.type": "zstd"})
    rig.rest()
    leader = rig.leader()

    async def producing() -> None:
        slow = asyncio.get_running_loop().create_task(leader.appends.append(batch([b"a"]), Acks.LEADER, QUEUED))
        await asyncio.sleep(0)
        leader.end(NotLeaderError("gone"))
        await slow

    with pytest.raises(NotLeaderError):
        rig.machine.run(producing())
    assert leader.log_end_offset == 0


def test_a_node_that_does_not_lead_names_the_leader(rig: Rig) -> None:
    rig.create(replicas=(OTHER, ME), leader=OTHER)
    rig.create("leaderless", 2, replicas=(OTHER, ME), leader=OTHER)
    rig.change(2, leader=-1)
    rig.rest()
    with pytest.raises(NotLeaderError) as refused:
        rig.leader()
    assert dict(refused.value.details) == {"leader": OTHER, "address": "node2:9092", "leader_epoch": 0}
    with pytest.raises(LeaderNotAvailableError):
        rig.leader("leaderless")
    with pytest.raises(UnknownTopicOrPartitionError):
        rig.leader("other")
    with pytest.raises(UnknownTopicOrPartitionError):
        rig.replicas.leader("t", None, PartitionId(1))
    with pytest.raises(UnknownTopicIdError):
        rig.leader("t", 2)
    with pytest.raises(UnknownTopicIdError):
        rig.replicas.leader("", topic_id(9), P0)


def test_a_leader_is_found_by_name_and_by_id(rig: Rig) -> None:
    rig.create()
    rig.rest()
    assert rig.replicas.leader("", topic_id(1), P0) is rig.leader("t") is rig.leader("t", 1)
