"""The consumer against a fake cluster: what it reads, and what it does when the cluster is in trouble."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

import pytest

from streamlog.client.consumer.offset_finder import AtTime, Last
from streamlog.client.consumer.partition_reader import PartitionReader
from streamlog.client.consumer.start_positions import EARLIEST, LATEST
from streamlog.errors import (
    ClientClosedError,
    CorruptBatchError,
    InvalidRequestError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from streamlog.model import LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.records import BatchFields, EndTransactionMarker, encode_batch, encode_end_transaction
from tests.storage.batches import batch, poison

from ..stage import Stage, fill, lines, play, take

T0 = TopicPartition("t", PartitionId(0))


@pytest.mark.parametrize("given", [5.0, True, "7", -1, 2**63, None])
def test_a_time_that_is_none_is_refused_at_once(given: Any) -> None:
    with pytest.raises(InvalidRequestError, match="timestamp_ms must be an integer from 0 to 9223372036854775807"):
        AtTime(given)


def test_a_float_for_a_time_gets_advice() -> None:
    with pytest.raises(InvalidRequestError, match=r"not 1\.5; use int\(\.\.\.\)"):
        AtTime(cast(Any, 1.5))


@pytest.mark.parametrize("given", [True, -1, 2**63])
def test_an_offset_that_is_none_is_refused_at_once_and_the_consumer_reads_on(given: Any) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(10))
        async with stage.consumer() as consumer:
            await consumer.assign([T0], start=EARLIEST)
            with pytest.raises(InvalidRequestError, match="offset must be an integer from 0"):
                consumer.seek(T0, given)
            with pytest.raises(InvalidRequestError, match="offset must be an integer from 0"):
                await consumer.assign([T0], start=given)
            with pytest.raises(InvalidRequestError, match="ends must be an integer from 0"):
                await consumer.assign([T0], start=EARLIEST, ends={T0: given})
            if given != -1:
                with pytest.raises(InvalidRequestError, match="leader_epoch must be an integer from 0 to 2147483647"):
                    consumer.seek(T0, 3, leader_epoch=given)
            assert await take(consumer, 10) == lines(10)

    play(story)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (("t", "0"), "partition"),
        (("t", 0.0), "partition"),
        (("t", True), "partition"),
        (("t", 2**31), "partition"),
        (TopicPartition("t", cast(Any, "0")), "partition"),
        (("t",), "partition"),
        (None, "partition"),
        ((None, 0), "topic"),
        ((b"t", 0), "topic"),
        (("\ud800", 0), "topic"),
    ],
)
def test_what_is_no_partition_is_refused(given: Any, field: str) -> None:
    async def story(stage: Stage) -> None:
        async with stage.consumer() as consumer:
            with pytest.raises(InvalidRequestError) as raised:
                await consumer.assign([given])
            assert raised.value.details["field"] == field
            with pytest.raises(InvalidRequestError, match="timestamp_ms must be"):
                await consumer.offsets_for_times({T0: cast(Any, 1.5)})
            with pytest.raises(InvalidRequestError, match="a topic must be a name"):
                await consumer.assign_topics([cast(Any, None)])

    play(story)


@pytest.mark.parametrize("given", ["tt", b"tt", 5])
def test_what_is_no_list_is_refused(given: Any) -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.consumer(group_id="g") as consumer:
            with pytest.raises(InvalidRequestError, match=r"^topics must be a list, not "):
                await consumer.assign_topics(given)
            for call in (consumer.assign, consumer.beginning_offsets, consumer.end_offsets, consumer.committed):
                with pytest.raises(InvalidRequestError, match=r"^partitions must be a list, not "):
                    await call(given)
            for change in (consumer.pause, consumer.resume):
                with pytest.raises(InvalidRequestError, match=r"^partitions must be a list, not "):
                    change(given)

    play(story)


@pytest.mark.parametrize("given", [1.0, 0, -1, "1", True])
def test_a_number_of_records_that_cannot_be_is_refused(given: Any) -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.consumer() as consumer:
            await consumer.assign_topics(["t"])
            with pytest.raises(InvalidRequestError, match=r"^max_records must be .*: timeout_s=$"):
                await consumer.poll(given)

    play(story)


@pytest.mark.parametrize("group", [{}, {"group_id": "g"}])
def test_a_wait_without_end_needs_something_to_read(group: dict[str, str]) -> None:
    async def story(stage: Stage) -> None:
        async with stage.consumer(**group) as consumer:
            assert await consumer.poll() == []
            for wait in (consumer.poll(timeout_s=None), consumer.poll_batch(timeout_s=None), anext(aiter(consumer))):
                with pytest.raises(InvalidRequestError, match=r"^the consumer has no topics and no partitions"):
                    await wait

    play(story)


def test_records_come_in_order_with_all_they_have() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        log.append(encode_batch([b"v", None], [b"k", None], [(("h", b"x"),), ()], timestamps=[5, 6]))
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([("t", 0)])
            one, two = await consumer.poll(timeout_s=None)
            assert one == ("t", 0, 0, 5, b"k", b"v", (("h", b"x"),))
            assert (two.offset, two.key, two.value, two.headers) == (1, None, None, ())
            assert await consumer.position(("t", 0)) == 2
            assert consumer.lag(T0) == 0
            assert await consumer.poll(timeout_s=0.1) == []

    play(story)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (EARLIEST, 0),
        (LATEST, 100),
        (37, 37),
        (AtTime(1055), 55),
        (AtTime(0), 0),
        (AtTime(9999), 100),
        (Last(10), 90),
        (Last(100), 0),
        (Last(101), 0),
        (Last(0), 100),
    ],
)
def test_where_it_starts(start: object, first: int) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(100))
        async with stage.consumer() as consumer:
            await consumer.assign([T0], start=start)  # type: ignore[arg-type]  # each of its kinds
            assert await consumer.position(T0) == first
            fill(stage.cluster, log, [b"more"])
            assert await take(consumer, 101 - first) == [*lines(100)[first:], b"more"]

    play(story, seeds=2)


def test_the_last_of_a_log_whose_beginning_was_deleted() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(100))
        log.start = 60
        async with stage.consumer() as consumer:
            await consumer.assign([T0], start=Last(50))
            assert await consumer.position(T0) == 60
            consumer.seek(T0, Last(3))
            assert await take(consumer, 3) == lines(100)[97:]

    play(story)


@pytest.mark.parametrize("count", [-1, 1.5, "10", None, True])
def test_a_count_of_the_last_is_a_number(count: object) -> None:
    with pytest.raises(InvalidRequestError, match="must be an integer from 0"):
        Last(count)  # type: ignore[arg-type]  # refused


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 100), ("by_duration:PT0S", 100)])
def test_auto_offset_reset(reset: str, first: int) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(100))
        async with stage.consumer(auto_offset_reset=reset) as consumer:
            await consumer.assign([T0])
            assert await consumer.position(T0) == first

    play(story, seeds=1)


def test_no_reset_is_an_error_until_a_seek() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(10))
        async with stage.consumer(auto_offset_reset="none") as consumer:
            await consumer.assign([T0])
            for _ in range(2):
                with pytest.raises(InvalidRequestError, match=r"auto\.offset\.reset is none"):
                    await consumer.poll(timeout_s=1)
            consumer.seek(T0, 20)
            with pytest.raises(OffsetOutOfRangeError, match=r"offset 20 is not in \[0, 10\]"):
                await consumer.poll(timeout_s=10)
            consumer.seek(T0, 4)
            assert await take(consumer, 6) == lines(10)[4:]

    play(story)


def test_async_for_hands_out_each_record_once() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(100), batch=30)
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            got = []
            async for record in consumer:
                got.append(record.value)
                assert await consumer.position(T0) == record.offset + 1
                if len(got) == 45:
                    break
            got += await take(consumer, 5)
            batch = await consumer.poll_batch(timeout_s=None)
            assert batch is not None
            assert (batch.first_offset, batch.next_offset) == (50, 60)
            columns = batch.columns()
            assert columns.offsets.tolist() == list(range(50, 60))
            got += [record.value for record in batch.records()]
            async for whole in consumer.batches():
                got += [value for _, _, _, value, _ in whole.fields()]
                if len(got) == 100:
                    break
            assert got == lines(100)

    play(story)


def test_seek_pause_and_resume() -> None:
    async def story(stage: Stage) -> None:
        one, two = stage.cluster.create("t", 2)
        fill(stage.cluster, one, lines(100))
        fill(stage.cluster, two, lines(100))
        other = TopicPartition("t", PartitionId(1))
        async with stage.consumer() as consumer:
            await consumer.assign({T0: 0, other: 50})
            await take(consumer, 20)
            consumer.pause([T0])
            at = await consumer.position(T0)
            rest = [r for _ in range(3) for r in await consumer.poll(1000, timeout_s=1)]
            assert {record.partition for record in rest} <= {1}
            consumer.seek(other, 98)
            assert await take(consumer, 2) == lines(100)[98:]
            consumer.resume([T0])
            assert await take(consumer, 100 - at) == lines(100)[at:]
            await consumer.assign([other])
            assert consumer.assignment == (other,)
            with pytest.raises(InvalidRequestError, match="t-0 is not assigned"):
                consumer.seek(T0, 0)

    play(story)


def test_offsets_are_asked_of_the_leaders() -> None:
    async def story(stage: Stage) -> None:
        logs = stage.cluster.create("t", 3)
        for number, log in enumerate(logs):
            fill(stage.cluster, log, lines(10 * number))
        logs[2].start = 5
        everything = [("t", number) for number in range(3)]
        async with stage.consumer(default_api_timeout_ms=3000) as consumer:
            stage.cluster.move(logs[1], 2, announce=False)
            assert list((await consumer.end_offsets(everything)).values()) == [0, 10, 20]
            assert list((await consumer.beginning_offsets(everything)).values()) == [0, 0, 5]
            found = await consumer.offsets_for_times({("t", 1): 1003, ("t", 2): 5000})
            assert found[TopicPartition("t", PartitionId(1))].offset == 3  # type: ignore[union-attr]
            assert found[TopicPartition("t", PartitionId(2))] is None
            stage.cluster.move(logs[0], -1)
            with pytest.raises(RequestTimedOutError, match=r"offsets of t-0 were not found within 3 s: t-0 has no"):
                await consumer.end_offsets(everything)
            with pytest.raises(UnknownTopicOrPartitionError, match="no partition 7"):
                await consumer.end_offsets([("t", 7)])

    play(story)


def test_what_is_beyond_the_end_that_is_wanted_is_not_fetched() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(100))
        async with stage.consumer() as consumer:
            await consumer.assign({T0: 5}, ends={T0: 25})
            assert await take(consumer, 25) == lines(100)[5:30]  # batches come whole
            assert await consumer.poll(timeout_s=5) == []
            consumer.seek(T0, 20)
            assert await take(consumer, 10) == lines(100)[20:30]
            assert await consumer.poll(timeout_s=5) == []
            await consumer.assign({T0: None}, ends={T0: 40})
            assert await take(consumer, 10) == lines(100)[30:40]
            assert await consumer.poll(timeout_s=5) == []
            await consumer.assign([T0])
            assert await take(consumer, 60) == lines(100)[40:]

    play(story)


@pytest.mark.parametrize("end", [None, 2000])
def test_everything_is_read_once_and_in_order_whatever_happens(end: int | None) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        dice = stage.dice

        async def write() -> None:
            for start in range(0, 2000, 20):
                fill(stage.cluster, log, lines(2000)[start : start + 20])
                await asyncio.sleep(dice.uniform(0, 0.1))

        async def trouble() -> None:
            while True:
                await asyncio.sleep(dice.uniform(0.05, 0.5))
                match dice.randrange(3):
                    case 0:
                        stage.reset()
                    case 1:
                        stage.cluster.move(log, dice.randrange(3), announce=dice.random() < 0.5)
                    case 2:
                        stage.world.host("b1").crash()
                        stage.cluster.restart(1)
                stage.cluster.wake()

        async with stage.consumer(auto_offset_reset="earliest", fetch_max_bytes=2000) as consumer:
            await consumer.assign([T0], ends=None if end is None else {T0: end})
            writing, troubling = asyncio.ensure_future(write()), asyncio.ensure_future(trouble())
            assert await take(consumer, 2000) == lines(2000)
            troubling.cancel()
            await writing

    play(story, seeds=15)


def test_a_truncated_log_is_noticed() -> None:
    """KIP-320: the leader has other records where the consumer has read."""

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(50))
        async with (
            stage.consumer(auto_offset_reset="earliest") as lenient,
            stage.consumer(auto_offset_reset="none") as strict,
        ):
            await lenient.assign([T0])
            await strict.assign([T0], start=0)
            for consumer in (lenient, strict):
                assert await take(consumer, 50) == lines(50)
            log.truncate(30)
            stage.cluster.move(log, 1)
            fill(stage.cluster, log, [b"other %d" % number for number in range(40)])
            with pytest.raises(LogTruncatedError, match=r"truncated to offset 30, below the position 50"):
                await strict.poll(timeout_s=30)
            assert await take(lenient, 40) == log.values()[30:]
            strict.seek(T0, 30)
            assert await take(strict, 40) == log.values()[30:]

    play(story)


class Unscanned(dict[TopicPartition, PartitionReader]):
    def values(self) -> Any:
        raise AssertionError("all partitions were looked at")


def test_a_report_on_one_topic_does_not_look_at_the_partitions_of_others() -> None:
    """With thousands of topics, each of which is reported, the loop would stand still."""

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            assert await consumer.position(T0, timeout_s=30) == 0
            fetcher, readers = consumer._fetcher, consumer._fetcher.readers
            fetcher._leave(readers[T0])
            fetcher.readers = Unscanned(readers)
            fetcher._on_metadata("t", None)
            fetcher.readers = readers
            fill(stage.cluster, log, lines(10))
            assert await take(consumer, 10) == lines(10)

    play(story, seeds=1)


def test_polls_that_return_nothing_leave_nothing_behind() -> None:
    async def story(stage: Stage) -> None:
        def pending() -> int:
            kind = type(stage.loop.create_future())
            return sum(type(one) is kind and not one.done() for one in gc.get_objects())

        stage.cluster.create("t")
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            assert await consumer.position(T0, timeout_s=30) == 0
            before = pending()
            for _ in range(100):
                assert not await consumer.poll(timeout_s=0.001)
            assert pending() < before + 50

    play(story, seeds=1)


@pytest.mark.parametrize("reset", ["earliest", "none"])
@pytest.mark.parametrize("others", [10, 30])
def test_a_leader_whose_older_epoch_reaches_the_position_is_read_from_there(others: int, reset: str) -> None:
    """After an unclean election: what was read of a later epoch is not in its log."""

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(40))
        stage.cluster.move(log, 1)
        fill(stage.cluster, log, lines(50)[40:])
        async with stage.consumer(auto_offset_reset=reset) as consumer:
            await consumer.assign([T0], start=0)
            assert await take(consumer, 50) == lines(50)
            log.truncate(40)
            log.epoch, log.starts = 0, log.starts[:1]
            fill(stage.cluster, log, [b"other %d" % number for number in range(others)])
            log.epoch = 1
            stage.cluster.move(log, 2)
            fill(stage.cluster, log, [b"new %d" % number for number in range(10)])
            assert await take(consumer, others) == log.values()[50:]

    play(story)


def test_a_position_before_what_was_fetched_keeps_its_older_epoch() -> None:
    reader = PartitionReader(T0)
    reader.seek(Offset(50), LeaderEpoch(0))
    reader.fetch_offset, reader.fetch_epoch = Offset(100), LeaderEpoch(2)
    reader.truncate(Offset(50), LeaderEpoch(1))
    assert (reader.position, reader.epoch) == (50, 0)
    assert (reader.fetch_offset, reader.fetch_epoch) == (50, 0)


def test_retention_that_overtakes_the_reader_resets_it() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(50))
        log.start = 20
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0], start=5)
            assert await take(consumer, 30) == lines(50)[20:]

    play(story)


def transactional(producer_id: int, values: list[bytes], sequence: int) -> bytes:
    fields = BatchFields(
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0),
        base_sequence=sequence,
        is_transactional=True,
    )
    return encode_batch(values, timestamps=1, fields=fields)


def test_read_committed_skips_what_was_aborted() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        log.append(transactional(1, [b"aborted 1"], 0))
        log.append(transactional(2, [b"committed 1"], 0))
        log.append(encode_batch([b"plain"], timestamps=1))
        log.append(transactional(1, [b"aborted 2"], 1))
        for producer_id, commit in ((1, False), (2, True)):
            marker = EndTransactionMarker(commit=commit, coordinator_epoch=0)
            log.append(
                encode_end_transaction(
                    marker, producer_id=ProducerId(producer_id), producer_epoch=ProducerEpoch(0), timestamp_ms=2
                )
            )
        log.append(transactional(1, [b"committed 2"], 2))
        log.aborted = [(1, Offset(0))]
        everything = [b"aborted 1", b"committed 1", b"plain", b"aborted 2", b"committed 2"]
        committed = [value for value in everything if not value.startswith(b"aborted")]
        for isolation, expected in (("read_uncommitted", everything), ("read_committed", committed)):
            async with stage.consumer(isolation_level=isolation, auto_offset_reset="earliest") as consumer:
                await consumer.assign([T0])
                assert await take(consumer, len(expected)) == expected
                assert await consumer.position(T0) == log.end

    play(story)


def test_a_corrupt_batch_is_reported_and_can_be_skipped() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(30))
        bad = bytearray(log.batches[1].data)
        bad[-3] ^= 1
        log.batches[1].data = bytes(bad)
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            assert await take(consumer, 10) == lines(10)
            for _ in range(2):
                with pytest.raises(CorruptBatchError, match=r"t-0: the batch at offset 10 .* CRC mismatch") as caught:
                    await consumer.poll(timeout_s=5)
                assert (caught.value.offset, caught.value.next_offset) == (10, 20)
            consumer.seek(T0, 20)
            assert await take(consumer, 10) == lines(30)[20:]

    play(story)


BAD = {
    "CRC": bytes([*batch([b"x"])[:-1], 0xEE]),
    "gzip": poison(codec=1),
    "snappy": poison(codec=2),
    "lz4": poison(codec=3),
    "zstd": poison(codec=4),
    "codec": poison(codec=7),
    "varint": poison(),
}


@pytest.mark.parametrize("name", BAD)
def test_a_batch_that_cannot_be_decoded_is_an_error_at_each_poll_and_fetched_no_more(name: str) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        log.append(encode_batch([b"before"], timestamps=1))
        log.append(BAD[name])
        log.append(encode_batch([b"after"], timestamps=1))
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            assert await take(consumer, 1) == [b"before"]
            for _ in range(3):
                with pytest.raises(CorruptBatchError) as caught:
                    await consumer.poll(timeout_s=5)
                error = caught.value
                assert (error.topic, error.partition, error.offset, error.next_offset) == ("t", 0, 1, 2)
                assert not error.retriable
                assert "seek to offset 2" in error.message
            assert await consumer.position(T0) == 1
            consumer.seek(T0, 2)
            assert await take(consumer, 1) == [b"after"]
            assert consumer.corrupt_batches_skipped == 0

    play(story)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("way", ["poll", "records", "batches"])
def test_it_is_skipped_by_choice_and_reported_once(name: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        caplog.clear()
        [log] = stage.cluster.create("t")
        for value in (b"1", b"2", b"3"):
            log.append(encode_batch([value], timestamps=1))
            log.append(BAD[name])
        async with stage.consumer(auto_offset_reset="earliest", on_corrupt_batch="skip") as consumer:
            await consumer.assign([T0])
            values: list[bytes | None] = []
            if way == "poll":
                while await consumer.position(T0) < 6:
                    values += [record.value for record in await consumer.poll(timeout_s=5)]
            elif way == "records":
                async for record in consumer:
                    values.append(record.value)
                    if len(values) == 3:
                        break
                assert await consumer.poll(timeout_s=5) == []
            else:
                while await consumer.position(T0) < 6:
                    one = await consumer.poll_batch(timeout_s=5)
                    assert one is not None
                    assert len(one.columns()) == len(one.records())
                    values += [record.value for record in one.records()]
            assert values == [b"1", b"2", b"3"]
            assert consumer.corrupt_batches_skipped == 3
            assert await consumer.position(T0) == 6
        reports = [record.getMessage() for record in caplog.records if "is skipped" in record.getMessage()]
        assert len(reports) == 3
        assert reports[0].startswith(
            "t-0: the batch at offset 1 cannot be decoded and is skipped, reading continues at"
        )

    play(story)


@pytest.mark.parametrize("is_sound", [True, False])
@pytest.mark.parametrize("skip", [True, False])
def test_a_marker_that_cannot_be_decoded(*, skip: bool, is_sound: bool) -> None:
    """A reader of committed records must know what a control batch says; whatever it said, a transaction ended."""

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        log.append(encode_batch([b"plain"], timestamps=1))
        log.append(transactional(1, [b"aborted"], 0))
        marker = poison(attributes=0x30, producer=(1, 0, -1))
        log.append(marker if is_sound else marker[:-1] + b"\xee")
        log.append(transactional(1, [b"committed"], 1))
        log.aborted = [(1, Offset(1))]
        policy = "skip" if skip else "fail"
        async with stage.consumer(
            isolation_level="read_committed", auto_offset_reset="earliest", on_corrupt_batch=policy
        ) as consumer:
            await consumer.assign([T0])
            assert await take(consumer, 1) == [b"plain"]
            if skip:
                assert await take(consumer, 1) == [b"committed"]
                assert consumer.corrupt_batches_skipped == 1
                return
            for _ in range(2):
                with pytest.raises(CorruptBatchError) as caught:
                    await consumer.poll(timeout_s=5)
                assert (caught.value.offset, caught.value.next_offset) == (2, 3)
            consumer.seek(T0, 3)
            log.aborted = []
            assert await take(consumer, 1) == [b"committed"]

    play(story)


def test_bytes_that_are_no_batch_at_all_are_an_error_after_the_intact_ones() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        log.append(encode_batch([b"before"], timestamps=1))
        log.append(encode_batch([b"x"], timestamps=1))
        bad = bytearray(log.batches[1].data)
        bad[16] = 9
        log.batches[1].data = bytes(bad)
        async with stage.consumer(auto_offset_reset="earliest", on_corrupt_batch="skip") as consumer:
            await consumer.assign([T0])
            assert await take(consumer, 1) == [b"before"]
            for _ in range(2):
                with pytest.raises(CorruptBatchError, match=r"offset 1 .* is unknown") as caught:
                    await consumer.poll(timeout_s=5)
                assert caught.value.next_offset is None

    play(story)


def test_a_slow_reader_holds_no_more_than_its_buffer() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, [b"x" * 10_000] * 200, batch=1)
        async with stage.consumer(auto_offset_reset="earliest", fetch_max_bytes=100_000) as consumer:
            await consumer.assign([T0])
            await consumer.poll(1, timeout_s=None)
            await asyncio.sleep(5)
            [reader] = consumer._fetcher.readers.values()
            # What fills it up may be one response more.
            assert 100_000 <= reader.buffered_bytes < 100_000 + 2 * 65_536
            assert len(await take(consumer, 199)) == 199

    play(story)


def test_what_is_not_there() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.consumer() as consumer:
            with pytest.raises(UnknownTopicOrPartitionError, match="no topic nope"):
                await consumer.assign([("nope", 0)])
            with pytest.raises(UnknownTopicOrPartitionError, match="t has no partition 1"):
                await consumer.assign([("t", 1)])
            await consumer.assign_topics(["t"])
            stage.cluster.delete("t")
            with pytest.raises(UnknownTopicOrPartitionError, match="topic t was deleted"):
                await consumer.poll(timeout_s=5)
        with pytest.raises(ClientClosedError):
            await consumer.poll()

    play(story)
