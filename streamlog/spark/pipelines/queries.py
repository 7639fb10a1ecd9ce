"""Starts the queries of all pipelines: output mode append, a checkpoint each, the trigger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import IllegalArgumentException, PySparkException

from streamlog.spark.failures import OptionError
from streamlog.spark.pipelines.settings import AVAILABLE_NOW, PipelineSettings
from streamlog.spark.runtime.checkpoints import write_plain_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


@contextmanager
def refusing(setting: str, reason: str) -> Iterator[None]:
    """Raises OptionError where Spark refuses the setting's value; Spark's other errors pass."""
    try:
        yield
    except PySparkException as error:
        if error.getCondition() is None and not isinstance(error, IllegalArgumentException):
            raise
        raise OptionError(setting, reason) from None


def start_query(spark: SparkSession, writer: DataStreamWriter, settings: PipelineSettings, name: str) -> StreamingQuery:
    """OptionError."""
    folder = settings.checkpoint(name)
    write_plain_files(spark, folder)
    writer = writer.queryName(name).outputMode("append").option("checkpointLocation", folder)
    if settings["trigger"] == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif settings["trigger"]:
        reason = f"must be {AVAILABLE_NOW} or a duration such as 10 seconds, not {settings['trigger']}"
        with refusing("trigger", reason):
            writer = writer.trigger(processingTime=settings["trigger"])
    return writer.start()
