"""Nodes copy from each other (SEMANTICS 1, 2, 3, 5): over the streams, on real logs, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.api.errors import from_rpc
from streamlog.broker.leading.follower_stream import FollowerStream
from streamlog.broker.replica_wire import METHOD, Follow, FollowerHello, Request, encode_request
from streamlog.errors import (
    InconsistentClusterError,
    InvalidRequestError,
    OutcomeUnknownError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    StreamlogError,
)
from streamlog.model import BrokerEpoch, BrokerId, Offset, PartitionId
from streamlog.ports import RpcError
from streamlog.replication.leader import GONE_MAX_MS
from streamlog.sim.files.disk import DiskFaults
from tests.broker.nodes import LAG_MAX_MS, Cluster, play
from tests.broker.rig import append_to
from tests.broker.three_nodes import three_nodes
from tests.metadata.rig import CLUSTER
from tests.storage.batches import batch


async def leader_is(cluster: Cluster, node_id: int) -> None:
    """In the controller's eyes, and in its own."""

    def leads() -> bool:
        if cluster.partition().leader != node_id:
            return False
        try:
            cluster.nodes[node_id].leader()
        except StreamlogError:
            return False
        return True

    await cluster.until(leads)


def append_alone(cluster: Cluster, node_id: int, *values: bytes) -> None:
    """acks=1, on a node that takes itself for the leader."""

    async def appending() -> None:
        append_to(cluster.nodes[node_id].leader(), batch(values))

    cluster.host(node_id).spawn(appending())


def test_what_is_produced_stands_on_all_replicas() -> None:
    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        for i in range(20):
            assert await cluster.produce(b"value %d" % i) == i
        await cluster.settled()
        cluster.check()
        assert len(cluster.values(3)) == 20

    play(story)


def test_a_node_that_was_away_catches_up_and_is_in_sync_again() -> None:
    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        cluster.host(3).crash()
        cluster.fence(3)
        for i in range(100):
            await cluster.produce(*(b"%d %d" % (i, k) + bytes(5000) for k in range(10)))
        assert cluster.partition().isr == (1, 2)
        cluster.start(3)
        await cluster.settled()
        cluster.check()

    play(story)


@pytest.mark.parametrize("cold", [0.0, 1.0])
def test_an_empty_replica_gets_all_whatever_the_page_cache_has(cold: float) -> None:
    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        cluster.host(3).crash()
        cluster.fence(3)
        cluster.host(1).disk.faults = DiskFaults(cold=cold)
        for i in range(40):
            await cluster.produce(b"%d" % i + bytes(100_000))
        cluster.start(3)
        await cluster.produce(b"while it catches up")
        await cluster.settled()
        cluster.host(1).disk.faults = DiskFaults()
        cluster.check()

    play(story)


def test_a_deposed_leader_is_cut_to_what_both_have() -> None:
    """SEMANTICS 2: it appended on, alone, and without acknowledgements."""

    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        await cluster.produce(b"before")
        for other in (2, 3):
            cluster.world.fabric.block("node1", f"node{other}")
            cluster.world.fabric.block(f"node{other}", "node1")
        cluster.cut[1] = True
        append_alone(cluster, 1, b"only", b"here", b"uncommitted")
        cluster.fence(1)
        await leader_is(cluster, 2)
        await cluster.produce(b"after")
        assert [value for _, value in cluster.values(1)] == [b"before", b"only", b"here", b"uncommitted"]
        cluster.world.fabric.heal()
        del cluster.cut[1]
        cluster.publish()
        cluster.heartbeat(1)
        await cluster.settled()
        assert cluster.probed("log_diverged")
        assert [value for _, value in cluster.values(1)] == [b"before", b"after"]
        cluster.check()

    play(story)


def test_streams_that_break_under_load_lose_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)

        async def breaking() -> None:
            for i in range(30):
                await asyncio.sleep(0.1)
                cluster.world.fabric.reset("node1", "node2" if i % 2 else "node3")

        task = asyncio.get_running_loop().create_task(breaking())
        count = 0
        while not task.done():
            await cluster.produce(b"%d" % count)
            count += 1
        await cluster.settled()
        cluster.check()
        assert count > 20
        assert BrokerId(1) in cluster.nodes[2].suspected
        assert BrokerId(2) in cluster.nodes[1].suspected

    play(story)


def test_a_follower_that_cannot_keep_up_leaves_the_isr_and_comes_back() -> None:
    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        fabric = cluster.world.fabric
        fabric.block("node1", "node3")
        began_s = cluster.world.loop.now
        first = asyncio.get_running_loop().create_task(cluster.produce(b"waits for the ISR to shrink"))
        await cluster.until(lambda: cluster.partition().isr == (1, 2))
        assert cluster.world.loop.now - began_s < 2 * LAG_MAX_MS / 1000
        await first
        await cluster.produce(*(b"%d" % i for i in range(100)))
        fabric.heal()
        await cluster.settled()
        cluster.check()

    play(story)


