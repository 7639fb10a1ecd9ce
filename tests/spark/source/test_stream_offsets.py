"""The offsets of the streaming source over a cluster in memory: what a query's micro-batches read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from streamlog.errors import ClusterAuthorizationError
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.spark.failures import StreamlogSparkError
from streamlog.spark.options import Options
from streamlog.spark.source.cluster_offsets import ClusterOffsets
from streamlog.spark.source.offsets import Offsets, to_json
from streamlog.spark.source.planning import Bounds
from streamlog.spark.source.stream_reader import StreamReader


class FakeCluster:
    """Partitions and their ends; each begins at 0."""

    def __init__(self, ends: Offsets) -> None:
        self.ends = dict(ends)

    def required_partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self.ends))

    partitions = required_partitions

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {one: Offset(0) for one in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {one: self.ends[one] for one in partitions}

    def bounds(
        self, partitions: Iterable[TopicPartition], known: Offsets | None = None
    ) -> dict[TopicPartition, Bounds]:
        return {one: Bounds(Offset(0), self.ends[one]) for one in partitions}

    def mean_bytes_if_allowed(self, topics: Iterable[str]) -> float | None:
        return None


def tp(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic, PartitionId(number))


class Query:
    """As Spark calls the source."""

    def __init__(self, cluster: FakeCluster, **options: str) -> None:
        given = {"streamlog.bootstrap.servers": "h:1", "startingOffsets": "earliest"} | options
        self.reader = StreamReader(Options.parse(given), ("value",))
        self.reader._cluster = cluster  # type: ignore[assignment]
        self.start = self.reader.initialOffset()

    def micro_batch(self) -> list[tuple[TopicPartition, int, int]]:
        self.reader._idle_at = None  # due
        end = self.reader.latestOffset(self.start, ReadAllAvailable())
        begin, self.start = self.start, end
        return read_by(self.reader, begin, end)


def read_by(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[TopicPartition, int, int]]:
    return [(one.partition, one.start, one.end) for task in reader.partitions(start, end) for one in task.value]


def test_a_topic_that_a_pattern_matches_later_is_read_from_its_first_record() -> None:
    cluster = FakeCluster({})
    query = Query(cluster, subscribePattern="orders.*")
    assert query.micro_batch() == []
    cluster.ends[tp("orders-a")] = Offset(5)
    assert query.micro_batch() == [(tp("orders-a"), 0, 5)]
    cluster.ends[tp("orders-a")] = Offset(8)
    assert query.micro_batch() == [(tp("orders-a"), 5, 8)]


def test_a_partition_that_appears_before_the_first_micro_batch_is_read_whole_also_when_that_is_restarted() -> None:
    cluster = FakeCluster({tp("orders", 0): Offset(5)})
    query = Query(cluster, subscribe="orders", startingOffsets="latest")
    cluster.ends = {tp("orders", 0): Offset(7), tp("orders", 1): Offset(3)}
    wanted = [(tp("orders", 0), 5, 7), (tp("orders", 1), 0, 3)]
    assert query.micro_batch() == wanted
    again = Query(cluster, subscribe="orders", startingOffsets="latest")
    assert read_by(again.reader, again.start, query.start) == wanted


def test_a_first_micro_batch_that_an_earlier_release_planned_is_read_whole() -> None:
    """It stored no begin of partitions that the initial offsets lack; these offsets are queried again."""
    cluster = FakeCluster({tp("orders", 0): Offset(9), tp("orders", 1): Offset(6)})
    query = Query(cluster, subscribe="orders", startingOffsets="latest")
    end = to_json({tp("orders", 0): Offset(7), tp("orders", 1): Offset(3)}, {tp("orders", 0): Offset(5)})
    assert read_by(query.reader, query.start, end) == [(tp("orders", 0), 5, 7), (tp("orders", 1), 0, 3)]


def test_a_micro_batch_that_an_earlier_release_planned_after_a_start_without_topics_is_read_whole() -> None:
    cluster = FakeCluster({tp("orders"): Offset(9)})
    query = Query(cluster, subscribePattern="orders.*")
    query.reader._initial = None  # restarted at the second micro-batch
    assert read_by(query.reader, {}, to_json({tp("orders"): Offset(5)})) == [(tp("orders"), 0, 5)]


class DenyingAdmin:
    def __init__(self) -> None:
        self.asked = 0

    def describe_log_dirs(self, *, topics: list[str]) -> list[Any]:
        self.asked += 1
        raise ClusterAuthorizationError("User:reporter may not DESCRIBE the cluster")


def test_a_user_who_may_only_read_gets_tasks_and_no_limit_by_size(caplog: pytest.LogCaptureFixture) -> None:
    options = Options.parse({"streamlog.bootstrap.servers": "h:1", "subscribe": "orders"})
    cluster, admin = ClusterOffsets(options), DenyingAdmin()
    cluster._admin = admin  # type: ignore[assignment]
    assert [cluster.mean_bytes_if_allowed(["orders"]) for _ in range(3)] == [None] * 3
    assert admin.asked == len(caplog.records) == 1
    with pytest.raises(ClusterAuthorizationError):
        cluster.mean_bytes(["orders"])  # for maxBytesPerTrigger


def test_a_first_start_after_the_end_names_the_option() -> None:
    cluster = FakeCluster({tp("orders"): Offset(5)})
    query = Query(cluster, subscribe="orders", startingOffsets='{"orders": {"0": 100}}')
    with pytest.raises(
        StreamlogSparkError, match="option startingOffsets: orders-0 ends at 5, before the requested 100"
    ):
        query.micro_batch()
