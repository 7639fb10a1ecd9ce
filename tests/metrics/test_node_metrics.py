"""What a node says about itself, on simulated clusters: names, meaning, and that nothing is counted twice."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.api.pb import admin_pb2, batches_pb2
from streamlog.client import AsyncProducer
from streamlog.errors import StreamlogError
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.roles import PartitionDifference
from streamlog.metadata.records import Partition
from streamlog.metadata.view import MetadataView
from streamlog.metrics import Family, Histogram, MetricKind
from streamlog.model import NO_BROKER, BrokerId, LeaderEpoch, PartitionId, TopicId
from streamlog.node import Node
from streamlog.node.metrics.changes import MetadataChanges
from tests.node.calls import Calls, leader_of, until_done
from tests.node.kit import Nodes, run_story
from tests.storage.batches import batch, poison

Page = dict[str, dict[tuple[str, ...], float | Histogram]]


def page(families: list[Family]) -> Page:
    return {family.name: dict(family.samples) for family in families}


def scrape(check: Callable[[Nodes, Calls], Coroutine[Any, Any, None]], *, voters: int = 3) -> None:
    """A cluster with topic t of one partition on all nodes, and a client."""

    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        client = nodes.world.host("client")
        calls = Calls(client.boot().network)
        await client.spawn(until_done(lambda: calls.create_topic("n1:9092", "t", replication_factor=voters)))
        await client.spawn(check(nodes, calls))
        await client.spawn(calls.close())

    run_story(story, voters=voters)


async def of(node: Node, *, per_partition: bool = True) -> Page:
    return page(await node.metrics.collect(per_partition=per_partition))


def total(pages: list[Page], name: str, labels: tuple[str, ...] = ()) -> float:
    values = [page[name].get(labels, 0) for page in pages if name in page]
    return sum(value for value in values if not isinstance(value, Histogram))


def test_names_help_and_labels_are_as_prometheus_wants_them() -> None:
    async def check(nodes: Nodes, calls: Calls) -> None:
        families = await nodes.node(1).metrics.collect()
        assert len({family.name for family in families}) == len(families)
        for family in families:
            assert re.fullmatch(r"streamlog_[a-z_]+", family.name)
            assert (family.kind is MetricKind.COUNTER) == family.name.endswith("_total"), family.name
            assert family.help.endswith("."), family.name
            assert len(set(family.labels) - {"topic", "partition"}) <= 2, family.name
            assert all(len(labels) == len(family.labels) for labels, _ in family.samples), family.name
            assert len({labels for labels, _ in family.samples}) == len(family.samples), family.name

    scrape(check)


def test_what_is_written_and_read_is_counted_where_it_is_led() -> None:
    async def check(nodes: Nodes, calls: Calls) -> None:
        leader = leader_of(nodes.node(1).view, "t")
        for value in (b"one", b"two", b"three"):
            await until_done(partial(calls.produce, f"n{leader}:9092", "t", 0, value))
        data = await calls.fetch(f"n{leader}:9092", "t", 0, 0)
        pages = [await of(node) for node in nodes.alive()]
        assert total(pages, "streamlog_topic_records_in_total", ("t",)) == 3
        size = total(pages, "streamlog_topic_bytes_in_total", ("t",))
        assert size == total(pages, "streamlog_topic_bytes_out_total", ("t",)) == len(data)
        assert total(pages, "streamlog_topic_replication_bytes_out_total", ("t",)) == 2 * size
        assert total(pages, "streamlog_topic_replication_bytes_in_total", ("t",)) == 2 * size
        assert total(pages, "streamlog_is_leader", ("t", "0")) == 1
        own = pages[[node.node_id for node in nodes.alive()].index(leader)]
        assert own["streamlog_high_watermark"]["t", "0"] == 3
        assert own["streamlog_isr_size"]["t", "0"] == 3
        produced = own["streamlog_rpc_requests_total"]["streamlog.v1.Batches/Produce",]
        assert isinstance(produced, float | int)
        assert produced >= 3
        latency = own["streamlog_rpc_duration_seconds"]["streamlog.v1.Batches/Produce",]
        assert isinstance(latency, Histogram)
        assert latency.count == produced

    scrape(check)


def test_a_node_that_dies_is_seen_in_the_totals_of_the_others() -> None:
    async def check(nodes: Nodes, calls: Calls) -> None:
        died = leader_of(nodes.node(1).view, "t")
        before = [await of(node) for node in nodes.alive()]
        assert total(before, "streamlog_under_replicated_partitions") == 0
        latencies = [page["streamlog_quorum_commit_duration_seconds"][()] for page in before]
        assert sum(latency.count > 0 for latency in latencies if isinstance(latency, Histogram)) == 1
        nodes.host(died).crash()
        others = nodes.alive()
        await nodes.until(lambda: all(leader_of(node.view, "t") not in (-1, died) for node in others))
        await nodes.until(lambda: nodes.controller() is not None)
        pages = [await of(node) for node in others]
        assert total(pages, "streamlog_under_replicated_partitions") >= 1
        assert total(pages, "streamlog_at_min_isr_partitions") >= 1
        assert total(pages, "streamlog_active_controller") == 1
        assert total(pages, "streamlog_cluster_nodes", ("active",)) == 2
        assert total(pages, "streamlog_controller_unclean_leader_elections_total") == 0
        lag = [page["streamlog_follower_lag_records"].get(("t", "0", str(died))) for page in pages]
        assert any(one is not None for one in lag)

    scrape(check)


def test_series_of_single_partitions_can_be_left_out() -> None:
    async def check(nodes: Nodes, calls: Calls) -> None:
        found = await of(nodes.node(1), per_partition=False)
        assert "streamlog_log_end_offset" not in found
        assert "streamlog_group_committed_offset" not in found
        assert found["streamlog_replicas"][()] == 1

    scrape(check, voters=1)


def test_errors_are_counted_by_status() -> None:
    async def check(nodes: Nodes, calls: Calls) -> None:
        nothing = admin_pb2.CreateTopicsRequest()
        with pytest.raises(StreamlogError):
            await calls.call("n1:9092", "Admin/CreateTopics", nothing, admin_pb2.CreateTopicsResponse)
        found = await of(nodes.node(1))
        assert found["streamlog_rpc_errors_total"]["streamlog.v1.Admin/CreateTopics", "INVALID_ARGUMENT"] == 1
        assert found["streamlog_rpc_requests_total"]["streamlog.v1.Admin/CreateTopics",] == 2

    scrape(check, voters=1)


def test_what_no_reader_could_decode_is_refused_and_counted() -> None:
    async def check(nodes: Nodes, calls: Calls) -> None:
        await until_done(partial(calls.produce, "n1:9092", "t", 0, b"good"))
        for bad in (poison(), bytes([*batch([b"x"])[:-1], 0xEE])):
            data = batches_pb2.PartitionBatches(topic="t", partition=0, batches=bad)
            request = batches_pb2.ProduceRequest(partitions=[data])
            answer = await calls.call("n1:9092", "Batches/Produce", request, batches_pb2.ProduceResponse)
            assert answer.results[0].error.code in ("INVALID_RECORD", "CORRUPT_MESSAGE")
        found = await of(nodes.node(1))
        assert found["streamlog_topic_corrupt_batches_refused_total"]["t",] == 2
        assert found["streamlog_topic_records_in_total"]["t",] == 1

    scrape(check, voters=1)


def test_what_clients_hold_is_shown_with_its_bounds() -> None:
    async def check(nodes: Nodes, calls: Calls) -> None:
        await until_done(partial(calls.produce, "n1:9092", "t", 0, b"one"))
        found = await of(nodes.node(1))
        assert found["streamlog_queued_response_limit_bytes"][()] == 64 << 20
        before = found["streamlog_calls_running"][()]
        waits = batches_pb2.FetchRequest(
            settings=batches_pb2.FetchSettings(wait_ms_max=2000, bytes_min=1),
            partitions=[batches_pb2.FetchPartition(topic="t", partition=0, fetch_offset=1)],
        )
        polling = asyncio.create_task(
            calls.call("n1:9092", "Batches/Fetch", waits, batches_pb2.FetchResponse, timeout_s=10)
        )
        await nodes.until(lambda: nodes.node(1).metrics.calls._unary["/streamlog.v1.Batches/Fetch"].open == 1)
        during = await of(nodes.node(1))
        assert isinstance(before, int)
        assert during["streamlog_calls_running"][()] == before + 1
        assert during["streamlog_queued_response_bytes"][()] == 0  # who waits holds nothing
        await polling
        assert (await of(nodes.node(1)))["streamlog_calls_running"][()] == before

    scrape(check, voters=1)


def test_a_clock_that_is_wrong_is_seen_at_its_node() -> None:
    async def check(nodes: Nodes, calls: Calls) -> None:
        await nodes.until(lambda: all(node._clock.may_delete_by_time for node in nodes.alive()))
        nodes.host(2).clock.jump_ms += 3_600_000
        pages = [await of(nodes.node(one)) for one in (1, 2, 3)]
        skews = [page["streamlog_clock_skew_seconds"][()] for page in pages]
        assert skews == pytest.approx([0, 3600, 0], abs=1)
        assert [page["streamlog_clock_agrees"][()] for page in pages] == [1, 0, 1]
        assert pages[0]["streamlog_clock_skew_limit_seconds"][()] == 10

    scrape(check)


def test_the_age_of_a_transaction_is_not_that_of_a_wrong_clock() -> None:
    """It starts by the quorum's time, so its age is by that, too: no alert of hanging transactions."""

    async def check(nodes: Nodes, calls: Calls) -> None:
        await nodes.until(lambda: all(node._clock.may_delete_by_time for node in nodes.alive()))
        ports = nodes.world.host("client").ports
        producer = AsyncProducer(bootstrap_servers="n1:9092", transactional_id="tx", ports=ports)
        await producer.start()
        await until_done(producer.init_transactions)
        await producer.begin_transaction()
        await producer.send("t", b"x")
        for node in nodes.alive():
            nodes.host(node.node_id).clock.jump_ms += 3_600_000
            ages = [(await of(one))["streamlog_oldest_transaction_age_seconds"][()] for one in nodes.alive()]
            assert max(age for age in ages if not isinstance(age, Histogram)) < 60
            nodes.host(node.node_id).clock.jump_ms -= 3_600_000
        await producer.abort_transaction()
        await producer.close()

    scrape(check)


