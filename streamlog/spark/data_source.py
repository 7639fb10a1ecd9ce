"""The data source of format("streamlog"): checks options, creates readers and writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from streamlog.spark.failures import OptionError, StreamlogSparkError, without_traceback
from streamlog.spark.options import Options, Use
from streamlog.spark.source.schema import checked_columns, ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    @without_traceback
    def __init__(self, options: Mapping[str, str]) -> None:
        """OptionError."""
        super().__init__(options)
        self._parsed = Options.parse(options)

    @classmethod
    def name(cls) -> str:
        return "streamlog"

    @without_traceback
    def schema(self) -> str:
        return ddl(headers=self._parsed.truth("includeHeaders"))

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        from streamlog.spark.source.batch_reader import BatchReader

        self._parsed.check_use(Use.BATCH, "a batch query")
        return BatchReader(self._parsed, self._columns(schema))

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from streamlog.spark.source.stream_reader import StreamReader

        self._parsed.check_use(Use.STREAM, "a stream")
        return StreamReader(self._parsed, self._columns(schema))

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from streamlog.spark.sink.writers import BatchSink

        self._check_sink(schema, overwrite, "a batch sink")
        return BatchSink(self._parsed)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from streamlog.spark.sink.writers import StreamSink

        self._check_sink(schema, overwrite, "a streaming sink")
        if "sinkBatch" in self._parsed:
            raise OptionError("sinkBatch", "does not apply to a streaming sink: Spark numbers its micro-batches")
        return StreamSink(self._parsed)

    def _check_sink(self, schema: StructType, overwrite: bool, what: str) -> None:
        from streamlog.spark.sink.task import check_schema

        self._parsed.check_use(Use.SINK, what)
        if overwrite:
            raise StreamlogSparkError("a topic cannot be overwritten: use mode append")
        check_schema(_fields(schema), self._parsed.get("topic"))

    def _columns(self, schema: StructType) -> tuple[str, ...]:
        return checked_columns(_fields(schema), headers=self._parsed.truth("includeHeaders"))


def _fields(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
