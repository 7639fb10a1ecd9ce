"""Damage in a closed segment: repaired from a replica that is in sync, by itself."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest

from streamlog.errors import BrokerNotAvailableError, DamagedFileError, OffsetOutOfRangeError, StreamlogError
from streamlog.model import BrokerId, IsolationLevel, LeaderEpoch, Offset, PartitionId, TopicId, TopicPartition
from streamlog.records import scan_headers
from streamlog.records.header import HEADER_SIZE
from streamlog.sim.files.inode import FileNode
from streamlog.storage.files.checkpoints import EpochEntry
from streamlog.storage.integrity.repair import FREE_BYTES_MIN
from streamlog.storage.producers.producer_states import ProducerStates
from tests.broker.nodes import Cluster, play
from tests.broker.three_nodes import three_nodes

BATCHES = 30


def path_of(cluster: Cluster, node_id: int) -> str:
    return cluster.nodes[node_id].log().segments.first.path(".log")


def place_of(cluster: Cluster, node_id: int, number: int) -> int:
    segment = cluster.nodes[node_id].log().segments.first
    data = segment.file.pread(segment.size_bytes, 0)
    return [position for position, _ in scan_headers(data, 0, len(data))][number]


def content_of(cluster: Cluster, node_id: int) -> bytes:
    """All of the log, whatever its segments are."""
    return b"".join(s.file.pread(s.size_bytes, 0) for s in cluster.nodes[node_id].log().segments)


async def filled(cluster: Cluster) -> bytes:
    await three_nodes(cluster)
    for i in range(BATCHES):
        await cluster.produce(*(b"%d %d" % (i, k) + bytes(700) for k in range(3)))
    await cluster.settled()
    return content_of(cluster, 1)


def damage(cluster: Cluster, node_id: int, how: str, number: int = 7) -> None:
    """As if the node had been started since it wrote this."""
    place, path = place_of(cluster, node_id, number), path_of(cluster, node_id)
    disk = cluster.host(node_id).disk
    match how:
        case "offset":
            disk.damage(path, place, struct.pack(">q", 21 + 100_000))
        case "length":
            disk.damage(path, place + 8, struct.pack(">i", 50_000_000))
        case "epoch":
            disk.damage(path, place + 12, struct.pack(">i", 77))
        case "records":
            disk.damage(path, place + HEADER_SIZE + 20, b"??????")
        case "offset and zeros":
            disk.damage(path, place, struct.pack(">q", 3 * number + 2))
            disk.damage(path, place_of(cluster, node_id, number + 1), bytes(HEADER_SIZE))
        case "records and next offset":  # the next batch says that it is this one
            disk.damage(path, place + HEADER_SIZE + 20, b"??????")
            disk.damage(path, place_of(cluster, node_id, number + 1), struct.pack(">q", 3 * number))
        case "zeros":
            disk.damage(path, place, bytes(9_000))
        case "missing":
            log = cluster.nodes[node_id].log()
            size, following = log.segments.first.size_bytes, place_of(cluster, node_id, number + 1)
            rest = log.segments.first.file.pread(size - following, following)
            disk.damage(path, place, rest)
            node = disk.find(path)
            assert isinstance(node, FileNode)
            node.cache.resize(place + len(rest))
            node.platter.resize(place + len(rest))
            log.segments.first.size_bytes = place + len(rest)  # as a start would find it
        case "cut":
            node = disk.find(path)
            assert isinstance(node, FileNode)
            node.cache.resize(place + 30)
            node.platter.resize(place + 30)
    cluster.nodes[node_id].log().segments.first.verified.forget()


HOW = ("offset", "length", "epoch", "records", "zeros")
BESIDE = (
    ("missing", 0),
    ("missing", 7),
    ("offset and zeros", 0),
    ("offset and zeros", 7),
    ("records and next offset", 0),
    ("records and next offset", 7),
)


async def read_all(cluster: Cluster, node_id: int) -> dict[int, bytes]:
    """As a consumer of the leader."""
    found: dict[int, bytes] = {}
    node = cluster.nodes[node_id]

    async def reading() -> None:
        replica, offset = node.leader(), Offset(0)
        while offset < replica.high_watermark:
            data = await replica.read(offset, 1 << 20, IsolationLevel.READ_UNCOMMITTED)
            for position, header in scan_headers(data, 0, len(data)):
                found[header.base_offset] = data[position : position + header.size_bytes]
                offset = header.next_offset

    await cluster.host(node_id).spawn(reading())
    return found


async def error_of(cluster: Cluster, node_id: int) -> DamagedFileError:
    """What a reader gets in the end: it may be asked to come again while a repair is tried."""
    while True:
        try:
            await read_all(cluster, node_id)
        except DamagedFileError as error:
            return error
        except BrokerNotAvailableError:
            continue
        raise AssertionError("all could be read")


@pytest.mark.parametrize("how", HOW)
def test_a_leader_repairs_what_a_consumer_wants(how: str) -> None:
    async def story(cluster: Cluster) -> None:
        whole = await filled(cluster)
        damage(cluster, 1, how)
        found = await read_all(cluster, 1)
        assert b"".join(found.values()) == whole
        assert content_of(cluster, 1) == whole
        assert not cluster.nodes[1].log().damaged_segments
        assert [f["source"] for f in cluster.probed("damage_repaired")] == [2]
        assert len(cluster.probed("damage_found")) == 1
        assert cluster.partition().leader == 1
        await cluster.produce(b"and goes on")
        await cluster.settled()
        cluster.check()

    play(story)


@pytest.mark.parametrize(("how", "number"), [*((how, 7) for how in HOW), *BESIDE])
def test_a_follower_repairs_what_is_found(how: str, number: int) -> None:
    async def story(cluster: Cluster) -> None:
        whole = await filled(cluster)
        damage(cluster, 3, how, number)
        log = cluster.nodes[3].log()

        async def examining() -> None:
            await log.examine(log.segments.first)

        await cluster.host(3).spawn(examining())
        await cluster.until(lambda: not log.damaged_segments)
        assert content_of(cluster, 3) == whole
        assert {f["source"] for f in cluster.probed("damage_repaired")} == {1}, "the leader is asked first"

    play(story)


def test_two_damaged_replicas_repair_each_other() -> None:
    async def story(cluster: Cluster) -> None:
        whole = await filled(cluster)
        damage(cluster, 1, "records", 3)
        damage(cluster, 2, "offset", 7)
        damage(cluster, 3, "length", 12)
        assert b"".join((await read_all(cluster, 1)).values()) == whole
        assert content_of(cluster, 1) == whole

    play(story)


def test_a_follower_that_copies_makes_the_leader_repair_itself() -> None:
    async def story(cluster: Cluster) -> None:
        whole = await filled(cluster)
        cluster.host(3).crash()
        cluster.fence(3)
        await cluster.until(lambda: 3 not in cluster.partition().isr)
        damage(cluster, 1, "offset")
        cluster.host(3).disk.remove("/data/t-0/00000000000000000000.log")
        cluster.start(3)
        await cluster.settled()
        assert content_of(cluster, 1) == content_of(cluster, 3) == whole

    play(story)


def leads(cluster: Cluster, node_id: int) -> bool:
    try:
        cluster.nodes[node_id].leader()
    except StreamlogError:
        return False
    return True


def cut_producers(cluster: Cluster, node_id: int) -> None:
    """As after a truncation that has removed a producer's batches: their state is to be restored from the log."""
    log = cluster.nodes[node_id].log()
    log.derived.producers = ProducerStates((), log.log_end_offset)
    log.derived.producers_stale = True


