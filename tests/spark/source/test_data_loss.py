"""Records that retention deletes before they are read: before a query is planned, and while a task reads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from pyspark.errors import PySparkException, StreamingQueryException

from streamlog.client import Consumer
from streamlog.client.admin.values import ConfigChange, ConfigResource
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.pytest_plugin.cluster import InProcessCluster
from streamlog.spark.failures import DataLossError
from streamlog.spark.options import Options
from streamlog.spark.source.cluster_offsets import consumer_settings
from streamlog.spark.source.planning import Range
from streamlog.spark.source.range_reader import read_ranges
from tests.spark.records import until, write

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
OLD = 24_000
HINT = "to skip the lost records, set failOnDataLoss=false"


class Kept:
    """A topic of one partition that keeps all records until its retention is lowered."""

    def __init__(self, cluster: InProcessCluster, name: str) -> None:
        self.servers, self.name = cluster.bootstrap_servers, name
        self._cluster = cluster
        cluster.create_topic(name)

    def write(self, *numbers: int, old: bool, size: int = 0) -> None:
        """What is of now begins a segment of its own after what is old."""
        now = time.time_ns() // 1_000_000
        values = [b"%06d" % number + b"x" * size for number in numbers]
        write(self.servers, self.name, values, timestamp_ms=now - 30 * DAY_MS if old else now)

    def forget(self, start: int) -> None:
        """The old ones; the log begins with this offset then."""
        resource = ConfigResource.topic(self.name)
        change = ConfigChange(name="retention.bytes", value="1")  # by time, what was appended just now would stay
        self._cluster.with_admin(lambda admin: admin.alter_config(resource, [change]))
        first = TopicPartition(self.name, PartitionId(0))
        with Consumer(bootstrap_servers=self.servers) as consumer:
            until(lambda: consumer.beginning_offsets([first])[first] == start, f"the log begins with {start}")


@pytest.fixture
def kept(request: pytest.FixtureRequest, cluster: InProcessCluster) -> Kept:
    return Kept(cluster, "".join(one if one.isalnum() else "-" for one in request.node.name))


@pytest.fixture
def load(spark: SparkSession, kept: Kept) -> Callable[..., DataFrame]:
    def loaded(*, stream: bool = False, **options: str) -> DataFrame:
        reader: Any = spark.readStream if stream else spark.read
        given = {"streamlog.bootstrap.servers": kept.servers, "subscribe": kept.name} | options
        return reader.format("streamlog").options(**given).load()

    return loaded


def numbers(data: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in data.select("value").collect())


def test_a_stream_that_starts_again_after_a_trim(
    spark: SparkSession, kept: Kept, load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    def run(**options: str) -> None:
        writer = load(stream=True, startingOffsets="earliest", **options).writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "state"))
        writer.trigger(availableNow=True).start().awaitTermination()

    kept.write(*range(10), old=True)
    run()
    kept.write(*range(10, 25), old=True)
    kept.write(*range(25, 30), old=False)
    kept.forget(25)
    with pytest.raises(StreamingQueryException) as caught:
        run()
    assert f"{kept.name}-0: offsets 10 to 24 were deleted; {HINT}" in str(caught.value)
    run(failOnDataLoss="false")
    assert numbers(spark.read.parquet(str(tmp_path / "out"))) == [*range(10), *range(25, 30)]
    kept.write(30, old=False)
    run()
    assert numbers(spark.read.parquet(str(tmp_path / "out"))) == [*range(10), *range(25, 31)]


def test_a_batch_that_begins_before_the_log(kept: Kept, load: Callable[..., DataFrame]) -> None:
    kept.write(*range(20), old=True)
    kept.write(*range(20, 30), old=False)
    kept.forget(20)
    assert numbers(load()) == [*range(20, 30)], "from the earliest nothing is lost"
    starts = {"startingOffsets": json.dumps({kept.name: {"0": 5}})}
    with pytest.raises(PySparkException) as caught:
        load(**starts).collect()
    assert f"{kept.name}-0: offsets 5 to 19 were deleted; {HINT}" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert numbers(load(**starts, failOnDataLoss="false")) == [*range(20, 30)]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_trim_between_planning_and_reading(kept: Kept, load: Callable[..., DataFrame], fail: str) -> None:
    """In three tasks, of which the first has lost all, the second a part, and the third nothing."""
    kept.write(*range(15), old=True)
    kept.write(*range(15, 30), old=False)
    data = load(minPartitions="3", failOnDataLoss=fail)
    assert data.rdd.getNumPartitions() == 3  # planned, once and for all
    kept.forget(15)
    if fail == "false":
        assert numbers(data) == [*range(15, 30)]
        return
    with pytest.raises(PySparkException) as caught:
        data.collect()
    assert HINT in str(caught.value)
    assert f"{kept.name}-0, offsets " in str(caught.value)


@pytest.mark.parametrize("fail", [True, False])
def test_a_trim_while_a_task_reads(kept: Kept, fail: bool) -> None:
    """What came before is there, what is left follows it."""
    kept.write(*range(OLD), old=True, size=1_000)
    kept.write(*range(OLD, OLD + 100), old=False, size=1_000)
    few = {"streamlog.fetch.max.bytes": "65536", "streamlog.max.partition.fetch.bytes": "65536"}
    settings = consumer_settings(Options.parse({"streamlog.bootstrap.servers": kept.servers, **few}))
    whole = Range(TopicPartition(kept.name, PartitionId(0)), Offset(0), Offset(OLD + 100))
    batches = read_ranges(settings, [whole], ("offset",), fail_on_data_loss=fail)
    found: list[int] = next(batches)["offset"].to_pylist()
    kept.forget(OLD)
    if fail:
        with pytest.raises(DataLossError, match=f"{kept.name}-0, offsets 0 to {OLD + 99}: .*{HINT}"):
            list(batches)
        return
    for batch in batches:
        found += batch["offset"].to_pylist()
    seen = len(found) - 100
    assert found == [*range(seen), *range(OLD, OLD + 100)]
    assert 0 < seen < OLD, "the trim was in the middle"


@pytest.mark.parametrize("fail", [True, False])
def test_a_trim_while_a_task_reads_several_partitions(kept: Kept, cluster: InProcessCluster, fail: bool) -> None:
    """What is lost is lost of one; the others are read to their ends, and nothing twice."""
    others = [Kept(cluster, f"{kept.name}-{n}") for n in range(2)]
    kept.write(*range(OLD), old=True, size=1_000)
    kept.write(*range(OLD, OLD + 100), old=False, size=1_000)
    for other in others:
        other.write(*range(2_000), old=False, size=1_000)
    few = {"streamlog.fetch.max.bytes": "65536", "streamlog.max.partition.fetch.bytes": "65536"}
    settings = consumer_settings(Options.parse({"streamlog.bootstrap.servers": kept.servers, **few}))
    wanted = [
        Range(TopicPartition(name, PartitionId(0)), Offset(0), Offset(end))
        for name, end in [(kept.name, OLD + 100), *((other.name, 2_000) for other in others)]
    ]
    found: dict[str, list[int]] = {one.partition.topic: [] for one in wanted}
    batches = read_ranges(settings, wanted, ("topic", "offset"), fail_on_data_loss=fail)

    def take(some: Iterable[pa.RecordBatch]) -> None:
        for batch in some:
            for topic, offset in zip(batch["topic"].to_pylist(), batch["offset"].to_pylist(), strict=True):
                found[topic].append(offset)

    take([next(batches)])
    kept.forget(OLD)
    if fail:
        with pytest.raises(DataLossError, match=f"{kept.name}-0, offsets .*{HINT}"):
            take(batches)
        return
    take(batches)
    lossy = found.pop(kept.name)
    seen = len(lossy) - 100
    assert lossy == [*range(seen), *range(OLD, OLD + 100)]
    assert seen < OLD, "the trim was in the middle"
    assert all(offsets == [*range(2_000)] for offsets in found.values())
