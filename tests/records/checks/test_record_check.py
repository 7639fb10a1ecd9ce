"""What a leader accepts, every reader decodes: the check against the plain decoder, which reads one record at a time.

The plain reading of the rules is `is_sound`. Valid batches of every shape are accepted; of mutated ones exactly those
that are sound, and never anything but an error of ours comes out.
"""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidRecordError, MessageTooLargeError, StreamlogError
from streamlog.records import Codec, ProduceLimits, encode_batch, iter_batch, read_header, validate
from streamlog.records.checks import record_check as checking
from streamlog.records.compression.bounds import NOT_SAID
from streamlog.records.compression.codecs import compress, decompress
from streamlog.records.compression.unpacked_size import unpacked_size_max
from streamlog.records.payload import unpacked_records
from streamlog.records.record_loop import read_records
from streamlog.records.varint import encode_varint
from tests.records.checks.checked_batches import BOUND, LIMITS, POISON, batch_of, is_sound, record, varied
from tests.records.damage import made_right, mutated
from tests.records.strategies import NOW_MS, Columns, columns

TRUSTING = ProduceLimits(message_bytes_max=BOUND, unpacked_bytes_max=BOUND, check_records=False)
PACKED = [codec for codec in Codec if codec is not Codec.NONE]


def is_accepted(batch: bytes, limits: ProduceLimits = LIMITS) -> bool:
    try:
        return len(validate(batch, 0, len(batch), limits, NOW_MS)) == 1
    except StreamlogError:
        return False


@given(columns())
def test_what_our_encoder_makes_is_accepted(drawn: Columns) -> None:
    batch = drawn.encoded()
    header = read_header(batch, 0)
    if not all(_is_utf8(name) for headers in drawn.headers or () for name, _ in headers):
        # The encoder writes names that are no UTF-8 back as they were; a producer may not send them.
        with pytest.raises(InvalidRecordError, match="UTF-8"):
            checking.check_records(batch, 0, header, keys_required=False, unpacked_bytes_max=BOUND)
        return
    found = checking.check_records(batch, 0, header, keys_required=False, unpacked_bytes_max=BOUND)
    times = [record.timestamp for record in read_records(unpacked_records(batch, 0, header, BOUND), header)]
    if not header.attributes & 0x08:
        assert found.largest == max(times)


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


