"""Counts log lines by time window, level and component, into a topic, Parquet, or both.

    "2026-11-21T14:59:11.407 INFO  [SocketServer] ..." -> (time, INFO, SocketServer) -> counts of a window
    window closed by the watermark: one record, one row, once

`line.pattern` is for lines of other formats. A line that does not match is counted by the timestamp of its record, with
level UNKNOWN. The counts of a window are written when lines are `watermark` past its end; later lines are dropped, and
counted in the progress. The topic and the Parquet files are two queries with a checkpoint each, so one may be behind
the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from streamlog.spark.failures import OptionError
from streamlog.spark.pipelines.queries import refusing, start_query
from streamlog.spark.pipelines.settings import COMMON, PipelineSetting, PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_LINE: Final = r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{3}) +([A-Z]+) +\[([^\]]*)\]"
_GROUPS: Final = 3  # of it: time, level, component

SETTINGS: Final = (
    *COMMON,
    PipelineSetting("topics", None, "Topics of log lines, separated by commas."),
    PipelineSetting("starting.offsets", "earliest", "Where to start at the first run: earliest or latest."),
    PipelineSetting(
        "line.pattern",
        _LINE,
        "A regular expression of Java whose first three groups match a line's time, level and component.",
    ),
    PipelineSetting(
        "time.format",
        "",
        "The format of the time, one of Spark's datetime patterns: yy/MM/dd HH:mm:ss. Empty: ISO 8601.",
    ),
    PipelineSetting("window", "1 minute", "The length of a window."),
    PipelineSetting("watermark", "10 minutes", "How late a line may be."),
    PipelineSetting("out.topic", "", "A topic for the counts, as JSON."),
    PipelineSetting("out.path", "", "A folder or URL for the counts, as Parquet by day."),
)
READS: Final = "topics"
WRITES: Final = "out.topic"


def parsed(lines: DataFrame, pattern: str = _LINE, time_format: str = "") -> DataFrame:
    """Columns time, level, component."""
    text = F.col("value").cast("string")
    time = _time(F.regexp_extract(text, pattern, 1), time_format)
    return lines.select(
        F.coalesce(time, F.col("timestamp")).alias("time"),
        F.when(time.isNull(), F.lit("UNKNOWN")).otherwise(F.regexp_extract(text, pattern, 2)).alias("level"),
        F.when(time.isNull(), F.lit("")).otherwise(F.regexp_extract(text, pattern, 3)).alias("component"),
    )


def _time(text: Column, time_format: str) -> Column:
    """Null where it does not match."""
    if time_format:
        return F.try_to_timestamp(text, F.lit(time_format))
    return F.try_to_timestamp(F.regexp_replace(text, ",", "."))


def check(spark: SparkSession, settings: PipelineSettings) -> None:
    """OptionError for settings that Spark would refuse later, some of them only at the first line."""
    pattern, time_format = settings["line.pattern"], settings["time.format"]
    window, watermark = settings["window"], settings["watermark"]
    one = spark.range(1).select(F.current_timestamp().alias("time"))
    with refusing("line.pattern", f"is not a regular expression with {_GROUPS} groups: {pattern}"):
        # The pattern also matches an empty line, so that the group is evaluated.
        one.select(F.regexp_extract(F.lit(""), f"{pattern}|", _GROUPS)).collect()
    with refusing("time.format", f"is not one of Spark's datetime patterns: {time_format}"):
        one.select(_time(F.lit("-"), time_format)).collect()
    with refusing("window", f"must be a duration such as 10 seconds, not {window}"):
        one.select(F.window("time", window))
    with refusing("watermark", f"must be a duration such as 10 minutes, not {watermark}"):
        one.withWatermark("time", watermark)


def counts(events: DataFrame, window: str, watermark: str) -> DataFrame:
    grouped = events.withWatermark("time", watermark).groupBy(F.window("time", window), "level", "component")
    return grouped.agg(F.count("*").alias("lines")).select(
        F.col("window.start").alias("start"), F.col("window.end").alias("end"), "level", "component", "lines"
    )


def start(spark: SparkSession, settings: PipelineSettings) -> list[StreamingQuery]:
    """OptionError."""
    if not settings["out.topic"] and not settings["out.path"]:
        raise OptionError("out.topic", "is missing, as is out.path: give at least one of them")
    check(spark, settings)
    queries = []
    if settings["out.topic"]:
        columns = [
            F.concat_ws(" ", "start", "level", "component").alias("key"),
            F.to_json(F.struct("*")).alias("value"),
        ]
        writer = _counted(spark, settings).select(*columns).writeStream.format("streamlog")
        writer = writer.options(**settings.clients, topic=settings["out.topic"])
        queries.append(start_query(spark, writer, settings, "counts-to-topic"))
    if settings["out.path"]:
        dated = _counted(spark, settings).withColumn("date", F.to_date("start"))
        writer = dated.writeStream.format("parquet").option("path", settings["out.path"]).partitionBy("date")
        queries.append(start_query(spark, writer, settings, "counts-to-parquet"))
    return queries


def _counted(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    options = settings.source(subscribe=settings["topics"], startingOffsets=settings["starting.offsets"])
    lines = spark.readStream.format("streamlog").options(**options).load()
    events = parsed(lines, settings["line.pattern"], settings["time.format"])
    return counts(events, settings["window"], settings["watermark"])