def test_an_unclean_election_is_counted_once_in_the_cluster() -> None:
    """By the active controller: a leader that was neither in sync, nor eligible, nor the last leader."""
    view = MetadataView()
    changes = {me: MetadataChanges(BrokerId(me), view) for me in (1, 2)}
    view.set_controller(BrokerId(2), "n2:9092")
    before = Partition(
        replicas=(BrokerId(1), BrokerId(2), BrokerId(3)), isr=(), elr=(), leader=NO_BROKER, last_leader=BrokerId(1)
    )
    clean = replace(before, leader=BrokerId(1), isr=(BrokerId(1),))
    unclean = replace(before, leader=BrokerId(3), isr=(BrokerId(3),))
    for after in (clean, unclean):
        for one in changes.values():
            one._on_metadata(view.image, OneChange(before, after))
    assert [(one.elections, one.unclean_elections) for one in changes.values()] == [(0, 0), (2, 1)]


def test_an_election_that_provably_lost_nothing_is_not_unclean() -> None:
    view = MetadataView()
    proofs = {((TopicId(b"t" * 16), PartitionId(0)), LeaderEpoch(4))}
    changes = MetadataChanges(BrokerId(1), view, lambda key, epoch: (key, epoch) in proofs)
    view.set_controller(BrokerId(1), "n1:9092")
    before = Partition(
        replicas=(BrokerId(1), BrokerId(2)),
        isr=(),
        leader=NO_BROKER,
        last_leader=BrokerId(1),
        leader_epoch=LeaderEpoch(4),
    )
    for epoch in (4, 5):
        old = replace(before, leader_epoch=LeaderEpoch(epoch))
        new = replace(old, leader=BrokerId(2), isr=(BrokerId(2),), leader_epoch=LeaderEpoch(epoch + 1))
        changes._on_metadata(view.image, OneChange(old, new))
    assert (changes.elections, changes.proven_elections, changes.unclean_elections) == (2, 1, 1)


class OneChange(MetadataDelta):
    """Of partition 0 of some topic."""

    def __init__(self, old: Partition, new: Partition) -> None:
        self._difference = (PartitionId(0), old, new)

    def changed_topics(self) -> Iterator[tuple[TopicId, Iterator[PartitionDifference]]]:
        yield TopicId(b"t" * 16), iter([self._difference])
