"""Record batches as Arrow batches, column by column, without Python objects for records.

    ConsumerBatch --decode--> RecordColumns --cut to the range--> columns --Rows--> pyarrow.RecordBatch

Small record batches are combined: an Arrow batch costs Spark the same, be it of one row or a thousand. Bytes are copied
once. Headers are the exception: they become Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamlog.client import ConsumerBatch
from streamlog.model import TopicPartition
from streamlog.records import BinaryColumn, RecordColumns, TimestampType, join_strings
from streamlog.spark.source.schema import HEADERS, arrow_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The target size of an Arrow batch, in bytes of keys and values, and in rows: large enough to make its fixed cost (some
# 0.2 ms on both sides of the socket) negligible, small enough for the memory of a task.
BATCH_BYTES: Final = 2 << 20
BATCH_ROWS: Final = 65_536

_KAFKA_TIMESTAMP_TYPE: Final = {TimestampType.CREATE_TIME: 0, TimestampType.LOG_APPEND_TIME: 1}


class Rows:
    """Collects one partition's records, in order: `add` returns full Arrow batches, `rest` the last one."""

    def __init__(self, partition: TopicPartition, columns: Sequence[str]) -> None:
        self._partition = partition
        self._columns = tuple(columns)
        self._schema = arrow_schema(columns)
        self._parts: list[tuple[RecordColumns, int]] = []  # with the timestamps' type
        self._size = self._rows = 0
        self._same: dict[str, pa.Array] = {}  # constant columns: kept at the maximum length, and sliced
        self.next_offset = 0  # one past the last offset added

    def add(self, batch: ConsumerBatch, end: int) -> Iterator[pa.RecordBatch]:
        """Adds its records before offset `end`."""
        self.next_offset = batch.next_offset
        records = _before(batch.columns(), end)
        if not len(records):
            return
        for start in range(0, len(records), BATCH_ROWS):
            part = records if len(records) <= BATCH_ROWS else _rows(records, slice(start, start + BATCH_ROWS))
            size = len(part.raw) * len(part) // len(records)
            if self._parts and (self._size + size > BATCH_BYTES or self._rows + len(part) > BATCH_ROWS):
                yield from self.rest()
            self._parts.append((part, _KAFKA_TIMESTAMP_TYPE[batch.timestamp_type]))
            self._size += size
            self._rows += len(part)
        if self._size >= BATCH_BYTES or self._rows >= BATCH_ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        if self._parts:
            arrays = [self._array(name) for name in self._columns]
            self._parts, self._size, self._rows = [], 0, 0
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str) -> pa.Array:
        match name:
            case "key":
                return _binary(join_strings([records.keys for records, _ in self._parts]))
            case "value":
                return _binary(join_strings([records.values for records, _ in self._parts]))
            case "topic":
                return self._repeated(name, pa.scalar(self._partition.topic, pa.string()))
            case "partition":
                return self._repeated(name, pa.scalar(self._partition.partition, pa.int32()))
            case "offset":
                return pa.array(_whole([records.offsets for records, _ in self._parts]))
            case "timestamp":
                times = _whole([records.timestamps for records, _ in self._parts]) * 1_000
                return pa.array(times).cast(pa.timestamp("us", "UTC"))
            case "timestampType":
                kinds = {kind for _, kind in self._parts}
                if len(kinds) == 1:
                    (kind,) = kinds
                    return self._repeated(f"{name} {kind}", pa.scalar(kind, pa.int32()))
                return pa.array(_whole([np.full(len(records), kind, np.int32) for records, kind in self._parts]))
            case _:
                return self._headers()

    def _repeated(self, name: str, value: pa.Scalar) -> pa.Array:
        known = self._same.get(name)
        if known is None or len(known) < self._rows:
            known = self._same[name] = pa.repeat(value, self._rows)
        return known.slice(0, self._rows)

    def _headers(self) -> pa.Array:
        kind = self._schema.field(HEADERS).type
        if all(records.headers is None for records, _ in self._parts):
            return pa.nulls(self._rows, kind)
        rows: list[list[dict[str, object]] | None] = []
        for records, _ in self._parts:
            each = records.headers if records.headers is not None else [()] * len(records)
            rows += [[{"key": _utf8(key), "value": value} for key, value in one] or None for one in each]
        return pa.array(rows, kind)


def _utf8(name: str) -> str:
    """The log may have names that are not UTF-8; a column of text cannot."""
    return name.encode("utf-8", "replace").decode()


def _before(records: RecordColumns, end: int) -> RecordColumns:
    if len(records) and records.offsets[-1] >= end:
        return _rows(records, slice(0, int(np.searchsorted(records.offsets, end))))
    return records


def _rows(records: RecordColumns, rows: slice) -> RecordColumns:
    return RecordColumns(
        raw=records.raw,
        offsets=records.offsets[rows],
        timestamps=records.timestamps[rows],
        key_starts=records.key_starts[rows],
        key_sizes=records.key_sizes[rows],
        value_starts=records.value_starts[rows],
        value_sizes=records.value_sizes[rows],
        headers=None if records.headers is None else records.headers[rows],
    )


def _whole(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _binary(column: BinaryColumn) -> pa.Array:
    bitmap = column.validity_bitmap()
    return pa.BinaryArray.from_buffers(
        pa.binary(),
        len(column),
        [None if bitmap is None else pa.py_buffer(bitmap), pa.py_buffer(column.offsets), pa.py_buffer(column.data)],
    )
