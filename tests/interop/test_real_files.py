"""What a real broker has written, our storage opens, reads, recovers and appends to; then Kafka takes it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from streamlog.records import Codec

from .conftest import copy_directory
from .dumps import files, our_dump
from .kafka_lines import as_classic, lines
from .our_storage import append, as_sent, compact, first_and_end, opened, partition, read_all
from .real_kafka import Broker, Kafka, wait_until
from .workload import CODECS, KEYS, START_MS, TRANSACTIONS, Sent, classic_records, mixed_records

pytestmark = pytest.mark.interop

ADDED = mixed_records(30, start=100_000)
# kafka-python cannot read snappy without a library that we do not need; DumpLogSegments reads it elsewhere.
SERVED = ["codec-none", "codec-gzip", "codec-lz4", "codec-zstd", "classic", "segments", "compacted", "transactions"]


@pytest.fixture
def data(clean_data: Path, tmp_path: Path) -> Path:
    """A copy of what the clean stop has left."""
    return copy_directory(clean_data, tmp_path / "data")


@pytest.fixture
def killed(unclean_data: Path, tmp_path: Path) -> Path:
    """A copy of what the kill -9 has left."""
    return copy_directory(unclean_data, tmp_path / "data")


async def test_everything_is_read_as_it_was_sent(data: Path) -> None:
    async with opened(data) as directory:
        assert directory.clean_epoch is not None, "the broker's clean-shutdown mark was understood"
        for codec in CODECS:
            assert as_sent(await read_all(directory.logs[partition(f"codec-{codec}")])) == mixed_records(24)
        assert as_sent(await read_all(directory.logs[partition("classic")])) == classic_records()
        segments = directory.logs[partition("segments")]
        assert as_sent(await read_all(segments)) == mixed_records(3000)
        assert first_and_end(segments) == (0, 3000)
        assert len(list(segments.segments)) >= 3


async def test_lookups_by_time_use_the_brokers_indexes(data: Path) -> None:
    async with opened(data) as directory:
        log = directory.logs[partition("segments")]
        for offset in (0, 1, 549, 550, 1777, 2999):
            found = await log.offset_for_timestamp(mixed_records(1, start=offset)[0].timestamp_ms)
            assert found is not None
            assert found.offset == offset


async def test_what_the_cleaner_left(data: Path) -> None:
    async with opened(data) as directory:
        batches = await read_all(directory.logs[partition("compacted")])
    records = [record for _, some in batches for record in some]
    assert {record.key for record in records} == {b"key-%d" % key for key in range(KEYS)}
    assert any(record.value is None for record in records), "the tombstone"
    assert any(header.has_delete_horizon for header, _ in batches)
    assert any(header.record_count <= header.last_offset_delta for header, _ in batches), "a batch with holes"


async def test_transactions_and_their_producer(data: Path) -> None:
    async with opened(data) as directory:
        log = directory.logs[partition("transactions")]
        batches = await read_all(log)
        (producer,) = log.producers
        assert log.producers.first_unstable_offset(log.log_end_offset) is None
    markers = [records[0].key for header, records in batches if header.is_control]
    assert markers == [b"\0\0\0\1", b"\0\0\0\0"] * (TRANSACTIONS // 2)
    assert producer.producer_id == batches[0][0].producer_id
    assert producer.epoch == batches[-1][0].producer_epoch


async def test_recovery_after_a_kill(killed: Path) -> None:
    async with opened(killed) as directory:
        assert directory.clean_epoch is None
        assert all(log.damage is None for log in directory.logs.values())
        assert as_sent(await read_all(directory.logs[partition("segments")])) == mixed_records(4500)
        assert as_sent(await read_all(directory.logs[partition("codec-zstd")])) == mixed_records(40)
        transactions = directory.logs[partition("transactions")]
        end = transactions.log_end_offset
        assert transactions.producers.first_unstable_offset(end) == end - 1


async def test_a_torn_tail_is_cut(killed: Path, kafka: Kafka) -> None:
    """As a power cut may leave it: the last batch incomplete, garbage behind it."""
    *_, last = files(killed, "segments", ".log")
    with last.open("r+b") as log:
        log.truncate(last.stat().st_size - 20)
        log.seek(0, 2)
        log.write(b"\xa5" * 300)
    async with opened(killed) as directory:
        log_ = directory.logs[partition("segments")]
        assert log_.damage is None
        assert as_sent(await read_all(log_)) == mixed_records(4490)
    assert "invalid bytes" not in kafka.dump(files(killed, "segments", ".log"))


@pytest.mark.parametrize("topic", [*SERVED[:-2], "transactions", "compacted"])
async def test_recovery_without_a_checkpoint_loses_nothing(data: Path, topic: str) -> None:
    async with opened(data) as directory:
        before = await read_all(directory.logs[partition(topic)])
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    async with opened(data) as directory:
        assert await read_all(directory.logs[partition(topic)]) == before


async def rebuild_indexes(data: Path) -> None:
    """Take indexes, checkpoint and mark away, so that everything is scanned, and open."""
    for index in files(data, "segments", ".index", ".timeindex"):
        index.unlink()
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    async with opened(data) as directory:
        assert directory.logs[partition("segments")].log_end_offset == 3000


async def test_indexes_that_were_rebuilt_fit_the_log(data: Path, kafka: Kafka) -> None:
    await rebuild_indexes(data)
    indexes = files(data, "segments", ".index", ".timeindex")
    assert our_dump(indexes) == lines(kafka.dump(indexes))


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
async def test_indexes_are_rebuilt_as_the_broker_had_them(clean_data: Path, data: Path, kind: str) -> None:
    await rebuild_indexes(data)
    ours, theirs = files(data, "segments", kind), files(clean_data, "segments", kind)
    assert [file.read_bytes() for file in ours] == [file.read_bytes() for file in theirs]


async def add(data: Path, *, clean_stop: bool) -> None:
    async with opened(data, clean_stop=clean_stop) as directory:
        for topic, codec in zip(SERVED, [*Codec, *Codec], strict=False):
            append(directory.logs[partition(topic)], ADDED, batch=6, codec=Codec.GZIP if codec == 2 else codec)
        await directory.group_commit.sync_now()


async def test_kafkas_tool_reads_what_was_appended(data: Path, kafka: Kafka) -> None:
    await add(data, clean_stop=True)
    logs = [log for topic in SERVED for log in files(data, topic, ".log")]
    assert our_dump(logs) == list(as_classic(lines(kafka.dump(logs, "--print-data-log", compacted=True))))
    rest = [file for topic in SERVED for file in files(data, topic, ".index", ".timeindex", ".snapshot")]
    assert our_dump(rest) == lines(kafka.dump(rest))


@pytest.fixture
def broker(kafka: Kafka, data: Path, tmp_path: Path) -> Iterator[Broker]:
    """A real broker on `data`, not started."""
    broker = Broker(kafka, tmp_path)
    yield broker
    broker.kill()


@pytest.mark.parametrize("clean_stop", [True, False], ids=["stopped", "killed"])
async def test_a_real_broker_serves_what_was_appended(data: Path, broker: Broker, clean_stop: bool) -> None:
    before: dict[str, list[Sent]] = {}
    async with opened(data) as directory:
        for topic in SERVED:
            before[topic] = as_sent(await read_all(directory.logs[partition(topic)]))
    await add(data, clean_stop=clean_stop)
    broker.start()
    for topic in SERVED:
        assert consumed(broker, topic) == before[topic] + ADDED
    broker.stop()
    assert "ERROR" not in broker.log_text()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_a_real_broker_serves_what_we_compacted(data: Path, kafka: Kafka, broker: Broker, codec: Codec) -> None:
    """Over what the broker's own cleaner has left: older keys overwritten, one deleted, batches with holes."""
    overwrites = [
        Sent(key=b"key-%d" % key, value=b"ours, round %d" % round_, timestamp_ms=START_MS + 1000 + round_)
        for round_ in range(40)
        for key in range(5, KEYS)
    ]
    deletion = Sent(key=b"key-4", value=None, timestamp_ms=START_MS + 2000)
    async with opened(data) as directory:
        log = directory.logs[partition("compacted")]
        append(log, [*overwrites, deletion, *overwrites[-5:]], batch=7, codec=codec)
        log.roll_now()
        await directory.group_commit.sync_now()
        stats = await compact(directory)
        kept = as_sent(await read_all(log))
    assert stats.records_after < stats.records_before
    newest = {record.key: record.value for record in kept}
    assert newest == {
        **{b"key-%d" % key: b"round 14 of key %d" % key for key in range(3)},
        b"key-3": None,
        b"key-4": None,
        **{b"key-%d" % key: b"ours, round 39" for key in range(5, KEYS)},
    }
    assert len(kept) == len(newest), "every key once"
    logs = files(data, "compacted", ".log")
    assert our_dump(logs) == list(as_classic(lines(kafka.dump(logs, "--print-data-log", compacted=True))))
    rest = files(data, "compacted", ".index", ".timeindex", ".snapshot")
    assert our_dump(rest) == lines(kafka.dump(rest, compacted=True))
    broker.start()
    assert consumed(broker, "compacted") == kept
    broker.stop()


def consumed(broker: Broker, topic: str) -> list[Sent]:
    """Everything in the topic, aborted records too."""
    found: list[Sent] = []
    with KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        here = TopicPartition(topic, 0)
        consumer.assign([here])
        (end,) = consumer.end_offsets([here]).values()
        consumer.seek_to_beginning(here)

        def is_through() -> bool:
            for records in consumer.poll(timeout_ms=100).values():
                found.extend(
                    Sent(key=r.key, value=r.value, timestamp_ms=r.timestamp, headers=tuple(r.headers)) for r in records
                )
            return bool(consumer.position(here) >= end)

        wait_until(is_through, f"the consumer to reach offset {end} of {topic}")
    return found
