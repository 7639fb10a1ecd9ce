"""What Spark finds by format("streamlog"): options checked, readers and writers made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from streamlog.spark.failures import told
from streamlog.spark.options import Options, Use
from streamlog.spark.schema import checked_columns, ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    @told
    def __init__(self, options: Mapping[str, str]) -> None:
        """OptionError."""
        super().__init__(options)
        self._parsed = Options.parse(options)

    @classmethod
    def name(cls) -> str:
        return "streamlog"

    @told
    def schema(self) -> str:
        return ddl(headers=self._parsed.truth("includeHeaders"))

    @told
    def reader(self, schema: StructType) -> DataSourceReader:
        from streamlog.spark.batch_reader import BatchReader

        self._parsed.check_use(Use.BATCH, "a batch query")
        return BatchReader(self._parsed, self._columns(schema))

    @told
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from streamlog.spark.stream_reader import StreamReader

        self._parsed.check_use(Use.STREAM, "a stream")
        return StreamReader(self._parsed, self._columns(schema))

    def _columns(self, schema: StructType) -> tuple[str, ...]:
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return checked_columns(fields, headers=self._parsed.truth("includeHeaders"))
