"""The kernel (kernel/streamlog_kernel.c) accepts what `record_check` accepts, with the same timestamps."""

from __future__ import annotations

import itertools
import random
import sys
import tomllib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import StreamlogError
from streamlog.ports.threads import syncs
from streamlog.records import BatchFields, Codec, encode_batch, read_header, validate
from streamlog.records.checks import kernel
from streamlog.records.checks import record_check as checking
from streamlog.records.header import BatchHeader
from streamlog.records.payload import unpacked_records
from streamlog.records.varint import encode_varint
from streamlog.spark.launcher.address import PROTOCOL
from streamlog.storage.segments import plain_run
from tests.records.checks.checked_batches import BOUND, LIMITS, POISON, batch_of, is_sound, record, varied
from tests.records.checks.kernel_build import SOURCE, built_kernel, valid_times
from tests.records.damage import mutated
from tests.records.strategies import NOW_MS, Columns, columns

BATCH = encode_batch([b"v"], timestamps=NOW_MS)
INT64_MAX = 2**63 - 1


def by_python(raw: bytes, header: BatchHeader, *, keys_required: bool = False) -> tuple[int, int] | None:
    try:
        if header.record_count > len(raw) // 7:
            return None
        times = checking._checked_in_python(raw, header, checking._Rules(keys_required, None, checking._HeaderCheck()))
        if min(times) < -1 or header.base_timestamp < -1:
            return None  # negative times are Python's: it refuses them where they count
        return times.smallest, times.largest
    except StreamlogError:
        return None


def by_kernel(raw: bytes, header: BatchHeader, *, keys_required: bool = False) -> tuple[int, int] | None:
    return valid_times()(raw, header.record_count, header.base_timestamp, keys_required)


def header_of(count: int, base_timestamp: int = NOW_MS) -> BatchHeader:
    return read_header(BATCH, 0)._replace(
        record_count=count, last_offset_delta=count - 1, base_timestamp=base_timestamp
    )


@given(drawn=columns(), keys_required=st.booleans())
def test_of_valid_batches_it_finds_the_times(drawn: Columns, keys_required: bool) -> None:
    batch = drawn.encoded()
    header = read_header(batch, 0)
    header = header._replace(attributes=header.attributes & ~0x08)  # a client's batch has CreateTime
    raw = unpacked_records(batch, 0, header, BOUND)
    assert by_kernel(raw, header, keys_required=keys_required) == by_python(raw, header, keys_required=keys_required)


@pytest.mark.parametrize("seed", range(16))
def test_of_mutated_records_it_accepts_those_that_python_accepts(seed: int) -> None:
    rng = random.Random(seed)
    accepted = refused = 0
    for _ in range(400):
        batch = varied(rng)
        header = read_header(batch, 0)
        raw = unpacked_records(batch, 0, header, BOUND)
        raw = mutated(rng, raw)
        if rng.random() < 0.2:
            header = header._replace(base_timestamp=rng.choice([0, -1, INT64_MAX, -INT64_MAX, INT64_MAX - 5]))
        found = by_kernel(raw, header)
        assert found == by_python(raw, header), (raw.hex(), header)
        accepted += found is not None
        refused += found is None
    assert accepted > 30
    assert refused > 100


@pytest.mark.parametrize("length", [5, 6, 7, 8])
def test_of_all_short_records(length: int) -> None:
    """Of a few critical bytes: nulls, empty strings, one header, varints that end too late."""
    header = header_of(1)
    found = 0
    for body in itertools.product(b"\0\x01\x02\x80\xff" if length < 8 else b"\0\x01\x02\x80", repeat=length):
        raw = bytes((length << 1, *body))
        times = by_kernel(raw, header)
        assert times == by_python(raw, header), raw.hex()
        found += times is not None
    assert found >= 5 or length == 5


@pytest.mark.parametrize("delta", [0, 1, -1, 63, 64, -64, -65, 2**31, -(2**40), 2**62, INT64_MAX, -INT64_MAX - 1])
@pytest.mark.parametrize("base", [0, -1, 1, NOW_MS, INT64_MAX, INT64_MAX - 1, -INT64_MAX, 2 - INT64_MAX])
def test_times_of_64_bits(base: int, delta: int) -> None:
    raw = record(0, timestamp=delta) + record(1)
    header = header_of(2, base)
    assert by_kernel(raw, header) == by_python(raw, header)


@pytest.mark.parametrize("base", [-2, -INT64_MAX - 1])
def test_negative_times_are_left_to_python(base: int) -> None:
    assert by_kernel(record(0, timestamp=1), header_of(1, base)) is None
    assert by_kernel(record(0, timestamp=base), header_of(1, 0)) is None


def test_longer_varints_than_necessary() -> None:
    for padding, fits in ((b"\x80\0", True), (b"\x80\x80\x80\x80\0", True), (b"\x80\x80\x80\x80\x10", False)):
        raw = b"\0\0" + padding + b"\x01\x01\0"
        raw = encode_varint(len(raw)) + raw
        assert (by_kernel(raw, header_of(1)) is not None) == fits
        assert (by_python(raw, header_of(1)) is not None) == fits


def _names() -> list[bytes]:
    critical = bytes((0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xEC, 0xED, 0xEE))
    critical += bytes((0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF))
    pairs = itertools.product(range(256), critical)
    threes = itertools.product(critical, repeat=3)
    fours = itertools.product(critical[-6:], critical, b"\x7f\x80\xbf\xc0", b"\x7f\x80\xbf\xc0")
    return [b"", *map(bytes, itertools.chain(pairs, threes, fours))]


