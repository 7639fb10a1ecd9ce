"""Batches that the leader's check of records accepts or refuses, and the plain reading of its rules (`is_sound`)."""

from __future__ import annotations

import gzip
import random

from streamlog.errors import StreamlogError
from streamlog.records import BatchFields, Codec, ProduceLimits, encode_batch, read_header
from streamlog.records.payload import unpacked_records
from streamlog.records.record_loop import read_records
from streamlog.records.varint import encode_varint
from tests.records.damage import made_right
from tests.records.fields import with_fields
from tests.records.strategies import NOW_MS, SHAPES, strings

BOUND = 1 << 20
LIMITS = ProduceLimits(message_bytes_max=BOUND, unpacked_bytes_max=BOUND)


def is_sound(batch: bytes) -> bool:
    """The rules, record by record; the header's own are `validate`'s."""
    header = read_header(batch, 0)
    try:
        records = read_records(unpacked_records(batch, 0, header, BOUND), header)
        names = [name.encode() for record in records for name, _ in record.headers]
    except (StreamlogError, UnicodeEncodeError):
        return False
    assert len(names) >= 0
    offsets = [record.offset - header.base_offset for record in records]
    times = [record.timestamp for record in records]
    in_bounds = min(times, default=0) >= -1 and max(times, default=0) <= NOW_MS + LIMITS.timestamp_after_max_ms
    return offsets == list(range(header.record_count)) and max(times) == header.max_timestamp and in_bounds


def varied(rng: random.Random) -> bytes:
    """A valid batch of a random shape, whose names of headers are UTF-8."""
    count = rng.choice([1, 2, 5, 6, 7, 20, 64, 65, 66, 130])
    shape = rng.choice(SHAPES)
    count = min(count, 3) if shape == "large" else count
    headers = [rng.choice(((), (("h", b"v"),), (("é", None), ("", b"")))) for _ in range(count)]
    times = [NOW_MS - rng.randrange(100_000) for _ in range(count)]
    return encode_batch(
        strings(rng, count, shape),
        strings(rng, count, rng.choice(["null", "equal", "mixed", "holes"])),
        headers if rng.random() < 0.4 else None,
        timestamps=times if rng.random() < 0.7 else NOW_MS,
        fields=BatchFields(codec=rng.choice(list(Codec))),
    )


def record(
    delta: int, *, value: bytes = b"v", headers: tuple[tuple[bytes, bytes], ...] = (), timestamp: int = 0
) -> bytes:
    body = b"".join(
        (
            b"\0",
            encode_varint(timestamp),
            encode_varint(delta),
            encode_varint(-1),
            encode_varint(len(value)) + value,
            encode_varint(len(headers)),
            *(encode_varint(len(k)) + k + encode_varint(len(v)) + v for k, v in headers),
        )
    )
    return encode_varint(len(body)) + body


def framed(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def batch_of(payload: bytes, count: int, codec: Codec = Codec.NONE) -> bytes:
    frame = encode_batch([b""], timestamps=NOW_MS)[:61]
    return with_fields(
        made_right(frame + payload), attributes=int(codec), record_count=count, last_offset_delta=count - 1
    )


POISON = {
    "gzip garbage": batch_of(random.Random(1).randbytes(200), 5, Codec.GZIP),
    "an endless varint": batch_of(b"\xff" * 100, 1),
    "a negative length of a value": batch_of(framed(b"\0\0\0\x01\x09\0"), 1),
    "2^30 headers": batch_of(framed(b"\0\0\0\x01\x01" + encode_varint(2**30)), 1),
    "a header's name that is no UTF-8": batch_of(record(0, headers=((b"\xff\xfe", b"v"),)), 1),
    "offset deltas that stand still": batch_of(record(0) * 3, 3),
    "a snappy bomb": batch_of(b"\xff\xff\xff\xff\x0f\0abc", 1, Codec.SNAPPY),
    "more records announced than there are": batch_of(gzip.compress(record(0)), 7, Codec.GZIP),
    "a negative offset delta": batch_of(record(-1) + record(0), 2),
    "a gap": batch_of(record(0) + record(2), 2),
    "bytes behind the last record": batch_of(record(0) + b"\0", 1),
    "fewer records announced than there are": batch_of(record(0) + record(1), 1),
    "a time of 64 bits": batch_of(record(0, timestamp=2**63 - 1), 1),
    "a time above the header's": batch_of(record(0, timestamp=1), 1),
}
