"""On an executor: one range of offsets, as Arrow batches.

A worker process of Spark's reads one range after another; it keeps its consumer, with the connections and what it
knows of the cluster, for the next (never sent anywhere: by process and settings). The consumer follows leaders and
asks again; it holds fetch.max.bytes at most, and what has been asked for beyond the range's end is dropped.

    assign(start) --poll_batches--> rows --> ... --position at the end--> assign(nothing)

What is gone (retention or a deleted topic, meanwhile) is an error or is left out, as failOnDataLoss says. A range's end
was read before it was planned, so waiting for it longer than default.api.timeout.ms is an error as well.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from streamlog.client import Consumer
from streamlog.config import load_consumer
from streamlog.config.consumer_settings import DEFAULT_API_TIMEOUT_MS
from streamlog.errors import (
    LogTruncatedError,
    OffsetOutOfRangeError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)
from streamlog.spark.failures import DataLossError
from streamlog.spark.loop import loop_thread
from streamlog.spark.planning import Range
from streamlog.spark.rows import BATCH_BYTES, Rows

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_GONE: Final = (OffsetOutOfRangeError, LogTruncatedError, UnknownTopicOrPartitionError)
# Of one process, by its id: a forked child must not use its parent's.
_consumers: dict[tuple[int, frozenset[tuple[str, str]]], Consumer] = {}


def read_range(
    settings: dict[str, str], wanted: Range, columns: Sequence[str], *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """DataLossError, StreamlogError."""
    consumer = _consumer(settings)
    try:
        rows = Rows(wanted.partition, columns)
        left: int | None = wanted.start
        while left is not None:
            start = left
            try:
                consumer.assign({wanted.partition: start}, ends={wanted.partition: wanted.end})
                yield from _rows_to(consumer, wanted, rows, _patience_s(settings))
                left = None
            except _GONE as error:
                if fail_on_data_loss:
                    what = f"{wanted.partition}, offsets {wanted.start} to {wanted.end - 1}: {error}"
                    raise DataLossError(what) from None
                left = _next_start(consumer, wanted, max(start, rows.next_offset), error)
        yield from rows.rest()
    except BaseException:
        _drop(settings)  # in what state it is nobody knows
        raise
    consumer.assign({})


def _rows_to(consumer: Consumer, wanted: Range, rows: Rows, patience_s: float) -> Iterator[pa.RecordBatch]:
    while True:
        batches = consumer.poll_batches(wanted.partition, wanted.end, bytes_max=BATCH_BYTES, timeout_s=patience_s)
        if not batches:
            return
        for batch in batches:
            yield from rows.add(batch, wanted.end)
        if batches[-1].next_offset >= wanted.end:
            return


def _next_start(consumer: Consumer, wanted: Range, at: int, error: StreamlogError) -> int | None:
    """Where what is left of the range beyond `at` begins; None: there is nothing left of it."""
    _log.warning("%s: %s; going on without, since failOnDataLoss is false", wanted.partition, error)
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
    return _consumers[name]


def _drop(settings: dict[str, str]) -> None:
    consumer = _consumers.pop(_name(settings), None)
    if consumer is not None:
        consumer.close()


def _name(settings: dict[str, str]) -> tuple[int, frozenset[tuple[str, str]]]:
    return os.getpid(), frozenset(settings.items())
