"""What the queries of all pipelines have in common: append, a checkpoint of their own, the trigger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamlog.spark.pipelines.settings import AVAILABLE_NOW, Settings

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


def begun(writer: DataStreamWriter, settings: Settings, name: str) -> StreamingQuery:
    writer = writer.queryName(name).outputMode("append").option("checkpointLocation", settings.checkpoint(name))
    if settings["trigger"] == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif settings["trigger"]:
        writer = writer.trigger(processingTime=settings["trigger"])
    return writer.start()
