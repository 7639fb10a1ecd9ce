"""Random and damaged bytes: no exception but ours, no memory beyond the bound, no hang.

Valid input is mutated in the ways that disks, networks and ill will have: flipped bits, numbers at their limits, zero
tails, cut-off ends, pieces moved. Where a CRC would stop the mutation at the door, it is made right again, so that the
code behind it is reached. Everything comes from a seed.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

from streamlog.errors import StreamlogError
from streamlog.records import (
    BatchFields,
    Codec,
    ProduceLimits,
    TimestampType,
    check_crc,
    decode_batch,
    decode_columns,
    encode_batch,
    entry_records,
    join_strings,
    read_header,
    restamp_log_append_time,
    scan_entries,
    scan_headers,
    validate,
)
from streamlog.records.columns.columnar import columns_of
from streamlog.records.compression.codecs import compress, decompress
from streamlog.records.legacy.conversion import convert
from streamlog.records.payload import unpacked_records
from streamlog.records.record_loop import read_records
from tests.records.damage import made_right, mutated
from tests.records.legacy.old_messages import message, wrapper
from tests.records.strategies import NOW_MS, SHAPES, strings

BOUND = 200_000
LIMITS = ProduceLimits(message_bytes_max=BOUND, keys_required=True, unpacked_bytes_max=BOUND)


def batches(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    made = []
    for codec in Codec:
        for shape in SHAPES:
            count = rng.choice([1, 5, 40, 60, 90])
            headers = [(("h", b"v"), ("n", None))] * count if rng.random() < 0.3 else None
            times = [NOW_MS + rng.randrange(300) for _ in range(count)]
            if shape == "large":
                count, times, headers = 3, times[:3] or [NOW_MS], None
                times = times + [NOW_MS] * (3 - len(times))
            made.append(
                encode_batch(
                    strings(rng, count, shape),
                    strings(rng, count, rng.choice(["mixed", "holes"])),
                    headers,
                    timestamps=times,
                    fields=BatchFields(codec=codec),
                )
            )
    return made


def messages(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    made = []
    for magic in (0, 1):
        inner = b"".join(
            message(index, rng.randbytes(5), rng.randbytes(rng.randrange(99)), magic=magic) for index in range(9)
        )
        made += [inner, *(wrapper(8, inner, codec, magic=magic) for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4))]
    return made


P = ParamSpec("P")
T = TypeVar("T")


def outcome(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | type[StreamlogError]:
    """What it returns, or the class of its StreamlogError. Any other error fails the test."""
    try:
        return work(*args, **kwargs)
    except StreamlogError as error:
        return type(error)


def check_all(data: bytes) -> None:
    for at, header in scan_headers(data, 0, len(data)):
        check_crc(data, at, header)


def records_of_entries(data: bytes) -> None:
    for _, entry in scan_entries(data, 0, len(data)):
        entry_records(entry, unpacked_bytes_max=BOUND)


def values_of(data: bytes) -> None:
    join_strings([decode_columns(data, unpacked_bytes_max=BOUND).values])


@pytest.mark.parametrize("seed", range(6))
def test_damaged_batches(seed: int) -> None:
    rng = random.Random(seed)
    changed = 0
    for batch in batches(seed):
        for _ in range(40):
            start = rng.choice([0, 21, 61, 61, 61])
            bad = mutated(rng, batch, start)
            bad = made_right(bad) if rng.random() < 0.8 else bad
            records = outcome(decode_batch, bad, unpacked_bytes_max=BOUND)
            columns = outcome(decode_columns, bad, unpacked_bytes_max=BOUND)
            if isinstance(records, list):
                assert not isinstance(columns, type)
                assert columns.offsets.tolist() == [record.offset for record in records]
                assert columns.timestamps.tolist() == [record.timestamp for record in records]
                assert columns.key_sizes.tolist() == [-1 if r.key is None else len(r.key) for r in records]
                assert join_strings([columns.values]).data.tobytes() == b"".join(
                    record.value or b"" for record in records
                )
            else:
                assert columns is records
            changed += records != decode_batch(batch)
            outcome(validate, bad, 0, len(bad), LIMITS, NOW_MS)
            outcome(check_all, bad)
            outcome(restamp_log_append_time, bytearray(bad), NOW_MS)
    assert changed > 300  # the mutations do something


@pytest.mark.parametrize("seed", range(8))
def test_the_loop_and_the_columns_refuse_the_same_records(seed: int) -> None:
    """The records themselves, behind every check of the header: the fast ways against the plain one."""
    rng = random.Random(seed)
    refused = 0
    for batch in batches(seed)[: len(SHAPES)]:
        header = read_header(batch, 0)
        raw = unpacked_records(batch, 0, header, BOUND)
        for _ in range(60):
            bad = mutated(rng, raw)
            count = rng.choice([header.record_count] * 4 + [header.record_count + rng.choice([-1, 1])])
            if not 0 < count <= len(bad) // 7:
                continue
            claimed = header._replace(record_count=count, last_offset_delta=rng.choice([count - 1, count + 10]))
            plain = outcome(read_records, bad, claimed)
            columns = outcome(columns_of, bad, claimed)
            if isinstance(plain, type):
                refused += 1
                assert columns is plain
                continue
            assert not isinstance(columns, type)
            assert columns.offsets.tolist() == [record.offset for record in plain]
            assert columns.timestamps.tolist() == [record.timestamp for record in plain]
            for starts, sizes, strings_ in (
                (columns.key_starts, columns.key_sizes, [record.key for record in plain]),
                (columns.value_starts, columns.value_sizes, [record.value for record in plain]),
            ):
                got = [
                    None if size < 0 else bad[start : start + size]
                    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
                ]
                assert got == strings_
            assert (columns.headers or [()] * count) == [record.headers for record in plain]
    assert refused > 100


@pytest.mark.parametrize("seed", range(6))
def test_damaged_messages(seed: int) -> None:
    rng = random.Random(seed)
    for log in messages(seed):
        for _ in range(150):
            bad = mutated(rng, log, rng.choice([0, 8, 12]))
            if rng.random() < 0.8 and len(bad) > 16:
                bad = bad[:8] + struct.pack(">iI", len(bad) - 12, zlib.crc32(bad[16:])) + bad[16:]
            outcome(convert, bad, 0, len(bad), unpacked_bytes_max=BOUND)
            outcome(records_of_entries, bad)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
@pytest.mark.parametrize("seed", range(4))
def test_damaged_streams(codec: Codec, seed: int) -> None:
    rng = random.Random(seed)
    for data in (b"", rng.randbytes(300), b"of the same kind, " * 4_000, bytes(150_000)):
        packed = compress(codec, data)
        for _ in range(120):
            bad = mutated(rng, packed)
            out = outcome(decompress, codec, bad, BOUND)
            assert isinstance(out, type) or len(out) <= BOUND
        for size in (1, 7, 40, 200):
            bad = rng.randbytes(size)
            out = outcome(decompress, codec, bad, BOUND)
            assert isinstance(out, type) or len(out) <= BOUND


def test_memory_is_bounded_whatever_the_bytes_say() -> None:
    rng = random.Random(1)
    inputs = [made_right(mutated(rng, batch, rng.choice([21, 57, 61]))) for batch in batches(1) for _ in range(12)]
    for bad in inputs:
        tracemalloc.start()
        outcome(decode_batch, bad, unpacked_bytes_max=BOUND)
        outcome(values_of, bad)
        outcome(convert, bad, 0, len(bad), unpacked_bytes_max=BOUND)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # The columns of the smallest records take some 20 times their bytes.
        assert peak < 40 * BOUND


PLANTED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a bit": (lambda b: b[:70] + bytes([b[70] ^ 4]) + b[71:], "CRC mismatch"),
    "a zero tail": (lambda b: b[:80] + bytes(len(b) - 80), "CRC mismatch"),
    "cut in the records": (lambda b: b[:-1], "incomplete"),
    "cut in the header": (lambda b: b[:40], "incomplete"),
    "a length of 2^31-1": (lambda b: b[:8] + b"\x7f\xff\xff\xff" + b[12:], "incomplete"),
    "a negative length": (lambda b: b[:8] + b"\xff\xff\xff\xff" + b[12:], "impossible batch length"),
    "zeros only": (lambda b: bytes(len(b)), "record format magic 0"),
    "a byte more": (lambda b: b + b"\x00", "trailing bytes"),
    "a count of 2^31-1": (lambda b: made_right(b[:57] + b"\x7f\xff\xff\xff" + b[61:]), "last offset delta"),
    "a record too few": (
        lambda b: made_right(b[:23] + b"\x00\x00\x00\x1e" + b[27:57] + b"\x00\x00\x00\x1f" + b[61:]),
        "bytes follow the last record",
    ),
    "a key that is too long": (
        lambda b: made_right(b[:65] + b"\x7e" + b[66:]),
        "byte 5 of the records: a field of 63 bytes does not fit",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_damage_is_named(name: str) -> None:
    plant, reason = PLANTED[name]
    good = encode_batch([b"value-%d" % i for i in range(32)], [b"key"] * 32, timestamps=NOW_MS)
    assert len(validate(good, 0, len(good), LIMITS, NOW_MS)) == 1
    bad = plant(good)
    with pytest.raises(StreamlogError, match=reason):
        validate(bad, 0, len(bad), LIMITS, NOW_MS)


def test_a_header_count_of_billions() -> None:
    for count in (1, 60):
        good = encode_batch([b"v"] * count, None, [(("h", b"v"),)] * count, timestamps=NOW_MS)
        at = good.index(b"\x02\x02h\x02v")
        bad = made_right(good[:at] + b"\xfe\xff\xff\xff\x0f" + good[at + 5 :])
        for decode in (decode_batch, decode_columns):
            with pytest.raises(StreamlogError):
                decode(bad)


def test_log_append_time_does_not_hide_damage() -> None:
    batch = encode_batch(
        [b"v"] * 60, timestamps=list(range(60)), fields=BatchFields(timestamp_type=TimestampType.LOG_APPEND_TIME)
    )
    bad = made_right(batch[:-1] + b"\x07")
    for decode in (decode_batch, decode_columns):
        with pytest.raises(StreamlogError):
            decode(bad)
