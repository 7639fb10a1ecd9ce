"""Lines of logs, counted: by window of time, level and component; to a topic, to Parquet, or to both.

    "2026-11-21T14:59:11.407 INFO  [SocketServer] ..." -> (time, INFO, SocketServer) -> counts of a window
    window is over, and the watermark past it: one record, one row, once

A line that is of another form counts by the time of its record, as level UNKNOWN. A window is told when the lines that
have been seen are `watermark` beyond its end; what comes later than that is left out, as the progress tells. The topic
and the Parquet files are two queries, each with its own place in the checkpoint, so one may be behind the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from streamlog.spark.failures import OptionError
from streamlog.spark.pipelines.queries import begun
from streamlog.spark.pipelines.settings import COMMON, Setting, Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SETTINGS: Final = (
    *COMMON,
    Setting("topics", None, "Topics of log lines, separated by commas."),
    Setting("starting.offsets", "earliest", "Where to begin at the first start: earliest or latest."),
    Setting("window", "1 minute", "How long a window is."),
    Setting("watermark", "10 minutes", "How late a line may be."),
    Setting("out.topic", "", "A topic for the counts, as JSON."),
    Setting("out.path", "", "A folder or URL for the counts, as Parquet by day."),
)
READS: Final = "topics"
WRITES: Final = "out.topic"

_LINE: Final = r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{3}) +([A-Z]+) +\[([^\]]*)\]"


def parsed(lines: DataFrame) -> DataFrame:
    """time, level, component of each."""
    text = F.col("value").cast("string")
    time = F.try_to_timestamp(F.regexp_replace(F.regexp_extract(text, _LINE, 1), ",", "."))
    return lines.select(
        F.coalesce(time, F.col("timestamp")).alias("time"),
        F.when(time.isNull(), F.lit("UNKNOWN")).otherwise(F.regexp_extract(text, _LINE, 2)).alias("level"),
        F.when(time.isNull(), F.lit("")).otherwise(F.regexp_extract(text, _LINE, 3)).alias("component"),
    )


def counts(events: DataFrame, window: str, watermark: str) -> DataFrame:
    grouped = events.withWatermark("time", watermark).groupBy(F.window("time", window), "level", "component")
    return grouped.agg(F.count("*").alias("lines")).select(
        F.col("window.start").alias("start"), F.col("window.end").alias("end"), "level", "component", "lines"
    )


def start(spark: SparkSession, settings: Settings) -> list[StreamingQuery]:
    """OptionError."""
    if not settings["out.topic"] and not settings["out.path"]:
        raise OptionError("out.topic", "is missing, and out.path too: say where the counts go")
    queries = []
    if settings["out.topic"]:
        columns = [
            F.concat_ws(" ", "start", "level", "component").alias("key"),
            F.to_json(F.struct("*")).alias("value"),
        ]
        writer = _counted(spark, settings).select(*columns).writeStream.format("streamlog")
        writer = writer.options(**settings.clients, topic=settings["out.topic"])
        queries.append(begun(spark, writer, settings, "counts-to-topic"))
    if settings["out.path"]:
        dated = _counted(spark, settings).withColumn("date", F.to_date("start"))
        writer = dated.writeStream.format("parquet").option("path", settings["out.path"]).partitionBy("date")
        queries.append(begun(spark, writer, settings, "counts-to-parquet"))
    return queries


def _counted(spark: SparkSession, settings: Settings) -> DataFrame:
    options = settings.source(subscribe=settings["topics"], startingOffsets=settings["starting.offsets"])
    lines = spark.readStream.format("streamlog").options(**options).load()
    return counts(parsed(lines), settings["window"], settings["watermark"])
