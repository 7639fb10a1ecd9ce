"""The state is read in several calls, and offsets have the time of their own: rates are over that. A sampler keeps
what changes seldom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamlog.client.admin.transaction_values import OpenTransactions
from streamlog.client.admin.values import ConfigDescription, ConfigResource, NodeState, TopicDescription
from streamlog.console.collection.sample import sample
from streamlog.errors import BrokerNotAvailableError, ClusterAuthorizationError, StreamlogError
from streamlog.model import BrokerId
from streamlog.monitor import cluster_state
from streamlog.monitor.cluster_state import SLOW_S, read_cluster_state
from tests.support.health_samples import cluster, node


class SlowCluster:
    """An admin client that needs 3 s to connect, 1 s more for the log directories, then 5 s for all else."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._read = asyncio.Event()

    def monotonic(self) -> float:
        return self.now_s

    async def describe_cluster(self) -> Any:
        self.now_s += 3
        return cluster()

    async def describe_log_dirs(self) -> Any:
        self.now_s += 1
        asyncio.get_running_loop().call_soon(self._read.set)
        return ()

    async def list_topics(self, *, include_internal: bool) -> Any:
        await self._read.wait()
        self.now_s += 5
        return ()

    async def find_hanging_transactions(self) -> Any:
        return OpenTransactions(transactions=(), errors={})

    async def list_groups(self) -> Any:
        raise BrokerNotAvailableError("no coordinator")


class WithoutLogDirs(SlowCluster):
    async def describe_log_dirs(self) -> Any:
        self._read.set()
        raise BrokerNotAvailableError("no log directories")


def sampled(made: type[SlowCluster], monkeypatch: pytest.MonkeyPatch) -> Any:
    async def story() -> Any:
        admin = made()
        monkeypatch.setattr(cluster_state, "time", admin)
        reading: Awaitable[Any] = sample(cast(Any, admin), 0.0, admin.now_s)
        return await reading

    return asyncio.run(story())


def test_rates_are_over_the_times_at_which_offsets_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not over those of the whole samples: the first one connects, which takes longer than all that follow."""
    assert sampled(SlowCluster, monkeypatch).monotonic_s == 104


def test_a_sample_without_offsets_has_the_time_of_its_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sampled(WithoutLogDirs, monkeypatch)
    assert (found.monotonic_s, found.ends) == (100, {})


def topic(name: str) -> TopicDescription:
    return TopicDescription(
        name=name,
        topic_id=b"",  # type: ignore[arg-type]
        partition_count=0,
        replication_factor=3,
        configs={},
        partitions=(),
        internal=False,
        error=None,
    )


class CountingCluster:
    """An admin client that counts the calls about what changes seldom."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.topics = [topic("a")]
        self.calls = 0
        self.fails = False

    def monotonic(self) -> float:
        return self.now_s

    async def describe_cluster(self) -> Any:
        return cluster()

    async def describe_log_dirs(self) -> Any:
        return ()

    async def list_topics(self, *, include_internal: bool) -> Any:
        return self.topics

    async def describe_topics(self, names: list[str]) -> Any:
        return self.topics

    async def describe_configs(self, resources: list[ConfigResource], names: list[str]) -> Any:
        self.calls += 1
        return [ConfigDescription(resource=one, entries=(), error=None) for one in resources]

    async def find_hanging_transactions(self) -> Any:
        self.calls += 1
        if self.fails:
            raise BrokerNotAvailableError("no coordinator")
        return OpenTransactions(transactions=(), errors={BrokerId(2): BrokerNotAvailableError("it is down")})


def test_what_changes_seldom_is_read_each_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = CountingCluster()
    monkeypatch.setattr(cluster_state, "time", admin)

    async def story() -> None:
        state = None

        async def calls(later_s: float) -> int:
            nonlocal state
            admin.now_s += later_s
            before = admin.calls
            state = await read_cluster_state(cast(Any, admin), state)
            return admin.calls - before

        assert await calls(0) == 2
        assert await calls(SLOW_S / 2) == 0
        assert await calls(SLOW_S / 2) == 2
        admin.topics = [topic("a"), topic("b")]
        assert await calls(1) == 2  # of the new topic nothing is known
        assert await calls(1) == 0
        assert state is not None
        assert list(state.transaction_errors) == [2]
        admin.fails = True
        assert await calls(SLOW_S) == 2
        assert list(state.missing) == ["open transactions"]
        assert await calls(1) == 2  # what could not be read is not kept

    asyncio.run(story())


class SkewedCluster(CountingCluster):
    """Node 1 has a clock as most, 2 and 4 have not; 3 is fenced."""

    refusal: StreamlogError | None = None

    def __init__(self) -> None:
        super().__init__()
        self.topics = []
        self.asked: list[str] = []

    async def describe_cluster(self) -> Any:
        fenced = node(3, NodeState.FENCED, clock_skew_ms=5_000)
        skewed = node(2, clock_skew_ms=-20_000), node(4, clock_skew_ms=101)
        return cluster(node(1, clock_skew_ms=100), fenced, *skewed)

    async def describe_configs(self, resources: list[ConfigResource], names: list[str]) -> Any:
        assert names == ["clock.skew.max.ms"]
        self.asked += [one.name for one in resources]
        if self.refusal is not None:
            raise self.refusal
        limit = SimpleNamespace(value="60000")
        return [
            SimpleNamespace(error=None, entries=(limit,)),
            SimpleNamespace(error=BrokerNotAvailableError("it is down"), entries=()),
        ]


@pytest.mark.parametrize(
    ("refusal", "limits", "missing"),
    [
        (None, {2: 60_000}, []),
        (ClusterAuthorizationError("User:nora may not DESCRIBE_CONFIGS cluster"), {}, []),
        (BrokerNotAvailableError("no node"), {}, ["configs of nodes"]),
    ],
)
def test_limits_of_clocks_are_read_where_a_clock_differs(
    refusal: StreamlogError | None, limits: dict[int, int], missing: list[str]
) -> None:
    admin = SkewedCluster()
    admin.refusal = refusal
    found = asyncio.run(read_cluster_state(cast(Any, admin)))
    assert (admin.asked, found.clock_skew_max_ms, list(found.missing)) == (["2", "4"], limits, missing)
