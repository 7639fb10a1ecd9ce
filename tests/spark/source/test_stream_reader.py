"""The streaming source as Spark calls it, in this process: what it asks of the nodes, and what it answers when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from streamlog.client.connection.connections import Connections
from streamlog.pytest_plugin.cluster import InProcessCluster
from streamlog.spark.options import Options
from streamlog.spark.source.stream_reader import StreamReader
from tests.spark.records import write

pytestmark = pytest.mark.spark


@pytest.fixture
def make(cluster: InProcessCluster, topic: str) -> Iterator[Callable[..., StreamReader]]:
    made: list[StreamReader] = []

    def reader(**options: str) -> StreamReader:
        given = {"streamlog.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic} | options
        made.append(StreamReader(Options.parse(given), ("value",)))
        return made[-1]

    yield reader
    for one in made:
        one.stop()


def test_an_idle_query_asks_less_than_twice_a_second(
    cluster: InProcessCluster, topic: str, make: Callable[..., StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = Connections.ask

    async def counting(self: Connections, call: Any, request: Any, **more: Any) -> Any:
        asked.append(type(request).__name__)
        return await ask(self, call, request, **more)

    reader = make()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())  # Spark runs a first micro-batch, whatever is in it
    for _ in range(3):
        assert reader.latestOffset(end, ReadAllAvailable()) is end
    monkeypatch.setattr(Connections, "ask", counting)
    begin = time.monotonic()
    while time.monotonic() - begin < 11:
        assert reader.latestOffset(end, ReadAllAvailable()) is end, "the same, or Spark runs an empty micro-batch"
    assert len(asked) <= 2 * (time.monotonic() - begin), asked

    write(cluster.bootstrap_servers, topic, [b"x"], partition=1)
    news = reader.latestOffset(end, ReadAllAvailable())
    assert news[topic]["1"] == 1


def test_its_first_end_says_where_it_began(
    cluster: InProcessCluster, topic: str, make: Callable[..., StreamReader]
) -> None:
    write(cluster.bootstrap_servers, topic, [b"x"] * 10, partition=0)
    reader = make()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    write(cluster.bootstrap_servers, topic, [b"x"] * 10, partition=0)
    again = make()
    later = again.initialOffset()
    assert later[topic]["0"] == 20
    assert end[topic]["0"] == 10
    assert again.partitions(later, end) == []
    tasks = again.partitions(end, again.latestOffset(end, ReadAllAvailable()))
    assert [(one.start, one.end) for task in tasks for one in task.value] == [(10, 20)]


def test_limits(cluster: InProcessCluster, topic: str, make: Callable[..., StreamReader]) -> None:
    for partition in range(3):
        write(cluster.bootstrap_servers, topic, [b"x" * 100] * 100, partition=partition)
    assert make().getDefaultReadLimit() == ReadAllAvailable()
    assert make(maxOffsetsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert make(minOffsetsPerTrigger="5").getDefaultReadLimit() == ReadMinRows(5)
    assert make(maxBytesPerTrigger="5").getDefaultReadLimit() == ReadMaxBytes(5)

    def count(reader: StreamReader, limit: Any) -> int:
        end = reader.latestOffset(reader.initialOffset(), limit)
        return sum(end[topic].values())

    earliest = {"startingOffsets": "earliest"}
    assert count(make(**earliest), ReadMaxRows(30)) == 30
    assert count(make(**earliest, maxOffsetsPerTrigger="30"), ReadAllAvailable()) == 300, "as the engine asks"
    assert 3 <= count(make(**earliest), ReadMaxBytes(3_000)) < 60
    few = {**earliest, "minOffsetsPerTrigger": "301"}
    assert count(make(**few), ReadMinRows(301)) == 0
    assert count(make(**few, maxTriggerDelay="0ms"), ReadMinRows(301)) == 300
    available = make(**few)
    available.prepareForTriggerAvailableNow()
    assert count(available, ReadMinRows(301)) == 300, "it would wait for ever"