def test_a_cut_between_leader_and_one_follower_holds_writes_up_for_seconds_at_most() -> None:
    """The setting of default; no node is fenced, both reach the controller."""

    async def story(cluster: Cluster) -> None:
        cluster.lag_max_ms = 10_000
        await three_nodes(cluster)
        fabric, loop = cluster.world.fabric, cluster.world.loop
        await asyncio.sleep(60)  # quiet for longer than the follower's time
        for silently, wanted_s in ((True, 10.0), (False, GONE_MAX_MS / 1000)):
            if not silently:  # the leader sees its connection end
                fabric.reset("node1", "node3")
            fabric.block("node1", "node3")
            fabric.block("node3", "node1")
            began_s = loop.now
            append_alone(cluster, 1, b"waits for the ISR to shrink")
            await cluster.until(lambda: cluster.partition().isr == (1, 2))
            assert wanted_s - 0.1 < loop.now - began_s < wanted_s + 0.2
            fabric.heal()
            await cluster.settled()
        cluster.check()

    play(story)


def test_streams_that_come_back_do_not_move_the_isr() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.lag_max_ms = 10_000
        await three_nodes(cluster)
        state = cluster.partition()
        for number in range(20):
            cluster.world.fabric.reset("node1", "node3")
            await asyncio.sleep(GONE_MAX_MS / 2000)
            append_alone(cluster, 1, b"%d" % number)
        await cluster.settled()
        assert cluster.partition().partition_epoch == state.partition_epoch

    play(story)


def test_positions_cover_only_what_is_synced() -> None:
    """SEMANTICS 5: with the followers' disks at a stand, nothing is acknowledged, though they have the bytes."""

    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        await cluster.produce(b"first")
        for node_id in (2, 3):
            cluster.host(node_id).disk.faults = DiskFaults(slow=200)
        done = asyncio.get_running_loop().create_task(cluster.produce(b"second"))
        await cluster.until(lambda: all(cluster.nodes[n].log().log_end_offset == 2 for n in (1, 2, 3)))
        assert not done.done()
        assert cluster.nodes[1].leader().high_watermark == 1
        for node_id in (1, 2, 3):
            cluster.host(node_id).power_cut()
        with pytest.raises((OutcomeUnknownError, TimeoutError)):
            await done
        for node_id in (1, 2, 3):
            cluster.host(node_id).disk.faults = DiskFaults()
            cluster.start(node_id)
        await cluster.settled()
        cluster.check()

    play(story)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_catches_up_is_throttled_and_those_in_sync_are_not(side: str) -> None:
    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        cluster.host(3).crash()
        cluster.fence(3)
        for i in range(40):
            await cluster.produce(b"%d" % i + bytes(100_000))
        cluster.start(3)
        await cluster.ready(3)
        began_s = cluster.world.loop.now
        while 3 not in cluster.partition().isr:
            before_s = cluster.world.loop.now
            await cluster.produce(b"%f" % before_s)
            assert cluster.world.loop.now - before_s < 0.5
            await asyncio.sleep(0.05)
        took_s = cluster.world.loop.now - began_s
        assert 4.0 < took_s < 8.0  # 4 MB at 800 kB a second
        await cluster.settled()
        cluster.check()

    rates = {"leader_rate": 800_000} if side == "leader" else {"follower_rate": 800_000}
    play(story, **rates)


def test_many_partitions_share_one_stream() -> None:
    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster, partitions=50)
        connections = [c for c in cluster.world.fabric.connections if c.client_host == "node2"]
        assert len(connections) == 1
        before = cluster.world.fabric.frames
        async with asyncio.TaskGroup() as tasks:
            for partition in range(50):
                tasks.create_task(cluster.produce(b"x", partition=partition))
        # One by one it would be 600: to two followers bytes, a position back, the high watermark, and credit for each.
        assert cluster.world.fabric.frames - before < 300
        await cluster.settled(50)
        cluster.check(50)

    play(story)


def test_a_refused_follower_gets_the_reason() -> None:
    async def refusal(cluster: Cluster, hello: FollowerHello) -> StreamlogError | RpcError:
        ports = cluster.world.host("stranger").ports
        channel = ports.network.connect("node1:9092")
        try:
            async with channel.stream(METHOD) as stream:
                await stream.send(encode_request(Request(hello=hello)))
                await stream.recv()
        except RpcError as error:
            return from_rpc(error)
        raise AssertionError("it was admitted")

    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        cluster.world.host("stranger").boot()
        spawn = cluster.world.host("stranger").spawn
        good = FollowerHello(CLUSTER, BrokerId(2), cluster.controller.epoch(2), BrokerId(1))
        for hello, error in (
            (good._replace(cluster_id="another"), InconsistentClusterError),
            (good._replace(broker_epoch=BrokerEpoch(good.broker_epoch - 1)), StaleBrokerEpochError),
            (good._replace(broker_epoch=BrokerEpoch(10_000)), StaleBrokerEpochError),
            (good._replace(leader_id=BrokerId(3)), InvalidRequestError),
            (good._replace(node_id=BrokerId(1)), InvalidRequestError),
        ):
            assert isinstance(await spawn(refusal(cluster, hello)), error)

    play(story)


