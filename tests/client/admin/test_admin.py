"""AsyncAdmin: every method against the controller's decisions in memory, over the simulated network."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.client.admin import async_admin
from streamlog.client.admin import values as values
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.config import Operation
from streamlog.errors import (
    BrokerIdNotRegisteredError,
    ClientClosedError,
    ElectionNotNeededError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    StorageError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    VoterNotFoundError,
)
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.model import Offset, PartitionId, TopicId, TopicPartition
from tests.client.admin.admin_bench import Bench, play
from tests.client.admin.fake_admin import CLUSTER_ID, entry

T0 = TopicPartition("t", PartitionId(0))
T1 = TopicPartition("t", PartitionId(1))


def test_a_client_that_is_not_started() -> None:
    async def scenario() -> None:
        admin = AsyncAdmin(bootstrap_servers="127.0.0.1:1")
        calls = (
            admin.list_topics(),
            admin.delete_records({T0: 1}),
            admin.list_group_offsets("g"),
            admin.create_user("u"),
            admin.describe_transactions(["t"]),
        )
        for call in calls:
            with pytest.raises(ClientClosedError, match="the admin client is not started"):
                await call
        assert not hasattr(admin, "nothing_of_this_name")
        await admin.close()

    asyncio.run(scenario())


def test_numbers_that_no_message_holds() -> None:
    async def scenario(bench: Bench) -> None:
        beyond = TopicPartition("t", PartitionId(10**11))
        calls = (
            bench.admin.create_topic("t", 10**11),
            bench.admin.create_topic("t", replication_factor=10**11),
            bench.admin.grow_topic("t", 10**11),
            bench.admin.elect_leaders([beyond]),
            bench.admin.alter_partition_reassignments([values.Reassignment(at=beyond, replicas=None)]),
            bench.admin.alter_partition_reassignments([values.Reassignment(at=T0, replicas=[10**11])]),
            bench.admin.drain_node(10**11),
            bench.admin.unregister_node(10**11),
            bench.admin.add_voter(10**11),
            bench.admin.add_voter(1, replaced_node_id=10**11),
            bench.admin.remove_voter(10**11),
            bench.admin.update_metadata_version(10**11),
            bench.admin.describe_log_dirs([10**11]),
        )
        for call in calls:
            with pytest.raises(InvalidRequestError, match="100000000000 must be at most 2147483647"):
                await call

    play(scenario)


def test_topics_are_created_one_by_one_or_refused() -> None:
    async def scenario(bench: Bench) -> None:
        made, warned, refused = await bench.admin.create_topics(
            [
                values.NewTopic(name="t", partitions=2, replication_factor=3, configs={"retention.ms": "1000"}),
                values.NewTopic(name="a.b", assignments=[[1, 2], [2, 3]]),
                values.NewTopic(name="u", partitions=1, replication_factor=4),
            ]
        )
        assert (made.name, made.partition_count, made.replication_factor, made.error) == ("t", 2, 3, None)
        assert len(made.topic_id) == 16
        assert "collide" in warned.warning
        assert isinstance(refused.error, InvalidReplicationFactorError)
        described = await bench.admin.describe_topic("a.b")
        assert [one.replicas for one in described.partitions] == [(1, 2), (2, 3)]

    play(scenario)


def test_a_new_topic_takes_name_partitions_and_replication_factor_by_position() -> None:
    async def scenario(bench: Bench) -> None:
        [made] = await bench.admin.create_topics([values.NewTopic("t", 2, 3)])
        assert (made.name, made.partition_count, made.replication_factor, made.error) == ("t", 2, 3, None)

    play(scenario)


def test_what_is_left_out_is_left_to_the_cluster() -> None:
    async def scenario(bench: Bench) -> None:
        made = await bench.admin.create_topic("t")
        assert not bench.cluster.last.topics[0].HasField("partitions")
        assert not bench.cluster.last.topics[0].HasField("replication_factor")
        assert (made.partition_count, made.replication_factor) == (1, 3)

    play(scenario)


def test_a_topic_that_is_only_checked() -> None:
    async def scenario(bench: Bench) -> None:
        [checked] = await bench.admin.create_topics([values.NewTopic(name="t")], validate_only=True)
        assert checked.error is None
        assert await bench.admin.list_topics() == ()

    play(scenario)


def test_one_topic_raises_its_error() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topic("t")
        with pytest.raises(TopicAlreadyExistsError):
            await bench.admin.create_topic("t")
        with pytest.raises(UnknownTopicOrPartitionError):
            await bench.admin.describe_topic("missing")
        with pytest.raises(InvalidPartitionsError):
            await bench.admin.grow_topic("t", 1)
        with pytest.raises(UnknownTopicOrPartitionError):
            await bench.admin.delete_topic("missing")

    play(scenario)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    async def scenario(bench: Bench) -> None:
        made = [await bench.admin.create_topic(name) for name in ("t", "u")]
        unknown = TopicId(bytes(15) + b"\x09")
        by_name, by_id, missing = await bench.admin.delete_topics(["t"], topic_ids=[made[1].topic_id, unknown])
        assert (by_name.name, by_name.error) == ("t", None)
        assert (by_id.name, by_id.topic_id, by_id.error) == ("u", made[1].topic_id, None)
        assert isinstance(missing.error, UnknownTopicIdError)
        assert await bench.admin.list_topics() == ()

    play(scenario)


def test_lists_come_whole_whatever_the_pages() -> None:
    async def scenario(bench: Bench) -> None:
        names = [f"topic-{number}" for number in range(5)]
        for name in names:
            await bench.admin.create_topic(name, 3, 2)
        bench.cluster.page_size = 2
        bench.cluster.partitions_per_page = 2
        listed = await bench.admin.list_topics()
        assert [(one.name, one.partition_count, one.replication_factor) for one in listed] == [
            (name, 3, 2) for name in names
        ]
        described = await bench.admin.describe_topics()
        assert [one.name for one in described] == names
        assert all([at.partition for at in one.partitions] == [0, 1, 2] for one in described)

    play(scenario)


def test_a_description_holds_each_partition_and_the_topics_own_configs() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topics(
            [values.NewTopic(name="t", assignments=[[1, 2, 3]], configs={"segment.bytes": "1", "retention.ms": "5"})]
        )
        bench.cluster.rig.fence(1)
        topic = await bench.admin.describe_topic("t")
        assert list(topic.configs.items()) == [("retention.ms", "5"), ("segment.bytes", "1")]
        [state] = topic.partitions
        assert (state.leader, state.replicas, state.isr, state.offline) == (2, (1, 2, 3), (2, 3), (1,))
        bench.cluster.rig.fence(2)
        bench.cluster.rig.fence(3)
        [state] = (await bench.admin.describe_topic("t")).partitions
        assert state.leader is None

    play(scenario)


def test_several_topics_one_of_them_unknown() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topic("t")
        missing, there = await bench.admin.describe_topics(["t", "missing"])
        assert isinstance(missing.error, UnknownTopicOrPartitionError)
        assert there.error is None

    play(scenario)


def test_more_topics_than_a_node_describes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_admin, "_TOPICS_AT_ONCE", 2)

    async def scenario(bench: Bench) -> None:
        names = ["e", "b", "d", "a", "c"]
        for name in names:
            await bench.admin.create_topic(name, 3, 1)
        bench.cluster.partitions_per_page = 2
        described = await bench.admin.describe_topics(names)
        assert [(one.name, len(one.partitions)) for one in described] == [(name, 3) for name in sorted(names)]

    play(scenario)


def test_topics_by_name_and_by_id_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, whichever slice it is in."""
    monkeypatch.setattr(async_admin, "_TOPICS_AT_ONCE", 2)
    asked: list[tuple[list[str], list[bytes]]] = []

    class Nodes:
        async def ask(self, call: object, request: pb.DescribeTopicsRequest) -> pb.DescribeTopicsResponse:
            asked.append((list(request.topics), list(request.topic_ids)))
            return pb.DescribeTopicsResponse()

    admin = AsyncAdmin(bootstrap_servers="127.0.0.1:1")
    admin._nodes = Nodes()  # type: ignore[assignment]
    ids = [TopicId(bytes([number])) for number in range(4)]
    asyncio.run(admin.describe_topics(["a", "b", "c"], topic_ids=ids))
    assert asked == [(["a", "b"], []), (["c"], ids[:1]), ([], ids[1:3]), ([], ids[3:])]
    asked.clear()
    asyncio.run(admin.describe_topics())
    assert asked == [([], [])]