def test_a_follower_whose_damage_hides_the_state_of_producers_repairs_it_and_goes_on() -> None:
    """A truncated log: the node stopped with its next role (CorruptMessageError)."""

    async def story(cluster: Cluster) -> None:
        whole = await filled(cluster)
        damage(cluster, 3, "length")
        cut_producers(cluster, 3)
        cluster.host(1).crash()
        cluster.fence(1)
        await cluster.until(lambda: cluster.nodes[2].replicas is not None and leads(cluster, 2))
        await cluster.produce(b"of the next leader")
        log = cluster.nodes[3].log()
        await cluster.until(lambda: not log.derived.producers_stale and log.log_end_offset > 3 * BATCHES)
        assert content_of(cluster, 3).startswith(whole)
        assert [f["source"] for f in cluster.probed("damage_repaired")] == [2]

    play(story)


def test_a_leader_to_be_whose_damage_hides_the_state_of_producers_is_unfit() -> None:
    async def story(cluster: Cluster) -> None:
        await filled(cluster)
        damage(cluster, 3, "length")
        cut_producers(cluster, 3)
        for node_id in (1, 2):
            cluster.host(node_id).crash()
            cluster.fence(node_id)
        await cluster.until(lambda: cluster.probed("replica_unfit") != [])
        assert "the state of its producers cannot be restored" in str(cluster.probed("replica_unfit")[0]["reason"])
        assert cluster.host(3).alive

    play(story)


def cast_doubt(cluster: Cluster, node_id: int) -> None:
    """On the first batch: its epoch is not the table's, and the second batch cannot decide (seed 7375)."""
    damage(cluster, node_id, "epoch", 0)
    damage(cluster, node_id, "zeros", 1)


