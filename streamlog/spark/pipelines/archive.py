"""Topics as Parquet: every record once, by topic and by the date of its timestamp, with partition and offset.

Spark's file sink keeps a log of its files beside them (_spark_metadata), and a restarted micro-batch has the same
ranges of offsets; so readers that use that log, as Spark does, see every record once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from streamlog.spark.pipelines.queries import start_query
from streamlog.spark.pipelines.settings import COMMON, PipelineSetting, PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

SETTINGS: Final = (
    *COMMON,
    PipelineSetting("topics", None, "What to archive: topics, separated by commas."),
    PipelineSetting("path", None, "The folder or URL of the archive."),
    PipelineSetting("starting.offsets", "earliest", "Where to start at the first run: earliest or latest."),
    PipelineSetting("fail.on.data.loss", "true", "Whether to fail if records were deleted before they were archived."),
)
READS: Final = "topics"
WRITES: Final = ""


def start(spark: SparkSession, settings: PipelineSettings) -> list[StreamingQuery]:
    options = settings.source(
        subscribe=settings["topics"],
        startingOffsets=settings["starting.offsets"],
        failOnDataLoss=settings["fail.on.data.loss"],
        includeHeaders="true",
    )
    records = spark.readStream.format("streamlog").options(**options).load()
    dated = records.withColumn("date", F.to_date("timestamp"))
    writer = dated.writeStream.format("parquet").option("path", settings["path"]).partitionBy("topic", "date")
    return [start_query(spark, writer, settings, "archive")]