def test_partitions_are_added() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topic("t", 1, 1)
        growth = values.TopicGrowth(topic="t", partition_count=3, assignments=[[1], [3]])
        [grown] = await bench.admin.create_partitions([growth])
        assert grown.error is None
        topic = await bench.admin.describe_topic("t")
        assert [one.replicas for one in topic.partitions[1:]] == [(1,), (3,)]

    play(scenario)


def test_configs_are_described_with_their_source() -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.entries[pb.CONFIG_RESOURCE_TYPE_TOPIC, "t"] = [
            entry("retention.ms", "5", pb.CONFIG_SOURCE_TOPIC, default_value="7", documentation="How long."),
            entry("segment.bytes", "6", pb.CONFIG_SOURCE_DYNAMIC_ALL_BROKERS),
            pb.ConfigEntry(name="new", type=99, source=99, sensitive=True),  # type: ignore[arg-type]  # of a newer node
        ]
        [described] = await bench.admin.describe_configs([values.ConfigResource.topic("t")])
        assert described.resource == values.ConfigResource.topic("t")
        own, default, newer = described.entries
        assert (own.value, own.source, own.type) == ("5", values.ConfigSource.TOPIC, "long")
        assert (own.default_value, own.documentation) == ("7", "How long.")
        assert (default.source, default.default_value) == (values.ConfigSource.DYNAMIC_ALL_BROKERS, None)
        assert (newer.value, newer.source, newer.type) == (None, values.ConfigSource.UNKNOWN, "")
        [only] = await bench.admin.describe_configs([values.ConfigResource.topic("t")], names=["segment.bytes"])
        assert [one.name for one in only.entries] == ["segment.bytes"]

    play(scenario)


