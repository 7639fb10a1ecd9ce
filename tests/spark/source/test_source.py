"""The source in Spark, on one session: what rows are, what is refused, what happens to data that comes and goes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

import pyarrow.parquet as pq
from pyspark.errors import PySparkException, StreamingQueryException

from streamlog.client import Producer
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.spark.records import until, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark


@pytest.fixture
def load(spark: SparkSession, cluster: InProcessCluster, topic: str) -> Callable[..., DataFrame]:
    """The topic, as a batch or as a stream."""

    def loaded(*, stream: bool = False, schema: str | None = None, **options: str) -> DataFrame:
        reader: Any = spark.readStream if stream else spark.read
        if schema is not None:
            reader = reader.schema(schema)
        given = {"streamlog.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic} | options
        return reader.format("streamlog").options(**given).load()

    return loaded


def start(data: DataFrame, tmp_path: Path, *, now: bool = True) -> StreamingQuery:
    """Into Parquet; `now`: what there is, and no more."""
    writer = data.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    writer = writer.option("checkpointLocation", str(tmp_path / "state"))
    return (writer.trigger(availableNow=True) if now else writer).start()


def values(spark: SparkSession, tmp_path: Path) -> list[bytes]:
    return sorted(bytes(row.value) for row in spark.read.parquet(str(tmp_path / "out")).select("value").collect())


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [f"{number:06}".encode() for number in range(start, start + count)]


def test_rows(cluster: InProcessCluster, topic: str, load: Callable[..., DataFrame]) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(
            topic, b"v", key=b"k", partition=2, timestamp_ms=1_763_733_600_123, headers=(("h", b"x"), ("n", None))
        )
        producer.send(topic, None, partition=2, timestamp_ms=0)
    first, second = load(includeHeaders="true").orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition, first.offset) == (
        b"k",
        b"v",
        topic,
        2,
        0,
    )
    assert first.timestamp.timestamp() == 1_763_733_600.123
    assert first.timestampType == 0
    assert [(one.key, one.value) for one in first.headers] == [("h", b"x"), ("n", None)]
    assert (second.key, second.value, second.headers) == (None, None, None)
    assert second.timestamp.timestamp() == 0
    some = load(schema="offset bigint, value binary").orderBy("offset").collect()
    assert [tuple(row) for row in some] == [(0, bytearray(b"v")), (1, None)]


def test_ranges_and_tasks_of_a_batch(cluster: InProcessCluster, topic: str, load: Callable[..., DataFrame]) -> None:
    for partition in range(3):
        write(cluster.bootstrap_servers, topic, numbered(100), partition=partition)
    ends = json.dumps({topic: {"0": 60, "1": 10, "2": -1}})
    starts = json.dumps({topic: {"0": 20, "1": -2, "2": 100}})
    data = load(startingOffsets=starts, endingOffsets=ends, minPartitions="7")
    assert data.rdd.getNumPartitions() == 7
    rows = [(row.partition, row.offset) for row in data.select("partition", "offset").collect()]
    assert sorted(rows) == [(0, at) for at in range(20, 60)] + [(1, at) for at in range(10)]
    assert load(startingOffsets='{"' + topic + '": {"0": 100, "1": 100, "2": 100}}').count() == 0
    assert load(maxRecordsPerPartition="40").rdd.getNumPartitions() == 9


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(cluster: InProcessCluster, topic: str, load: Callable[..., DataFrame], codec: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type=codec) as producer:
        producer.send_many(topic, numbered(500))
    assert sorted(bytes(row.value) for row in load(minPartitions="5").select("value").collect()) == numbered(500)


def test_aborted_records_are_not_read_unless_they_are_asked_for(
    cluster: InProcessCluster, topic: str, load: Callable[..., DataFrame]
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic) as producer:
        for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 3):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=0).result()
            ends()
    assert sorted(bytes(row.value) for row in load().collect()) == [b"0", b"2", b"4"]
    uncommitted = load(**{"streamlog.isolation.level": "read_uncommitted"})
    assert sorted(bytes(row.value) for row in uncommitted.collect()) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "no-such-topic"}, "option subscribe: there is no topic no-such-topic"),
        ({"startingOffset": "earliest"}, "option startingoffset: is not known; did you mean startingOffsets?"),
        ({"startingOffsets": "latest"}, "option startingOffsets: cannot be latest for a batch"),
        (
            {"streamlog.bootstrap.servers": "127.0.0.1:1", "streamlog.default.api.timeout.ms": "500"},
            "check that the nodes are running and streamlog.bootstrap.servers",
        ),
        ({"schema": "value string"}, "schema: column value is binary, not string"),
        ({"schema": "headers array<struct<key:string,value:binary>>"}, "needs option includeHeaders=true"),
    ],
)
def test_an_error_is_one_sentence(load: Callable[..., DataFrame], options: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException) as caught:
        load(**options).collect()
    assert message in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_stream_in_capped_micro_batches(
    spark: SparkSession, cluster: InProcessCluster, topic: str, load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    write(cluster.bootstrap_servers, topic, numbered(1_000))
    query = start(load(stream=True, startingOffsets="earliest", maxOffsetsPerTrigger="300"), tmp_path)
    query.awaitTermination()
    assert [one["numInputRows"] for one in query.recentProgress] == [300, 300, 300, 100]
    assert values(spark, tmp_path) == numbered(1_000)
    write(cluster.bootstrap_servers, topic, numbered(50, 1_000))
    start(load(stream=True, startingOffsets="earliest"), tmp_path).awaitTermination()
    assert values(spark, tmp_path) == numbered(1_050)


def test_available_now_ends_while_records_keep_coming(
    spark: SparkSession, cluster: InProcessCluster, topic: str, load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    write(cluster.bootstrap_servers, topic, numbered(300))
    query = start(load(stream=True, startingOffsets="earliest", maxOffsetsPerTrigger="50"), tmp_path)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        while query.isActive:
            producer.send(topic, b"later").result()
    assert query.exception() is None
    assert set(numbered(300)) <= set(values(spark, tmp_path))


@pytest.mark.parametrize("batch", [0, 1])
def test_a_restarted_micro_batch_has_the_same_rows(
    spark: SparkSession,
    cluster: InProcessCluster,
    topic: str,
    load: Callable[..., DataFrame],
    tmp_path: Path,
    batch: int,
) -> None:
    """As after a crash before Spark wrote that it was done; of the first, nothing but its end is written down."""
    write(cluster.bootstrap_servers, topic, numbered(10))
    query = start(load(stream=True), tmp_path, now=False)
    until(lambda: query.lastProgress, "batch 0")  # from the latest: no rows
    write(cluster.bootstrap_servers, topic, numbered(10, 10))
    until(lambda: sum(one["numInputRows"] for one in query.recentProgress) == 10, "batch 1")
    query.stop()
    for number in range(batch, 2):
        for name in (f"{number}", f".{number}.crc"):
            (tmp_path / "state" / "commits" / name).unlink(missing_ok=True)
    if batch == 0:
        for name in ("1", ".1.crc"):
            (tmp_path / "state" / "offsets" / name).unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "out")  # so that what is written again is all there is
    write(cluster.bootstrap_servers, topic, numbered(10, 20))
    start(load(stream=True), tmp_path).awaitTermination()
    # Without the sink's log, a part of which is gone: its files alone.
    again = [row["value"] for one in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(one).to_pylist()]
    assert sorted(again) == numbered(20, 10), "and nothing from before the first start"


def test_partitions_that_come_and_topics_that_come_and_go(
    spark: SparkSession, cluster: InProcessCluster, topic: str, load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    servers, other = cluster.bootstrap_servers, f"{topic}-b"
    cluster.create_topic(other)
    write(servers, topic, [b"a"])
    write(servers, other, [b"b"])
    options = {"subscribe": f"{topic},{other}", "startingOffsets": "earliest"}
    start(load(stream=True, **options), tmp_path).awaitTermination()
    cluster.with_admin(lambda admin: admin.grow_topic(topic, 5))
    write(servers, topic, [b"c"], partition=4)
    start(load(stream=True, **options), tmp_path).awaitTermination()
    assert values(spark, tmp_path) == [b"a", b"b", b"c"]

    cluster.with_admin(lambda admin: admin.delete_topic(other))
    write(servers, topic, [b"d"])
    query = start(load(stream=True, **options), tmp_path)
    with pytest.raises(StreamingQueryException, match=f"{other}-0 was deleted"):
        query.awaitTermination()
    start(load(stream=True, **options, failOnDataLoss="false"), tmp_path).awaitTermination()
    assert values(spark, tmp_path) == [b"a", b"b", b"c", b"d"]


def has_read(query: StreamingQuery, count: int) -> bool:
    return sum(one["numInputRows"] for one in query.recentProgress) == count


def test_an_idle_query_runs_no_micro_batches_and_wakes_at_once(
    spark: SparkSession, cluster: InProcessCluster, topic: str, load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    query = start(load(stream=True, startingOffsets="earliest"), tmp_path, now=False)
    until(lambda: query.lastProgress, "batch 0")
    for count in range(1, 4):
        write(cluster.bootstrap_servers, topic, numbered(1, count))
        until(partial(has_read, query, count), "its row")
    done = [one for one in query.recentProgress if one["numInputRows"]]
    query.stop()
    assert len(done) == 3
    # Batch 0 is Spark's own, for the start; each of the others has its row.
    assert sorted(int(one.name) for one in (tmp_path / "state" / "offsets").iterdir() if one.name.isdecimal()) == [
        0,
        1,
        2,
        3,
    ]
