"""Samples, rates and what is kept of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.client.admin.group_values import GroupListing, GroupState
from streamlog.console.collection import rates
from streamlog.console.collection.rates import (
    consumed_per_s,
    lag_by_topic,
    partition_lag_series,
    points_of,
    topic_rates,
    total,
)
from streamlog.console.collection.sample import PartitionEnd, Sample
from streamlog.model import BrokerId, PartitionId, TopicPartition
from tests.support.health_samples import cluster, state

AT = TopicPartition("orders", PartitionId(0))
OTHER = TopicPartition("clicks", PartitionId(0))


def sample(second: float, ends: dict[TopicPartition, tuple[int, int]], **more: Any) -> Sample:
    """`ends`: log end and size."""
    return Sample(
        at_s=second,
        monotonic_s=second,
        state=state(cluster()),
        ends={at: PartitionEnd(0, end, size) for at, (end, size) in ends.items()},
        **more,
    )


def test_rates_are_what_came_between() -> None:
    before = sample(10, {AT: (100, 1000), OTHER: (5, 50)})
    now = sample(15, {AT: (150, 6000), OTHER: (5, 50), TopicPartition("new", PartitionId(0)): (9, 9)})
    rates = topic_rates(before, now)
    assert (rates["orders"].records_per_s, rates["orders"].bytes_per_s) == (10, 1000)
    assert rates["clicks"].records_per_s == 0
    assert "new" not in rates
    assert total(rates).records_per_s == 10


@pytest.mark.parametrize("end", [0, 99])
def test_a_log_that_was_made_again_has_no_negative_rate(end: int) -> None:
    before, now = sample(10, {AT: (100, 1000)}), sample(15, {AT: (end, 10)})
    assert topic_rates(before, now)["orders"].records_per_s == 0


def test_without_an_earlier_sample_there_is_no_rate() -> None:
    now = sample(15, {AT: (100, 1)})
    assert topic_rates(None, now) == topic_rates(now, now) == {}


def test_lag_and_what_a_group_committed() -> None:
    before = sample(10, {AT: (100, 0), OTHER: (50, 0)}, committed={"g": {AT: 10, OTHER: 50}})
    now = sample(20, {AT: (120, 0), OTHER: (50, 0)}, committed={"g": {AT: 40, OTHER: 60}})
    assert lag_by_topic(now.lag("g")) == {"orders": 80, "clicks": 0}
    assert consumed_per_s(before, now, "g") == pytest.approx(4)
    assert now.lag("unknown") == {}


def test_the_lag_of_each_partition_is_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = GroupListing(group="g", state=GroupState.EMPTY, member_count=0, coordinator=BrokerId(1))
    groups = [listing, replace(listing, group="a")]
    committed = {"g": {AT: 10, OTHER: 50}, "a": {AT: 100}}
    now = sample(20, {AT: (120, 0), OTHER: (50, 0)}, groups=groups, committed=committed)
    found = {key: lag for key, lag in points_of(None, now).items() if key[0] == "group.partition_lag"}
    assert found == {
        partition_lag_series("g", AT): 110,
        partition_lag_series("g", OTHER): 0,
        partition_lag_series("a", AT): 20,
    }
    monkeypatch.setattr(rates, "PARTITION_LAGS_MAX", 2)
    kept = [key for key in points_of(None, now) if key[0] == "group.partition_lag"]
    assert kept == [partition_lag_series("a", AT), partition_lag_series("g", AT)]


def test_a_cluster_that_is_gone_is_kept_as_no_nodes() -> None:
    from streamlog.monitor import ClusterState

    gone = Sample(at_s=1, monotonic_s=1, state=ClusterState(cluster=None))
    assert points_of(None, gone) == {("cluster.nodes", ""): 0}
    assert points_of(None, sample(1, {}))["cluster.nodes", ""] == 3
