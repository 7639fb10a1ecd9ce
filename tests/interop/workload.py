"""What the real broker is given to do, and what must be in its files afterwards.

Every topic has one partition and one subject. `fill` runs before a clean stop, `fill_more` before a kill -9.
"""

from __future__ import annotations

import base64
import json
from typing import Final

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient
from msgspec import Struct

from .real_kafka import Broker, Kafka, wait_until

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS: Final = 1_557_393_691_677
KEYS: Final = 10  # distinct keys of the compacted topic
ROUNDS: Final = 15  # values that each of them gets before the tombstone, and again after it
TOMBSTONE_KEY: Final = b"key-3"
TRANSACTIONS: Final = 8  # in `fill`: every other one is aborted

_DAY_MS: Final = "86400000"
_KEEP: Final = {"retention.ms": "-1"}  # the records' timestamps are years old
_TOPICS: Final[dict[str, dict[str, str]]] = {
    **{f"codec-{codec}": {} for codec in CODECS},
    "classic": {"index.interval.bytes": "100"},  # an entry for every second record
    "log-append-time": {"message.timestamp.type": "LogAppendTime"},
    "segments": {"internal.segment.bytes": "16384", "index.interval.bytes": "1024"},
    "compacted": {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "4096",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": _DAY_MS,
    },
    "transactions": {"internal.segment.bytes": "2048"},
}


class Sent(Struct, frozen=True, kw_only=True):
    """A record as its producer was given it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Script:
    """Commands for ScriptedProducer, one a line."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._lines: list[str] = []

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def open(self, producer: str, **config: str) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "linger.ms": "1000"}
        settings |= {name.replace("_", "."): value for name, value in config.items()}
        self._lines.append(json.dumps({"do": "open", "producer": producer, "config": settings}))

    def do(self, what: str, producer: str) -> None:
        self._lines.append(json.dumps({"do": what, "producer": producer}))

    def send(self, producer: str, topic: str, record: Sent) -> None:
        command = {
            "do": "send",
            "producer": producer,
            "topic": topic,
            "key": _base64(record.key),
            "value": _base64(record.value),
            "timestamp": record.timestamp_ms,
            "headers": [(name, _base64(value)) for name, value in record.headers],
        }
        self._lines.append(json.dumps(command))


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def mixed_records(count: int, start: int = 0) -> list[Sent]:
    """Null keys, null and empty values, headers with null values, bytes that are no UTF-8."""
    return [
        Sent(
            key=None if n % 3 == 0 else f"key-{n}".encode(),
            value=None if n % 7 == 3 else b"" if n % 7 == 5 else b"value \xff\x01 %d " % n * (n % 5 + 1),
            timestamp_ms=START_MS + 10 * n,
            headers=(("trace", f"{n:08}".encode()), ("nothing", None), ("empty", b""))[: n % 4],
        )
        for n in range(start, start + count)
    ]


def classic_records() -> list[Sent]:
    """One a batch: these stand at positions 0, 86, 172, 258, 344, 430."""
    return [Sent(key=b"group_demo", value=b'{"id":%d}' % n, timestamp_ms=START_MS + n) for n in range(6)]


def compacted_records() -> list[Sent]:
    """Rounds of values for every key, the tombstone, then as many for the keys behind it: so that the tombstone
    stands where the cleaner goes, and batches lose some of their records and keep others.
    """
    tombstone = Sent(key=TOMBSTONE_KEY, value=None, timestamp_ms=START_MS + ROUNDS)
    return [*_rounds(0, range(KEYS)), tombstone, *_rounds(ROUNDS, range(4, KEYS))]


def _rounds(start: int, keys: range) -> list[Sent]:
    return [
        Sent(key=b"key-%d" % key, value=b"round %d of key %d" % (round_, key), timestamp_ms=START_MS + round_)
        for round_ in range(start, start + ROUNDS)
        for key in keys
    ]


