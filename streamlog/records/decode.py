"""Decode a batch to Record objects.

The optional kernel checks them all, and makes each object when it is taken (`checks.kernel`). Without it a few records
are read one at a time (`record_loop`). From LOOP_COUNT_MAX on they are decoded by column (`columnar`), which also
checks them all, and then turned into objects by calls that loop inside the interpreter. The object is most of the cost
of a record, less so when it is freed before the next is created: `iter_batch` yields them a few at a time, without a
list of all for the garbage collector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any, Final, TypeAlias, TypeVar

from streamlog.records.checks import kernel
from streamlog.records.columns.columnar import RecordColumns, columns_of
from streamlog.records.columns.lazy_numpy import np
from streamlog.records.columns.ragged import equal_strings
from streamlog.records.compression.bounds import UNPACKED_BYTES_MAX
from streamlog.records.header import BatchHeader, Buffer, TimestampType, check_crc, read_header, scan_headers
from streamlog.records.payload import unpacked_records
from streamlog.records.record import Headers, Record
from streamlog.records.record_loop import read_records
from streamlog.records.varint import Int64Array

Fields: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]
Row = TypeVar("Row", bound=tuple[Any, ...])

# Up to this many records the fixed cost of some fifty numpy calls is higher than that of the loop.
LOOP_COUNT_MAX: Final = 48


# Records that an iterator creates at a time: enough to amortize the calls, few enough for the cache.
_CHUNK_COUNT: Final = 1024


def decode_batch(buffer: Buffer, position: int = 0, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> list[Record]:
    """The records of the batch at `position`, with absolute offsets and timestamps. The CRC is not checked.

    Raises CorruptMessageError (incomplete, a damaged compressed stream), InvalidRecordError (fields that contradict
    one another), MessageTooLargeError (unpacks to more than the limit), UnsupportedCompressionError.
    """
    return list(iter_batch(buffer, position, unpacked_bytes_max=unpacked_bytes_max))


def iter_batch(buffer: Buffer, position: int = 0, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> Iterator[Record]:
    """As `decode_batch`, a record at a time. Errors are raised by the call, before the first record."""
    return iter_rows(Record, (), buffer, position, unpacked_bytes_max=unpacked_bytes_max)


def iter_fields(buffer: Buffer, position: int = 0, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> Iterator[Fields]:
    """As `iter_batch`, but plain tuples with the fields of Record, to be unpacked in a `for`: half the time."""
    return iter_rows(tuple, (), buffer, position, unpacked_bytes_max=unpacked_bytes_max)


def iter_rows(
    kind: type[Row],
    head: tuple[Any, ...],
    buffer: Buffer,
    position: int = 0,
    *,
    unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
) -> Iterator[Row]:
    """As `iter_fields`, each as a `kind` of tuple, after the values of `head`, at most 8: built at once, without a
    second tuple for each record.
    """
    header = read_header(buffer, position)
    raw = unpacked_records(buffer, position, header, unpacked_bytes_max)
    rows = _in_kernel(raw, header, head, kind)
    if rows is not None:
        return rows
    if header.record_count <= LOOP_COUNT_MAX:
        rows = iter([head + record for record in read_records(raw, header)])
    else:
        rows = chain.from_iterable(_chunks(columns_of(raw, header), head))
    # Without a named tuple's own constructor, which is a Python function: half the time.
    return rows if kind is tuple else map(tuple.__new__, repeat(kind), rows)


def _in_kernel(raw: bytes, header: BatchHeader, head: tuple[Any, ...], kind: type[Row]) -> Iterator[Any] | None:
    """None: it is not installed, or the records are not valid, which the other ways find again."""
    if kernel.rows is None:
        return None
    appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    time = header.max_timestamp if appended else header.base_timestamp
    return kernel.rows(
        raw, header.record_count, header.base_offset, header.last_offset_delta, time, appended, head, kind
    )


def iter_batches(
    buffer: Buffer, start: int, end: int, *, unpacked_bytes_max: int = UNPACKED_BYTES_MAX
) -> Iterator[Record]:
    """The records of all complete batches in `buffer[start:end]`, CRCs checked; see `scan_headers`.

    Control records are included: readers of user data check the batch's header.
    """
    for position, header in scan_headers(buffer, start, end):
        check_crc(buffer, position, header)
        yield from iter_batch(buffer, position, unpacked_bytes_max=unpacked_bytes_max)


def _chunks(columns: RecordColumns, head: tuple[Any, ...] = ()) -> Iterator[Iterator[Any]]:
    """Tuples of `head` and Fields."""
    raw, constants = columns.raw, [repeat(value) for value in head]
    for start in range(0, len(columns), _CHUNK_COUNT):
        rows = slice(start, start + _CHUNK_COUNT)
        yield zip(
            *constants,
            _offsets(columns.offsets[rows]),
            _timestamps(columns.timestamps[rows]),
            _strings(raw, columns.key_starts[rows], columns.key_sizes[rows]),
            _strings(raw, columns.value_starts[rows], columns.value_sizes[rows]),
            repeat(()) if columns.headers is None else columns.headers[rows],
            strict=False,  # columns with one value for all are endless
        )


def _offsets(offsets: Int64Array) -> Iterable[int]:
    first, last = int(offsets[0]), int(offsets[-1])
    # They rise strictly, so they are contiguous if first and last are.
    return range(first, last + 1) if last - first == len(offsets) - 1 else offsets.tolist()


def _timestamps(timestamps: Int64Array) -> Iterable[int]:
    """Endless where all are the same."""
    smallest = int(timestamps.min())
    return repeat(smallest) if smallest == int(timestamps.max()) else timestamps.tolist()


def _strings(raw: bytes, starts: Int64Array, sizes: Int64Array) -> Iterable[bytes | None]:
    """The strings at `raw[start : start + size]`; None for a size of -1. Endless where all are null or empty."""
    smallest, largest = int(sizes.min()), int(sizes.max())
    if largest == -1:
        return repeat(None)
    if largest == 0 == smallest:
        return repeat(b"")
    if smallest == largest:
        return equal_strings(raw, starts, smallest)
    ends = (starts + sizes).tolist()
    strings: list[bytes | None] = [raw[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
    if smallest == -1:
        for index in np.flatnonzero(sizes < 0).tolist():
            strings[index] = None
    return strings
