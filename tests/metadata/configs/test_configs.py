"""Dynamic configs (KIP-339), and what they mean for elections (SEMANTICS 4 and 5)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.config import ConfigChange, Operation
from streamlog.errors import (
    BrokerIdNotRegisteredError,
    InvalidConfigError,
    InvalidRequestError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.configs.changes import (
    CHANGES_PER_REQUEST_MAX,
    AlterConfigs,
    ResourceChange,
)
from streamlog.metadata.configs.rules import Rulebook
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext, Then
from streamlog.metadata.partitions.reassignment import AlterReassignments, PartitionReassignment
from streamlog.metadata.partitions.replica_states import RecoveryStrategy
from streamlog.metadata.records import ALL_BROKERS, ConfigRecord, ConfigTarget, ConfigTargetType, PartitionChangeRecord
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.creation import CreateInternalTopic
from streamlog.model import NO_BROKER, PartitionId
from tests.metadata.examples import ids
from tests.metadata.rig import Rig

TOPIC = ConfigTarget(ConfigTargetType.TOPIC, "t")
NODE_1 = ConfigTarget(ConfigTargetType.BROKER, "1")


def change(name: str, value: str = "", operation: Operation = Operation.SET) -> ConfigChange:
    return ConfigChange(name=name, value=value, operation=operation)


def alter(rig: Rig, resource: ConfigTarget, *changes: ConfigChange, **how: Any) -> StreamlogError | None:
    [result] = rig.do(AlterConfigs(resources=(ResourceChange(resource=resource, changes=changes),), **how))
    error: StreamlogError | None = result.error
    return error


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.start_all(1, 2, 3)
    rig.create(assignments=(ids(1, 2, 3),))
    return rig


@pytest.mark.parametrize("resource", [TOPIC, NODE_1, ALL_BROKERS], ids=str)
def test_set_and_back_to_the_default(rig: Rig, resource: ConfigTarget) -> None:
    assert alter(rig, resource, change("retention.ms", "5"), change("segment.bytes", "7")) is None
    assert dict(rig.image.config(resource).items()) == {"retention.ms": "5", "segment.bytes": "7"}
    assert alter(rig, resource, change("retention.ms", operation=Operation.DELETE)) is None
    assert dict(rig.image.config(resource).items()) == {"segment.bytes": "7"}


def test_what_is_stored_for_no_node_can_be_removed(rig: Rig) -> None:
    """Earlier releases stored it for node '01'."""
    resource = ConfigTarget(ConfigTargetType.BROKER, "01")
    rig.commit([ConfigRecord(resource=resource, name="retention.ms", value="5")])
    error = alter(rig, resource, change("retention.ms", "6"))
    assert isinstance(error, BrokerIdNotRegisteredError)
    assert alter(rig, resource, change("retention.ms", operation=Operation.DELETE)) is None
    assert not rig.image.config(resource)


def test_what_is_so_already_makes_no_record(rig: Rig) -> None:
    alter(rig, TOPIC, change("retention.ms", "5"))
    before = rig.image
    alter(rig, TOPIC, change("retention.ms", "5"), change("segment.bytes", operation=Operation.DELETE))
    assert rig.image is before


class TestLists:
    def value(self, rig: Rig) -> str | None:
        return rig.image.config(TOPIC).get("cleanup.policy")

    def test_append_to_the_default_and_subtract(self, rig: Rig) -> None:
        alter(rig, TOPIC, change("cleanup.policy", "compact", Operation.APPEND))
        assert self.value(rig) == "delete,compact"
        alter(rig, TOPIC, change("cleanup.policy", "compact", Operation.APPEND))
        assert self.value(rig) == "delete,compact"
        alter(rig, TOPIC, change("cleanup.policy", "delete, nothing", Operation.SUBTRACT))
        assert self.value(rig) == "compact"

    def test_what_is_no_list(self, rig: Rig) -> None:
        error = alter(rig, TOPIC, change("retention.ms", "1", Operation.APPEND))
        assert type(error) is InvalidConfigError


@pytest.mark.parametrize(
    ("resource", "changes", "error"),
    [
        (ConfigTarget(ConfigTargetType.TOPIC, "u"), [change("retention.ms", "1")], UnknownTopicOrPartitionError),
        (ConfigTarget(ConfigTargetType.BROKER, "9"), [change("retention.ms", "1")], BrokerIdNotRegisteredError),
        (ConfigTarget(ConfigTargetType.BROKER, "x"), [change("retention.ms", "1")], BrokerIdNotRegisteredError),
        (ConfigTarget(ConfigTargetType.BROKER, "01"), [change("retention.ms", "1")], BrokerIdNotRegisteredError),
        (TOPIC, [change("no.such", "1")], InvalidConfigError),
        (TOPIC, [change("min.insync.replicas", "many")], InvalidConfigError),
        (TOPIC, [change("retention.ms", "1"), change("retention.ms", "2")], InvalidConfigError),
        (TOPIC, [change("retention.ms", "1" * 32_768)], InvalidConfigError),
        (TOPIC, [change("retention.ms", "1"), change("no.such", "1")], InvalidConfigError),
    ],
    ids=str,
)
def test_what_is_refused_changes_nothing_of_the_resource(
    rig: Rig, resource: ConfigTarget, changes: list[ConfigChange], error: type[StreamlogError]
) -> None:
    before = rig.image
    assert type(alter(rig, resource, *changes)) is error
    assert rig.image is before


def test_validate_only(rig: Rig) -> None:
    before = rig.image
    assert alter(rig, TOPIC, change("retention.ms", "5"), validate_only=True) is None
    assert type(alter(rig, TOPIC, change("no.such", "5"), validate_only=True)) is InvalidConfigError
    assert rig.image is before


def test_requests_are_bounded(rig: Rig) -> None:
    many = ResourceChange(resource=TOPIC, changes=(change("retention.ms", "1"),) * (CHANGES_PER_REQUEST_MAX + 1))
    for resources in [(many,), (ResourceChange(resource=TOPIC, changes=()),) * 2]:
        with pytest.raises(InvalidRequestError):
            rig.do(AlterConfigs(resources=resources))


class TestPrecedence:
    """Topic, then the cluster-wide dynamic config, then the controller's own setting."""

    def rules(self, rig: Rig) -> tuple[int | None, str]:
        rules = Rulebook(rig.image, rig.settings).of_topic(rig.topic())
        return rules.min_insync_replicas, rules.recovery.value

    def test_order(self, rig: Rig) -> None:
        assert self.rules(rig) == (None, "balanced")
        rig.settings = ControllerSettings(min_insync_replicas=1, unclean_leader_election_enable=True)
        assert self.rules(rig) == (1, "aggressive")
        alter(rig, ALL_BROKERS, change("min.insync.replicas", "3"), change("unclean.leader.election.enable", "false"))
        assert self.rules(rig) == (3, "balanced")
        alter(rig, TOPIC, change("min.insync.replicas", "2"), change("unclean.leader.election.enable", "true"))
        assert self.rules(rig) == (2, "aggressive")

    def test_a_strategy_goes_before_the_switch_at_its_level(self, rig: Rig) -> None:
        """KIP-966: unclean.leader.election.enable=true is aggressive, false is balanced."""
        rig.settings = ControllerSettings(
            unclean_leader_election_enable=True, unclean_recovery_strategy=RecoveryStrategy.NONE
        )
        assert self.rules(rig)[1] == "none"
        alter(rig, ALL_BROKERS, change("unclean.leader.election.enable", "true"))
        assert self.rules(rig)[1] == "aggressive"
        alter(rig, ALL_BROKERS, change("unclean.recovery.strategy", "none"))
        assert self.rules(rig)[1] == "none"
        alter(rig, TOPIC, change("unclean.leader.election.enable", "false"))
        assert self.rules(rig)[1] == "balanced"


