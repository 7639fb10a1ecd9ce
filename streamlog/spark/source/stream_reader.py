"""The streaming source, at the driver: one process as long as the query runs. Spark calls, in this order:

    initialOffset        at the first start, and again if the first micro-batch is restarted
    latestOffset         the end of the next micro-batch; the start itself: there are no records, Spark calls again
    partitions           the tasks of a micro-batch
    reportLatestOffset   the latest offsets, for Spark's progress

A micro-batch that is restarted after a failure must have the same rows. Spark has stored its end before, and its start
as the previous end, but neither `initialOffset` nor the first offset of new partitions. So these are part of the end
(`offsets`), and `partitions` uses only stored values.

When idle, `latestOffset` waits for records instead of querying (`cluster_offsets`), up to _HOLD_S, which can delay a
stop of the query; every _REFRESH_S it queries for new and deleted partitions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from streamlog.model import Offset, TopicPartition
from streamlog.spark.failures import DataLossError, without_traceback
from streamlog.spark.options import Options
from streamlog.spark.source.cluster_offsets import ClusterOffsets, consumer_settings
from streamlog.spark.source.offsets import Offsets, begin_of, from_json, to_json
from streamlog.spark.source.planning import Range, capped, settled, tasks, total
from streamlog.spark.source.starts import LATEST, check_starts, starting
from streamlog.spark.source.task_ranges import TaskRanges, read_task

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_HOLD_S: Final = 0.5
_REFRESH_S: Final = 5.0
_DELAY_MS: Final = 15 * 60_000  # maxTriggerDelay, as Kafka's source has it


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._cluster = ClusterOffsets(options)
        self._initial: dict[str, Any] | None = None
        self._target: dict[TopicPartition, Offset] | None = None  # of Trigger.AvailableNow
        self._latest: Offsets = {}  # as of the last query
        self._idle_at: dict[str, Any] | None = None  # the start after which there were no records
        self._asked_at = 0.0
        self._advanced_at = time.monotonic()

    # Offsets.

    @without_traceback
    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            there = self._cluster.required_partitions()
            self._initial = to_json(starting(self._options, there, self._cluster, default=LATEST) if there else {})
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if (rows := options.number("maxOffsetsPerTrigger")) is not None:
            return ReadMaxRows(rows)
        if (size := options.number("maxBytesPerTrigger")) is not None:
            return ReadMaxBytes(size)
        if (rows := options.number("minOffsetsPerTrigger")) is not None:
            return ReadMinRows(rows)
        return ReadAllAvailable()

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:
        there = self._cluster.partitions()
        self._target = self._cluster.latest(there) if there else {}

    @without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self._target is None and self._is_idle(start):
            return start
        self._asked_at = time.monotonic()
        before = from_json(start)
        bounds = self._cluster.bounds(self._cluster.partitions(), before)
        self._latest = {one: at.latest for one, at in bounds.items()}
        first = start == self._initial
        if first:
            check_starts(self._options, before, bounds)
        found = settled(before, bounds)
        self._lose(found.losses)
        end = self._end_of(found.start, limit)
        # A new partition is added with its first records, so that no micro-batch is empty.
        end = {one: at for one, at in end.items() if one in before or at > found.start[one]}
        self._idle_at = start if end == before else None
        if end == before and not first:
            return start
        self._advanced_at = time.monotonic()
        begin = {one: at for one, at in found.begin.items() if one in end}
        return to_json(end, before | begin if first else begin)

    def _is_idle(self, start: dict[str, Any]) -> bool:
        """Whether no record arrived after `start` within _HOLD_S."""
        due = time.monotonic() - self._asked_at >= _REFRESH_S
        if due or self._idle_at is None or start != self._idle_at:
            return False
        return not self._cluster.wait_for_records(self._latest, timeout_s=_HOLD_S)

    def _end_of(self, start: Offsets, limit: ReadLimit) -> dict[TopicPartition, Offset]:
        end = {one: max(at, self._latest[one]) for one, at in start.items()}
        if self._target is not None:
            end = {one: max(start[one], min(at, self._target.get(one, start[one]))) for one, at in end.items()}
        elif not isinstance(limit, ReadAllAvailable) and self._holds_back(total(start, end)):
            return dict(start)
        match limit:
            case ReadMaxRows(max_rows=rows):
                return capped(start, end, rows)
            case ReadMaxBytes(max_bytes=size):
                mean = self._cluster.mean_bytes(one.topic for one in end)
                return end if mean is None else capped(start, end, max(1, int(size / mean)))
            case _:
                return end

    def _holds_back(self, waiting: int) -> bool:
        """Whether it is too early for a micro-batch with so few records."""
        least = self._options.number("minOffsetsPerTrigger")
        delay_ms = self._options.number("maxTriggerDelay")
        patience_s = (_DELAY_MS if delay_ms is None else delay_ms) / 1_000
        return least is not None and waiting < least and time.monotonic() - self._advanced_at < patience_s

    def _lose(self, losses: Sequence[str]) -> None:
        if losses and self._options.truth("failOnDataLoss"):
            raise DataLossError("; ".join(losses[:3]))
        for loss in losses:
            _log.warning("%s; these records are skipped, since failOnDataLoss is false", loss)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self._latest) if self._latest else None

    # Tasks.

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, last = self._stored_start(start, end), from_json(end)
        whole = [Range(one, first[one], last[one]) for one in sorted(last) if first[one] < last[one]]
        planned = tasks(
            whole,
            at_least=self._options.number("minPartitions"),
            records_max=self._options.number("maxRecordsPerPartition"),
            bytes_each=lambda: self._cluster.mean_bytes_if_allowed(one.partition.topic for one in whole),
        )
        return [TaskRanges(some) for some in planned]

    def _stored_start(self, start: dict[str, Any], end: dict[str, Any]) -> dict[TopicPartition, Offset]:
        """Of all partitions in `end`. Earlier releases stored no begin of those that were new in the first micro-batch:
        these are read from their first record.
        """
        found = begin_of(end) if start == self._initial else from_json(start) | begin_of(end)
        missing = [one for one in from_json(end) if one not in found]
        return found | (self._cluster.earliest(missing) if missing else {})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settings = consumer_settings(self._options)
        return read_task(partition, settings, self._columns, fail_on_data_loss=self._options.truth("failOnDataLoss"))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the query's position is in its checkpoint."""

    def stop(self) -> None:
        self._cluster.close()
