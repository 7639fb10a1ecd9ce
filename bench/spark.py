"""Benchmark part "spark": the source and the sink in Spark, over a cluster of three real nodes on this machine.

One machine does the work of all: nodes, driver, executors. Rows are read from a topic of 6 partitions, and forgotten
(format "noop"), as are those of the ceiling: the same rows, column by column, made by Spark itself of `spark.range`. A
second bound is what comes from Python without a source: Arrow batches that were made once, so all that is left is the
way from Python to Spark. A stream reads in micro-batches of a tenth of the rows, by Trigger.AvailableNow. All of it
warm, and in turns: each figure is the median of three rounds after one. Spark has one core or two; what Python and the
nodes take of the machine's is not counted.

The latency is of a stream that is idle: from the acknowledgement of a record to the end of the micro-batch that has
it, as the query's progress tells.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.cluster import PARTITIONS, Cluster
from bench.figures import Figure
from bench.scratch import scratch
from streamlog.client import AsyncProducer, Producer
from streamlog.ports.system import run as run_loop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BULK_BYTES: Final = 200_000_000
SIZES: Final = (100, 1_000)
CODECS: Final = ("none", "lz4")
CORES: Final = (1, 2)  # of Spark's
ROUNDS: Final = 3
SINGLES: Final = 20
MICRO_BATCHES: Final = 10


def run() -> list[Figure]:
    if importlib.util.find_spec("pyspark") is None:
        raise SystemExit("part spark needs pyspark: make test-spark installs it, or pip install 'streamlog[spark]'")
    with scratch("spark") as base:
        return run_loop(_measure(base))


async def _measure(base: Path) -> list[Figure]:
    import asyncio

    async with Cluster(base / "cluster", {"transaction.two.phase.commit.enable": "true"}) as cluster:
        for size in SIZES:
            for codec in CODECS:
                name = f"rows-{size}-{codec}"
                await cluster.create(name)
                await fill(cluster.addresses, name, size, codec)
        for name in ("single", "sink"):
            await cluster.create(name)
        return await asyncio.to_thread(_in_spark, base, cluster.addresses)


async def fill(servers: str, topic: str, size: int, codec: str) -> None:
    """Values that differ, so that a codec has something to do."""
    async with AsyncProducer(
        bootstrap_servers=servers, compression_type=codec, linger_ms=5, batch_size=256 << 10
    ) as producer:
        for start in range(0, BULK_BYTES // size, 10_000):
            values = [(b"%010d " % number * (size // 11 + 1))[:size] for number in range(start, start + 10_000)]
            await producer.send_many(topic, values)
        await producer.flush()


def _in_spark(base: Path, servers: str) -> list[Figure]:
    from streamlog.spark.runtime.checkpoints import write_plain_files
    from streamlog.spark.runtime.session import make_session

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    figures: list[Figure] = []
    for cores in CORES:
        spark = make_session("bench", {"spark.master": f"local[{cores}]", "spark.local.dir": str(base / "local")})
        write_plain_files(spark, str(base))
        try:
            for size in SIZES:
                figures += _figures(spark, base, servers, size, f"{size} B, {cores} core{'s' * (cores > 1)}")
            if cores == max(CORES):
                figures += _latency(spark, base, servers)
        finally:
            spark.stop()
    return figures


def _figures(spark: SparkSession, base: Path, servers: str, size: int, what: str) -> list[Figure]:
    works: dict[str, Callable[[], None]] = {
        "ceiling": lambda: forget(ranged(spark, size)),
        "handed": lambda: forget(handed(spark, size)),
        "sink": lambda: _write(made(spark, size), servers),
    }
    for codec in CODECS:
        topic = f"rows-{size}-{codec}"
        works[f"batch {codec}"] = lambda topic=topic: forget(read(spark.read, servers, topic))
        works[f"stream {codec}"] = lambda topic=topic: _stream(spark, base, servers, topic, size)
    rates = rates_in_turns(size, works)
    ceiling = rates["ceiling"]
    figures = [
        _rows(f"ceiling, {what}: spark.range", ceiling),
        _rows(f"Arrow batches from Python without a source, {what}", rates["handed"]),
    ]
    for codec in CODECS:
        batch = rates[f"batch {codec}"]
        figures += [
            _rows(f"batch, {what}, {codec}", batch),
            Figure(name="... of the ceiling", value=batch / ceiling, unit="x", target=0.9 if size == 100 else None),
            _rows(f"stream, {what}, {codec}", rates[f"stream {codec}"]),
        ]
    return [*figures, _rows(f"sink, {what}, one transaction a task", rates["sink"])]


def _rows(name: str, rate: float) -> Figure:
    return Figure(name=name, value=rate, unit="k rows/s")


def rates_in_turns(size: int, works: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """Thousands of rows a second, of each."""
    took: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(1 + ROUNDS):
        for name, work in works.items():
            begin = time.monotonic()
            work()
            took[name].append(time.monotonic() - begin)
    return median_rates(size, took)


def median_rates(size: int, took: Mapping[str, list[float]]) -> dict[str, float]:
    """Of the seconds that each took, the first left out: thousands of rows a second."""
    return {name: BULK_BYTES / size / 1e3 / statistics.median(times[1:]) for name, times in took.items()}


def ranged(spark: SparkSession, size: int) -> Any:
    """As many rows as the topics have, of the same columns and values, made by Spark."""
    from pyspark.sql import functions as F

    return made(spark, size).select(
        F.lit(None).cast("binary").alias("key"),
        "value",
        F.lit(f"rows-{size}-none").alias("topic"),
        F.spark_partition_id().alias("partition"),
        F.col("id").alias("offset"),
        F.timestamp_millis(F.col("id")).alias("timestamp"),
        F.lit(0).alias("timestampType"),
    )


def handed(spark: SparkSession, size: int) -> Any:
    """As many, of the same columns, from a source that has them ready."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from streamlog.spark.source.schema import COLUMNS, HEADERS, ddl

    count, each = BULK_BYTES // size // PARTITIONS, (2 << 20) // size

    class Ready(DataSourceReader):  # type: ignore[misc]
        def partitions(self) -> Any:
            return [InputPartition(number) for number in range(PARTITIONS)]

        def read(self, _: Any) -> Any:
            import numpy as np
            import pyarrow as pa

            from streamlog.spark.source.schema import arrow_schema

            columns = [
                pa.nulls(each, pa.binary()),
                pa.array([bytes(size)] * each, pa.binary()),
                pa.repeat(pa.scalar("topic"), each),
                pa.array(np.zeros(each, np.int32)),
                pa.array(np.arange(each)),
                pa.array(np.zeros(each, np.int64)).cast(pa.timestamp("us", "UTC")),
                pa.array(np.zeros(each, np.int32)),
            ]
            schema = arrow_schema([name for name in COLUMNS if name != HEADERS])
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            for start in range(0, count, each):
                yield batch.slice(0, min(each, count - start))

    class Source(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return f"ready{size}"

        def schema(self) -> str:
            return ddl(headers=False)

        def reader(self, schema: Any) -> Any:
            return Ready()

    spark.dataSource.register(Source)
    return spark.read.format(f"ready{size}").load()


def made(spark: SparkSession, size: int) -> Any:
    """Rows to be written, made by Spark."""
    from pyspark.sql import functions as F

    rows = spark.range(0, BULK_BYTES // size, 1, PARTITIONS)
    text = F.repeat(F.concat(F.lpad(F.col("id").cast("string"), 10, "0"), F.lit(" ")), size // 11 + 1)
    return rows.select("id", F.substring(text, 1, size).cast("binary").alias("value"))


def read(reader: Any, servers: str, topic: str, **options: str) -> Any:
    given = {"streamlog.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"} | options
    return reader.format("streamlog").options(**given).load()


def forget(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _write(rows: Any, servers: str) -> None:
    rows.select("value").write.format("streamlog").mode("append").options(
        **{"streamlog.bootstrap.servers": servers}, topic="sink"
    ).save()


def _stream(spark: SparkSession, base: Path, servers: str, topic: str, size: int) -> None:
    state = base / "state" / str(time.monotonic_ns())
    rows = read(spark.readStream, servers, topic, maxOffsetsPerTrigger=str(BULK_BYTES // size // MICRO_BATCHES))
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(state))
    writer.trigger(availableNow=True).start().awaitTermination()


def _latency(spark: SparkSession, base: Path, servers: str) -> list[Figure]:
    rows = read(spark.readStream, servers, "single")
    query = rows.writeStream.format("noop").option("checkpointLocation", str(base / "state" / "single")).start()
    took: list[float] = []
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        for _ in range(SINGLES + 3):
            before = _rows_done(query)
            producer.send("single", b"x").result()
            begin = time.monotonic()
            while _rows_done(query) == before:
                time.sleep(0.002)
            took.append(time.monotonic() - begin)
    inside = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]
    query.stop()
    median, spent = statistics.median(took[3:]) * 1e3, statistics.median(inside[3:])
    return [
        Figure(
            name="one record to the end of its micro-batch", value=median, unit="ms", target=250, less_is_better=True
        ),
        Figure(name="... of which the micro-batch", value=spent, unit="ms", less_is_better=True),
    ]


def _rows_done(query: Any) -> int:
    return sum(one["numInputRows"] for one in query.recentProgress)
