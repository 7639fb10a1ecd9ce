"""Topics are made, grown, deleted: REQUIREMENTS "Topics", FAULTS "Bad input"."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from streamlog.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    StreamlogError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.partitions.reassignment import AlterReassignments, PartitionReassignment
from streamlog.metadata.records import ConfigTarget, ConfigTargetType
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.assignment import REPLICATION_FACTOR_MAX
from streamlog.metadata.topics.creation import (
    PARTITIONS_PER_REQUEST_MAX,
    CreatableTopic,
    CreateInternalTopic,
    CreateTopics,
    TopicResult,
)
from streamlog.metadata.topics.deletion import DeleteTopics
from streamlog.metadata.topics.growth import CreatePartitions, GrowTopic
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.model import PartitionId, TopicId
from tests.metadata.examples import ids
from tests.metadata.rig import Rig


def nodes(count: int = 3, **settings: Any) -> Rig:
    rig = Rig(settings=ControllerSettings(**settings))
    rig.start_all(*range(1, count + 1))
    return rig


def ask(rig: Rig, *topics: CreatableTopic, validate_only: bool = False) -> list[TopicResult]:
    return list(rig.do(CreateTopics(topics=topics, validate_only=validate_only)))


class TestCreation:
    def test_a_topic(self) -> None:
        rig = nodes()
        [result] = ask(
            rig, CreatableTopic(name="test1", partitions=3, replication_factor=2, configs={"retention.ms": "5"})
        )
        topic = rig.topic("test1")
        assert (result.topic_id, result.partitions, result.replication_factor) == (topic.topic_id, 3, 2)
        assert (result.warning, result.error) == (None, None)
        assert [p.replicas for p in topic.partitions] == [ids(1, 2), ids(3, 1), ids(2, 3)]
        assert all(p.isr == p.replicas and p.leader == p.last_leader == p.replicas[0] for p in topic.partitions)
        config = rig.image.config(ConfigTarget(ConfigTargetType.TOPIC, "test1"))
        assert dict(config.items()) == {"retention.ms": "5"}

    @pytest.mark.parametrize(("live", "factor"), [(1, 1), (2, 2), (3, 3), (5, 3)])
    def test_the_default_replication_factor_is_three_or_as_many_as_live(self, live: int, factor: int) -> None:
        """SEMANTICS 5."""
        rig = nodes(live)
        assert len(rig.create().partitions) == 1
        assert len(rig.partition().replicas) == factor

    def test_defaults_by_settings(self) -> None:
        rig = nodes(num_partitions=4, default_replication_factor=2)
        [result] = ask(rig, CreatableTopic(name="t"))
        assert (result.partitions, result.replication_factor) == (4, 2)

    def test_by_hand(self) -> None:
        rig = nodes()
        rig.fence(2)
        rig.create(assignments=(ids(3, 1), ids(2, 1)))
        first, second = rig.topic().partitions
        assert (first.replicas, first.isr, first.leader) == (ids(3, 1), ids(3, 1), 3)
        assert (second.replicas, second.isr, second.leader) == (ids(2, 1), ids(1), 1)

    def test_validate_only_makes_nothing(self) -> None:
        rig = nodes()
        before = rig.image
        good, bad = ask(rig, CreatableTopic(name="a"), CreatableTopic(name="b", partitions=0), validate_only=True)
        assert (good.partitions, good.error) == (1, None)
        assert type(bad.error) is InvalidPartitionsError
        assert rig.image is before

    def test_one_refusal_does_not_hold_up_the_others(self) -> None:
        rig = nodes()
        results = ask(rig, CreatableTopic(name="a"), CreatableTopic(name=".."), CreatableTopic(name="b"))
        assert [type(result.error) for result in results] == [type(None), InvalidTopicError, type(None)]
        assert sorted(topic.name for topic in rig.image.topics.values()) == ["a", "b"]

    def test_equal_requests_give_equal_decisions(self) -> None:
        command = CreateTopics(topics=(CreatableTopic(name="a", partitions=7), CreatableTopic(name="b", partitions=3)))
        assert nodes().decide(command) == nodes().decide(command)

    def test_ids_are_never_equal(self) -> None:
        rig = nodes()
        first = rig.create().topic_id
        rig.do(DeleteTopics(names=("t",)))
        assert rig.create().topic_id != first
        assert len(first) == 16

    @pytest.mark.parametrize(
        ("topic", "error", "field", "limit"),
        [
            ({"partitions": 0}, InvalidPartitionsError, "partitions", 1),
            ({"partitions": -1}, InvalidPartitionsError, "partitions", 1),
            ({"partitions": 10**9}, InvalidPartitionsError, "partitions", PARTITIONS_PER_REQUEST_MAX),
            ({"replication_factor": 0}, InvalidReplicationFactorError, "replication_factor", 1),
            ({"replication_factor": 4}, InvalidReplicationFactorError, "replication_factor", 3),
            (
                {"replication_factor": 10**9},
                InvalidReplicationFactorError,
                "replication_factor",
                REPLICATION_FACTOR_MAX,
            ),
            ({"configs": {"no.such": "1"}}, InvalidConfigError, "no.such", None),
            ({"configs": {"min.insync.replicas": "0"}}, InvalidConfigError, "min.insync.replicas", 1),
            ({"configs": {"retention.ms": "1" * 40_000}}, InvalidConfigError, "retention.ms", 32_767),
            ({"assignments": ((),)}, InvalidReplicaAssignmentError, "assignments", 1),
            ({"assignments": (ids(1, 1),)}, InvalidReplicaAssignmentError, "assignments", None),
            ({"assignments": (ids(9),)}, InvalidReplicaAssignmentError, "assignments", None),
            ({"assignments": (ids(1, 2), ids(1))}, InvalidReplicaAssignmentError, "assignments", 2),
            ({"assignments": (ids(*range(65)),)}, InvalidReplicaAssignmentError, "assignments", 64),
            ({"assignments": (ids(1),), "partitions": 2}, InvalidRequestError, "partitions", 1),
            ({"assignments": (ids(1),), "replication_factor": 2}, InvalidRequestError, "replication_factor", 1),
        ],
        ids=str,
    )
    def test_what_is_refused(
        self, topic: dict[str, Any], error: type[StreamlogError], field: str, limit: object
    ) -> None:
        rig = nodes()
        before = rig.image
        [result] = ask(rig, CreatableTopic(name="t", **topic))
        assert type(result.error) is error
        assert result.error.details["field"] == field
        assert result.error.details.get("limit") == limit
        assert rig.image is before

    def test_a_billion_partitions_are_refused_before_anything_is_allocated(self) -> None:
        rig = nodes()
        tracemalloc.start()
        ask(rig, CreatableTopic(name="t", partitions=10**9))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 200_000

    def test_the_limit_is_for_all_topics_of_a_request_together(self) -> None:
        rig = nodes()
        half = PARTITIONS_PER_REQUEST_MAX // 2 + 1
        first, second = ask(
            rig,
            CreatableTopic(name="a", partitions=half),
            CreatableTopic(name="b", partitions=half),
            validate_only=True,
        )
        assert first.error is None
        assert type(second.error) is InvalidPartitionsError

    def test_more_replicas_than_live_nodes_says_how_many_are_live(self) -> None:
        rig = nodes()
        rig.fence(3)
        [result] = ask(rig, CreatableTopic(name="t", replication_factor=3))
        assert str(result.error) == "replication factor 3 is larger than the number of active nodes, 2"

    def test_without_live_nodes(self) -> None:
        [result] = ask(Rig(), CreatableTopic(name="t"))
        assert str(result.error) == "replication factor 1 is larger than the number of active nodes, 0"

    def test_by_hand_on_dead_nodes(self) -> None:
        rig = nodes()
        rig.fence(2)
        [result] = ask(rig, CreatableTopic(name="t", assignments=(ids(2),)))
        assert type(result.error) is InvalidReplicaAssignmentError


class TestNames:
    @pytest.mark.parametrize(
        "name", ["../x", "/", "a\0b", "", ".", "..", "a" * 250, "a b", "é", "a\n", "__consumer_offsets"]
    )
    def test_names_that_are_none(self, name: str) -> None:
        rig = nodes()
        [result] = ask(rig, CreatableTopic(name=name))
        assert type(result.error) is InvalidTopicError

    @pytest.mark.parametrize("name", ["a", "A-9", "a" * 249, "...", "-", "__mine"])
    def test_names_that_are(self, name: str) -> None:
        [result] = ask(nodes(), CreatableTopic(name=name))
        assert result.error is None
        assert (result.warning is not None) == ("." in name or "_" in name)

    def test_names_that_exist(self) -> None:
        rig = nodes()
        rig.create("t")
        [result] = ask(rig, CreatableTopic(name="t"))
        assert type(result.error) is TopicAlreadyExistsError

    @pytest.mark.parametrize(("there", "asked"), [("a.b", "a_b"), ("a_b.c", "a.b_c")])
    def test_names_that_collide(self, there: str, asked: str) -> None:
        rig = nodes()
        rig.create(there)
        [result] = ask(rig, CreatableTopic(name=asked))
        assert type(result.error) is InvalidTopicError
        assert result.error.details["limit"] == there
        rig.do(DeleteTopics(names=(there,)))
        rig.create(asked)

    def test_names_that_collide_in_one_request(self) -> None:
        first, second = ask(nodes(), CreatableTopic(name="a.b"), CreatableTopic(name="a_b"))
        assert first.error is None
        assert type(second.error) is InvalidTopicError

    def test_a_name_twice_in_one_request_is_refused_twice(self) -> None:
        results = ask(nodes(), CreatableTopic(name="a"), CreatableTopic(name="a"), CreatableTopic(name="b"))
        assert [type(result.error) for result in results] == [InvalidRequestError, InvalidRequestError, type(None)]

    @pytest.mark.parametrize("name", ["a.b", "a_b"])
    def test_strict(self, name: str) -> None:
        [result] = ask(nodes(strict_topic_names=True), CreatableTopic(name=name))
        assert type(result.error) is InvalidTopicError


class TestGrowth:
    def grow(self, rig: Rig, count: int, **how: Any) -> StreamlogError | None:
        [result] = rig.do(CreatePartitions(topics=(GrowTopic(name="t", count=count, **how),)))
        error: StreamlogError | None = result.error
        return error

    def test_more_partitions_even_out_the_topic(self) -> None:
        rig = nodes()
        rig.create(assignments=(ids(1, 2), ids(1, 3)))
        assert self.grow(rig, 6) is None
        leaders = [p.leader for p in rig.topic().partitions]
        assert leaders[:2] == [1, 1]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
        assert all(len(p.replicas) == 2 for p in rig.topic().partitions)

    def test_by_hand(self) -> None:
        rig = nodes()
        rig.create(assignments=(ids(1),))
        assert self.grow(rig, 3, assignments=(ids(3), ids(2))) is None
        assert [p.leader for p in rig.topic().partitions] == [1, 3, 2]

    @pytest.mark.parametrize("count", [3, 2, 0, -1])
    def test_equal_or_lower_says_so(self, count: int) -> None:
        rig = nodes()
        rig.create(partitions=3)
        error = self.grow(rig, count)
        assert type(error) is InvalidPartitionsError
        assert "has 3 partitions" in str(error)
        assert "can only be added" in str(error)
        assert len(rig.topic().partitions) == 3

    @pytest.mark.parametrize(
        ("count", "how", "error"),
        [
            (10**9, {}, InvalidPartitionsError),
            (3, {"assignments": (ids(1, 2, 3),)}, InvalidReplicaAssignmentError),
            (2, {"assignments": (ids(1, 2),)}, InvalidReplicaAssignmentError),
        ],
    )
    def test_what_is_refused(self, count: int, how: dict[str, Any], error: type[StreamlogError]) -> None:
        rig = nodes()
        rig.create()
        assert type(self.grow(rig, count, **how)) is error

    def test_unknown(self) -> None:
        assert type(self.grow(nodes(), 3)) is UnknownTopicOrPartitionError

    def test_too_few_live_nodes(self) -> None:
        rig = nodes()
        rig.create()
        rig.fence(3)
        assert type(self.grow(rig, 2)) is InvalidReplicationFactorError

    def test_what_a_reassignment_adds_does_not_count(self) -> None:
        """The replication factor of a topic is that of its first partition, without what it is still getting."""
        rig = nodes()
        rig.create(assignments=(ids(1),))
        moving = PartitionReassignment(topic="t", partition_id=PartitionId(0), replicas=ids(1, 2, 3))
        rig.do(AlterReassignments(reassignments=(moving,)))
        assert self.grow(rig, 2) is None
        assert len(rig.partition(partition_id=1).replicas) == 1

    def test_the_cluster_s_own_are_fixed(self) -> None:
        rig = nodes()
        rig.do(CreateInternalTopic(name="__consumer_offsets"))
        [result] = rig.do(CreatePartitions(topics=(GrowTopic(name="__consumer_offsets", count=60),)))
        assert type(result.error) is InvalidTopicError

    def test_a_topic_twice(self) -> None:
        rig = nodes()
        rig.create()
        with pytest.raises(InvalidRequestError):
            rig.do(CreatePartitions(topics=(GrowTopic(name="t", count=2), GrowTopic(name="t", count=3))))

    def test_validate_only(self) -> None:
        rig = nodes()
        rig.create()
        [result] = rig.do(CreatePartitions(topics=(GrowTopic(name="t", count=2),), validate_only=True))
        assert result.error is None
        assert len(rig.topic().partitions) == 1


class TestDeletion:
    def test_by_name_and_by_id(self) -> None:
        rig = nodes()
        first, second = rig.create("a").topic_id, rig.create("b", configs={"retention.ms": "1"}).topic_id
        results = rig.do(DeleteTopics(names=("a",), topic_ids=(second,)))
        assert [(r.name, r.topic_id, r.error) for r in results] == [("a", first, None), ("b", second, None)]
        assert (len(rig.image.topics), len(rig.image.configs), rig.image.partition_count) == (0, 0, 0)

    def test_what_is_not_there(self) -> None:
        rig = nodes()
        rig.create()
        by_name, good, by_id = rig.do(DeleteTopics(names=("a", "t"), topic_ids=(TopicId(bytes(16)),)))
        assert type(by_name.error) is UnknownTopicOrPartitionError
        assert good.error is None
        assert type(by_id.error) is UnknownTopicIdError
        assert len(rig.image.topics) == 0

    def test_named_twice_it_goes_once(self) -> None:
        rig = nodes()
        topic_id = rig.create().topic_id
        assert len(rig.decide(DeleteTopics(names=("t", "t"), topic_ids=(topic_id,))).records) == 1

    def test_where_it_is_not_allowed(self) -> None:
        rig = nodes(delete_topic_enable=False)
        rig.create()
        with pytest.raises(TopicDeletionDisabledError, match=r"delete\.topic\.enable"):
            rig.do(DeleteTopics(names=("t",)))

    def test_the_cluster_s_own(self) -> None:
        rig = nodes()
        rig.do(CreateInternalTopic(name="__consumer_offsets"))
        [result] = rig.do(DeleteTopics(names=("__consumer_offsets",)))
        assert type(result.error) is InvalidTopicError


class TestInternalTopics:
    """SEMANTICS 5: min(3, live nodes) replicas, grown when nodes join."""

    def test_made_when_they_are_needed(self) -> None:
        rig = nodes()
        for name, internal in INTERNAL_TOPICS.items():
            result = rig.do(CreateInternalTopic(name=name))
            assert (result.partitions, result.replication_factor) == (50, 3)
            config = rig.image.config(ConfigTarget(ConfigTargetType.TOPIC, name))
            assert dict(config.items()) == internal.all_configs(ControllerSettings())

    def test_as_the_settings_say(self) -> None:
        rig = nodes(offsets_topic_num_partitions=7, offsets_topic_segment_bytes=1 << 20)
        assert rig.do(CreateInternalTopic(name="__consumer_offsets")).partitions == 7
        config = rig.image.config(ConfigTarget(ConfigTargetType.TOPIC, "__consumer_offsets"))
        assert config.get("segment.bytes") == str(1 << 20)
        assert rig.do(CreateInternalTopic(name="__transaction_state")).partitions == 50

    def test_replicas_as_the_settings_say_also_when_they_grow(self) -> None:
        name = "__transaction_state"
        rig = nodes(1, transaction_state_log_replication_factor=2, transaction_state_log_min_isr=1)
        assert rig.do(CreateInternalTopic(name=name)).replication_factor == 1
        assert rig.image.config(ConfigTarget(ConfigTargetType.TOPIC, name)).get("min.insync.replicas") == "1"
        rig.start(2)
        for at in range(50):
            rig.alter_isr([1, 2], name, at)
        rig.start(3)
        assert {p.replicas for p in rig.topic(name).partitions} == {ids(1, 2)}

    def test_only_those(self) -> None:
        with pytest.raises(InvalidTopicError):
            nodes().do(CreateInternalTopic(name="mine"))

    def test_once(self) -> None:
        rig = nodes()
        rig.do(CreateInternalTopic(name="__consumer_offsets"))
        with pytest.raises(TopicAlreadyExistsError):
            rig.do(CreateInternalTopic(name="__consumer_offsets"))

    def test_not_without_nodes(self) -> None:
        with pytest.raises(InvalidReplicationFactorError):
            Rig().do(CreateInternalTopic(name="__consumer_offsets"))

    def test_they_grow_as_nodes_join(self) -> None:
        rig = nodes(1)
        name = "__consumer_offsets"
        rig.do(CreateInternalTopic(name=name))
        rig.start(2)
        partition = rig.partition(name)
        assert (partition.replicas, partition.adding, partition.isr) == (ids(1, 2), ids(2), ids(1))
        rig.start(3)
        assert rig.partition(name).replicas == ids(1, 2), "one step after the other"
        for at in range(50):
            rig.alter_isr([1, 2], name, at)
        for at in range(50):
            assert len(rig.partition(name, at).replicas) == 3
            rig.alter_isr(rig.partition(name, at).replicas, name, at)
        assert {len(p.isr) for p in rig.topic(name).partitions} == {3}
        assert not any(p.adding for p in rig.topic(name).partitions)
        assert {p.replicas[1] for p in rig.topic(name).partitions} == {2}