def test_names_are_utf8_as_python_reads_it() -> None:
    valid, header = valid_times(), header_of(1)
    for name in _names():
        try:
            name.decode()
            is_utf8 = True
        except UnicodeDecodeError:
            is_utf8 = False
        raw = record(0, headers=((name, b""),))
        assert (valid(raw, 1, header.base_timestamp, False) is not None) == is_utf8, name


def test_it_reads_nothing_behind_the_records() -> None:
    """What follows in memory would make an incomplete record complete."""
    raw = record(0, value=b"v" * 70, headers=((b"h", b"v"),)) + record(1)
    behind = memoryview(raw + raw)
    for size in range(len(raw)):
        assert valid_times()(behind[:size], 2, NOW_MS, False) is None
    assert valid_times()(behind[: len(raw)], 2, NOW_MS, False) == (NOW_MS, NOW_MS)
    for count in (-1, 0, 1, 3, 2**31, INT64_MAX):
        assert valid_times()(raw, count, NOW_MS, False) is None


def test_keys_where_they_are_required() -> None:
    with_keys = encode_batch([b"v"] * 3, [b"k", b"", b"k"], timestamps=NOW_MS)[61:]
    without = encode_batch([b"v"] * 3, [b"k", None, b"k"], timestamps=NOW_MS)[61:]
    valid = valid_times()
    assert valid(with_keys, 3, NOW_MS, True) == valid(without, 3, NOW_MS, False) == (NOW_MS, NOW_MS)
    assert valid(without, 3, NOW_MS, True) is None


def test_many_records_without_the_interpreters_lock() -> None:
    payload = b"".join(record(index, timestamp=index % 7) for index in range(120_000))
    assert len(payload) > 1 << 20
    header = header_of(120_000)
    assert by_kernel(payload, header) == by_python(payload, header) == (NOW_MS, NOW_MS + 6)
    assert by_kernel(payload[:-1], header) is None


def test_arguments_that_are_none() -> None:
    valid = valid_times()
    for arguments in (("text", 1, 0, False), (b"", "1", 0, False), (memoryview(b"1234")[::2], 1, 0, False), (b"",)):
        with pytest.raises((TypeError, BufferError)):
            valid(*arguments)
    with pytest.raises(OverflowError):
        valid(b"", 2**63, 0, False)


# -- in its place


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The answers of the kernel, which `check_records` calls."""
    answers: list[object] = []
    valid = valid_times()

    def recorded(*arguments: object) -> tuple[int, int] | None:
        found = valid(*arguments)
        answers.append(found)
        return found

    monkeypatch.setattr(checking, "valid_times", recorded)
    return answers


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 20, 2_000])
def test_a_valid_batch_needs_no_python(
    installed: list[object], codec: Codec, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "_checked_in_python", None)
    values = [b"v" * (index % 90) for index in range(count)]
    batch = encode_batch(values, None, [(("h", b"v"),)] * count, timestamps=NOW_MS, fields=BatchFields(codec=codec))
    assert validate(batch, 0, len(batch), LIMITS, NOW_MS, header_bytes_max=0)
    assert installed == [(NOW_MS, NOW_MS)]


@pytest.mark.parametrize("name", POISON)
def test_what_is_refused_is_refused_in_pythons_words(installed: list[object], name: str) -> None:
    batch = POISON[name]
    with pytest.raises(StreamlogError) as with_kernel:
        validate(batch, 0, len(batch), LIMITS, NOW_MS)
    assert not is_sound(batch)
    with pytest.MonkeyPatch.context() as without:
        without.setattr(checking, "valid_times", None)
        with pytest.raises(StreamlogError) as alone:
            validate(batch, 0, len(batch), LIMITS, NOW_MS)
    assert str(with_kernel.value) == str(alone.value)


@pytest.mark.parametrize("headers", [checking.HEADERS_MAX, checking.HEADERS_MAX + 1])
def test_headers_are_bounded(headers: int) -> None:
    body = b"\0\0\0\1\1" + encode_varint(headers) + b"\0\1" * headers
    found = built_kernel().valid_times(encode_varint(len(body)) + body, 1, NOW_MS, False)
    assert (found is not None) == (headers <= checking.HEADERS_MAX)


def test_of_a_million_records_that_unpack_from_little(installed: list[object]) -> None:
    payload = b"\x0c\0\0\0\x01\x01\0" * 500_000
    batch = batch_of(payload, 500_000)
    with pytest.raises(StreamlogError):
        checking.check_records(batch, 0, read_header(batch, 0), keys_required=False, unpacked_bytes_max=BOUND)
    assert installed == [None]


@pytest.mark.parametrize(("interface", "is_used"), [(kernel._INTERFACE, True), (kernel._INTERFACE + 1, False)])
def test_one_of_another_interface_is_not_used(interface: int, is_used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("streamlog_kernel")
    built = built_kernel()
    module.__dict__.update(INTERFACE=interface, valid_times=built.valid_times, rows=built.rows)
    monkeypatch.setitem(sys.modules, "streamlog_kernel", module)
    assert kernel._found() == ((built.valid_times, built.rows) if is_used else (None, None))
    assert built_kernel().INTERFACE == kernel._INTERFACE


def test_the_package_has_the_version_of_its_interfaces() -> None:
    """Otherwise pip would keep an installed one that is not used any more."""
    version = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["version"]
    assert version == f"{kernel._INTERFACE}.{syncs._INTERFACE}.{plain_run._INTERFACE}.{PROTOCOL}"


def test_without_it_python_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streamlog_kernel", None)
    assert kernel._found() == (None, None)
