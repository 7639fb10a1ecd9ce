"""The record formats: encode and decode, one core, CPU time.

The baseline of an optimised version is the plain one, record by record, on the same records and in the same rounds.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final

from msgspec import Struct

from bench.figures import Figure
from bench.timing import best_cpu_seconds
from streamlog.records import (
    BatchFields,
    Codec,
    ProduceLimits,
    decode_batch,
    decode_columns,
    encode_batch,
    iter_batch,
    iter_fields,
    join_strings,
    read_header,
    validate,
)
from streamlog.records.compression.codecs import compress, decompress
from streamlog.records.encode import encode_record
from streamlog.records.header import check_crc
from streamlog.records.payload import unpacked_records
from streamlog.records.record_loop import read_records

_BATCH_BYTES: Final = 262_144
_BUDGET_S: Final = 2.0
_NOW_MS: Final = 1_700_000_000_000
_UNIT: Final = "M records/s"


class Sample(Struct, frozen=True, kw_only=True):
    """Records of one kind, a batch full."""

    name: str
    values: list[bytes]
    keys: list[bytes] | None
    timestamps: int | list[int]

    def encoded(self) -> bytes:
        return encode_batch(self.values, self.keys, timestamps=self.timestamps)

    def encoded_plainly(self) -> bytes:
        times = self.timestamps if isinstance(self.timestamps, list) else [self.timestamps] * len(self.values)
        keys: Sequence[bytes | None] = self.keys or [None] * len(self.values)
        rows = zip(count(), times, keys, self.values, strict=False)
        return b"".join(encode_record(delta, time - times[0], key, value) for delta, time, key, value in rows)


def samples() -> Iterator[Sample]:
    rng = random.Random(7)
    size = 100
    rows = _BATCH_BYTES // size
    equal = [rng.randbytes(size) for _ in range(rows)]
    mixed = [rng.randbytes(rng.randrange(size // 2, size * 3 // 2)) for _ in range(rows)]
    keys = [b"key-%d" % rng.randrange(10 ** rng.randrange(1, 9)) for _ in range(rows)]
    times = [_NOW_MS + index // 40 for index in range(rows)]
    yield Sample(name="100 B", values=equal, keys=None, timestamps=_NOW_MS)
    yield Sample(name="mixed sizes", values=mixed, keys=None, timestamps=_NOW_MS)
    yield Sample(name="mixed sizes and keys", values=mixed, keys=keys, timestamps=_NOW_MS)
    yield Sample(name="mixed sizes, keys, times", values=mixed, keys=keys, timestamps=times)
    yield Sample(name="1 KB", values=[rng.randbytes(1_000) for _ in range(rows // 10)], keys=None, timestamps=_NOW_MS)


ENCODE_TARGETS: Final = {"100 B": 4.0, "mixed sizes": 3.0, "mixed sizes and keys": 3.0}
DECODE_TARGETS: Final = {"100 B": 5.0, "mixed sizes": 1.5, "mixed sizes and keys": 1.5}
COLUMN_TARGETS: Final = {"100 B": 5.0, "mixed sizes": 5.0}


def run() -> list[Figure]:
    kinds = list(samples())
    return [
        _machine(),
        *(figure for sample in kinds for figure in _encoding(sample)),
        *(figure for sample in kinds for figure in _decoding(sample)),
        *_one_record(),
        *_broker(kinds[0]),
        *(figure for codec in Codec if codec is not Codec.NONE for figure in _codec(codec)),
    ]


def _machine() -> Figure:
    """How fast the interpreter is just now: all the other figures follow it."""
    steps = 200_000
    best = best_cpu_seconds({"loop": lambda: [None for _ in range(steps)]}, budget_s=_BUDGET_S / 4)
    return Figure(
        name="this machine: a step of a Python loop", value=best["loop"] / steps * 1e9, unit="ns", less_is_better=True
    )


def _encoding(sample: Sample) -> Iterator[Figure]:
    best = best_cpu_seconds({"fast": sample.encoded, "plain": sample.encoded_plainly}, budget_s=_BUDGET_S)
    yield Figure(
        name=f"encode, {sample.name}",
        value=len(sample.values) / best["fast"] / 1e6,
        unit=_UNIT,
        target=ENCODE_TARGETS.get(sample.name),
        ratio=best["plain"] / best["fast"],
        yardstick="the plain loop",
    )


def _decoding(sample: Sample) -> Iterator[Figure]:
    """With the CRC, as a consumer reads."""
    batch = sample.encoded()
    header = read_header(batch, 0)

    def drained(read: Callable[[bytes], Iterator[object]]) -> None:
        check_crc(batch, 0, header)
        deque(read(batch), maxlen=0)

    def listed() -> None:
        check_crc(batch, 0, header)
        decode_batch(batch)

    def by_column() -> None:
        check_crc(batch, 0, header)
        decode_columns(batch)

    def for_arrow() -> None:
        check_crc(batch, 0, header)
        columns = decode_columns(batch)
        join_strings([columns.keys])
        join_strings([columns.values])

    def plain() -> None:
        check_crc(batch, 0, header)
        read_records(unpacked_records(batch, 0, header, len(batch)), header)

    best = best_cpu_seconds(
        {
            "tuples, one by one": lambda: drained(iter_fields),
            "Record, one by one": lambda: drained(iter_batch),
            "list of Record": listed,
            "columns": by_column,
            "columns, Arrow buffers": for_arrow,
            "plain": plain,
        },
        budget_s=2 * _BUDGET_S,
    )
    targets = {
        "tuples, one by one": DECODE_TARGETS.get(sample.name),
        "Record, one by one": DECODE_TARGETS.get(sample.name),
        "list of Record": DECODE_TARGETS.get(sample.name),
        "columns": COLUMN_TARGETS.get(sample.name),
    }
    for way in [name for name in best if name != "plain"]:
        yield Figure(
            name=f"decode, {sample.name}: {way}",
            value=len(sample.values) / best[way] / 1e6,
            unit=_UNIT,
            target=targets.get(way),
            ratio=best["plain"] / best[way],
            yardstick="the plain loop",
        )


def _one_record() -> Iterator[Figure]:
    """What a batch costs beside its records."""
    batch = encode_batch([bytes(100)], [b"key"], timestamps=_NOW_MS)
    works = {
        "encode": lambda: [encode_batch([bytes(100)], [b"key"], timestamps=_NOW_MS) for _ in range(1_000)],
        "decode": lambda: [decode_batch(batch) for _ in range(1_000)],
    }
    for name, seconds in best_cpu_seconds(works, budget_s=_BUDGET_S).items():
        yield Figure(name=f"{name}, a batch of one record", value=seconds * 1e3, unit="us a batch", less_is_better=True)


def _broker(sample: Sample) -> Iterator[Figure]:
    """What the broker does to a batch on its way into the log: header, CRC, rules."""
    batch = sample.encoded()
    limits = ProduceLimits(message_bytes_max=len(batch))
    many = batch * 4
    best = best_cpu_seconds(
        {
            "validate": lambda: validate(many, 0, len(many), limits, _NOW_MS),
            "copy": lambda: bytes(memoryview(many)),
        },
        budget_s=_BUDGET_S,
    )
    yield Figure(
        name="validate, batches of 300 KB",
        value=len(many) / best["validate"] / 1e9,
        unit="GB/s",
        ratio=best["copy"] / best["validate"],
        yardstick="copying the bytes",
    )


def _codec(codec: Codec) -> Iterator[Figure]:
    """Text like that of a log, at the default level; the library's own speed is most of it."""
    rng = random.Random(3)
    lines = [
        b"2024-01-%02d INFO dfs.DataNode: served block blk_%d to /10.0.%d.%d\n"
        % (index % 28 + 1, rng.getrandbits(60), rng.randrange(255), rng.randrange(255))
        for index in range(_BATCH_BYTES // 70)
    ]
    raw = b"".join(lines)
    packed = compress(codec, raw)
    batch = encode_batch(lines, timestamps=_NOW_MS, fields=BatchFields(codec=codec))
    best = best_cpu_seconds(
        {
            "compress": lambda: compress(codec, raw),
            "decompress": lambda: decompress(codec, packed, len(raw)),
            "columns": lambda: decode_columns(batch),
        },
        budget_s=_BUDGET_S / 2,
    )
    name = codec.name.lower()
    yield Figure(
        name=f"{name}: compress to 1/{len(raw) / len(packed):.1f}", value=len(raw) / best["compress"] / 1e6, unit="MB/s"
    )
    yield Figure(name=f"{name}: decompress", value=len(raw) / best["decompress"] / 1e6, unit="MB/s")
    yield Figure(name=f"{name}: decode to columns", value=len(lines) / best["columns"] / 1e6, unit=_UNIT)
