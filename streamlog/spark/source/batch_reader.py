"""The batch reader: from startingOffsets to endingOffsets, resolved when the query is planned."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from streamlog.model import Offset, TopicPartition
from streamlog.spark.failures import DataLossError, OptionError, without_traceback
from streamlog.spark.options import Options
from streamlog.spark.source.cluster_offsets import ClusterOffsets, consumer_settings
from streamlog.spark.source.offsets import Offsets
from streamlog.spark.source.planning import Bounds, ranges, settled, tasks
from streamlog.spark.source.starts import EARLIEST, check_starts, ending, starting
from streamlog.spark.source.task_ranges import TaskRanges, read_task

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        cluster = ClusterOffsets(self._options)
        try:
            start, end = self._plan(cluster)
            whole = ranges(start, end)
            planned = tasks(
                whole,
                at_least=self._options.number("minPartitions"),
                records_max=self._options.number("maxRecordsPerPartition"),
                bytes_each=lambda: cluster.mean_bytes_if_allowed(one.partition.topic for one in whole),
            )
        finally:
            cluster.close()
        return [TaskRanges(some) for some in planned]

    def _plan(self, cluster: ClusterOffsets) -> tuple[Offsets, Offsets]:
        there = cluster.required_partitions()
        if not there:
            return {}, {}
        wanted = starting(self._options, there, cluster, default=EARLIEST)
        end = ending(self._options, there, cluster)
        bounds = cluster.bounds(there)
        _check_ends(end, bounds)
        check_starts(self._options, wanted, bounds)
        found = settled(wanted, bounds)
        if found.losses and self._options.truth("failOnDataLoss"):
            raise DataLossError("; ".join(found.losses[:3]))
        for loss in found.losses:
            _log.warning("%s; these records are skipped, since failOnDataLoss is false", loss)
        return found.start, end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settings = consumer_settings(self._options)
        return read_task(partition, settings, self._columns, fail_on_data_loss=self._options.truth("failOnDataLoss"))


def _check_ends(end: dict[TopicPartition, Offset], bounds: dict[TopicPartition, Bounds]) -> None:
    """OptionError: a requested range must exist."""
    for one in sorted(end):
        if end[one] > bounds[one].latest:
            raise OptionError("endingOffsets", f"{one} ends at {bounds[one].latest}, before the requested {end[one]}")
