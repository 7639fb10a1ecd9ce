"""Admin over the simulated network: at the controller, at another node, and by the nodes concerned."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import batches_pb2, cluster_pb2, common_pb2
from streamlog.errors import StreamlogError
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.model import BrokerId
from streamlog.services.common.forwarding import Peers
from tests.services.world import ADMIN, BATCHES, Cluster, simulate
from tests.storage.batches import batch


async def ask(cluster: Cluster, method: str, request: Message, response_type: Any, node: int = 1) -> Any:
    return await cluster.call(ADMIN + method, request, response_type, node=node)


async def create(cluster: Cluster, *topics: pb.NewTopic, node: int = 1, **fields: Any) -> list[pb.CreateTopicResult]:
    request = pb.CreateTopicsRequest(topics=topics, **fields)
    return list((await ask(cluster, "CreateTopics", request, pb.CreateTopicsResponse, node)).results)


async def describe(cluster: Cluster, *names: str, node: int = 1, **fields: Any) -> list[pb.TopicDescription]:
    request = pb.DescribeTopicsRequest(topics=names, **fields)
    return list((await ask(cluster, "DescribeTopics", request, pb.DescribeTopicsResponse, node)).topics)


@pytest.mark.parametrize("node", [1, 2])
def test_what_was_changed_holds_on_the_node_that_was_asked(node: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        (made,) = await create(cluster, pb.NewTopic(name="t", partitions=2, replication_factor=2), node=node)
        assert (made.partition_count, made.replication_factor, made.error.code) == (2, 2, "")
        (response,) = await describe(cluster, "t", node=node)
        assert (response.topic_id, len(response.partitions)) == (made.topic_id, 2)
        growth = pb.CreatePartitionsRequest(topics=[pb.TopicGrowth(topic="t", partition_count=5)])
        await ask(cluster, "CreatePartitions", growth, pb.CreatePartitionsResponse, node)
        resource = pb.ConfigResource(type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name="t")
        change = pb.ConfigAlteration(resource=resource, changes=[pb.ConfigChange(name="retention.ms", value="5000")])
        await ask(cluster, "AlterConfigs", pb.AlterConfigsRequest(alterations=[change]), pb.AlterConfigsResponse, node)
        (response,) = await describe(cluster, "t", node=node)
        assert (response.partition_count, dict(response.configs)) == (5, {"retention.ms": "5000"})
        gone = await ask(cluster, "DeleteTopics", pb.DeleteTopicsRequest(topics=["t"]), pb.DeleteTopicsResponse, node)
        assert gone.results[0].topic_id == made.topic_id
        assert (await describe(cluster, "t", node=node))[0].error.code == "UNKNOWN_TOPIC_OR_PARTITION"
        assert len(cluster.nodes[2].passed_on) == (4 if node == 2 else 0)

    simulate(story)


BAD_TOPICS = [
    ({"name": "../x"}, "INVALID_TOPIC"),
    ({"name": "/"}, "INVALID_TOPIC"),
    ({"name": "a\0"}, "INVALID_TOPIC"),
    ({"name": ""}, "INVALID_TOPIC"),
    ({"name": "."}, "INVALID_TOPIC"),
    ({"name": "a" * 250}, "INVALID_TOPIC"),
    ({"name": "__consumer_offsets"}, "INVALID_TOPIC"),
    ({"partitions": 0}, "INVALID_PARTITIONS"),
    ({"partitions": 10**9}, "INVALID_PARTITIONS"),
    ({"replication_factor": 4}, "INVALID_REPLICATION_FACTOR"),
    ({"replication_factor": 0}, "INVALID_REPLICATION_FACTOR"),
    ({"assignments": [pb.ReplicaAssignment(replicas=[1, 1])]}, "INVALID_REPLICA_ASSIGNMENT"),
    ({"assignments": [pb.ReplicaAssignment(replicas=[9])]}, "INVALID_REPLICA_ASSIGNMENT"),
    ({"configs": {"no.such": "1"}}, "INVALID_CONFIG"),
    ({"configs": {"min.insync.replicas": "x"}}, "INVALID_CONFIG"),
]


@pytest.mark.parametrize(("fields", "code"), BAD_TOPICS, ids=[f"{fields}"[:40] for fields, _ in BAD_TOPICS])
def test_bad_topics_are_refused_one_by_one(fields: dict[str, Any], code: str) -> None:
    """FAULTS, "Bad input": nothing is changed, and the good one of the request is made."""

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        bad, good = await create(cluster, pb.NewTopic(**{"name": "bad", **fields}), pb.NewTopic(name="good"))
        assert (bad.error.code, good.error.code) == (code, "")
        assert bad.error.message
        assert len(cluster.rig.image.topics) == 1

    simulate(story)


REFUSED = [
    ("CreateTopics", pb.CreateTopicsRequest(), pb.CreateTopicsResponse, "topics"),
    ("DeleteTopics", pb.DeleteTopicsRequest(), pb.DeleteTopicsResponse, "topics"),
    ("DescribeTopics", pb.DescribeTopicsRequest(topics=["a/b"]), pb.DescribeTopicsResponse, "topics[0]"),
    ("ListTopics", pb.ListTopicsRequest(page_size=-1), pb.ListTopicsResponse, "page_size"),
    ("DescribeConfigs", pb.DescribeConfigsRequest(), pb.DescribeConfigsResponse, "resources"),
    ("ElectLeaders", pb.ElectLeadersRequest(type=9), pb.ElectLeadersResponse, "type"),  # type: ignore[arg-type]  # an unknown number
    ("DrainNode", pb.DrainNodeRequest(node_id=1), pb.DrainNodeResponse, "action"),
    ("UpdateMetadataVersion", pb.UpdateMetadataVersionRequest(level=-1), pb.UpdateMetadataVersionResponse, "level"),
    ("AddVoter", pb.AddVoterRequest(node_id=-1), pb.AddVoterResponse, "node_id"),
    ("AddVoter", pb.AddVoterRequest(node_id=2, address="x" * 256), pb.AddVoterResponse, "address"),
    ("AddVoter", pb.AddVoterRequest(node_id=2, address="é" * 200 + ":9092"), pb.AddVoterResponse, "address"),
    ("AddVoter", pb.AddVoterRequest(node_id=2, address=f"[fe80::1%{'é' * 200}]:1"), pb.AddVoterResponse, "address"),
    ("AddVoter", pb.AddVoterRequest(node_id=2, address="node2"), pb.AddVoterResponse, "address"),
    ("DescribeLogDirs", pb.DescribeLogDirsRequest(node_ids=[1, 1]), pb.DescribeLogDirsResponse, "node_ids[1]"),
    ("AlterReplicaLogDirs", pb.AlterReplicaLogDirsRequest(), pb.AlterReplicaLogDirsResponse, "replicas"),
    (
        "AlterReplicaLogDirs",
        pb.AlterReplicaLogDirsRequest(replicas=[pb.ReplicaLogDir(topic="t", log_dir="/d")] * 2),
        pb.AlterReplicaLogDirsResponse,
        "replicas[1]",
    ),
    (
        "AlterReplicaLogDirs",
        pb.AlterReplicaLogDirsRequest(replicas=[pb.ReplicaLogDir(topic="t")]),
        pb.AlterReplicaLogDirsResponse,
        "replicas[0].log_dir",
    ),
    (
        "DigestReplicas",
        pb.DigestReplicasRequest(topic="t", start_offset=2, end_offset=1),
        pb.DigestReplicasResponse,
        "end_offset",
    ),
]


@pytest.mark.parametrize("node", [1, 2])
@pytest.mark.parametrize(("method", "request_", "response_type", "path"), REFUSED, ids=[row[0] for row in REFUSED])
def test_bad_requests_are_refused_by_any_node(
    method: str, request_: Message, response_type: Any, path: str, node: int
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        with pytest.raises(StreamlogError) as caught:
            await ask(cluster, method, request_, response_type, node)
        assert caught.value.details["field"] == path
        assert not cluster.nodes[2].passed_on

    simulate(story)


def test_a_node_that_is_passed_a_call_does_not_pass_it_on() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        handler = cluster.nodes[2].handlers[ADMIN + "CreateTopics"]
        request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name="t")])
        with pytest.raises(StreamlogError) as caught:
            await cluster.forwarded(handler, ADMIN + "CreateTopics", request, node=2)
        assert caught.value.code == "NOT_CONTROLLER"

    simulate(story)


def test_lists_come_in_pages_and_hide_what_is_the_clusters_own() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        for name in ("b", "a.c", "a1"):
            await cluster.create(name)
        await cluster.create_internal("__consumer_offsets")
        names: list[str] = []
        token = "-"
        while token:
            request = pb.ListTopicsRequest(page_size=2, page_token=token.removeprefix("-"), include_internal=True)
            page = await ask(cluster, "ListTopics", request, pb.ListTopicsResponse)
            names += [topic.name for topic in page.topics]
            token = page.next_page_token
        assert names == ["__consumer_offsets", "a.c", "a1", "b"]
        assert [topic.name for topic in await describe(cluster)] == ["a.c", "a1", "b"]
        users = await ask(cluster, "ListTopics", pb.ListTopicsRequest(), pb.ListTopicsResponse)
        assert [topic.name for topic in users.topics] == ["a.c", "a1", "b"]

    simulate(story)


def test_the_cluster_is_described() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create("t", partitions=2, replicas=(1, 2))
        cluster.rig.fence(2)
        await cluster.spread()
        response = await ask(cluster, "DescribeCluster", pb.DescribeClusterRequest(), pb.DescribeClusterResponse)
        states = [(node.node.node_id, node.state, node.replica_count, node.leader_count) for node in response.nodes]
        assert states == [
            (1, pb.NODE_STATE_ACTIVE, 2, 2),
            (2, pb.NODE_STATE_FENCED, 2, 0),
            (3, pb.NODE_STATE_ACTIVE, 0, 0),
        ]
        assert [(voter.node_id, voter.address, voter.match_index) for voter in response.voters] == [
            (1, "node1:9092", 77)
        ]
        assert (response.controller, response.quorum_term, response.commit_index) == (1, 4, 77)
        assert (response.topic_count, response.partition_count) == (1, 2)
        assert (response.offline_partition_count, response.under_replicated_partition_count) == (0, 2)

    simulate(story)


def test_an_observer_describes_the_quorum_as_the_controller_does() -> None:
    """Otherwise a lost vote is unseen, and health good, wherever an observer is asked."""

    async def described(cluster: Cluster, node: int) -> tuple[int, list[tuple[int, bool]]]:
        response = await ask(
            cluster, "DescribeCluster", pb.DescribeClusterRequest(), pb.DescribeClusterResponse, node=node
        )
        return response.quorum_term, [(voter.node_id, voter.without_vote) for voter in response.voters]

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        cluster.nodes[1].quorum.empty = (BrokerId(1),)
        assert await described(cluster, 2) == (4, [(1, False)]), "a voter says what it knows itself"
        cluster.nodes[2].quorum.observes = True
        assert await described(cluster, 2) == (4, [(1, True)])
        cluster.nodes[1].quorum.observes = True  # by its metadata the controller may be one for a moment: no circle
        assert await described(cluster, 2) == (0, [(1, False)])
        cluster.world.host("node1").crash()
        assert await described(cluster, 2) == (0, [(1, False)]), "as known here"

    simulate(story)


def test_voters_come_and_go_wherever_it_is_asked() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        added = await ask(cluster, "AddVoter", pb.AddVoterRequest(node_id=2), pb.AddVoterResponse, node=2)
        assert [(voter.node_id, voter.address) for voter in added.voters] == [(1, "node1:9092"), (2, "node2:9092")]
        replaced = pb.AddVoterRequest(node_id=3, replaced_node_id=2)
        added = await ask(cluster, "AddVoter", replaced, pb.AddVoterResponse)
        assert [voter.node_id for voter in added.voters] == [1, 3]
        left = await ask(cluster, "RemoveVoter", pb.RemoveVoterRequest(node_id=3), pb.RemoveVoterResponse)
        assert [voter.node_id for voter in left.voters] == [1]
        for request, code in (
            (pb.AddVoterRequest(node_id=1), "DUPLICATE_VOTER"),
            (pb.AddVoterRequest(node_id=9), "BROKER_ID_NOT_REGISTERED"),
        ):
            with pytest.raises(StreamlogError) as caught:
                await ask(cluster, "AddVoter", request, pb.AddVoterResponse)
            assert caught.value.code == code

    simulate(story)


def config_names(description: pb.ConfigDescription) -> dict[str, pb.ConfigEntry]:
    return {entry.name: entry for entry in description.entries}


def test_configs_have_their_sources() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2, num_partitions="7")
        await cluster.create("t", retention_ms="1000")
        topic = pb.ConfigResource(type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name="t")
        missing = pb.ConfigResource(type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name="missing")
        nodes = [pb.ConfigResource(type=pb.CONFIG_RESOURCE_TYPE_BROKER, name=name) for name in ("1", "2", "", "9")]
        request = pb.DescribeConfigsRequest(resources=[topic, missing, *nodes])
        response = (await ask(cluster, "DescribeConfigs", request, pb.DescribeConfigsResponse)).resources
        retention = config_names(response[0])["retention.ms"]
        assert (retention.value, retention.source, retention.type) == (
            "1000",
            pb.CONFIG_SOURCE_TOPIC,
            pb.CONFIG_TYPE_LONG,
        )
        assert retention.default_value == "604800000"
        assert response[1].error.code == "UNKNOWN_TOPIC_OR_PARTITION"
        for number, description in ((1, response[2]), (2, response[3])):
            entries = config_names(description)
            assert entries["node.id"].value == str(number)
            assert entries["node.id"].read_only
            assert (entries["num.partitions"].value, entries["num.partitions"].source) == (
                "7",
                pb.CONFIG_SOURCE_STATIC_BROKER,
            )
        assert not response[4].entries
        assert response[5].error.code == "BROKER_ID_NOT_REGISTERED"
        only = pb.DescribeConfigsRequest(resources=[topic], names=["retention.ms"])
        response = (await ask(cluster, "DescribeConfigs", only, pb.DescribeConfigsResponse)).resources
        assert list(config_names(response[0])) == ["retention.ms"]

    simulate(story)


def test_too_many_configs_for_one_answer_are_refused_with_how_many_fit() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        names = [f"t{index}" for index in range(600)]
        assignments = [pb.ReplicaAssignment(replicas=[2])]
        await create(cluster, *(pb.NewTopic(name=name, assignments=assignments) for name in names))
        resources = [pb.ConfigResource(type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name=name) for name in names]
        with pytest.raises(StreamlogError) as caught:
            await ask(
                cluster, "DescribeConfigs", pb.DescribeConfigsRequest(resources=resources), pb.DescribeConfigsResponse
            )
        fits = caught.value.details["limit"]
        assert isinstance(fits, int)
        await ask(
            cluster,
            "DescribeConfigs",
            pb.DescribeConfigsRequest(resources=resources[:fits]),
            pb.DescribeConfigsResponse,
        )

    simulate(story)


def test_log_directories_are_described_by_their_own_nodes() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t")
        await cluster.create("u", replicas=(2,))
        await cluster.produce(b"value")
        response = (
            await ask(cluster, "DescribeLogDirs", pb.DescribeLogDirsRequest(), pb.DescribeLogDirsResponse)
        ).nodes
        assert [node.node_id for node in response] == [1, 2, 3]
        (directory,) = response[0].log_dirs
        assert (directory.path, len(directory.directory_id)) == ("/data", 16)
        assert [(one.topic, one.log_end) for one in directory.replicas] == [("t", 1)]
        assert [one.topic for one in response[1].log_dirs[0].replicas] == ["u"]
        assert response[2].error.code == "BROKER_NOT_AVAILABLE"  # it does not run
        asked = pb.DescribeLogDirsRequest(node_ids=[2, 9], topics=["t"])
        response = (await ask(cluster, "DescribeLogDirs", asked, pb.DescribeLogDirsResponse)).nodes
        assert not response[0].log_dirs[0].replicas
        assert response[1].error.code == "BROKER_ID_NOT_REGISTERED"

    simulate(story)


def test_replicas_move_on_their_own_nodes() -> None:
    """Each row has its own error; where a replica is already, there is nothing to do."""

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", replicas=(1, 2))
        wanted = [
            pb.ReplicaLogDir(topic="t", node_id=2, log_dir="/data"),
            pb.ReplicaLogDir(topic="t", node_id=1, log_dir="/elsewhere"),
            pb.ReplicaLogDir(topic="none", node_id=1, log_dir="/data"),
            pb.ReplicaLogDir(topic="t", node_id=3, log_dir="/data"),
            pb.ReplicaLogDir(topic="t", node_id=9, log_dir="/data"),
        ]
        request = pb.AlterReplicaLogDirsRequest(replicas=wanted)
        response = await ask(cluster, "AlterReplicaLogDirs", request, pb.AlterReplicaLogDirsResponse)
        assert [(row.topic, row.node_id, row.error.code) for row in response.replicas] == [
            ("t", 2, ""),
            ("t", 1, "INVALID_REQUEST"),
            ("none", 1, "UNKNOWN_TOPIC_OR_PARTITION"),
            ("t", 3, "BROKER_NOT_AVAILABLE"),
            ("t", 9, "BROKER_ID_NOT_REGISTERED"),
        ]

    simulate(story)


def test_a_node_that_answers_a_part_only_is_an_error_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(
        peers: Peers, node: int, method: str, request: Message, response_type: type[Message], timeout_s: float
    ) -> Message:
        return response_type()

    monkeypatch.setattr(Peers, "call", nothing)

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", replicas=(1, 2))
        moves = [pb.ReplicaLogDir(topic="t", node_id=node, log_dir="/data") for node in (2, 1)]
        request = pb.AlterReplicaLogDirsRequest(replicas=moves)
        moved = await ask(cluster, "AlterReplicaLogDirs", request, pb.AlterReplicaLogDirsResponse)
        assert [row.error.code for row in moved.replicas] == ["BROKER_NOT_AVAILABLE", ""]
        described = await ask(cluster, "DescribeLogDirs", pb.DescribeLogDirsRequest(), pb.DescribeLogDirsResponse)
        assert [row.error.code for row in described.nodes][:2] == ["", "BROKER_NOT_AVAILABLE"]

    simulate(story)


def test_replicas_are_compared_by_their_digests() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", replicas=(1, 2))
        acks = common_pb2.ACKS_LEADER
        await cluster.produce(b"a", b"b", acks=acks)
        request = pb.DigestReplicasRequest(topic="t")
        empty = await ask(cluster, "DigestReplicas", request, pb.DigestReplicasResponse)
        assert (empty.start_offset, empty.end_offset, empty.identical) == (0, 0, True)
        await cluster.copy_to_follower(2, "t")
        await cluster.produce(b"c", acks=acks)
        response = await ask(cluster, "DigestReplicas", request, pb.DigestReplicasResponse, node=2)
        assert (response.start_offset, response.end_offset, response.identical) == (0, 2, True)
        assert [(one.node_id, one.batch_count, one.log_end) for one in response.replicas] == [(1, 1, 3), (2, 1, 2)]
        beyond = pb.DigestReplicasRequest(topic="t", start_offset=0, end_offset=3)
        response = await ask(cluster, "DigestReplicas", beyond, pb.DigestReplicasResponse)
        assert not response.identical
        assert [one.error.code for one in response.replicas] == ["", "OFFSET_OUT_OF_RANGE"]

    simulate(story)


def test_reassignments_and_drains() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create("t", replicas=(1, 2))
        move = pb.Reassignment(topic="t", target=pb.ReplicaAssignment(replicas=[1, 3]))
        request = pb.AlterPartitionReassignmentsRequest(reassignments=[move])
        done = await ask(cluster, "AlterPartitionReassignments", request, pb.AlterPartitionReassignmentsResponse)
        assert not done.results[0].HasField("error")
        for wanted, count in (([], 1), ([common_pb2.TopicPartition(topic="u")], 0)):
            asked = pb.ListPartitionReassignmentsRequest(partitions=wanted)
            response = await ask(cluster, "ListPartitionReassignments", asked, pb.ListPartitionReassignmentsResponse)
            assert len(response.reassignments) == count
        cancel = pb.AlterPartitionReassignmentsRequest(reassignments=[pb.Reassignment(topic="t")])
        await ask(cluster, "AlterPartitionReassignments", cancel, pb.AlterPartitionReassignmentsResponse)
        drain = pb.DrainNodeRequest(node_id=2, action=pb.DRAIN_ACTION_START)
        progress = await ask(cluster, "DrainNode", drain, pb.DrainNodeResponse)
        assert (progress.draining, progress.remaining_count) == (True, 1)
        show = pb.DrainNodeRequest(node_id=2, action=pb.DRAIN_ACTION_SHOW)
        assert (await ask(cluster, "DrainNode", show, pb.DrainNodeResponse)).moving_count == 1
        election = await ask(cluster, "ElectLeaders", pb.ElectLeadersRequest(), pb.ElectLeadersResponse)
        assert not election.results
        level = await ask(
            cluster, "UpdateMetadataVersion", pb.UpdateMetadataVersionRequest(), pb.UpdateMetadataVersionResponse
        )
        assert level.level == METADATA_VERSION_MAX
        with pytest.raises(StreamlogError) as caught:
            await ask(cluster, "UnregisterNode", pb.UnregisterNodeRequest(node_id=9), pb.UnregisterNodeResponse)
        assert caught.value.code == "BROKER_ID_NOT_REGISTERED"

    simulate(story)


def test_a_node_tells_what_it_is() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(2)
        request = cluster_pb2.ClusterDescribeRequest(client_version="test/1")
        method = "/streamlog.v1.Cluster/Describe"
        response = await cluster.call(method, request, cluster_pb2.ClusterDescribeResponse, node=2)
        assert (response.node_id, response.version, response.cluster_id) == (2, "0.0.0", cluster.rig.image.cluster_id)
        names = [feature.name for feature in response.features]
        assert names == sorted(names)
        assert "metadata.version" in names
        assert response.limits.request_bytes_max == 4 << 20

    simulate(story)


def test_offsets_epochs_and_producer_ids() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t")
        await cluster.produce(batches=batch([b"a", b"b"], timestamp=1_000))
        queries = [
            batches_pb2.OffsetQuery(topic="t", bound=common_pb2.OFFSET_BOUND_EARLIEST),
            batches_pb2.OffsetQuery(topic="t", bound=common_pb2.OFFSET_BOUND_LATEST),
            batches_pb2.OffsetQuery(topic="t", timestamp_ms=1_000),
            batches_pb2.OffsetQuery(topic="t", timestamp_ms=5_000),
            batches_pb2.OffsetQuery(topic="missing", timestamp_ms=5_000),
        ]
        request = batches_pb2.ListOffsetsRequest(queries=queries)
        found = (await cluster.call(BATCHES + "ListOffsets", request, batches_pb2.ListOffsetsResponse)).offsets
        assert [one.offset for one in found] == [0, 2, 0, -1, -1]
        assert [one.error.code for one in found] == [""] * 4 + ["UNKNOWN_TOPIC_OR_PARTITION"]
        asked = batches_pb2.OffsetForLeaderEpochRequest(queries=[batches_pb2.EpochQuery(topic="t")])
        response_type = batches_pb2.OffsetForLeaderEpochResponse
        ends = (await cluster.call(BATCHES + "OffsetForLeaderEpoch", asked, response_type)).ends
        assert (ends[0].end.leader_epoch, ends[0].end.end_offset) == (0, 2)
        ids = set()
        for node in (1, 2, 1, 2):
            init = batches_pb2.InitProducerIdRequest()
            made = await cluster.call(BATCHES + "InitProducerId", init, batches_pb2.InitProducerIdResponse, node=node)
            assert made.producer_token
            ids.add(made.producer_id)
        assert len(ids) == 4
        again = batches_pb2.InitProducerIdRequest(producer_id=5, producer_epoch=3)
        made = await cluster.call(BATCHES + "InitProducerId", again, batches_pb2.InitProducerIdResponse)
        assert (made.producer_id, made.producer_epoch) == (5, 4)

    simulate(story)


def test_levels_of_loggers_are_changed_at_the_named_node_alone() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        change = pb.LoggerChange(name="streamlog.requests", level=pb.LOG_LEVEL_DEBUG)
        request = pb.AlterBrokerLoggersRequest(node_id=2, changes=[change])
        altered = await ask(cluster, "AlterBrokerLoggers", request, pb.AlterBrokerLoggersResponse, node=1)
        assert [one.name for one in altered.loggers if one.is_set] == ["streamlog.requests"]
        for asked in (1, 2):
            for node, is_set in ((1, False), (2, True)):
                about = pb.DescribeBrokerLoggersRequest(node_id=node)
                found = await ask(cluster, "DescribeBrokerLoggers", about, pb.DescribeBrokerLoggersResponse, node=asked)
                by_name = {one.name: one for one in found.loggers}
                assert by_name["streamlog.requests"].is_set is is_set
                assert by_name["streamlog.raft"].level == pb.LOG_LEVEL_INFO
        request.changes[0].level = pb.LOG_LEVEL_UNSPECIFIED
        altered = await ask(cluster, "AlterBrokerLoggers", request, pb.AlterBrokerLoggersResponse, node=1)
        assert not any(one.is_set for one in altered.loggers)

    simulate(story)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (pb.AlterBrokerLoggersRequest(node_id=1), "INVALID_REQUEST"),
        (pb.AlterBrokerLoggersRequest(node_id=1, changes=[pb.LoggerChange(name="no\x1b.such")]), "INVALID_REQUEST"),
        (pb.AlterBrokerLoggersRequest(node_id=1, changes=[pb.LoggerChange(name="root")] * 2), "INVALID_REQUEST"),
        (pb.AlterBrokerLoggersRequest(node_id=1, changes=[pb.LoggerChange(name="x" * 10**6)]), "INVALID_REQUEST"),
        (pb.AlterBrokerLoggersRequest(node_id=9, changes=[pb.LoggerChange(name="root")]), "BROKER_ID_NOT_REGISTERED"),
        (pb.AlterBrokerLoggersRequest(node_id=-1, changes=[pb.LoggerChange(name="root")]), "INVALID_REQUEST"),
    ],
)
def test_bad_changes_of_loggers_change_nothing(request_: pb.AlterBrokerLoggersRequest, code: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        with pytest.raises(StreamlogError) as refused:
            await ask(cluster, "AlterBrokerLoggers", request_, pb.AlterBrokerLoggersResponse)
        assert refused.value.code == code
        assert len(refused.value.message) < 1_000
        assert "\x1b" not in refused.value.message

    simulate(story)