class TestMinInsyncReplicas:
    """SEMANTICS 4: the ELR is cleared once |ISR| >= min.insync.replicas, also when it is the minimum that falls."""

    @pytest.mark.parametrize("resource", [TOPIC, ALL_BROKERS], ids=str)
    def test_lowered(self, rig: Rig, resource: ConfigTarget) -> None:
        rig.alter_isr([1])
        assert rig.partition().elr == ids(2, 3)
        alter(rig, resource, change("min.insync.replicas", "1"))
        assert rig.partition().elr == ()

    def test_deleted_for_all_nodes_that_of_the_file_counts(self) -> None:
        """The controller's settings include the dynamic configs: the deletion is decided with the old minimum."""

        class OfNode(Rig):
            @property
            def context(self) -> ControllerContext:
                value = self.image.config(ALL_BROKERS).get("min.insync.replicas", "1")
                settings = replace(self.settings, min_insync_replicas=int(value))
                return replace(super().context, settings=settings)

        rig = OfNode(settings=ControllerSettings(min_insync_replicas=1))
        rig.start_all(1, 2)
        rig.create(assignments=(ids(1, 2),))
        alter(rig, ALL_BROKERS, change("min.insync.replicas", "2"))
        rig.alter_isr([1])
        assert rig.partition().elr == ids(2)
        alter(rig, ALL_BROKERS, change("min.insync.replicas", operation=Operation.DELETE))
        assert rig.partition().elr == ()

    def test_in_one_command_with_the_config(self, rig: Rig) -> None:
        """Between the two a record could be committed that the eligible ones lack."""
        rig.alter_isr([1])
        resource = ResourceChange(resource=TOPIC, changes=(change("min.insync.replicas", "1"),))
        decision = rig.decide(AlterConfigs(resources=(resource,)))
        assert [type(record) for record in decision.records] == [PartitionChangeRecord, ConfigRecord]

    def test_or_before_it_where_there_are_too_many(self, rig: Rig) -> None:
        rig.create("u", assignments=(ids(1, 2, 3),) * BATCH_RECORDS)
        for node in (2, 3):
            rig.fence(node)
        resource = ResourceChange(resource=ALL_BROKERS, changes=(change("min.insync.replicas", "1"),))
        decision = rig.decide(AlterConfigs(resources=(resource,)))
        assert decision.then is Then.AGAIN
        assert not any(isinstance(record, ConfigRecord) for record in decision.records)
        rig.do(AlterConfigs(resources=(resource,)))
        assert not any(p.elr for p in rig.topic("u").partitions)
        assert rig.image.config(ALL_BROKERS).get("min.insync.replicas") == "1"

    def test_lowered_it_may_end_a_reassignment(self, rig: Rig) -> None:
        """3 lags, and 2 is to go: with 1 alone too few would be in sync."""
        rig.alter_isr([1, 2])
        moving = PartitionReassignment(topic="t", partition_id=PartitionId(0), replicas=ids(1, 3))
        alter(rig, TOPIC, change("min.insync.replicas", "2"))
        rig.do(AlterReassignments(reassignments=(moving,)))
        assert rig.partition().removing == ids(2)
        alter(rig, TOPIC, change("min.insync.replicas", "1"))
        assert (rig.partition().replicas, rig.partition().isr) == (ids(1, 3), ids(1))

    def test_raised(self, rig: Rig) -> None:
        """Records were committed without those who left: raising the minimum makes none eligible."""
        alter(rig, TOPIC, change("min.insync.replicas", "1"))
        rig.alter_isr([1, 2])
        alter(rig, TOPIC, change("min.insync.replicas", "3"))
        assert rig.partition().elr == ()
        rig.alter_isr([1])
        assert rig.partition().elr == ids(2)