def test_a_stream_of_a_former_registration_is_ended() -> None:
    """KIP-903: what it says no longer counts."""

    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        cluster.fence(3)
        epoch = cluster.register(3)  # another process under its id
        await cluster.until(lambda: bool(cluster.probed("replication_refused")))
        assert "re-registered" in str(cluster.probed("replication_refused")[0]["reason"])
        cluster.nodes[3].epoch = epoch
        cluster.heartbeat(3)
        await cluster.settled()

    play(story)


def test_a_log_that_begins_inside_of_a_batch_is_followed() -> None:
    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        cluster.host(3).power_cut()
        cluster.fence(3)
        await cluster.produce(*(b"%d" % i for i in range(10)))

        async def delete_records() -> None:
            for node_id in (1, 2):
                cluster.nodes[node_id].log().advance_log_start(Offset(5))
            cluster.nodes[1].leader().on_log_start_moved()

        await cluster.host(1).spawn(delete_records())
        cluster.start(3)
        await cluster.settled()
        assert [offset for offset, _ in cluster.values(3)] == [5, 6, 7, 8, 9]
        assert cluster.nodes[3].log().log_start_offset == 5

    play(story)


def test_a_replica_that_was_absent_joins_with_the_log_start_in_its_checkpoint() -> None:
    """So that what was deleted meanwhile is not back after a power cut, when it may lead (I23)."""

    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        await cluster.produce(*(b"%d" % i for i in range(10)))
        await cluster.settled()
        cluster.host(3).power_cut()
        cluster.fence(3)

        async def delete_records() -> None:
            for node_id in (1, 2):
                cluster.nodes[node_id].log().advance_log_start(Offset(5))
            cluster.nodes[1].leader().on_log_start_moved()

        await cluster.host(1).spawn(delete_records())
        cluster.start(3)
        await cluster.until(lambda: 3 in cluster.partition().isr)
        cluster.host(3).power_cut()
        cluster.start(3)
        await cluster.ready(3)
        assert cluster.nodes[3].log().log_start_offset == 5

    play(story)


def test_a_new_leader_deletes_all_that_was_acknowledged_or_says_that_it_cannot_know_it() -> None:
    """What its high watermark is when it begins to lead may be below that: it deleted less, and said it was all."""

    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        await cluster.settled()
        await cluster.produce(*(b"%d" % i for i in range(10)))
        cluster.host(3).crash()
        cluster.host(1).crash()
        cluster.fence(1)
        await cluster.ready(2)
        node = cluster.nodes[2]
        replicas = node.replicas
        assert replicas is not None
        assert node.leader().high_watermark == 0
        for before in (None, Offset(10)):
            deleting = replicas.delete_records("t", None, PartitionId(0), before, within_s=0.5)
            with pytest.raises(RequestTimedOutError, match="does not know yet which records are committed"):
                await cluster.host(2).spawn(deleting)
        assert node.log().log_start_offset == 0
        cluster.start(3)
        deletion = await cluster.host(2).spawn(replicas.delete_records("t", None, PartitionId(0), None, within_s=30.0))
        assert deletion.log_start == 10

    play(story)


def test_a_position_counts_while_the_last_batches_are_being_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was ignored, and not repeated: until the next append the leader did not know how far the follower was."""
    compared: list[Follow] = []
    compare = FollowerStream._difference

    async def slow(self: FollowerStream, follow: Follow) -> Offset | None:
        await asyncio.sleep(1.0)
        compared.append(follow)
        return await compare(self, follow)

    async def story(cluster: Cluster) -> None:
        await three_nodes(cluster)
        await cluster.produce(*(b"%d" % i for i in range(10)))
        await cluster.settled()
        cluster.host(3).crash()
        cluster.fence(3)
        cluster.start(3)
        await cluster.ready(3)
        await asyncio.sleep(0.5)

        async def delete_records() -> None:
            cluster.nodes[1].log().advance_log_start(Offset(5))
            cluster.nodes[1].leader().on_log_start_moved()
            cluster.nodes[3].log().advance_log_start(Offset(5))  # saved while the leader compares

        await cluster.host(1).spawn(delete_records())
        await cluster.until(lambda: 3 in cluster.partition().isr)
        assert compared

    monkeypatch.setattr(FollowerStream, "_difference", slow)
    play(story)
