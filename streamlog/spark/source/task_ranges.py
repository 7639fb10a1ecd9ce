"""What a task is told to read: ranges, as Spark carries them from the driver to an executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from streamlog.spark.failures import telling
from streamlog.spark.source.planning import Range

if TYPE_CHECKING:
    import pyarrow as pa


class TaskRanges(InputPartition):
    def __init__(self, wanted: tuple[Range, ...]) -> None:
        super().__init__(wanted)


def read_task(
    partition: InputPartition, settings: dict[str, str], columns: Sequence[str], *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Nothing for the partition that Spark makes up where there are none."""
    if not isinstance(partition, TaskRanges):
        return
    # Loaded where it is needed: the driver plans without.
    from streamlog.spark.source.range_reader import read_ranges

    with telling():
        yield from read_ranges(settings, partition.value, columns, fail_on_data_loss=fail_on_data_loss)