def test_another_replica_decides_about_a_leader_epoch() -> None:
    async def story(cluster: Cluster) -> None:
        whole = await filled(cluster)
        cast_doubt(cluster, 1)
        assert b"".join((await read_all(cluster, 1)).values()) == whole
        assert content_of(cluster, 1) == whole
        assert not cluster.nodes[1].log().damaged_segments
        assert [(f["begin"], f["source"]) for f in cluster.probed("damage_repaired")] == [(0, 2), (3, 2)]

    play(story)


def test_a_table_of_epochs_that_is_wrong_damages_no_batch() -> None:
    """The other replica has the same bytes."""

    async def story(cluster: Cluster) -> None:
        whole = await filled(cluster)
        log = cluster.nodes[1].log()
        log.epochs._entries[:] = [EpochEntry(LeaderEpoch(5), Offset(0))]
        log.segments.first.verified.forget()
        assert b"".join((await read_all(cluster, 1)).values()) == whole
        await cluster.until(lambda: not log.damaged_segments)
        assert content_of(cluster, 1) == whole
        assert "the log's table says 5" in str(cluster.probed("damage_found")[0]["reason"])

    play(story)


def test_records_whose_leader_epoch_is_in_doubt_are_served_where_no_replica_decides() -> None:
    async def story(cluster: Cluster) -> None:
        await filled(cluster)
        cast_doubt(cluster, 1)
        node = cluster.nodes[1]
        assert node.replicas is not None
        node.replicas.repairs._source = Unreachable()
        assert "t-0 cannot be read at offset 3" in str(await error_of(cluster, 1))

    play(story)


def test_no_replica_has_it_and_a_reader_gets_the_error() -> None:
    async def story(cluster: Cluster) -> None:
        await filled(cluster)
        for node_id in (1, 2, 3):
            damage(cluster, node_id, "records")
        error = await error_of(cluster, 1)
        assert "t-0 cannot be read at offset 21" in str(error)
        assert "continues at offset 24" in str(error)
        assert cluster.probed("damage_left")

    play(story)


def test_without_free_space_nothing_is_written() -> None:
    async def story(cluster: Cluster) -> None:
        await filled(cluster)
        damage(cluster, 1, "records")
        disk = cluster.host(1).disk
        free = disk.free_bytes
        disk.free_bytes = lambda: min(free(), FREE_BYTES_MIN)  # type: ignore[method-assign]  # as good as full
        await error_of(cluster, 1)
        assert "too little free space" in str(cluster.probed("damage_left")[0]["reason"])

    play(story)


def test_it_hands_leadership_over_where_it_cannot_repair() -> None:
    async def story(cluster: Cluster) -> None:
        await filled(cluster)
        damage(cluster, 1, "records")
        node = cluster.nodes[1]
        assert node.replicas is not None
        node.replicas.repairs._source = Unreachable()
        error = await error_of(cluster, 1)
        assert "'streamlogctl partition repair t-0'" in str(error)
        await cluster.until(lambda: cluster.partition().leader not in (1, -1))
        assert len(await read_all(cluster, cluster.partition().leader)) == BATCHES

    play(story)


def test_it_hands_leadership_over_also_where_another_replica_is_in_sync_late() -> None:
    async def story(cluster: Cluster) -> None:
        await filled(cluster)
        damage(cluster, 1, "records")
        node = cluster.nodes[1]
        assert node.replicas is not None
        node.replicas.repairs._source = Unreachable()
        for away in (2, 3):
            cluster.host(away).crash()
            cluster.fence(away)
        await error_of(cluster, 1)
        await asyncio.sleep(600)
        assert cluster.partition().leader == 1
        cluster.start(2, 3)
        await cluster.until(lambda: cluster.partition().leader not in (1, -1))

    play(story)


class Unreachable:
    async def batches(
        self, node: BrokerId, topic_id: TopicId, at: TopicPartition, begin: Offset, end: Offset
    ) -> AsyncIterator[bytes]:
        raise BrokerNotAvailableError(f"node {node} does not answer")
        yield b""


def test_what_is_not_committed_is_not_given() -> None:
    async def story(cluster: Cluster) -> None:
        await filled(cluster)
        node = cluster.nodes[2]
        assert node.replicas is not None
        topic = node.view.image.require_topic("t")

        async def asking() -> bytes:
            assert node.replicas is not None
            end = Offset(node.log().log_end_offset + 1)
            return await node.replicas.read_range(topic.topic_id, PartitionId(0), Offset(0), end, 1000)

        with pytest.raises(OffsetOutOfRangeError):
            await cluster.host(2).spawn(asking())

    play(story)
