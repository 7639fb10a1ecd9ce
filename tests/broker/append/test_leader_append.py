"""What a leader appends and what it refuses: producers, hostile batches, conversion, order."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import Any

import pytest
from crc32c import crc32c

from streamlog.broker.append import pipeline
from streamlog.broker.append.preparation import INLINE_BYTES_MAX
from streamlog.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    NotLeaderError,
    OutOfOrderSequenceError,
    StreamlogError,
)
from streamlog.model import Acks, Offset
from streamlog.records import BatchFields, Codec, codec_of, decode_batch, encode_batch, read_header, validate
from streamlog.records.checks import record_check
from streamlog.records.header import CRC_POSITION, CRC_START, HEADER_SIZE
from tests.broker.rig import (
    ME,
    OTHER,
    QUEUED,
    Recorder,
    Rig,
    SuspendedError,
    append_to,
    values_in,
)
from tests.cli.dump.legacy_logs import CODECS, RECORDS, messages
from tests.storage.batches import batch


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


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [
        ("max.message.bytes", "1000", MessageTooLargeError),
        ("message.timestamp.before.max.ms", "1", InvalidTimestampError),
        ("cleanup.policy", "compact", InvalidRecordError),
    ],
)
def test_a_retry_of_what_the_topic_would_refuse_now_is_a_success(
    rig: Rig, setting: str, value: str, error: type[StreamlogError]
) -> None:
    rig.create()
    rig.rest()
    leader = rig.leader()
    first = batch([bytes(1000)], producer=(9, 0, 0))
    rig.do(lambda: append_to(leader, first))
    rig.configure(setting, value)
    again = rig.do(lambda: append_to(leader, first))
    assert (again.first_offset, again.next_offset, again.duplicate) == (0, 1, True)
    for new in (
        batch([bytes(1000)]),
        batch([bytes(1000)], producer=(9, 0, 1)),
        batch([bytes(1000)], producer=(9, 0, 5)),
    ):
        with pytest.raises(error):
            rig.do(partial(append_to, leader, new))
    assert leader.log_end_offset == 1


def test_a_late_retry_of_what_the_topic_would_refuse_now_is_one(rig: Rig) -> None:
    """Its offset is no longer known. A batch that goes on beyond is another one."""
    rig.create()
    rig.rest()
    leader = rig.leader()
    sent = [batch([bytes(1000)], producer=(9, 0, sequence)) for sequence in range(7)]
    for one in sent:
        rig.do(partial(append_to, leader, one))
    rig.configure("max.message.bytes", "1000")
    with pytest.raises(OutOfOrderSequenceError) as late:
        rig.do(lambda: append_to(leader, sent[1]))
    assert late.value.is_repeat(1, 1)
    with pytest.raises(MessageTooLargeError):
        rig.do(lambda: append_to(leader, batch([bytes(500)] * 2, producer=(9, 0, 6))))


def test_a_late_retry_is_known_as_one_once_the_first_append_is_committed(rig: Rig) -> None:
    """Before that it may be lost, when another replica leads."""
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    leader = rig.leader()
    sent = [batch([b"a"], producer=(9, 0, sequence)) for sequence in range(7)]
    for one in sent:
        rig.do(partial(append_to, leader, one))
    rig.rest()

    def is_known(acks: Acks, data: bytes = sent[0]) -> bool:
        with pytest.raises(OutOfOrderSequenceError) as late:
            rig.do(lambda: append_to(leader, data, acks))
        return late.value.is_committed

    assert (is_known(Acks.ALL), is_known(Acks.LEADER)) == (False, True)
    rig.do(lambda: leader.on_position(OTHER, Offset(1)))
    assert not is_known(Acks.ALL)
    rig.do(lambda: leader.on_position(OTHER, Offset(2)))
    two = batch([b"a"] * 2, producer=(9, 0, 2))
    assert (is_known(Acks.ALL), is_known(Acks.ALL, two)) == (True, False)
    rig.do(lambda: leader.on_position(OTHER, Offset(4)))
    assert is_known(Acks.ALL, two)


def test_a_batch_without_a_producer_id_is_refused_by_its_first_check(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be a retry, so its CRC need not be computed."""
    rig.create(configs={"max.message.bytes": "1000"})
    rig.rest()
    leader = rig.leader()
    checked = []

    def counting(*given: Any, **how: Any) -> Any:
        checked.append(given)
        return validate(*given, **how)

    monkeypatch.setattr(pipeline, "validate", counting)
    with pytest.raises(MessageTooLargeError):
        rig.do(lambda: append_to(leader, batch([bytes(1000)])))
    assert len(checked) == 1


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
