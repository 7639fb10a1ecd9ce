"""The ranges that a task reads, as sent by Spark from the driver to an executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from streamlog.spark.failures import hiding_tracebacks
from streamlog.spark.source.planning import Range

if TYPE_CHECKING:
    import pyarrow as pa


class TaskRanges(InputPartition):
    def __init__(self, wanted: tuple[Range, ...]) -> None:
        super().__init__(wanted)


def read_task(
    partition: InputPartition, settings: dict[str, str], columns: Sequence[str], *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Yields nothing for the placeholder partition that Spark creates where there are none."""
    if not isinstance(partition, TaskRanges):
        return
    # Imported here: the driver does not need it.
    from streamlog.spark.source.range_reader import read_ranges

    with hiding_tracebacks():
        yield from read_ranges(settings, partition.value, columns, fail_on_data_loss=fail_on_data_loss)