def test_configs_are_altered_all_of_a_resource_or_none() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topic("t")
        topic = values.ConfigResource.topic("t")
        change = values.ConfigChange
        await bench.admin.alter_config(topic, [change(name="retention.ms", value="5")])
        assert (await bench.admin.describe_topic("t")).configs == {"retention.ms": "5"}
        with pytest.raises(InvalidConfigError):
            await bench.admin.alter_config(
                topic, [change(name="retention.ms", operation=Operation.DELETE), change(name="bogus", value="1")]
            )
        assert (await bench.admin.describe_topic("t")).configs == {"retention.ms": "5"}
        await bench.admin.alter_config(topic, [change(name="retention.ms", operation=Operation.DELETE)])
        assert (await bench.admin.describe_topic("t")).configs == {}

    play(scenario)


def test_configs_of_one_node_and_of_all() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.describe_configs([values.ConfigResource.broker(2), values.ConfigResource.all_brokers()])
        one, every = bench.cluster.last.resources
        assert (one.type, one.name) == (pb.CONFIG_RESOURCE_TYPE_BROKER, "2")
        assert (every.type, every.name) == (pb.CONFIG_RESOURCE_TYPE_BROKER, "")

    play(scenario)


def test_elections_of_named_partitions() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topics([values.NewTopic(name="t", assignments=[[1, 2], [2, 1]])])
        bench.cluster.rig.fence(1)
        bench.cluster.rig.start(1)
        bench.cluster.rig.alter_isr([1, 2], "t", 0)
        first, second = await bench.admin.elect_leaders([T0, T1])
        assert (first.at, first.leader, first.error) == (T0, 1, None)
        assert isinstance(second.error, ElectionNotNeededError)
        assert second.leader == 2

    play(scenario)


def test_elections_of_all_that_need_one_go_on_until_none_does() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topics([values.NewTopic(name="t", assignments=[[1, 2], [2, 1]])])
        bench.cluster.rig.fence(1)
        bench.cluster.rig.start(1)
        bench.cluster.rig.alter_isr([1, 2], "t", 0)
        bench.cluster.asked.clear()
        elected = await bench.admin.elect_leaders()
        assert [(one.at, one.leader) for one in elected] == [(T0, 1)]
        assert bench.cluster.asked == ["ElectLeaders", "ElectLeaders"]
        assert await bench.admin.elect_leaders([]) == ()

    play(scenario)


