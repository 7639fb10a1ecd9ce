"""The sink in Spark, on one session; what may die in between is in test_sink_protocol and test_kills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from streamlog.client import Admin
from streamlog.client.admin.transaction_values import TransactionState
from streamlog.pytest_plugin.cluster import InProcessCluster
from streamlog.spark.options import Options
from streamlog.spark.sink.state import transactional_id
from streamlog.spark.sink.task import TaskName, write_rows
from streamlog.spark.sink.writers import BatchSink
from tests.spark.records import committed, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def save(cluster: InProcessCluster) -> Callable[..., None]:
    def saved(data: DataFrame, **options: str) -> None:
        given = {"streamlog.bootstrap.servers": cluster.bootstrap_servers} | options
        data.write.format("streamlog").mode("append").options(**given).save()

    return saved


def stream(spark: SparkSession, servers: str, topic: str, out: str, tmp_path: Path, **columns: Any) -> None:
    """All that is in the topic, to `out`."""
    common = {"streamlog.bootstrap.servers": servers}
    source = spark.readStream.format("streamlog").options(**common, subscribe=topic, startingOffsets="earliest").load()
    writer = source.select("key", "value").withColumns(columns).writeStream.format("streamlog")
    writer = writer.options(**common, topic=out, checkpointLocation=str(tmp_path / "state"))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_columns(spark: SparkSession, cluster: InProcessCluster, topic: str, save: Callable[..., None]) -> None:
    rows = [("k", "v", topic, 2, "2026-11-21 10:00:00.123456"), (None, None, topic, 0, "1970-01-01 00:00:00")]
    data = spark.createDataFrame(rows, "key string, value string, topic string, partition int, at string")
    headers = F.array(F.struct(F.lit("h").alias("key"), F.lit("x").cast("binary").alias("value")))
    data = data.select("*", F.to_timestamp("at").alias("timestamp"), headers.alias("headers"))
    save(data, includeTimestamp="true")
    second, first = sorted(committed(cluster.bootstrap_servers, topic), key=lambda one: one.partition)
    assert first == (topic, 2, 0, 1_795_255_200_123, b"k", b"v", (("h", b"x"),))
    assert second == (topic, 0, 0, 0, None, None, (("h", b"x"),))


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_what_a_killed_attempt_left_open_is_aborted_at_the_end_of_the_job(
    cluster: InProcessCluster, topic: str, ends: str
) -> None:
    """Of a batch without a sinkId. Readers of committed records would wait behind it for a quarter of an hour."""
    options = Options.parse({"streamlog.bootstrap.servers": cluster.bootstrap_servers, "topic": topic})
    sink = BatchSink(options)
    name = TaskName(transactional_id=transactional_id(sink._sink, sink._run, "7"), two_phase=False)
    rows = pa.RecordBatch.from_arrays([pa.array([b"of a killed attempt"])], ["value"])
    write_rows(sink._rules, name, iter([rows]))
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        [before] = admin.describe_transactions([name.transactional_id])
        assert before.state is TransactionState.ONGOING
        getattr(sink, ends)([None])
        [after] = admin.describe_transactions([name.transactional_id])
    assert after.state in (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
    assert list(committed(cluster.bootstrap_servers, topic)) == []


def test_a_batch_of_a_name_is_written_once(
    spark: SparkSession, cluster: InProcessCluster, topic: str, save: Callable[..., None]
) -> None:
    data = spark.range(1_000).select(F.col("id").cast("string").alias("value"))
    for _ in range(2):
        save(data, topic=topic, sinkId=f"job-{topic}")
    assert Counter(one.value for one in committed(cluster.bootstrap_servers, topic)) == Counter(
        str(number).encode() for number in range(1_000)
    )
    save(data, topic=topic)
    assert len(committed(cluster.bootstrap_servers, topic)) == 2_000


def test_a_stream_is_written_once_though_spark_forgot_that_it_was(
    spark: SparkSession, cluster: InProcessCluster, topic: str, tmp_path: Path
) -> None:
    """As when the driver is killed between the sink's commit and Spark's, of batch 0 and of batch 1."""
    servers, out = cluster.bootstrap_servers, f"{topic}-out"
    cluster.create_topic(out, partitions=2)
    for number in range(2):
        write(servers, topic, [b"%d:%d" % (number, one) for one in range(20)])
        stream(spark, servers, topic, out, tmp_path)
        for name in (f"{number}", f".{number}.crc"):
            (tmp_path / "state" / "commits" / name).unlink(missing_ok=True)
        stream(spark, servers, topic, out, tmp_path)
    found = Counter(one.value for one in committed(servers, out))
    assert found == Counter(b"%d:%d" % (number, one) for number in range(2) for one in range(20))


def test_a_failed_job_leaves_nothing(
    spark: SparkSession, cluster: InProcessCluster, topic: str, save: Callable[..., None]
) -> None:
    """What its killed tasks had open is aborted by the job that is run in its place, at the latest."""
    bad = F.when(F.col("id") == 900, F.raise_error(F.lit("a bad row"))).otherwise(F.col("id").cast("string"))
    with pytest.raises(PySparkException, match="a bad row"):
        save(spark.range(0, 1_000, 1, 2).select(bad.alias("value")), topic=topic, sinkId=topic)
    save(spark.range(10).select(F.col("id").cast("string").alias("value")), topic=topic, sinkId=topic)
    assert sorted(one.value or b"" for one in committed(cluster.bootstrap_servers, topic)) == [
        b"%d" % number for number in range(10)
    ]
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.list_transactions(states=[TransactionState.ONGOING]).transactions
    assert [one.transactional_id for one in found if topic in one.transactional_id] == []


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ("'x' AS value", {}, "option topic: is missing"),
        ("'x' AS other", {"topic": "t"}, "schema: column value is missing"),
        ("1 AS value", {"topic": "t"}, "schema: column value is int"),
        ("'x' AS value", {"topic": "no-such-topic"}, "topic 'no-such-topic' does not exist"),
        ("'x' AS value, CAST(NULL AS string) AS topic", {}, "a row has no topic"),
        ("'x' AS value", {"topic": "t", "subscribe": "t"}, "option subscribe: does not apply to a batch sink"),
    ],
)
def test_an_error_is_one_sentence(
    spark: SparkSession, save: Callable[..., None], row: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        save(spark.sql(f"SELECT {row}"), **options)
    assert message in str(caught.value)
    assert "Traceback" not in str(caught.value)
