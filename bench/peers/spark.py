"""Spark reads the same rows from streamlog and, with its own source, from a real Kafka, alternately in one session.

The Kafka cluster is one node, with one replica for each partition, in the page cache; streamlog has three nodes and
three replicas, all on the same cores. Rows are read by tasks of one partition, and dropped (format "noop"). Each figure
is the median of alternating runs after a warm-up. A stream is measured from its start to its end, and by Spark's times
of its micro-batches: the difference includes the start of the source's Python process.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.cluster import PARTITIONS, Cluster
from bench.figures import Figure
from bench.peers.pipelines import jars
from bench.scratch import scratch
from bench.spark import BULK_BYTES, CODECS, SIZES, fill, forget, handed, made, median_rates, rates_in_turns, read
from streamlog.ports.system import run as run_loop
from tests.interop.real_kafka import Broker, Kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET: Final = 1.2
_KAFKA_OPTIONS: Final = ("-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info")


def run() -> list[Figure]:
    with scratch("peers") as base:
        broker = Broker(Kafka(_KAFKA_OPTIONS), base / "kafka")
        broker.start()
        try:
            return run_loop(_measure(base, broker.bootstrap))
        finally:
            broker.kill()


async def _measure(base: Path, kafka: str) -> list[Figure]:
    async with Cluster(base / "cluster") as cluster:
        for size in SIZES:
            for codec in CODECS:
                await cluster.create(_topic(size, codec))
                await fill(cluster.addresses, _topic(size, codec), size, codec)
        return await asyncio.to_thread(_in_spark, base, cluster.addresses, kafka)


def _topic(size: int, codec: str) -> str:
    return f"rows-{size}-{codec}"


def _in_spark(base: Path, servers: str, kafka: str) -> list[Figure]:
    from streamlog.spark.runtime.checkpoints import write_plain_files
    from streamlog.spark.runtime.session import make_session

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = make_session("peers", {"spark.local.dir": str(base / "local"), "spark.jars": jars()})
    write_plain_files(spark, str(base))
    try:
        figures: list[Figure] = []
        for size in SIZES:
            for codec in CODECS:
                topic = _topic(size, codec)
                _fill_kafka(spark, kafka, topic, size, codec)
                figures += _batch(spark, size, codec, lambda t=topic: read(spark.read, servers, t), kafka)
                figures += _stream(spark, base, size, codec, servers, kafka)
        return figures
    finally:
        spark.stop()


def _fill_kafka(spark: SparkSession, kafka: str, topic: str, size: int, codec: str) -> None:
    """Six partitions; the rows are those of `made`, in batches as large as streamlog's."""
    given = {
        "kafka.bootstrap.servers": kafka,
        "kafka.compression.type": codec,
        "kafka.batch.size": str(256 << 10),
        "kafka.linger.ms": "20",
    }
    _create(spark, kafka, topic)
    made(spark, size).select("value").write.format("kafka").options(**given, topic=topic).save()


def _create(spark: SparkSession, kafka: str, topic: str) -> None:
    """By the admin client that the driver has on its class path."""
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    properties.put("bootstrap.servers", kafka)
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    one = jvm.org.apache.kafka.clients.admin.NewTopic(topic, PARTITIONS, 1)
    admin.createTopics(jvm.java.util.Collections.singletonList(one)).all().get()
    admin.close()


def _from_kafka(reader: Any, kafka: str, topic: str, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": kafka, "subscribe": topic, "startingOffsets": "earliest"} | options
    return reader.format("kafka").options(**given).load()


def _batch(spark: SparkSession, size: int, codec: str, ours: Callable[[], Any], kafka: str) -> list[Figure]:
    rates = rates_in_turns(
        size,
        {
            "ceiling": lambda: forget(handed(spark, size)),
            "streamlog": lambda: forget(ours()),
            "kafka": lambda: forget(_from_kafka(spark.read, kafka, _topic(size, codec))),
        },
    )
    return [
        Figure(
            name=f"batch, {size} B, {codec}: Arrow batches without a source", value=rates["ceiling"], unit="k rows/s"
        ),
        *_compared(f"batch, {size} B, {codec}", rates),
    ]


def _stream(spark: SparkSession, base: Path, size: int, codec: str, servers: str, kafka: str) -> list[Figure]:
    most = {"maxOffsetsPerTrigger": str(BULK_BYTES // size // 10)}
    topic = _topic(size, codec)

    triggers: dict[str, list[float]] = {"streamlog": [], "kafka": []}

    def run_query(name: str, rows: Any) -> None:
        state = base / "state" / str(time.monotonic_ns())
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(state))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        triggers[name].append(sum(one["durationMs"]["triggerExecution"] for one in query.recentProgress) / 1e3)

    rates = rates_in_turns(
        size,
        {
            "streamlog": lambda: run_query("streamlog", read(spark.readStream, servers, topic, **most)),
            "kafka": lambda: run_query("kafka", _from_kafka(spark.readStream, kafka, topic, **most)),
        },
    )
    return [
        *_compared(f"stream, {size} B, {codec}", rates),
        *_compared(f"stream, {size} B, {codec}, in its micro-batches alone", median_rates(size, triggers)),
    ]


def _compared(name: str, rates: dict[str, float]) -> list[Figure]:
    return [
        Figure(name=f"{name}: Spark's source for Kafka", value=rates["kafka"], unit="k rows/s"),
        Figure(name=f"{name}: streamlog", value=rates["streamlog"], unit="k rows/s"),
        Figure(
            name="... of Spark's source for Kafka", value=rates["streamlog"] / rates["kafka"], unit="x", target=TARGET
        ),
    ]
