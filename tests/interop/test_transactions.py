"""Transactions on disk: Kafka reads ours, and we read those of a real broker, at both isolation levels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from streamlog.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from streamlog.ports.system import SystemClock
from streamlog.records import (
    BatchFields,
    EndTransactionMarker,
    Record,
    decode_batch,
    encode_batch,
    encode_end_transaction,
    read_header,
    scan_headers,
)
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log

from .conftest import copy_directory
from .dumps import files, our_dump
from .kafka_lines import as_classic, lines
from .our_storage import config_of, opened, partition
from .real_kafka import Broker, Kafka, wait_until
from .workload import START_MS, TRANSACTIONS

pytestmark = pytest.mark.interop

TOPIC = "transactions"
FIRST_PRODUCER = 5000  # above those that the broker has given out


class OurProducer:
    """A transactional producer and its coordinator, straight into a log."""

    def __init__(self, log: Log, number: int) -> None:
        self._log = log
        self._id = ProducerId(FIRST_PRODUCER + number)
        self._epoch = ProducerEpoch(0)
        self._sequence = 0

    def send(self, *values: bytes) -> None:
        fields = BatchFields(
            producer_id=self._id, producer_epoch=self._epoch, base_sequence=self._sequence, is_transactional=True
        )
        self._sequence += len(values)
        self._append(encode_batch(values, timestamps=START_MS + 5000, fields=fields))

    def end(self, *, commit: bool) -> None:
        self._epoch, self._sequence = ProducerEpoch(self._epoch + 1), 0
        marker = EndTransactionMarker(commit=commit, coordinator_epoch=3)
        self._append(
            encode_end_transaction(
                marker, producer_id=self._id, producer_epoch=self._epoch, timestamp_ms=START_MS + 5000
            )
        )

    def _append(self, data: bytes) -> None:
        epoch = LeaderEpoch(max(0, self._log.epochs.latest))
        self._log.append_as_leader(data, [(0, read_header(data, 0))], epoch, SystemClock().wall_ms())


def add_ours(log: Log) -> list[bytes]:
    """Transactions that overlap, over several segments; the values of those that are committed, as they come."""
    producers = [OurProducer(log, number) for number in range(3)]
    expected = []
    for round_ in range(9):
        for number, producer in enumerate(producers):
            values = [b"ours %d/%d/%d " % (round_, number, n) * 4 for n in range(3)]
            producer.send(*values)
            if (round_ + number) % 3:
                expected += values
        for number in (1, 2, 0):
            producers[number].end(commit=bool((round_ + number) % 3))
    return expected


async def fill(path: Path) -> None:
    async with opened(path) as directory:
        log = await directory.create_log(partition(TOPIC), config_of(partition(TOPIC)))
        add_ours(log)
        await directory.group_commit.sync_now()


async def test_kafkas_tool_reads_our_markers_and_indexes(kafka: Kafka, tmp_path: Path) -> None:
    await fill(tmp_path)
    logs, indexes = files(tmp_path, TOPIC, ".log"), files(tmp_path, TOPIC, ".txnindex")
    assert len(logs) >= 3
    assert len(indexes) >= 2
    printed = kafka.dump(logs, "--print-data-log")
    assert printed.count("endTxnMarker: COMMIT") == 18
    assert printed.count("endTxnMarker: ABORT") == 9
    assert our_dump(logs) == list(as_classic(lines(printed)))
    printed = kafka.dump(indexes)
    assert printed.count("producerId: ") == 9
    assert our_dump(indexes) == lines(printed)
    rest = files(tmp_path, TOPIC, ".index", ".timeindex", ".snapshot")
    assert our_dump(rest) == lines(kafka.dump(rest))


async def read(log: Log, *, committed: bool) -> list[Record]:
    """As a client of that isolation level; all that is in the log is below the high watermark."""
    end = log.last_stable_offset(log.log_end_offset) if committed else log.log_end_offset
    hidden = log.aborted(Offset(0), end) if committed else []
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < end and (data := await log.read(offset, 1 << 20, end_offset=end)):
        for position, header in scan_headers(data, 0, len(data)):
            is_hidden = any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset < one.last_offset
                for one in hidden
            )
            if not header.is_control and not is_hidden:
                found += decode_batch(data, position)
            offset = header.next_offset
    return found


def transactions_of(records: list[Record]) -> list[int]:
    return [int((record.key or b"").split()[-1]) for record in records]


async def check_levels(directory: LogDirectory, rounds: int, *, left_open: int) -> None:
    log = directory.logs[partition(TOPIC)]
    everything = [number for number in range(TRANSACTIONS) for _ in range(4)] * rounds
    assert transactions_of(await read(log, committed=False)) == everything + [TRANSACTIONS] * left_open
    assert transactions_of(await read(log, committed=True)) == [number for number in everything if number % 2 == 0]


@pytest.mark.parametrize("index", ["believed", "rebuilt"])
async def test_a_real_brokers_transactions_at_both_levels(clean_data: Path, tmp_path: Path, index: str) -> None:
    data = copy_directory(clean_data, tmp_path / "data")
    theirs = {file.name: file.read_bytes() for file in files(data, TOPIC, ".txnindex")}
    if index == "rebuilt":
        for file in files(data, TOPIC, ".txnindex"):
            file.unlink()
        (data / ".kafka_cleanshutdown").unlink()
        (data / "recovery-point-offset-checkpoint").unlink()
    async with opened(data) as directory:
        await check_levels(directory, 1, left_open=0)
    ours = {file.name: file.read_bytes() for file in files(data, TOPIC, ".txnindex")}
    assert {name: content for name, content in ours.items() if content} == {n: c for n, c in theirs.items() if c}


async def test_what_a_killed_broker_has_left_open_is_not_read(unclean_data: Path, tmp_path: Path) -> None:
    async with opened(copy_directory(unclean_data, tmp_path / "data")) as directory:
        await check_levels(directory, 2, left_open=1)


@pytest.fixture
def broker(kafka: Kafka, clean_data: Path, tmp_path: Path) -> Iterator[Broker]:
    """A real broker on a copy of the data, not started."""
    copy_directory(clean_data, tmp_path / "data")
    broker = Broker(kafka, tmp_path)
    yield broker
    broker.kill()


async def test_a_real_broker_serves_our_committed_transactions(broker: Broker) -> None:
    async with opened(broker.data) as directory:
        log = directory.logs[partition(TOPIC)]
        before = [record.value for record in await read(log, committed=True)]
        expected = add_ours(log)
        await directory.group_commit.sync_now()
    broker.start()
    found: list[bytes] = []
    with KafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed") as consumer:
        here = KafkaPartition(TOPIC, 0)
        consumer.assign([here])
        consumer.seek_to_beginning(here)

        def is_through() -> bool:
            for records in consumer.poll(timeout_ms=100).values():
                found.extend(record.value for record in records)
            return len(found) >= len(before) + len(expected)

        wait_until(is_through, "the consumer to read what is committed")
    assert found == before + expected
    broker.stop()
    assert "ERROR" not in broker.log_text()