@pytest.mark.parametrize("seed", range(20))
def test_valid_batches_are_accepted(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        batch = varied(rng)
        assert validate(batch, 0, len(batch), LIMITS, NOW_MS)
        assert is_sound(batch)


@pytest.mark.parametrize("seed", range(16))
def test_of_mutated_batches_exactly_the_sound_ones_are_accepted(seed: int) -> None:
    rng = random.Random(seed)
    accepted = refused = 0
    for _ in range(150):
        batch = made_right(mutated_records(rng, varied(rng)))
        if not is_accepted(batch, TRUSTING):
            assert not is_accepted(batch)  # the rules of the header are the same
            continue
        assert is_accepted(batch) == is_sound(batch), batch.hex()
        if is_accepted(batch):
            accepted += 1
            assert len(list(iter_batch(batch, unpacked_bytes_max=BOUND))) == read_header(batch, 0).record_count
        else:
            refused += 1
    assert accepted > 5
    assert refused > 30


def mutated_records(rng: random.Random, batch: bytes) -> bytes:
    """With something wrong in the header, in the stream, or in the records inside of it."""
    match rng.randrange(5):
        case 0:
            return mutated(rng, batch, 21)
        case 1:
            return mutated(rng, batch, 61)
        case _:
            codec = read_header(batch, 0).codec
            records = mutated(rng, decompress(codec, batch[61:], BOUND))
            return batch[:61] + compress(codec, records)


@pytest.mark.parametrize("seed", range(4))
def test_the_check_is_what_finds_them(seed: int) -> None:
    """The planted defect: without the check, batches are stored that no reader decodes."""
    rng = random.Random(seed)
    batches = [made_right(mutated_records(rng, varied(rng))) for _ in range(150)]
    assert sum(is_accepted(batch, TRUSTING) and not is_sound(batch) for batch in batches) > 20


@pytest.mark.parametrize("name", POISON)
def test_poison_is_refused_for_good(name: str) -> None:
    batch = POISON[name]
    with pytest.raises(InvalidRecordError) as caught:
        validate(batch, 0, len(batch), LIMITS, NOW_MS)
    assert not caught.value.retriable
    assert caught.value.message.startswith("position 0: ")
    assert is_accepted(batch, TRUSTING) or name == "a time of 64 bits"


@pytest.mark.parametrize("codec", PACKED)
def test_a_stream_is_held_to_what_it_announces_and_to_the_limit(codec: Codec) -> None:
    records = b"".join(record(index, value=bytes(10_000)) for index in range(300))
    batch = batch_of(compress(codec, records), 300, codec)
    validate(batch, 0, len(batch), ProduceLimits(message_bytes_max=BOUND, unpacked_bytes_max=4 << 20), NOW_MS)
    tracemalloc.start()
    with pytest.raises(MessageTooLargeError):
        validate(batch, 0, len(batch), LIMITS, NOW_MS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * BOUND


def test_a_trailer_that_lies() -> None:
    stream = gzip.compress(record(0, value=bytes(500_000)))
    batch = batch_of(stream[:-4] + struct.pack("<I", 99), 1, Codec.GZIP)
    with pytest.raises(InvalidRecordError, match="unpacks to more than the 99 bytes that it announces"):
        validate(batch, 0, len(batch), LIMITS, NOW_MS)


@pytest.mark.parametrize("codec", PACKED)
@given(size=st.sampled_from([0, 1, 100, 32_768, 65_536, 300_000]), seed=st.integers(0, 99))
def test_what_a_stream_announces_is_no_less_than_what_comes(codec: Codec, size: int, seed: int) -> None:
    data = random.Random(seed).randbytes(size // 2) + bytes(size - size // 2)
    assert unpacked_size_max(codec, compress(codec, data)) >= size
    if codec is Codec.ZSTD:
        unknown = zstandard.ZstdCompressor().compressobj()
        assert unpacked_size_max(codec, unknown.compress(data) + unknown.flush()) >= size


def test_of_many_blocks_not_all_are_looked_at() -> None:
    zstd = zstandard.ZstdCompressor().compressobj()
    flushed = b"".join(zstd.compress(b"ab") + zstd.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for _ in range(50))
    snappy = compress(Codec.SNAPPY, bytes(50 * 32_768))
    streams = {
        Codec.ZSTD: flushed + zstd.flush(),
        Codec.SNAPPY: snappy,
        Codec.LZ4: compress(Codec.LZ4, bytes(50 << 16)),
    }
    for codec, stream in streams.items():
        assert unpacked_size_max(codec, stream, blocks_max=40) == NOT_SAID
        assert 100 <= unpacked_size_max(codec, stream, blocks_max=60) < NOT_SAID


@pytest.mark.parametrize("payload", [bytes(4 << 20), record(0) * 400_000, b"\x0c\0\0\0\x01\x01\0" * 500_000])
def test_many_records_take_little_memory(payload: bytes) -> None:
    """A few kilobytes that unpack to as many records as can be."""
    count = len(payload) // 7
    batch = batch_of(compress(Codec.ZSTD, payload), count, Codec.ZSTD)
    limits = ProduceLimits(message_bytes_max=BOUND, unpacked_bytes_max=8 << 20)
    tracemalloc.start()
    assert not is_accepted(batch, limits)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 48 << 20


@pytest.mark.parametrize("window", [7, 64, 65, 100])
@pytest.mark.parametrize("seed", range(3))
def test_windows_find_what_one_look_finds(window: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    batches = [made_right(mutated_records(rng, varied(rng))) for _ in range(60)] + [varied(rng) for _ in range(20)]
    judged = [is_accepted(batch) for batch in batches]
    monkeypatch.setattr(checking, "_WINDOW_COUNT", window)
    assert [is_accepted(batch) for batch in batches] == judged


@pytest.mark.parametrize("count", [3, 30, 300])
def test_keys_of_compacted_topics(count: int) -> None:
    limits = ProduceLimits(message_bytes_max=BOUND, keys_required=True)
    values = [b"x" * (index % 3) for index in range(count)]
    keys: list[bytes | None] = [b"k"] * count
    assert is_accepted(encode_batch(values, keys, timestamps=NOW_MS), limits)
    keys[count // 2] = None
    assert not is_accepted(encode_batch(values, keys, timestamps=NOW_MS), limits)
    assert not is_accepted(encode_batch([b"v"] * count, timestamps=NOW_MS), limits)


@pytest.mark.parametrize("count", [1, 100])
def test_headers_are_bounded_and_none_is_kept(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two bytes each, compressed to almost nothing. The columns look at those of many records."""
    monkeypatch.setattr(checking, "HEADERS_MAX", 20_000)
    monkeypatch.setattr(checking, "valid_times", None)

    def checked(headers: int) -> int:
        body = encode_varint(headers // count) + b"\0\1" * (headers // count)
        records = [b"\0\0" + encode_varint(index) + b"\1\1" + body for index in range(count)]
        batch = batch_of(b"".join(encode_varint(len(one)) + one for one in records), count)
        tracemalloc.start()
        try:
            checking.check_records(batch, 0, read_header(batch, 0), keys_required=False, unpacked_bytes_max=len(batch))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert checked(20_000) < 400_000  # as tuples they take four times as much
    with pytest.raises(InvalidRecordError, match="the records have more than 20000 headers"):
        checked(20_000 + count)
