"""The quick check of batches that join agrees with the whole one, whatever the bytes are, in C as in Python."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import accumulate

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streamlog.model import INT64_MAX, LeaderEpoch, Offset
from streamlog.storage.files.checkpoints import EpochEntry
from streamlog.storage.segments.batch_checks import BatchContext, intact_prefix
from streamlog.storage.segments.plain_run import Joined, joined_in_python, plain_run
from tests.records.checks.kernel_build import built_kernel
from tests.storage.batches import batch

PLACE = 1_000
"""Of the first batch in its file."""


def compiled() -> Joined:
    joined: Joined = built_kernel("streamlog_batches").joined
    return joined


IMPLEMENTATIONS = pytest.mark.parametrize(
    "made", [pytest.param(compiled, id="C"), pytest.param(lambda: joined_in_python, id="Python")]
)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[bytes], list[EpochEntry]]:
    """Sound batches from offset 100 on, and the table of their epochs."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    steps = draw(st.lists(st.integers(0, 2), min_size=len(counts), max_size=len(counts)))
    starts = accumulate(counts[:-1], initial=100)
    batches: list[bytes] = []
    table: list[EpochEntry] = []
    for start, count, epoch in zip(starts, counts, accumulate(steps), strict=True):
        batches.append(batch([b"v" * 30] * count, base_offset=start, epoch=epoch))
        if not table or table[-1].epoch < epoch:
            table.append(EpochEntry(LeaderEpoch(epoch), Offset(start)))
    return batches, table


def context(data: bytes, table: list[EpochEntry]) -> BatchContext:
    return BatchContext(
        path="log",
        position=PLACE,
        stop=PLACE + len(data),
        expected=Offset(100),
        bound=Offset(130),
        epochs=table,
        strict_epochs=True,
    )


@IMPLEMENTATIONS
@given(logs(), st.booleans())
def test_sound_batches_are_passed(
    made: Callable[[], Joined], log: tuple[list[bytes], list[EpochEntry]], from_the_index: bool
) -> None:
    batches, table = log
    data = b"".join(batches)
    counts = [int.from_bytes(one[57:61], "big") for one in batches]
    around = context(data, table)
    if from_the_index:
        around = replace(around, expected=Offset(0), first_last_offset=Offset(100 + counts[0] - 1))
    for place in accumulate(map(len, batches), initial=PLACE):
        run = plain_run(data, around, place, made())
        assert (run.end, run.next_offset) == (PLACE + len(data), 100 + sum(counts))
        assert run.offset_at is not None
    assert plain_run(data, around, PLACE + 1, made()).offset_at is None


FIELDS = {"base offset": (0, 8), "length": (8, 4), "leader epoch": (12, 4), "magic": (16, 1), "last offset": (23, 4)}


def changed(one: bytes, field: str, by: int, *, sealed: bool) -> bytes:
    """A number of the header is another; `sealed`: with a right CRC."""
    at, size = FIELDS[field]
    value = (int.from_bytes(one[at : at + size], "big") + by) % 256**size
    found = one[:at] + value.to_bytes(size, "big") + one[at + size :]
    return found[:17] + struct.pack(">I", crc32c(found[21:])) + found[21:] if sealed else found


DISTURBANCES = ("field", "bit", "table", "stop", "expected", "index", "bound", "previous epoch")


@st.composite
def disturbed_logs(draw: st.DrawFn) -> tuple[bytes, BatchContext, int]:
    """Bytes that may be damaged, what should hold for them, the position that is asked for."""
    batches, table = draw(logs())
    disturbed = draw(st.sets(st.sampled_from(DISTURBANCES), max_size=2))
    if "field" in disturbed:
        at, field = draw(st.integers(0, len(batches) - 1)), draw(st.sampled_from([*FIELDS]))
        by = draw(st.integers(-4, 4) | st.sampled_from([-(2**30), 2**30]))
        batches[at] = changed(batches[at], field, by, sealed=draw(st.booleans()))
    data = bytearray(b"".join(batches))
    if "bit" in disturbed:
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    if "table" in disturbed:
        table = [entry for entry in table if draw(st.booleans())]
    around = context(bytes(data), table)
    if "stop" in disturbed:
        around = replace(around, stop=PLACE + draw(st.integers(0, len(data))))
    if "expected" in disturbed:
        around = replace(around, expected=Offset(draw(st.integers(98, 102))))
    if "index" in disturbed:
        around = replace(around, first_last_offset=Offset(draw(st.integers(99, 103))))
    if "bound" in disturbed:
        around = replace(around, bound=Offset(draw(st.integers(100, 112))))
    if "previous epoch" in disturbed:
        around = replace(around, previous_epoch=LeaderEpoch(draw(st.integers(-1, 4))))
    return bytes(data), around, draw(st.integers(PLACE, around.stop))