def fill(kafka: Kafka, broker: Broker) -> None:
    """Everything that is to be there after the first, clean stop."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    topics = {
        name: {"num_partitions": 1, "replication_factor": 1, "configs": _KEEP | configs}
        for name, configs in _TOPICS.items()
    }
    admin.create_topics(topics, wait_for_metadata=True)
    script = Script(broker.bootstrap)
    for codec in CODECS:
        script.open(codec, compression_type=codec)
        _send_in_batches(script, codec, f"codec-{codec}", mixed_records(24), 8)
    script.open("one-by-one", enable_idempotence="false")
    _send_in_batches(script, "one-by-one", "classic", classic_records(), 1)
    _send_in_batches(script, "one-by-one", "log-append-time", mixed_records(10), 5)
    _send_in_batches(script, "zstd", "segments", mixed_records(3000), 10)
    _send_in_batches(script, "none", "compacted", compacted_records(), 7)
    _transactions(script)
    kafka.produce(script.text())
    _commit_offsets(broker, admin)
    admin.close()
    wait_until(lambda: _was_compacted(broker), "the cleaner to compact topic `compacted`")


def fill_more(kafka: Kafka, broker: Broker) -> None:
    """Appends that the kill -9 comes after: every one acknowledged, one transaction left open."""
    script = Script(broker.bootstrap)
    script.open("zstd", compression_type="zstd")
    _send_in_batches(script, "zstd", "codec-zstd", mixed_records(16, start=24), 8)
    _send_in_batches(script, "zstd", "segments", mixed_records(1500, start=3000), 10)
    _transactions(script)
    script.do("begin", "transactional")
    _send_in_batches(script, "transactional", "transactions", [_in_transaction(TRANSACTIONS, 0)], 1)
    kafka.produce(script.text())


def _send_in_batches(script: Script, producer: str, topic: str, records: list[Sent], batch: int) -> None:
    for start in range(0, len(records), batch):
        for record in records[start : start + batch]:
            script.send(producer, topic, record)
        script.do("flush", producer)


def _transactions(script: Script) -> None:
    script.open("transactional", transactional_id="streamlog-interop")
    script.do("init", "transactional")
    for number in range(TRANSACTIONS):
        script.do("begin", "transactional")
        records = [_in_transaction(number, n) for n in range(4)]
        _send_in_batches(script, "transactional", "transactions", records, 2)
        script.do("abort" if number % 2 else "commit", "transactional")


def _in_transaction(number: int, n: int) -> Sent:
    key = b"transaction %d" % number
    return Sent(key=key, value=b"record %d " % n * 10, timestamp_ms=START_MS + 100 * number + n)


def _commit_offsets(broker: Broker, admin: KafkaAdminClient) -> None:
    """A group of members, commits with metadata and without, and a group that is deleted again."""
    with KafkaConsumer(
        "codec-none", bootstrap_servers=broker.bootstrap, group_id="readers", auto_offset_reset="earliest"
    ) as member:
        wait_until(lambda: bool(member.poll(timeout_ms=100)), "the group `readers` to get its partition")
        member.commit()
    offsets = {
        TopicPartition("classic", 0): OffsetAndMetadata(4, "half way, 100 %", 0),
        TopicPartition("segments", 0): OffsetAndMetadata(2**40, "", -1),
    }
    admin.alter_group_offsets("by-hand", offsets)
    admin.alter_group_offsets("deleted", offsets)
    admin.delete_groups(["deleted"])


def _was_compacted(broker: Broker) -> bool:
    """The cleaner has been through all but the last segment, so few of the first offsets are left."""
    checkpoint = (broker.data / "cleaner-offset-checkpoint").read_text().split("\n")
    cleaned = {line.rsplit(" ", 2)[0]: int(line.rsplit(" ", 2)[2]) for line in checkpoint[2:] if line}
    segments = sorted(file for file in (broker.data / "compacted-0").iterdir() if file.suffix == ".log")
    return cleaned.get("compacted", 0) >= int(segments[-1].stem) > 0