def test_unclean_election_allowed_elects_the_longest_that_answers(rig: Rig) -> None:
    rig.alter_isr([1, 2])
    rig.fence(2)
    rig.fence(1)
    assert (rig.partition().leader, rig.partition().elr) == (NO_BROKER, ids(1, 2))
    alter(rig, TOPIC, change("unclean.leader.election.enable", "true"))
    assert rig.partition().leader == NO_BROKER, "no node has reported yet how far the logs reach"
    rig.recover({3: (0, 5)})
    assert (rig.partition().leader, rig.partition().isr) == (3, ids(3))


class TestTopicsOfTheClusterItself:
    """By one second of retention all offsets of all groups would be gone."""

    OFFSETS = ConfigTarget(ConfigTargetType.TOPIC, "__consumer_offsets")
    STATE = ConfigTarget(ConfigTargetType.TOPIC, "__transaction_state")

    @pytest.fixture
    def rig(self) -> Rig:
        rig = Rig()
        rig.start_all(1, 2, 3)
        for resource in (self.OFFSETS, self.STATE):
            rig.do(CreateInternalTopic(name=resource.name))
        return rig

    @pytest.mark.parametrize(
        "changed",
        [
            change("cleanup.policy", "delete"),
            change("cleanup.policy", operation=Operation.DELETE),
            change("cleanup.policy", "delete", Operation.APPEND),
            change("cleanup.policy", "compact", Operation.SUBTRACT),
            change("segment.bytes", "7"),
            change("retention.ms", "1000"),
        ],
        ids=str,
    )
    def test_are_not_changed(self, rig: Rig, changed: ConfigChange) -> None:
        for resource in (self.OFFSETS, self.STATE):
            before = rig.image
            assert isinstance(alter(rig, resource, changed), InvalidConfigError)
            assert isinstance(alter(rig, resource, changed, validate_only=True), InvalidConfigError)
            assert rig.image is before

    def test_a_safe_change_does_not_bring_another_one_in(self, rig: Rig) -> None:
        before = rig.image
        assert alter(rig, self.OFFSETS, change("cleanup.policy", "compact"), change("retention.ms", "1")) is not None
        assert rig.image is before

    def test_what_an_older_release_let_through_can_be_taken_back(self, rig: Rig) -> None:
        own = rig.image.config(self.OFFSETS).get("segment.bytes")
        assert own is not None
        for name, value in (("cleanup.policy", "delete"), ("retention.ms", "1"), ("segment.bytes", "7")):
            rig.commit([ConfigRecord(resource=self.OFFSETS, name=name, value=value)])
        assert (
            alter(
                rig,
                self.OFFSETS,
                change("cleanup.policy", "compact"),
                change("retention.ms", operation=Operation.DELETE),
                change("segment.bytes", own),
            )
            is None
        )
        assert dict(rig.image.config(self.OFFSETS).items()) == {"cleanup.policy": "compact", "segment.bytes": own}
