"""python -m bench.peers.pipeline_query QUERY: a Spark program that copies a topic, and prints how long it took.

The last line of its output is JSON: seconds from `load()` to the end of the first micro-batch, and the median of the
later ones by the query's progress.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING: Final = "nothing"
"""A source and a sink in Python that do nothing: what Spark's interface costs."""
_PARTITIONS: Final = 6


class Query(msgspec.Struct, frozen=True, kw_only=True):
    system: str
    """streamlog or kafka: Spark's names of the source and the sink; or NOTHING."""
    own_session: bool = False
    """That of streamlog's pipelines, and checkpoint files written as theirs, instead of a plain one."""
    servers: str = ""
    topics: tuple[str, str] = ("", "")
    """From, to."""
    state: str
    """A directory for the checkpoint."""
    rows: int
    """Of a micro-batch."""
    micro_batches: int
    jars: str = ""

    def as_json(self) -> str:
        return msgspec.json.encode(self).decode()


def main() -> None:
    query = msgspec.json.decode(sys.argv[1], type=Query)
    spark = _session(query)
    begin = time.monotonic()
    source, sink = query.topics
    if query.system == NOTHING:
        _register_nothing(spark, query.rows)
        servers, options = {}, {}
    else:
        servers = {f"{query.system}.bootstrap.servers": query.servers}
        options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(query.rows)}
    if query.own_session:
        from streamlog.spark.runtime.checkpoints import write_plain_files

        write_plain_files(spark, query.state)
    rows = spark.readStream.format(query.system).options(**servers, **options).load()
    writer = rows.select("key", "value").writeStream.format(query.system).options(**servers, topic=sink)
    running = writer.option("checkpointLocation", query.state).start()
    while not running.recentProgress:
        _fail_unless_active(running)
        time.sleep(0.005)
    first_s = time.monotonic() - begin
    while len(done := [one for one in running.recentProgress if one["numInputRows"]]) < query.micro_batches:
        _fail_unless_active(running)
        time.sleep(0.005)
    running.stop()
    later_ms = [one["durationMs"]["triggerExecution"] for one in done[1:]]
    print(json.dumps((first_s, statistics.median(later_ms) / 1e3)))
    spark.stop()


def _fail_unless_active(running: Any) -> None:
    if not running.isActive:
        raise SystemExit(f"the query has ended: {running.exception()}")


def _session(query: Query) -> SparkSession:
    if query.own_session:
        from streamlog.spark.runtime.session import make_session

        return make_session("pipeline", {"spark.master": "local[2]"})
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").appName("pipeline")
    if query.jars:
        session = session.config("spark.jars", query.jars)
    return session.getOrCreate()


def _register_nothing(spark: SparkSession, rows: int) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter, InputPartition

    class Reader(DataSourceStreamReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._end = 0

        def initialOffset(self) -> dict[str, int]:
            return {"end": 0}

        def latestOffset(self, *_: Any) -> dict[str, int]:
            self._end += rows
            return {"end": self._end}

        def partitions(self, *_: Any) -> list[InputPartition]:
            return [InputPartition(number) for number in range(_PARTITIONS)]

        def read(self, _: Any) -> Any:
            import pyarrow as pa

            count = rows // _PARTITIONS
            columns = [pa.nulls(count, pa.binary()), pa.array([bytes(100)] * count, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["key", "value"])

    class Writer(DataSourceStreamWriter):  # type: ignore[misc]
        def write(self, iterator: Any) -> Any:
            from pyspark.sql.datasource import WriterCommitMessage

            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Nothing(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return NOTHING

        def schema(self) -> str:
            return "key binary, value binary"

        def streamReader(self, schema: Any) -> Any:  # Spark passes these by name
            return Reader()

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return Writer()

    spark.dataSource.register(Nothing)


if __name__ == "__main__":
    main()