def test_an_unclean_election_takes_what_is_alive() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topics([values.NewTopic(name="t", assignments=[[1, 2]])])
        bench.cluster.rig.fence(2)
        bench.cluster.rig.fence(1)
        bench.cluster.rig.start(2, clean=False)
        [elected] = await bench.admin.elect_leaders([T0], kind=values.ElectionType.UNCLEAN)
        assert (elected.leader, elected.error) == (2, None)

    play(scenario)


def test_replicas_are_moved_listed_and_left_where_they_were() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topics([values.NewTopic(name="t", assignments=[[1, 2], [2, 1]])])
        [moved] = await bench.admin.alter_partition_reassignments([values.Reassignment(at=T0, replicas=[1, 3])])
        assert moved.error is None
        [move] = await bench.admin.list_partition_reassignments()
        assert (move.topic, move.partition.adding, move.partition.removing) == ("t", (3,), (2,))
        cancels = [values.Reassignment(at=at, replicas=None) for at in (T0, T1)]
        cancelled, nothing = await bench.admin.alter_partition_reassignments(cancels)
        assert cancelled.error is None
        assert isinstance(nothing.error, NoReassignmentInProgressError)
        assert await bench.admin.list_partition_reassignments() == ()

    play(scenario)


def test_the_cluster_is_described() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topic("t", 4, 3)
        bench.cluster.rig.fence(3)
        cluster = await bench.admin.describe_cluster()
        assert (cluster.cluster_id, cluster.controller, cluster.quorum_term) == (CLUSTER_ID, 1, 3)
        assert [(node.node_id, node.state.value, node.address) for node in cluster.nodes] == [
            (1, "active", "node1:9092"),
            (2, "active", "node2:9092"),
            (3, "fenced", "node3:9092"),
        ]
        assert [(voter.node_id, voter.match_index) for voter in cluster.voters] == [(1, 7), (2, None)]
        counts = (cluster.topic_count, cluster.partition_count, cluster.under_replicated_partition_count)
        assert counts == (1, 4, 4)

    play(scenario)


def test_a_node_is_drained_and_the_drain_called_off() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topic("t", 3, 2)
        started = await bench.admin.drain_node(2)
        assert (started.draining, started.remaining_count) == (True, 2)
        assert (await bench.admin.drain_progress(2)).draining
        assert not (await bench.admin.cancel_drain(2)).draining
        with pytest.raises(BrokerIdNotRegisteredError):
            await bench.admin.drain_node(9)

    play(scenario)


def test_a_node_is_forgotten_once_it_is_stopped() -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(InvalidRequestError):
            await bench.admin.unregister_node(3)
        bench.cluster.rig.fence(3)
        await bench.admin.unregister_node(3)
        assert [node.node_id for node in (await bench.admin.describe_cluster()).nodes] == [1, 2]

    play(scenario)


def test_voters_come_and_go() -> None:
    async def scenario(bench: Bench) -> None:
        added = await bench.admin.add_voter(3, replaced_node_id=2)
        assert [(voter.node_id, voter.address) for voter in added] == [(1, "node1:9092"), (3, "node3:9092")]
        assert [voter.node_id for voter in await bench.admin.remove_voter(3)] == [1]
        with pytest.raises(VoterNotFoundError):
            await bench.admin.remove_voter(3)
        await bench.admin.add_voter(2, address="elsewhere:1")
        assert not bench.cluster.last.HasField("replaced_node_id")

    play(scenario)


def test_the_level_of_the_metadata() -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.admin.update_metadata_version() == METADATA_VERSION_MAX
        assert bench.cluster.last.level == 0

    play(scenario)


