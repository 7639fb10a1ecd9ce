"""The partitioners of Publish: which partition a record goes to (SEMANTICS 12).

With a producer token the choice depends only on the token and the records, so a retry chooses the same partitions. The
token has the partition count of each topic, as of the first request that wrote to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from streamlog.api.convert.records.publish import NewRecord, RecordPartitioner
from streamlog.client.producer.partitioner import hash_partition
from streamlog.errors import InvalidRecordError, UnknownTopicOrPartitionError


def check_choice(record: NewRecord, index: int, partitioner: RecordPartitioner, count: int) -> None:
    """That `choose` can place it. UnknownTopicOrPartitionError if it names a partition that does not exist;
    InvalidRecordError if its key has to be an integer and is not.
    """
    if record.partition is not None:
        if record.partition >= count:
            raise UnknownTopicOrPartitionError(
                f"record {index}: partition {record.partition} does not exist, the topic has {count} partitions",
                field=f"records[{index}].partition",
                limit=count,
            )
    elif partitioner is RecordPartitioner.INTEGER_MODULO and record.key is not None:
        _check_integer(record.key, index)


def choose(
    records: Sequence[NewRecord], partitioner: RecordPartitioner, count: int, seed: int, batch_bytes: int
) -> list[int]:
    """The partition of each, from 0 to count - 1, of records that passed `check_choice`. `seed` is the start of round
    robin, sticky and random choices.
    """
    sticky = _Sticky(count, seed, batch_bytes)
    chosen = []
    for index, record in enumerate(records):
        if record.partition is not None:
            chosen.append(record.partition)
            continue
        match partitioner:
            case RecordPartitioner.KEY_HASH:
                chosen.append(sticky.take(record) if record.key is None else hash_partition(record.key, count))
            case RecordPartitioner.ROUND_ROBIN:
                chosen.append((seed + index) % count)
            case RecordPartitioner.RANDOM:
                chosen.append(crc32c(index.to_bytes(4, "big"), seed & 0xFFFFFFFF) % count)
            case RecordPartitioner.INTEGER_MODULO:
                chosen.append(sticky.take(record) if record.key is None else int(record.key) % count)
    return chosen


class _Sticky:
    """One partition until a batch is full, then the next."""

    def __init__(self, count: int, seed: int, batch_bytes: int) -> None:
        self._count = count
        self._at = seed
        self._batch_bytes = batch_bytes
        self._used = 0

    def take(self, record: NewRecord) -> int:
        size = record.size_bytes
        if self._used and self._used + size > self._batch_bytes:
            self._at, self._used = self._at + 1, 0
        self._used += size
        return self._at % self._count


def _check_integer(key: bytes, index: int) -> None:
    text = key.strip()
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    if not digits.isdigit() or len(digits) > 20:
        raise InvalidRecordError(
            f"record {index}: the key {key[:32]!r} is not a decimal integer, which PARTITIONER_INTEGER_MODULO requires",
            field=f"records[{index}].key",
        )
