"""`.snapshot`: the producers of a partition at one offset. Kafka's bytes (ProducerStateManager), big-endian.

    version          i16   1
    crc              u32   CRC-32C of all that follows
    count            i32
    entries          count times 50 bytes:
        producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64,
        coordinator epoch i32, current transaction's first offset i64 (-1: none)

The file `<offset>.snapshot` holds the state after all batches below that offset. Kafka's entries have only the last
batch of each producer; after a restart its brokers take a retry of an earlier one for a gap, and the producer, which
then starts a new epoch, writes it twice. So the earlier batches, if any, are appended after the bytes that Kafka reads:

    mark             4     "earl"
    count            i32
    entries          count times 36 bytes, of a producer the oldest first:
        producer id i64, first sequence i32, last sequence i32, last offset i64, offset delta i32, timestamp i64
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from streamlog.errors import DamagedFileError
from streamlog.model import INT32_MAX, NO_TIMESTAMP, Offset, ProducerEpoch, ProducerId
from streamlog.storage.producers.producer_states import BATCHES_KEPT, NO_SEQUENCE, BatchSeen, ProducerStateEntry

VERSION: Final = 1
SIZE_MAX: Final = 1 << 30

_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_BODY_START: Final = _HEAD.size
_MARK: Final = b"earl"
_EARLIER: Final = struct.Struct(">qiiqiq")


def format_snapshot(producers: Iterable[ProducerStateEntry]) -> bytes:
    """Sorted by producer id, so that equal states are equal bytes."""
    ordered = sorted(producers, key=lambda p: p.producer_id)
    body = _COUNT.pack(len(ordered)) + b"".join(_pack(p) for p in ordered)
    earlier = [_EARLIER.pack(p.producer_id, *seen[:5]) for p in ordered for seen in p.batches[:-1]]
    if earlier:
        body += _MARK + _COUNT.pack(len(earlier)) + b"".join(earlier)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def parse_snapshot(path: str, content: bytes) -> list[ProducerStateEntry]:
    """DamagedFileError, with the position, for anything that `format_snapshot` cannot have written."""
    if len(content) < _BODY_START + _COUNT.size:
        raise DamagedFileError(path, len(content), "the snapshot is incomplete")
    version, crc = _HEAD.unpack_from(content)
    if version != VERSION:
        raise DamagedFileError(path, 0, f"snapshot version {version}, only {VERSION} is known")
    if crc32c(memoryview(content)[_BODY_START:]) != crc:
        raise DamagedFileError(path, 2, "the snapshot does not match its CRC")
    (count,) = _COUNT.unpack_from(content, _BODY_START)
    rest = memoryview(content)[_BODY_START + _COUNT.size :]
    if count < 0 or count * _ENTRY.size > len(rest):
        raise DamagedFileError(path, _BODY_START, f"{count} producers announced, {len(rest)} bytes follow")
    end = count * _ENTRY.size
    producers = [_unpack(fields) for fields in _ENTRY.iter_unpack(rest[:end])]
    if end < len(rest):
        _add_earlier(path, producers, rest[end:], len(content) - len(rest) + end)
    return producers


def _add_earlier(path: str, producers: list[ProducerStateEntry], section: memoryview, position: int) -> None:
    head = len(_MARK) + _COUNT.size
    if len(section) < head or bytes(section[: len(_MARK)]) != _MARK:
        raise DamagedFileError(path, position, "the producers are followed by something else")
    (count,) = _COUNT.unpack_from(section, len(_MARK))
    if count < 0 or count * _EARLIER.size != len(section) - head:
        raise DamagedFileError(path, position, f"{count} batches announced, {len(section) - head} bytes follow")
    known = {producer.producer_id: producer for producer in producers}
    earlier: dict[ProducerId, list[BatchSeen]] = {}
    for producer_id, first, last, offset, delta, timestamp_ms in _EARLIER.iter_unpack(section[head:]):
        if producer_id not in known:
            raise DamagedFileError(path, position, f"batches of producer {producer_id}, which is not in the snapshot")
        seen = BatchSeen(first, last, Offset(offset), delta, timestamp_ms)
        earlier.setdefault(ProducerId(producer_id), []).append(seen)
    for producer_id, batches in earlier.items():
        producer = known[producer_id]
        producer.batches = [*batches, *producer.batches][-BATCHES_KEPT:]


def _pack(p: ProducerStateEntry) -> bytes:
    delta = p.batches[-1].offset_delta if p.batches else 0
    return _ENTRY.pack(
        p.producer_id,
        p.epoch,
        p.last_sequence,
        p.last_offset,
        delta,
        p.timestamp_ms,
        p.coordinator_epoch,
        p.transaction_start,
    )


def _unpack(fields: tuple[int, ...]) -> ProducerStateEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, transaction_start = fields
    batches = []
    if last_sequence != NO_SEQUENCE:
        first_sequence = (last_sequence - delta) & INT32_MAX  # wraps as sequences do
        batches = [BatchSeen(first_sequence, last_sequence, Offset(last_offset), delta, timestamp_ms)]
    return ProducerStateEntry(
        ProducerId(producer_id),
        ProducerEpoch(epoch),
        batches,
        timestamp_ms,
        coordinator_epoch,
        Offset(transaction_start),
        timestamp_ms if transaction_start >= 0 else NO_TIMESTAMP,
    )
