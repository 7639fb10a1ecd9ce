"""Replay: records make images, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.errors import InvariantError, UnsupportedVersionError
from streamlog.metadata.features import ADDRESS_QUOTAS, LEVEL_OF_RECORD, METADATA_VERSION_MAX
from streamlog.metadata.image.delta import MetadataDelta, changed, look_ahead, replay
from streamlog.metadata.image.image import EMPTY_IMAGE, MetadataImage
from streamlog.metadata.image.roles import Role
from streamlog.metadata.records import (
    EPOCH_FROM_INDEX,
    BrokerChangeRecord,
    BrokerRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    ConfigTarget,
    ConfigTargetType,
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
    Partition,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from streamlog.model import NO_BROKER, BrokerEpoch, BrokerId, PartitionId, ProducerId, RaftIndex, TopicId
from tests.metadata.examples import EXAMPLES, NODE, TOPIC, ids
from tests.metadata.invariants import check_structure

OTHER = TopicId(bytes([1] * 16))
LEVEL = MetadataVersionRecord(level=MetadataVersion(1))


def image_of(*records: MetadataRecord, index: int = 10) -> MetadataImage:
    return replay(EMPTY_IMAGE, [LEVEL, *records], RaftIndex(index))


def partition_record(partition_id: int = 0, topic_id: TopicId = TOPIC, **state: Any) -> PartitionRecord:
    partition = Partition(
        **{"replicas": ids(1, 2), "isr": ids(1, 2), "leader": BrokerId(1), "last_leader": BrokerId(1), **state}
    )
    return PartitionRecord(topic_id=topic_id, partition_id=PartitionId(partition_id), partition=partition)


def change(partition_id: int = 0, **what: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC, partition_id=PartitionId(partition_id), **what)


TOPIC_T: Sequence[MetadataRecord] = (TopicRecord(topic_id=TOPIC, name="a.b"), partition_record(0), partition_record(1))


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = image_of(*TOPIC_T)
    topic = image.require_topic("a.b")
    assert image.require_topic_id(TOPIC) is topic
    assert [p.leader for p in topic.partitions] == [1, 1]
    assert image.partition_count == 2
    assert image.topic_named("a_b") is None
    assert image.topic_like("a_b") is topic
    assert list(image.roles.partitions(Role.LEADER, BrokerId(1))) == [(TOPIC, 0), (TOPIC, 1)]


def test_a_change_leaves_the_image_before_as_it_was() -> None:
    before = image_of(*TOPIC_T)
    after = replay(before, [change(1, isr=ids(2), leader=BrokerId(2))], RaftIndex(11))
    assert before.topics[TOPIC].partitions[1].leader == 1
    assert after.topics[TOPIC].partitions[1].leader == 2
    assert after.topics[TOPIC].partitions[0] is before.topics[TOPIC].partitions[0]
    assert list(before.roles.partitions(Role.LEADER, BrokerId(2))) == []
    assert list(after.roles.partitions(Role.LEADER, BrokerId(2))) == [(TOPIC, 1)]


def test_records_of_one_command_see_one_another() -> None:
    image = image_of(*TOPIC_T, change(isr=ids(1)), change(isr=ids(1, 2)), RemoveTopicRecord(topic_id=TOPIC), *TOPIC_T)
    assert image.topics[TOPIC].partitions[0].partition_epoch == 0
    image = image_of(*TOPIC_T, change(isr=ids(1)), change(elr=ids(2)))
    assert image.topics[TOPIC].partitions[0] == replace(
        partition_record().partition, isr=ids(1), elr=ids(2), partition_epoch=2
    )


class TestEpochs:
    """SEMANTICS 3: success raises the partition epoch; a leader change raises both."""

    base = partition_record().partition

    def test_any_change_raises_the_partition_epoch(self) -> None:
        after = changed(self.base, change(isr=ids(1)))
        assert (after.partition_epoch, after.leader_epoch) == (1, 0)

    def test_a_leader_raises_both(self) -> None:
        after = changed(self.base, change(leader=BrokerId(2)))
        assert (after.partition_epoch, after.leader_epoch, after.last_leader) == (1, 1, 2)

    def test_the_same_leader_named_again_is_a_new_leader_epoch(self) -> None:
        after = changed(self.base, change(leader=BrokerId(1)))
        assert (after.partition_epoch, after.leader_epoch) == (1, 1)

    def test_no_leader_is_an_epoch_too_and_the_last_one_is_remembered(self) -> None:
        after = changed(self.base, change(leader=NO_BROKER, isr=()))
        assert (after.leader, after.last_leader, after.leader_epoch) == (NO_BROKER, 1, 1)

    def test_a_last_leader_can_be_forgotten(self) -> None:
        after = changed(self.base, change(leader=NO_BROKER, last_leader=NO_BROKER, isr=()))
        assert after.last_leader == NO_BROKER


class TestBrokers:
    fresh = BrokerRecord(broker=replace(NODE, epoch=EPOCH_FROM_INDEX, stopping=False, draining=False))

    def test_the_epoch_of_a_registration_is_its_index(self) -> None:
        """SEMANTICS 8."""
        assert image_of(self.fresh, index=42).brokers[NODE.broker_id].epoch == 42

    def test_a_snapshot_carries_the_epoch(self) -> None:
        assert image_of(BrokerRecord(broker=NODE), index=42).brokers[NODE.broker_id] == NODE

    def test_the_epoch_cannot_be_known_before_the_command_has_an_index(self) -> None:
        with pytest.raises(InvariantError, match="not known yet"):
            look_ahead(image_of(), [self.fresh])

    def test_a_change_names_what_it_changes(self) -> None:
        image = image_of(BrokerRecord(broker=NODE))
        record = BrokerChangeRecord(broker_id=NODE.broker_id, broker_epoch=NODE.epoch, fenced=False)
        assert look_ahead(image, [record]).brokers[NODE.broker_id] == replace(NODE, fenced=False)

    def test_unregistering_forgets(self) -> None:
        image = image_of(BrokerRecord(broker=NODE))
        record = UnregisterBrokerRecord(broker_id=NODE.broker_id, broker_epoch=NODE.epoch)
        assert len(look_ahead(image, [record]).brokers) == 0


class TestConfigs:
    topic = ConfigTarget(ConfigTargetType.TOPIC, "a.b")

    def test_set_and_removed(self) -> None:
        image = image_of(*TOPIC_T, ConfigRecord(resource=self.topic, name="x", value="1"))
        assert dict(image.config(self.topic).items()) == {"x": "1"}
        image = look_ahead(image, [ConfigRecord(resource=self.topic, name="x", value=None)])
        assert len(image.configs) == 0

    def test_they_go_with_their_topic(self) -> None:
        config = ConfigRecord(resource=self.topic, name="x", value="1")
        image = image_of(*TOPIC_T, config)
        assert len(look_ahead(image, [RemoveTopicRecord(topic_id=TOPIC)]).configs) == 0
        assert len(image_of(*TOPIC_T, config, RemoveTopicRecord(topic_id=TOPIC)).configs) == 0

    def test_a_topic_recreated_in_the_same_command_has_its_own(self) -> None:
        image = image_of(*TOPIC_T, ConfigRecord(resource=self.topic, name="x", value="1"))
        image = look_ahead(
            image,
            [
                RemoveTopicRecord(topic_id=TOPIC),
                TopicRecord(topic_id=OTHER, name="a_b"),
                partition_record(topic_id=OTHER),
                ConfigRecord(resource=ConfigTarget(ConfigTargetType.TOPIC, "a_b"), name="y", value="2"),
            ],
        )
        check = [(resource.name, dict(values.items())) for resource, values in image.configs.items()]
        assert check == [("a_b", {"y": "2"})]
        assert image.require_topic("a_b").topic_id == OTHER


def test_a_delta_says_what_changed() -> None:
    base = image_of(*TOPIC_T, TopicRecord(topic_id=OTHER, name="o"), partition_record(topic_id=OTHER))
    delta = MetadataDelta(base)
    delta.replay([change(1, isr=ids(1)), RemoveTopicRecord(topic_id=OTHER)], RaftIndex(11))
    delta.replay(
        [BrokerRecord(broker=NODE), ConfigRecord(resource=TestConfigs.topic, name="x", value="1")], RaftIndex(12)
    )
    after = delta.apply()
    changes = {topic: list(differences) for topic, differences in delta.changed_topics()}
    assert changes == {
        OTHER: [(0, base.topics[OTHER].partitions[0], None)],
        TOPIC: [(1, base.topics[TOPIC].partitions[1], after.topics[TOPIC].partitions[1])],
    }
    assert list(delta.changed_brokers()) == [(NODE.broker_id, NODE)]
    assert ConfigTarget(ConfigTargetType.TOPIC, "a.b") in list(delta.changed_configs())
    assert after.index == 12
    check_structure(look_ahead(after, [RemoveTopicRecord(topic_id=TOPIC)]))


@pytest.mark.parametrize(
    "records",
    [
        [change(2, isr=ids(1))],
        [PartitionChangeRecord(topic_id=OTHER, partition_id=PartitionId(0), isr=ids(1))],
        [partition_record(0)],
        [partition_record(3)],
        [partition_record(0, topic_id=OTHER)],
        [TopicRecord(topic_id=TOPIC, name="new")],
        [TopicRecord(topic_id=OTHER, name="a_b")],
        [TopicRecord(topic_id=OTHER, name="c.d"), TopicRecord(topic_id=TopicId(bytes(16)), name="c_d")],
        [RemoveTopicRecord(topic_id=TOPIC), change(isr=ids(1))],
        [RemoveTopicRecord(topic_id=TOPIC), RemoveTopicRecord(topic_id=TOPIC)],
        [BrokerChangeRecord(broker_id=BrokerId(9), broker_epoch=BrokerEpoch(1), fenced=True)],
        [BrokerChangeRecord(broker_id=NODE.broker_id, broker_epoch=BrokerEpoch(1), fenced=True)],
        [UnregisterBrokerRecord(broker_id=NODE.broker_id, broker_epoch=BrokerEpoch(1))],
        [ClusterRecord(cluster_id="second")],
        [ProducerIdsRecord(next_producer_id=ProducerId(4))],
    ],
    ids=str,
)
def test_a_record_that_does_not_fit_is_a_broken_invariant(records: list[MetadataRecord]) -> None:
    image = image_of(
        *TOPIC_T,
        BrokerRecord(broker=NODE),
        ClusterRecord(cluster_id="first"),
        ProducerIdsRecord(next_producer_id=ProducerId(5)),
    )
    with pytest.raises(InvariantError):
        replay(image, records, RaftIndex(11))


def test_commands_do_not_go_back() -> None:
    with pytest.raises(InvariantError):
        replay(image_of(index=10), [], RaftIndex(9))


class TestFeatureLevels:
    """Issue 4: a level gates new records; an old node stops at what it does not know."""

    @pytest.mark.parametrize("record", [r for r in EXAMPLES.values() if LEVEL_OF_RECORD[type(r)] > 0], ids=repr)
    def test_no_record_before_the_level_that_brings_it(self, record: MetadataRecord) -> None:
        of_address = isinstance(record, ClientQuotaRecord) and record.entity.ip is not None
        level = ADDRESS_QUOTAS if of_address else LEVEL_OF_RECORD[type(record)]
        with pytest.raises(InvariantError, match=rf"needs metadata\.version {level}, the log is at 0"):
            replay(EMPTY_IMAGE, [record], RaftIndex(1))

    def test_a_level_that_this_node_does_not_know_stops_it(self) -> None:
        record = MetadataVersionRecord(level=MetadataVersion(METADATA_VERSION_MAX + 1))
        with pytest.raises(UnsupportedVersionError) as refused:
            replay(EMPTY_IMAGE, [record], RaftIndex(1))
        assert f"the cluster is at metadata.version {METADATA_VERSION_MAX + 1}" in str(refused.value)
        assert "install the release" in str(refused.value)
