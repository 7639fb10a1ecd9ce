"""Records and batches for hypothesis to draw, and the plain encoder that all others are held against."""

from __future__ import annotations

import random

from hypothesis import strategies as st
from msgspec import Struct

from streamlog.model import Offset, ProducerEpoch, ProducerId
from streamlog.records import BatchFields, Codec, Headers, Record, TimestampType, encode_batch

NOW_MS = 1_700_000_000_000

# Sizes on both sides of each place where a varint becomes a byte longer, and of the tables' end.
EDGE_SIZES = (0, 1, 62, 63, 64, 65, 8_190, 8_191, 8_192, 8_193)

# Bytes that are no UTF-8 are keys as well: they come back as they went in.
header_keys = st.one_of(
    st.text("aé€😀", max_size=5),
    st.binary(max_size=5).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)
headers = st.lists(
    st.tuples(header_keys, st.none() | st.binary(max_size=5)),
    max_size=3,
).map(tuple)


class Columns(Struct, frozen=True, kw_only=True):
    """What `encode_batch` takes, and what must come out of it."""

    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[Headers] | None
    timestamps: int | list[int]
    fields: BatchFields

    def encoded(self) -> bytes:
        return encode_batch(self.values, self.keys, self.headers, timestamps=self.timestamps, fields=self.fields)

    def records(self) -> list[Record]:
        count = len(self.values)
        times = [self.timestamps] * count if isinstance(self.timestamps, int) else self.timestamps
        if self.fields.timestamp_type is TimestampType.LOG_APPEND_TIME:
            times = [max(times)] * count
        keys = self.keys or [None] * count
        headers = self.headers or [()] * count
        return [
            Record(Offset(self.fields.base_offset + index), time, key, value, header)
            for index, (time, key, value, header) in enumerate(zip(times, keys, self.values, headers, strict=True))
        ]


def strings(rng: random.Random, count: int, shape: str) -> list[bytes | None]:
    """`count` keys or values. Hypothesis draws the shape, a seeded generator the bytes: much faster for many."""
    match shape:
        case "null":
            return [None] * count
        case "empty":
            return [b""] * count
        case "equal":
            size = rng.choice([1, 7, 63, 64, 100])
            return [rng.randbytes(size) for _ in range(count)]
        case "zeros":  # looks like the frame of a record at every byte
            return [bytes(rng.randrange(200)) for _ in range(count)]
        case "frames":  # whole records inside of values
            return [b"\x00\x0e\x00\x00\x02\x01\x00\x00" * rng.randrange(20) for _ in range(count)]
        case "edges":
            return [rng.randbytes(rng.choice(EDGE_SIZES[:6])) for _ in range(count)]
        case "large":
            return [rng.randbytes(rng.choice(EDGE_SIZES)) for _ in range(count)]
        case "holes":
            return [None if rng.random() < 0.2 else rng.randbytes(rng.randrange(100)) for _ in range(count)]
        case _:
            return [rng.randbytes(rng.randrange(50, 150)) for _ in range(count)]


SHAPES = ("null", "empty", "equal", "zeros", "frames", "edges", "large", "holes", "mixed")
counts = st.sampled_from([1, 2, 3, 12, 13, 24, 25, 47, 48, 49, 50, 63, 64, 65, 66, 200])


@st.composite
def columns(draw: st.DrawFn, codecs: tuple[Codec, ...] = tuple(Codec)) -> Columns:
    count = draw(counts)
    rng = random.Random(draw(st.integers(0, 2**32)))
    values = strings(rng, count, draw(st.sampled_from(SHAPES)))
    key_shape = draw(st.sampled_from(("none", *SHAPES)))
    header_shape = draw(st.sampled_from(("none", "none", "same", "drawn")))
    some_headers: list[Headers] | None = None
    if header_shape != "none":
        kinds = draw(st.lists(headers, min_size=1, max_size=3 if header_shape == "drawn" else 1))
        some_headers = [rng.choice(kinds) for _ in range(count)]
    spread = draw(st.sampled_from((None, 1, 50, 10_000, 2**40)))
    timestamps = NOW_MS if spread is None else [NOW_MS + rng.randrange(-spread, spread) for _ in range(count)]
    has_producer = draw(st.booleans())
    fields = BatchFields(
        base_offset=Offset(draw(st.sampled_from((0, 1, 2**31, 2**62)))),
        codec=draw(st.sampled_from(codecs)),
        timestamp_type=draw(st.sampled_from(TimestampType)),
        producer_id=ProducerId(draw(st.integers(0, 2**63 - 1)) if has_producer else -1),
        producer_epoch=ProducerEpoch(draw(st.integers(0, 2**15 - 1)) if has_producer else -1),
        base_sequence=draw(st.integers(0, 2**31 - 1)) if has_producer else -1,
        is_transactional=has_producer and draw(st.booleans()),
    )
    return Columns(
        values=values,
        keys=None if key_shape == "none" else strings(rng, count, key_shape),
        headers=some_headers,
        timestamps=timestamps,
        fields=fields,
    )