def test_replicas_move_between_log_directories() -> None:
    async def scenario(bench: Bench) -> None:
        here, elsewhere = values.ReplicaOnNode("t", 1, 1), values.ReplicaOnNode("t", 1, 2)
        moves = {here: "/b", elsewhere: "/c"}
        moved, refused = await bench.admin.alter_replica_log_dirs(moves)
        assert (moved.at, moved.error) == (here, None)
        assert refused.at == elsewhere
        assert isinstance(refused.error, InvalidRequestError)
        moving = pb.FutureReplica(topic="t", partition=1, size_bytes=3, offset_lag=4)
        target = pb.LogDir(path="/b", future_replicas=[moving])
        bench.cluster.log_dirs = [pb.NodeLogDirs(node_id=1, log_dirs=[target])]
        [node] = await bench.admin.describe_log_dirs([1])
        assert node.log_dirs[0].replicas == ()
        assert node.log_dirs[0].future_replicas == (values.FutureReplica(at=T1, size_bytes=3, offset_lag=4),)

    play(scenario)


def test_log_directories() -> None:
    async def scenario(bench: Bench) -> None:
        replica = pb.LogDirReplica(topic="t", partition=1, size_bytes=5, log_start=2, log_end=9)
        works = pb.LogDir(path="/a", directory_id=bytes(16), total_bytes=100, usable_bytes=-1, replicas=[replica])
        failed = pb.LogDir(path="/b", error=to_message(StorageError("/b: no space left")))
        bench.cluster.log_dirs = [pb.NodeLogDirs(node_id=1, log_dirs=[works, failed]), pb.NodeLogDirs(node_id=2)]
        [node] = await bench.admin.describe_log_dirs([1], topics=["t"])
        assert list(bench.cluster.last.topics) == ["t"]
        one, other = node.log_dirs
        assert (one.total_bytes, one.usable_bytes, one.error) == (100, None, None)
        expected = values.LogDirReplica(at=T1, size_bytes=5, log_start=Offset(2), log_end=Offset(9))
        assert one.replicas == (expected,)
        assert isinstance(other.error, StorageError)

    play(scenario)


def test_each_node_is_asked_for_its_log_directories_by_itself() -> None:
    """Those of all nodes together may exceed what one response has."""

    async def scenario(bench: Bench) -> None:
        bench.cluster.log_dirs = [pb.NodeLogDirs(node_id=node_id) for node_id in (3, 1, 2)]
        for asked, expected in (((), [1, 2, 3]), ((3, 1), [1, 3])):
            found = await bench.admin.describe_log_dirs(asked, topics=iter(["t"]))
            assert [node.node_id for node in found] == expected
            assert list(bench.cluster.last.topics) == ["t"]

    play(scenario)


def test_digests_of_all_replicas() -> None:
    async def scenario(bench: Bench) -> None:
        same = pb.ReplicaDigest(node_id=1, digest=b"\x01" * 32, batch_count=3, high_watermark=9, log_end=9)
        same.epochs.add(leader_epoch=2, start_offset=4)
        gone = pb.ReplicaDigest(node_id=2, error=to_message(StorageError("offline")))
        bench.cluster.digests["t", 0] = pb.DigestReplicasResponse(start_offset=0, end_offset=9, replicas=[same, gone])
        found = await bench.admin.digest_replicas("t", 0)
        assert not bench.cluster.last.HasField("start_offset")
        assert (found.at, found.start_offset, found.end_offset, found.identical) == (T0, 0, 9, False)
        first, second = found.replicas
        assert (first.digest, first.batch_count, first.log_end) == (b"\x01" * 32, 3, 9)
        assert [(epoch.leader_epoch, epoch.start_offset) for epoch in first.epochs] == [(2, 4)]
        assert isinstance(second.error, StorageError)
        await bench.admin.digest_replicas("t", 0, start_offset=0, end_offset=5, timeout_s=300)
        assert bench.cluster.last.HasField("start_offset")
        assert bench.cluster.last.end_offset == 5

    play(scenario)


def test_the_node_that_answers_tells_what_it_is() -> None:
    async def scenario(bench: Bench) -> None:
        release = await bench.admin.describe_node()
        assert bench.cluster.last.client_version == "tests/1"
        assert (release.version, release.cluster_id, release.node_id) == ("0.1.0", CLUSTER_ID, 1)
        assert [(one.name, one.level) for one in release.features] == [("idempotence", 1)]
        assert release.limits.batch_bytes_max == 1 << 20

    play(scenario)
