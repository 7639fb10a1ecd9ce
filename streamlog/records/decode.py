"""Decode a batch to Record objects.

A few records are read one at a time (`record_loop`). From LOOP_COUNT_MAX on they are found by the column
(`columnar`) and then made into objects all at once, by calls that loop inside the interpreter: the price of an
object is then most of the price of a record. Values of one size are cut out by numpy, others by slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

import numpy as np

from streamlog.records.bounds import UNPACKED_BYTES_MAX
from streamlog.records.columnar import RecordColumns, columns_of
from streamlog.records.header import Buffer, check_crc, read_header, scan_headers
from streamlog.records.payload import unpacked_records
from streamlog.records.ragged import windows
from streamlog.records.record import Record
from streamlog.records.record_loop import read_records
from streamlog.records.varint import Int64Array

# Below so many records the fixed price of some fifty numpy calls is more than that of the loop.
LOOP_COUNT_MAX: Final = 48


def decode_batch(buffer: Buffer, position: int = 0, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> list[Record]:
    """The records of the batch at `position`, with absolute offsets and timestamps. The CRC is not checked.

    Raises CorruptMessageError (cut off, a damaged compressed stream), InvalidRecordError (fields that contradict
    one another), MessageTooLargeError (unpacks to more than the limit), UnsupportedCompressionError.
    """
    header = read_header(buffer, position)
    raw = unpacked_records(buffer, position, header, unpacked_bytes_max)
    if header.record_count <= LOOP_COUNT_MAX:
        return read_records(raw, header)
    return records_of(columns_of(raw, header))


def decode_records(
    buffer: Buffer, start: int, end: int, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX
) -> Iterator[Record]:
    """The records of all complete batches in `buffer[start:end]`, CRCs checked; see `scan_headers`.

    Control records are among them, as what they are: a reader of user data asks the batch's header.
    """
    for position, header in scan_headers(buffer, start, end):
        check_crc(buffer, position, header)
        yield from decode_batch(buffer, position, unpacked_bytes_max=unpacked_bytes_max)


def records_of(columns: RecordColumns) -> list[Record]:
    """An object for each record of the columns."""
    fields = zip(
        columns.offsets.tolist(),
        columns.timestamps.tolist(),
        _objects(columns.raw, columns.key_starts, columns.key_sizes),
        _objects(columns.raw, columns.value_starts, columns.value_sizes),
        repeat(()) if columns.headers is None else columns.headers,
        strict=False,
    )
    # Past Record's own constructor, which is a Python function: half the time.
    return list(map(tuple.__new__, repeat(Record), fields))


def _objects(raw: bytes, starts: Int64Array, sizes: Int64Array) -> Iterable[bytes | None]:
    """The strings at `raw[start : start + size]`; None for a size of -1. May be endless where all are the same."""
    smallest, largest = int(sizes.min()), int(sizes.max())
    if largest == -1:
        return repeat(None)
    if largest == 0 == smallest:
        return repeat(b"")
    if smallest == largest:
        same: list[bytes | None] = windows(np.frombuffer(raw, np.uint8), smallest)[starts].tolist()
        return same
    ends = (starts + sizes).tolist()
    strings: list[bytes | None] = [raw[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
    if smallest == -1:
        for index in np.flatnonzero(sizes < 0).tolist():
            strings[index] = None
    return strings
