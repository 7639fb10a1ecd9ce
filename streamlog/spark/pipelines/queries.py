"""What the queries of all pipelines have in common: append, a checkpoint of their own, the trigger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamlog.spark.checkpoints import write_plain_files
from streamlog.spark.pipelines.settings import AVAILABLE_NOW, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


def begun(spark: SparkSession, writer: DataStreamWriter, settings: Settings, name: str) -> StreamingQuery:
    folder = settings.checkpoint(name)
    write_plain_files(spark, folder)
    writer = writer.queryName(name).outputMode("append").option("checkpointLocation", folder)
    if settings["trigger"] == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif settings["trigger"]:
        writer = writer.trigger(processingTime=settings["trigger"])
    return writer.start()
