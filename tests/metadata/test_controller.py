"""The table of commands, and what a shell may do with decisions."""

from __future__ import annotations

from typing import get_args

import pytest

from streamlog.config import ConfigChange
from streamlog.errors import InvariantError
from streamlog.metadata import controller, features
from streamlog.metadata.brokers.liveness import ExpireSession, FenceBroker
from streamlog.metadata.cluster import AllocateProducerIds
from streamlog.metadata.configs.changes import AlterConfigs, ResourceChange
from streamlog.metadata.controller import DECIDERS, Command, command_for, decide
from streamlog.metadata.decision import BalanceTimer, BrokerSessionTimer, Then
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.image.delta import look_ahead
from streamlog.metadata.image.snapshot import encode_snapshot
from streamlog.metadata.partitions.leaders import BalanceLeaders
from streamlog.metadata.records import (
    ConfigTarget,
    ConfigTargetType,
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
    ProducerIdsRecord,
)
from streamlog.metadata.topics.creation import CreatableTopic, CreateTopics
from streamlog.metadata.topics.growth import CreatePartitions, GrowTopic
from streamlog.model import BrokerId, ProducerId
from tests.metadata.rig import Rig


def test_every_command_is_decided() -> None:
    assert set(DECIDERS) == set(get_args(Command))


def test_timers_become_commands() -> None:
    assert command_for(BrokerSessionTimer(BrokerId(3))) == ExpireSession(broker_id=BrokerId(3))
    assert command_for(BalanceTimer()) == BalanceLeaders()


def commands(rig: Rig) -> list[Command]:
    """Each of them needs the one before."""
    change = ConfigChange(name="retention.ms", value="1")
    resource = ConfigTarget(ConfigTargetType.TOPIC, "t")
    return [
        CreateTopics(topics=(CreatableTopic(name="t", partitions=3),)),
        CreatePartitions(topics=(GrowTopic(name="t", count=5),)),
        AlterConfigs(resources=(ResourceChange(resource=resource, changes=(change,)),)),
        FenceBroker(broker_id=BrokerId(1), broker_epoch=rig.epoch(1)),
        AllocateProducerIds(broker_id=BrokerId(2), broker_epoch=rig.epoch(2)),
    ]


def test_decisions_on_what_is_looked_ahead_may_share_a_command() -> None:
    """Group commit of decisions: the image is that of one after the other."""
    together, one_by_one = Rig(), Rig()
    for rig in (together, one_by_one):
        rig.start_all(1, 2, 3)
    ahead = together.image
    records: list[MetadataRecord] = []
    for command in commands(together):
        decision = decide(command, ahead, together.context)
        assert decision.then is Then.NOTHING
        records += decision.records
        ahead = look_ahead(ahead, decision.records)
    together.commit(records)
    for command in commands(one_by_one):
        one_by_one.do(command)
    chunks, expected = list(encode_snapshot(together.image)), list(encode_snapshot(one_by_one.image))
    assert chunks[1:] == expected[1:], "all but the index in the head"
    assert len(together.log) == len(one_by_one.log) - 4


def test_a_refusal_is_no_decision() -> None:
    rig = Rig()
    rig.start_all(1)
    before = rig.image
    [result] = rig.do(CreateTopics(topics=(CreatableTopic(name="", partitions=0),)))
    assert result.error is not None
    assert rig.image is before


class TestLevels:
    """What the cluster's level does not allow stops one controller before it stops every node."""

    def test_a_decision_beyond_the_level(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = Rig()
        rig.start_all(1)
        levels = {**features.LEVEL_OF_RECORD, ProducerIdsRecord: MetadataVersion(METADATA_VERSION_MAX + 1)}
        monkeypatch.setattr(features, "LEVEL_OF_RECORD", levels)
        command = AllocateProducerIds(broker_id=BrokerId(1), broker_epoch=rig.epoch(1))
        needs, has = METADATA_VERSION_MAX + 1, METADATA_VERSION_MAX
        with pytest.raises(
            InvariantError, match=rf"ProducerIdsRecord needs metadata\.version {needs}, the log is at {has}"
        ):
            controller.decide(command, rig.image, rig.context)

    def test_a_level_that_rises_in_the_same_command_counts(self) -> None:
        raised = MetadataVersionRecord(level=MetadataVersion(1))
        features.require_all_allowed([raised, ProducerIdsRecord(next_producer_id=ProducerId(0))], MetadataVersion(0))