@IMPLEMENTATIONS
@settings(max_examples=500)
@given(disturbed_logs())
def test_what_it_passes_the_whole_check_passes(
    made: Callable[[], Joined], log: tuple[bytes, BatchContext, int]
) -> None:
    data, around, asked = log
    run = plain_run(data, around, asked, made())
    intact, fault = intact_prefix(data, around)
    assert run.end <= intact.end
    if run.end == intact.end and intact.batches:
        assert run.next_offset == intact.next_offset
    if run.end == around.stop:
        assert fault is None
        places = {place: header.base_offset for place, header in intact.batches}
        assert run.offset_at == places.get(asked, intact.next_offset if asked == intact.end else None)


@settings(max_examples=1_000)
@given(disturbed_logs())
def test_both_find_the_same(log: tuple[bytes, BatchContext, int]) -> None:
    data, around, asked = log
    assert plain_run(data, around, asked, compiled()) == plain_run(data, around, asked, joined_in_python)


@IMPLEMENTATIONS
def test_numbers_that_only_an_attacker_writes(made: Callable[[], Joined]) -> None:
    one, table = batch([b"v"], base_offset=100, epoch=0), [EpochEntry(LeaderEpoch(0), Offset(0))]
    nowhere = one[:8] + struct.pack(">i", -12) + one[12:17] + bytes(4) + one[21:]  # it ends where it begins
    lengths = [changed(one, "length", by, sealed=False) for by in (-(2**31), 2**31 - len(one), 2**31 - 1)]
    for data in (nowhere, changed(one, "last offset", -2, sealed=True), *lengths):
        assert plain_run(data, context(data, table), PLACE, made()) == (PLACE, 100, 100)
    around = replace(context(one, table), expected=Offset(101), first_last_offset=Offset(100))
    assert plain_run(one, around, PLACE, made()).end == PLACE
    last = batch([b"v"], base_offset=INT64_MAX - 1, epoch=0)
    for data, end in ((last, len(last)), (changed(last, "last offset", 1, sealed=True), 0)):
        around = replace(context(data, table), expected=Offset(INT64_MAX - 1), bound=Offset(INT64_MAX))
        assert plain_run(data, around, PLACE, made()).end == PLACE + end


@IMPLEMENTATIONS
@pytest.mark.parametrize("size", [0, 1, 7, 8, 1_990, 2_100, 40_000, 1_500_000])
def test_batches_of_every_size(made: Callable[[], Joined], size: int) -> None:
    """Short ones are summed by the processor's instruction, long ones by the library; one may be longer than a call."""
    table = [EpochEntry(LeaderEpoch(3), Offset(100))]
    batches = [batch([bytes([at]) * size], base_offset=100 + at, epoch=3) for at in range(3)]
    data = b"".join(batches)
    assert plain_run(data, context(data, table), PLACE, made()) == (PLACE + len(data), 103, 100)
    places = [*accumulate(map(len, batches), initial=0)]
    for at in (21, len(batches[1]) // 2, len(batches[1]) - 1):  # of the bytes that the CRC covers
        damaged = bytearray(data)
        damaged[places[1] + at] ^= 0x10
        run = plain_run(bytes(damaged), context(data, table), PLACE, made())
        assert run == (PLACE + places[1], 101, 100)


def test_it_reads_nothing_behind_the_end() -> None:
    """What follows in memory would make an incomplete batch complete."""
    one, joined = batch([b"v" * 20], base_offset=0, epoch=0), compiled()
    for stop in range(len(one)):
        assert joined(one + one, 0, stop, 0, 9, 0, 0, crc32c)[0] == 0
    assert joined(one + one, 0, len(one), 0, 9, 0, 0, crc32c) == (len(one), 1, 0)


def test_arguments_that_are_none() -> None:
    one, joined = batch([b"v" * 3_000], base_offset=0, epoch=0), compiled()
    for numbers in ((-1, 9, 0, 9), (0, len(one) + 1, 0, 9), (0, 9, -1, 9), (0, 9, 0, -1)):
        with pytest.raises(ValueError, match="stop is in the bytes"):
            joined(one, *numbers, 0, 0, crc32c)
    with pytest.raises(TypeError):
        joined(memoryview(one), 0, 9, 0, 9, 0, 0, crc32c)  # type: ignore[arg-type]

    def fails(_: memoryview) -> int:
        raise LookupError

    with pytest.raises(LookupError):
        joined(one, 0, len(one), 0, 9, 0, 0, fails)
    with pytest.raises(OverflowError):
        joined(one, 0, len(one), 0, 9, 0, 0, lambda _: -1)
