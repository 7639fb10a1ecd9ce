"""A node's view of the metadata, and the settings that follow from it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

import pytest

from streamlog.config import Layer, Operation, Scope
from streamlog.config.settings import node_settings, topic_settings
from streamlog.errors import InvalidConfigError
from streamlog.metadata.configs import node_configs
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.records import (
    ALL_BROKERS,
    EPOCH_FROM_INDEX,
    Broker,
    BrokerChangeRecord,
    BrokerRecord,
    ConfigRecord,
    ConfigTarget,
    ConfigTargetType,
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
    Partition,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, PartitionId, RaftIndex, TopicId

NODE = BrokerId(1)
TOPIC = TopicId(bytes(16))


class Feed:
    """A view that follows a quorum of one line."""

    def __init__(self) -> None:
        self.view = MetadataView()
        self.index = 0
        self.apply(MetadataVersionRecord(level=MetadataVersion(1)))

    def apply(self, *records: MetadataRecord) -> None:
        self.index += 1
        self.view.machine.apply(RaftIndex(self.index), encode_batch(records))

    def make_topic(self, name: str = "t", topic_id: TopicId = TOPIC) -> None:
        partition = Partition(replicas=(NODE,), isr=(NODE,), leader=NODE)
        self.apply(
            TopicRecord(topic_id=topic_id, name=name),
            PartitionRecord(topic_id=topic_id, partition_id=PartitionId(0), partition=partition),
        )

    def configure(self, resource: ConfigTarget, name: str, value: str | None) -> None:
        self.apply(ConfigRecord(resource=resource, name=name, value=value))

    def register(self, *, host: str = "h") -> None:
        self.apply(
            BrokerRecord(
                broker=Broker(
                    broker_id=NODE,
                    epoch=EPOCH_FROM_INDEX,
                    incarnation_id=bytes(16),
                    host=host,
                    port=9092,
                    metadata_version_min=MetadataVersion(1),
                    metadata_version_max=METADATA_VERSION_MAX,
                )
            )
        )

    def unfence(self) -> None:
        self.apply(BrokerChangeRecord(broker_id=NODE, broker_epoch=BrokerEpoch(self.index), fenced=False))


def test_listeners_receive_each_image_in_their_order_until_they_stop() -> None:
    feed, seen = Feed(), []

    def listener(name: str) -> object:
        def listener(image: MetadataImage, delta: MetadataDelta | None) -> None:
            seen.append((name, image.index, delta is None))

        return feed.view.listen(listener)

    stop = listener("a")
    listener("b")
    feed.make_topic()
    assert seen == [("a", 2, False), ("b", 2, False)]
    assert callable(stop)
    stop()
    feed.view.machine.install(RaftIndex(9), feed.view.image)
    assert seen[2:] == [("b", 2, True)]


def test_a_listener_that_stops_within_a_notification_takes_it_from_no_other() -> None:
    feed, seen = Feed(), list[str]()

    def first(*_: object) -> None:
        seen.append("first")
        stop()

    stop = feed.view.listen(first)
    feed.view.listen(lambda *_: seen.append("second"))
    feed.make_topic()
    feed.apply()
    assert seen == ["first", "second", "second"]


def test_listeners_stop_without_a_look_at_the_others() -> None:
    """Thousands of calls may end together."""
    feed, calls = Feed(), 0
    stops = [feed.view.listen(lambda *_: None) for _ in range(500)]

    def on_event(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(on_event)
    for stop in stops:
        stop()
    sys.setprofile(None)
    assert calls <= 2 * len(stops)


async def test_waits_for_a_command_and_for_a_condition() -> None:
    feed = Feed()
    await feed.view.wait_until_applied(RaftIndex(1))
    waiting = asyncio.create_task(feed.view.wait_until_applied(RaftIndex(3)))
    seeing = asyncio.create_task(feed.view.wait_until(lambda image: image.topic_named("t") is not None))
    await asyncio.sleep(0)
    feed.make_topic()
    image = await seeing
    assert image.index == 2
    assert not waiting.done()
    feed.apply()
    await waiting


def test_the_address_of_a_node_that_is_not_fenced() -> None:
    feed = Feed()
    assert feed.view.address_of(NODE) is None
    feed.register(host="::1")
    assert feed.view.address_of(NODE) is None
    feed.unfence()
    assert feed.view.address_of(NODE) == "[::1]:9092"


async def test_who_decides() -> None:
    view = MetadataView()
    assert view.controller_address is None
    change = asyncio.create_task(view.wait_for_controller_change())
    await asyncio.sleep(0)
    view.set_controller(None, None)
    await asyncio.sleep(0)
    assert not change.done()
    view.set_controller(BrokerId(2), "h:1")
    await change
    assert view.controller_address == "h:1"


class TestNodeConfigs:
    def setup_method(self) -> None:
        self.feed = Feed()
        self.feed.register()
        self.configs = NodeConfigs({"node.id": "1", "log.segment.bytes": "2000000"}, NODE, self.feed.view)
        self.changes: list[Sequence[str] | None] = []
        self.stop = self.configs.listen(self.changes.append)

    def test_a_topics_own_value_goes_before_the_nodes(self) -> None:
        self.feed.make_topic()
        assert self.configs.topic("t")[topic_settings.SEGMENT_BYTES] == 2_000_000
        assert self.configs.log_values("t").segment_bytes == 2_000_000
        resource = ConfigTarget(ConfigTargetType.TOPIC, "t")
        self.feed.configure(resource, "segment.bytes", "3000000")
        assert self.configs.topic("t")[topic_settings.SEGMENT_BYTES] == 3_000_000
        assert self.configs.log_values("t").segment_bytes == 3_000_000
        self.feed.apply(RemoveTopicRecord(topic_id=TOPIC))
        assert self.configs.log_values("t").segment_bytes == 2_000_000
        assert self.changes == [["t"], ["t"]]

    def test_a_topic_that_is_gone_leaves_nothing(self) -> None:
        """One without values of its own, too: a cluster may make and delete topics for years."""
        self.feed.make_topic()
        self.configs.topic("t")
        self.configs.log_values("t")
        kept = (self.configs._topics, self.configs._logs)
        assert [list(one) for one in kept] == [["t"], ["t"]]
        self.feed.apply(RemoveTopicRecord(topic_id=TOPIC))
        assert [list(one) for one in kept] == [[], []]

    def test_a_nodes_dynamic_value_goes_before_that_of_all(self) -> None:
        setting = node_settings.LEADER_REPLICATION_THROTTLED_RATE
        self.feed.configure(ALL_BROKERS, setting.name, "1000")
        assert self.configs.node[setting] == 1_000
        self.feed.configure(ConfigTarget(ConfigTargetType.BROKER, "1"), setting.name, "500")
        assert self.configs.node[setting] == 500
        self.feed.configure(ConfigTarget(ConfigTargetType.BROKER, "2"), setting.name, "7")
        assert self.configs.node[setting] == 500
        assert self.changes == [None, None]

    def test_all_nodes_values_reach_the_topics(self) -> None:
        self.feed.make_topic()
        assert self.configs.log_values("t").retention_bytes == -1
        self.feed.configure(ALL_BROKERS, "log.retention.bytes", "4096")
        assert self.configs.log_values("t").retention_bytes == 4_096
        self.stop()
        self.feed.configure(ALL_BROKERS, "log.retention.bytes", None)
        assert self.configs.log_values("t").retention_bytes == -1
        assert self.changes == [None]

    def test_topics_with_equal_values_share_what_they_resolve_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A change for all nodes resolves them all again, at once, on every node."""
        self.feed.make_topic()
        self.feed.make_topic("u", TopicId(bytes([1]) * 16))
        self.feed.make_topic("v", TopicId(bytes([2]) * 16))
        self.feed.configure(ConfigTarget(ConfigTargetType.TOPIC, "v"), "retention.ms", "5")
        resolved: list[Mapping[str, str]] = []

        def count(name: str) -> None:
            real = getattr(node_configs, name)

            def counted(own: Mapping[str, str], layers: Sequence[Layer]) -> object:
                resolved.append(own)
                return real(own, layers)

            monkeypatch.setattr(node_configs, name, counted)

        count("topic_config")
        count("resolve_log_settings")
        self.feed.configure(ALL_BROKERS, "log.retention.bytes", "4096")
        for topic in ("t", "u", "v"):
            assert self.configs.log_values(topic).retention_bytes == 4_096
            assert self.configs.topic(topic)[topic_settings.RETENTION_BYTES] == 4_096
        assert resolved == [{}, {}, {"retention.ms": "5"}, {"retention.ms": "5"}]

    def test_a_snapshot_may_have_changed_anything(self) -> None:
        self.feed.view.machine.install(RaftIndex(9), self.feed.view.image)
        assert self.changes == [None]

    def test_rules_of_the_controller(self) -> None:
        rules = self.configs
        assert rules.changed_value(Scope.TOPIC, "segment.bytes", Operation.SET, " 2097152", None) == "2097152"
        with pytest.raises(InvalidConfigError):
            rules.changed_value(Scope.NODE, "node.id", Operation.SET, "7", None)
        with pytest.raises(InvalidConfigError):
            rules.check_together(Scope.TOPIC, {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
        for scope in (Scope.NODE, Scope.ALL_NODES):
            with pytest.raises(InvalidConfigError):
                rules.check_together(scope, {"message.max.bytes": str(1 << 30)})
            rules.check_together(scope, {"log.retention.bytes": "4096"})
