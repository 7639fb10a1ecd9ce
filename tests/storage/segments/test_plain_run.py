"""The quick check of batches that join agrees with the whole one, whatever the bytes are."""

from __future__ import annotations

import struct
from itertools import accumulate

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streamlog.model import LeaderEpoch, Offset
from streamlog.storage.files.checkpoints import EpochEntry
from streamlog.storage.segments.batch_checks import BatchContext, intact_prefix, plain_run
from tests.storage.batches import batch

PLACE = 1_000
"""Of the first batch in its file."""


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


@given(logs(), st.booleans())
def test_sound_batches_are_passed(log: tuple[list[bytes], list[EpochEntry]], from_the_index: bool) -> None:
    batches, table = log
    data = b"".join(batches)
    counts = [int.from_bytes(one[57:61], "big") for one in batches]
    around = context(data, table)
    if from_the_index:
        around = replace(around, expected=Offset(0), first_last_offset=Offset(100 + counts[0] - 1))
    for place in accumulate(map(len, batches), initial=PLACE):
        run = plain_run(data, around, place)
        assert (run.end, run.next_offset) == (PLACE + len(data), 100 + sum(counts))
        assert run.offset_at is not None
    assert plain_run(data, around, PLACE + 1).offset_at is None


FIELDS = {"base offset": (0, 8), "length": (8, 4), "leader epoch": (12, 4), "magic": (16, 1), "last offset": (23, 4)}


def changed(one: bytes, field: str, by: int, *, sealed: bool) -> bytes:
    """A number of the header is another; `sealed`: with a right CRC."""
    at, size = FIELDS[field]
    value = (int.from_bytes(one[at : at + size], "big") + by) % 256**size
    found = one[:at] + value.to_bytes(size, "big") + one[at + size :]
    return found[:17] + struct.pack(">I", crc32c(found[21:])) + found[21:] if sealed else found


DISTURBANCES = ("field", "bit", "table", "stop", "expected", "index", "bound", "previous epoch")


@settings(max_examples=500)
@given(logs(), st.sets(st.sampled_from(DISTURBANCES), max_size=2), st.data())
def test_what_it_passes_the_whole_check_passes(
    log: tuple[list[bytes], list[EpochEntry]], disturbed: set[str], drawn: st.DataObject
) -> None:
    batches, table = log
    draw = drawn.draw
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
    asked = draw(st.integers(PLACE, around.stop))
    run = plain_run(bytes(data), around, asked)
    intact, fault = intact_prefix(bytes(data), around)
    assert run.end <= intact.end
    if run.end == intact.end and intact.batches:
        assert run.next_offset == intact.next_offset
    if run.end == around.stop:
        assert fault is None
        places = {place: header.base_offset for place, header in intact.batches}
        assert run.offset_at == places.get(asked, intact.next_offset if asked == intact.end else None)


def test_numbers_that_only_an_attacker_writes() -> None:
    one, table = batch([b"v"], base_offset=100, epoch=0), [EpochEntry(LeaderEpoch(0), Offset(0))]
    nowhere = one[:8] + struct.pack(">i", -12) + one[12:17] + bytes(4) + one[21:]  # it ends where it begins
    for data in (nowhere, changed(one, "last offset", -2, sealed=True)):
        assert plain_run(data, context(data, table), PLACE) == (PLACE, 100, 100)
    around = replace(context(one, table), expected=Offset(101), first_last_offset=Offset(100))
    assert plain_run(one, around, PLACE).end == PLACE
