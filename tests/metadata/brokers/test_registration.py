"""Nodes join, come back, leave: SEMANTICS 4 and 8."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerIdError,
    InconsistentClusterError,
    InvalidRequestError,
    StreamlogError,
    UnsupportedVersionError,
)
from streamlog.metadata.brokers.registration import RegisterBroker, UnregisterBroker
from streamlog.metadata.decision import BrokerSessionTimer, SetControllerTimer, Then
from streamlog.metadata.features import LISTENERS, METADATA_VERSION_MAX
from streamlog.metadata.records import (
    EPOCH_FROM_INDEX,
    BrokerListener,
    BrokerRecord,
    ClusterRecord,
    MetadataVersion,
    MetadataVersionRecord,
)
from streamlog.model import NO_BROKER, BrokerEpoch, BrokerId
from tests.metadata.examples import ids
from tests.metadata.rig import CLUSTER, Rig

REQUEST = RegisterBroker(
    cluster_id=CLUSTER,
    broker_id=BrokerId(1),
    incarnation_id=bytes(range(16)),
    host="h",
    port=9092,
    rack="r",
    metadata_version_min=MetadataVersion(1),
    metadata_version_max=METADATA_VERSION_MAX,
    directory_ids=(b"b" * 16, b"a" * 16),
)

CLIENT = BrokerListener(name="CLIENT", host="public", port=9092)
INTERNAL = BrokerListener(name="INTERNAL", host="h", port=9093)


def test_a_registration() -> None:
    rig = Rig()
    assert rig.do(REQUEST).broker_id == 1
    node = rig.broker(1)
    assert node.epoch == rig.image.index, "SEMANTICS 8: the broker epoch is the index of the registration"
    assert node.fenced, "SEMANTICS 8: it starts fenced"
    assert (node.host, node.port, node.rack, node.directory_ids) == ("h", 9092, "r", (b"a" * 16, b"b" * 16))
    assert rig.timers[BrokerSessionTimer(BrokerId(1))] == 6_000


def test_a_node_with_several_listeners() -> None:
    rig = Rig()
    rig.do(replace(REQUEST, listeners=(INTERNAL, CLIENT)))
    node = rig.broker(1)
    assert node.listeners == (CLIENT, INTERNAL)
    assert (node.listener("CLIENT"), node.listener("INTERNAL")) == (("public", 9092), ("h", 9093))
    assert (node.listener(""), node.listener("OTHER")) == (("h", 9092), None)


def test_several_listeners_need_their_level() -> None:
    """A node of an earlier release would not know where clients find it."""
    rig = Rig()
    rig.machine = type(rig.machine)()
    rig.index = 0
    rig.commit([MetadataVersionRecord(level=MetadataVersion(LISTENERS - 1)), ClusterRecord(cluster_id=CLUSTER)])
    with pytest.raises(UnsupportedVersionError, match="once all nodes run this release"):
        rig.decide(replace(REQUEST, listeners=(INTERNAL, CLIENT)))
    rig.do(REQUEST)


def test_a_retry_changes_nothing() -> None:
    rig = Rig()
    rig.do(REQUEST)
    before = rig.image
    decision = rig.decide(REQUEST)
    assert decision.records == ()
    assert decision.timers == (SetControllerTimer(BrokerSessionTimer(BrokerId(1)), 6_000),)
    assert rig.image is before


def test_a_live_session_under_another_incarnation() -> None:
    """SEMANTICS 8."""
    rig = Rig()
    rig.start(1)
    with pytest.raises(DuplicateBrokerIdError, match="node 1 is running as another process") as refused:
        rig.decide(REQUEST)
    assert refused.value.retriable


def test_after_the_session_the_id_is_free() -> None:
    rig = Rig()
    rig.start(1)
    rig.fire(BrokerSessionTimer(BrokerId(1)))
    old = rig.broker(1)
    rig.do(REQUEST)
    assert rig.broker(1).incarnation_id == REQUEST.incarnation_id != old.incarnation_id
    assert rig.broker(1).epoch > old.epoch


@pytest.mark.parametrize(
    ("change", "error", "field"),
    [
        ({"cluster_id": "other"}, InconsistentClusterError, "cluster_id"),
        ({"broker_id": -1}, InvalidRequestError, "broker_id"),
        ({"broker_id": 2**31}, InvalidRequestError, "broker_id"),
        ({"metadata_version_max": 2**31}, InvalidRequestError, "metadata_version_max"),
        ({"port": 0}, InvalidRequestError, "port"),
        ({"port": 65_536}, InvalidRequestError, "port"),
        ({"host": ""}, InvalidRequestError, "host"),
        ({"host": "h" * 254}, InvalidRequestError, "host"),
        ({"rack": "r" * 254}, InvalidRequestError, "rack"),
        ({"incarnation_id": b"short"}, InvalidRequestError, "incarnation_id"),
        ({"directory_ids": (b"short",)}, InvalidRequestError, "directory_ids"),
        ({"directory_ids": (bytes(16),) * 1_001}, InvalidRequestError, "directory_ids"),
        (
            {"metadata_version_min": METADATA_VERSION_MAX + 1, "metadata_version_max": METADATA_VERSION_MAX + 2},
            UnsupportedVersionError,
            "metadata.version",
        ),
        ({"listeners": (CLIENT,) * 2}, InvalidRequestError, "listeners"),
        ({"listeners": (replace(CLIENT, host=""),)}, InvalidRequestError, "listeners"),
        ({"listeners": (replace(CLIENT, port=0),)}, InvalidRequestError, "listeners"),
        ({"listeners": (replace(CLIENT, name="n" * 65),)}, InvalidRequestError, "listeners"),
        ({"metadata_version_min": 0, "metadata_version_max": 0}, UnsupportedVersionError, "metadata.version"),
    ],
    ids=str,
)
def test_what_is_refused(change: dict[str, Any], error: type[StreamlogError], field: str) -> None:
    rig = Rig()
    before = rig.image
    with pytest.raises(error) as refused:
        rig.do(replace(REQUEST, **change))
    assert refused.value.details["field"] == field
    assert rig.image is before


class TestComingBack:
    """SEMANTICS 4: who comes back without the mark of a clean shutdown leaves ISR and ELR first."""

    def cluster(self) -> Rig:
        """Topic t on 1 and 2; both dead, 2 last, so ISR empty and ELR = 2 and (as min ISR is 2) 1."""
        rig = Rig()
        rig.start_all(1, 2, 3)
        rig.create(assignments=(ids(1, 2),), configs={"min.insync.replicas": "2"})
        rig.fence(1)
        rig.fence(2)
        assert rig.partition().elr == ids(1, 2)
        assert rig.partition().last_leader == 2
        return rig

    def test_cleanly_it_is_still_eligible(self) -> None:
        rig = self.cluster()
        rig.start(1, clean=True)
        assert (rig.partition().leader, rig.partition().elr) == (1, ids(2))

    def test_uncleanly_it_is_not(self) -> None:
        rig = self.cluster()
        rig.start(1, clean=False)
        assert (rig.partition().leader, rig.partition().elr) == (NO_BROKER, ids(2))

    def test_the_mark_of_an_older_life_is_none(self) -> None:
        rig = self.cluster()
        epoch = BrokerEpoch(rig.epoch(1) - 1)
        rig.do(replace(REQUEST, previous_broker_epoch=epoch))
        assert rig.partition().elr == ids(2)

    def test_in_the_same_command(self) -> None:
        """A crash in between would leave a new life in the roles of the old one."""
        rig = self.cluster()
        decision = rig.decide(REQUEST)
        assert [type(record).__name__ for record in decision.records] == ["PartitionChangeRecord", "BrokerRecord"]

    def test_all_of_them_uncleanly(self) -> None:
        """FAULTS: power cut of all nodes."""
        rig = self.cluster()
        rig.start(1, clean=False)
        rig.start(2, clean=False)
        assert (rig.partition().leader, rig.partition().last_known_elr) == (NO_BROKER, ids(1, 2))
        rig.recover({1: (0, 9), 2: (1, 9)})
        assert (rig.partition().leader, rig.partition().isr) == (2, ids(2))

    def test_without_its_disk_it_is_not_even_the_last_leader(self) -> None:
        rig = Rig()
        rig.start(1, directories=(b"a" * 16, b"b" * 16))
        rig.create()
        rig.fence(1)
        rig.start(1, clean=False, directories=(b"a" * 16, b"c" * 16))
        assert rig.partition().leader == NO_BROKER
        assert (rig.partition().elr, rig.partition().last_leader) == ((), NO_BROKER)

    def test_with_a_further_disk_it_is(self) -> None:
        rig = Rig()
        rig.start(1, directories=(b"a" * 16,))
        rig.create()
        rig.fence(1)
        rig.start(1, clean=False, directories=(b"a" * 16, b"c" * 16))
        assert rig.partition().leader == 1

    def test_a_clean_mark_does_not_bring_a_lost_disk_back(self) -> None:
        rig = Rig()
        rig.start(1, directories=(b"a" * 16,))
        rig.create()
        rig.fence(1)
        rig.start(1, clean=True, directories=(b"c" * 16,))
        assert rig.partition().leader == NO_BROKER

    def test_while_it_still_leads(self) -> None:
        """A kill and a restart so quick that no node noticed, and the session timer died with the controller."""
        rig = Rig()
        rig.start_all(1, 2)
        rig.create(assignments=(ids(1, 2),))
        before = rig.partition()
        rig.timers.clear()
        first = rig.decide(replace(REQUEST, broker_id=BrokerId(1)))
        assert first.then is Then.AGAIN
        assert not any(isinstance(record, BrokerRecord) for record in first.records)
        rig.do(REQUEST)
        assert rig.partition().leader == 2
        assert rig.partition().leader_epoch == before.leader_epoch + 1
        assert rig.partition().isr == ids(2)

    def test_draining_outlives_a_restart(self) -> None:
        rig = Rig()
        rig.start(1)
        rig.commit([BrokerRecord(broker=replace(rig.broker(1), draining=True))])
        rig.fence(1)
        rig.start(1)
        assert rig.broker(1).draining


class TestUnregistering:
    def test_a_dead_node_without_replicas(self) -> None:
        rig = Rig()
        rig.start_all(1, 2)
        rig.fence(2)
        rig.do(UnregisterBroker(broker_id=BrokerId(2)))
        assert list(rig.image.brokers) == [1]

    def test_a_live_one_is_refused(self) -> None:
        rig = Rig()
        rig.start(1)
        with pytest.raises(InvalidRequestError, match="is running"):
            rig.do(UnregisterBroker(broker_id=BrokerId(1)))

    def test_one_that_has_replicas_is_refused(self) -> None:
        rig = Rig()
        rig.start_all(1, 2)
        rig.create(partitions=3, replication_factor=2)
        rig.fence(2)
        with pytest.raises(InvalidRequestError, match="still has 3 replicas: drain it first"):
            rig.do(UnregisterBroker(broker_id=BrokerId(2)))

    def test_an_unknown_one_is_unknown(self) -> None:
        with pytest.raises(BrokerIdNotRegisteredError):
            Rig().do(UnregisterBroker(broker_id=BrokerId(2)))

    def test_whoever_comes_back_after_that_is_new(self) -> None:
        rig = Rig()
        rig.start_all(1, 2)
        rig.fence(2)
        rig.do(UnregisterBroker(broker_id=BrokerId(2)))
        rig.do(replace(REQUEST, broker_id=BrokerId(2), previous_broker_epoch=EPOCH_FROM_INDEX))
        assert rig.broker(2).fenced
