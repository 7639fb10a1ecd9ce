"""Parquet into a topic: files of `archive`, or any files with a column value.

Each file is written once, also files that are added while it runs; with trigger=available-now, the default, it ends
when all existing files are written. Keys, values, headers and, unless times=new, timestamps are kept; partitions are
chosen by key. Several tasks may write rows of one file, so their order is not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from streamlog.spark.failures import OptionError, StreamlogSparkError
from streamlog.spark.pipelines.queries import start_query
from streamlog.spark.pipelines.settings import AVAILABLE_NOW, COMMON, PipelineSetting, PipelineSettings
from streamlog.spark.sink.task import SINK_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_KEPT: Final = ("key", "value", "headers", "timestamp")

SETTINGS: Final = (
    *[one for one in COMMON if one.name not in ("trigger", "max.offsets.per.trigger")],
    PipelineSetting(
        "trigger", AVAILABLE_NOW, "available-now: end when all files are written; or the interval between scans."
    ),
    PipelineSetting("path", None, "The folder or URL of the Parquet files."),
    PipelineSetting("topic", None, "The topic to write to."),
    PipelineSetting("max.files.per.trigger", "100", "Maximum number of files in a micro-batch."),
    PipelineSetting("times", "kept", "kept: records keep the time of column timestamp; new: the time of writing."),
)
READS: Final = ""
WRITES: Final = "topic"


def start(spark: SparkSession, settings: PipelineSettings) -> list[StreamingQuery]:
    """OptionError, StreamlogSparkError."""
    if settings["times"] not in ("kept", "new"):
        raise OptionError("times", "must be kept or new")
    try:
        schema = spark.read.parquet(settings["path"]).schema
    except AnalysisException as error:
        raise OptionError("path", f"{settings['path']} cannot be read as Parquet: {error.getCondition()}") from None
    names = [name for name in _KEPT if name in schema.fieldNames()]
    if "value" not in names:
        raise StreamlogSparkError(f"schema: the files in {settings['path']} have no column value")
    for name in names:
        kind = schema[name].dataType.simpleString()
        if kind not in SINK_COLUMNS[name]:
            raise StreamlogSparkError(f"schema: column {name} of the files is {kind}, not {SINK_COLUMNS[name][0]}")
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", settings["max.files.per.trigger"])
    writer = files.parquet(settings["path"]).select(*names).writeStream.format("streamlog")
    kept = str(settings["times"] == "kept").lower()
    writer = writer.options(**settings.clients, topic=settings["topic"], includeTimestamp=kept)
    return [start_query(spark, writer, settings, "backfill")]
