"""On an executor: reads the ranges of offsets of one task, as Arrow batches.

A worker process of Spark runs one task after another; it keeps its consumer, with connections and cached metadata, for
the next one (by process and settings). The consumer follows leader changes and retries; it buffers at most
fetch.max.bytes, and drops records beyond the range's end.

    assign(starts, ends) --poll_batches--> rows, of each partition in order --> ... --all at the end--> assign(nothing)

All ranges of a task are read concurrently, from all their leaders; when records of one turn out to be deleted (by
retention, or with their topic), the rest is read range by range. Deleted records are an error or skipped, by
failOnDataLoss. A range's end existed when it was planned, so waiting for it longer than default.api.timeout.ms is an
error as well.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from streamlog.client import Consumer
from streamlog.config import load_consumer
from streamlog.config.settings.consumer_settings import DEFAULT_API_TIMEOUT_MS
from streamlog.errors import (
    LogTruncatedError,
    OffsetOutOfRangeError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)
from streamlog.model import Offset, TopicPartition
from streamlog.ports.malloc import keep_large_blocks
from streamlog.spark.failures import DataLossError
from streamlog.spark.runtime.loop import loop_thread
from streamlog.spark.source.planning import Range
from streamlog.spark.source.rows import BATCH_BYTES, Rows

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_GONE: Final = (OffsetOutOfRangeError, LogTruncatedError, UnknownTopicOrPartitionError)
# Of one process, by its id: a forked child must not use its parent's.
_consumers: dict[tuple[int, frozenset[tuple[str, str]]], Consumer] = {}


def read_ranges(
    settings: dict[str, str], wanted: Sequence[Range], columns: Sequence[str], *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Each range is of another partition. DataLossError, StreamlogError."""
    consumer = _consumer(settings)
    try:
        left = wanted
        if len(wanted) > 1:
            rows = {one.partition: Rows(one.partition, columns) for one in wanted}
            try:
                yield from _rows_of(consumer, wanted, rows, _patience_s(settings))
                left = ()
            except _GONE:
                left = _rest(wanted, rows)
            for each in rows.values():
                yield from each.rest()
        for one in left:
            yield from _read_alone(consumer, one, columns, _patience_s(settings), fail_on_data_loss=fail_on_data_loss)
    except BaseException:
        _drop(settings)  # its state is unknown
        raise
    consumer.assign({})


def _rest(wanted: Sequence[Range], rows: Mapping[TopicPartition, Rows]) -> list[Range]:
    """The parts that have not been read."""
    begins = [(one, max(one.start, rows[one.partition].next_offset)) for one in wanted]
    return [Range(one.partition, Offset(at), one.end) for one, at in begins if at < one.end]


def _read_alone(
    consumer: Consumer, wanted: Range, columns: Sequence[str], patience_s: float, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    rows = Rows(wanted.partition, columns)
    left: int | None = wanted.start
    while left is not None:
        start = left
        try:
            range_left = Range(wanted.partition, Offset(start), wanted.end)
            yield from _rows_of(consumer, [range_left], {wanted.partition: rows}, patience_s)
            left = None
        except _GONE as error:
            if fail_on_data_loss:
                what = f"{wanted.partition}, offsets {wanted.start} to {wanted.end - 1}: {error}"
                raise DataLossError(what) from None
            left = _next_start(consumer, wanted, max(start, rows.next_offset), error)
    yield from rows.rest()


def _rows_of(
    consumer: Consumer, wanted: Sequence[Range], rows: Mapping[TopicPartition, Rows], patience_s: float
) -> Iterator[pa.RecordBatch]:
    """The last rows may remain in `rows`."""
    ends: dict[TopicPartition | tuple[str, int], int] = {one.partition: one.end for one in wanted}
    consumer.assign({one.partition: one.start for one in wanted}, ends=ends)
    left = len(ends)
    while left and (batches := consumer.poll_batches(ends, bytes_max=BATCH_BYTES, timeout_s=patience_s)):
        for batch in batches:
            partition = TopicPartition(batch.topic, batch.partition)
            yield from rows[partition].add(batch, ends[partition])
            left -= batch.next_offset >= ends[partition]


def _next_start(consumer: Consumer, wanted: Range, at: int, error: StreamlogError) -> int | None:
    """Where the rest of the range after `at` starts; None: nothing of it exists."""
    _log.warning("%s: %s; these records are skipped, since failOnDataLoss is false", wanted.partition, error)
    if not isinstance(error, OffsetOutOfRangeError):
        return None
    earliest = consumer.beginning_offsets([wanted.partition])[wanted.partition]
    return earliest if at < earliest < wanted.end else None


def _patience_s(settings: dict[str, str]) -> float:
    return load_consumer(settings).config[DEFAULT_API_TIMEOUT_MS] / 1_000


def _consumer(settings: dict[str, str]) -> Consumer:
    name = _name(settings)
    if name not in _consumers:
        _consumers[name] = Consumer(settings, thread=loop_thread())
        # Spark runs the garbage collector after each task: 10 % of the time of a task of 30 MB was spent on scanning
        # modules. All objects of now are exempted.
        gc.freeze()
        keep_large_blocks()  # a tenth of the CPU time was spent on page faults
    return _consumers[name]


def _drop(settings: dict[str, str]) -> None:
    consumer = _consumers.pop(_name(settings), None)
    if consumer is not None:
        consumer.close()


def _name(settings: dict[str, str]) -> tuple[int, frozenset[tuple[str, str]]]:
    return os.getpid(), frozenset(settings.items())
