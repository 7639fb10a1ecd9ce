"""Topic over node over default, and where each value came from (KIP-226, and the controller's schema of KIP-500)."""

from __future__ import annotations

import pytest

from streamlog.config import ConfigSynonym, Layer, Source, node_config, node_layers, resolve_log_settings, topic_config
from streamlog.config.setting import HIDDEN, Setting
from streamlog.config.settings import node_settings, tls_settings, topic_defaults, topic_settings
from streamlog.errors import InvalidConfigError, InvariantError

HOUR_MS = 3_600_000
TOPIC, NODE, CLUSTER, STATIC, DEFAULT = (
    Source.DYNAMIC_TOPIC_CONFIG,
    Source.DYNAMIC_BROKER_CONFIG,
    Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
    Source.STATIC_BROKER_CONFIG,
    Source.DEFAULT_CONFIG,
)


class TestNode:
    def test_each_layer_goes_before_the_next(self) -> None:
        name = "leader.replication.throttled.rate"
        setting = node_settings.LEADER_REPLICATION_THROTTLED_RATE
        said = {}
        for given, value, source in (
            ({"node": "3", "cluster": "2", "static": "1"}, 3, NODE),
            ({"cluster": "2", "static": "1"}, 2, CLUSTER),
            ({"static": "1"}, 1, STATIC),
            ({}, setting.default, DEFAULT),
        ):
            layers = node_layers(
                {name: given["static"]} if "static" in given else {},
                cluster={name: given["cluster"]} if "cluster" in given else {},
                node={name: given["node"]} if "node" in given else {},
            )
            found = node_config(layers).effective(setting)
            assert (found.value, found.source) == (value, source)
            said[source] = [one.source for one in found.synonyms]
        assert said[NODE] == [NODE, CLUSTER, STATIC, DEFAULT]

    def test_unknown_names_are_passed_over(self) -> None:
        assert node_config(node_layers({"from.a.newer.release": "1"}))[node_settings.NUM_PARTITIONS] == 1

    def test_a_value_that_another_release_let_in(self) -> None:
        with pytest.raises(InvalidConfigError, match=r"num\.partitions='many'"):
            node_config(node_layers({"num.partitions": "many"}))

    def test_secrets_are_hidden(self) -> None:
        found = node_config(node_layers({"ssl.keystore.key": "pem"})).effective(tls_settings.SSL_KEYSTORE_KEY)
        assert (found.value, found.text) == ("pem", HIDDEN)
        assert found.synonyms == (ConfigSynonym("ssl.keystore.key", HIDDEN, STATIC),)

    def test_a_setting_of_another_table_is_a_mistake_of_ours(self) -> None:
        with pytest.raises(InvariantError):
            node_config(node_layers({}))[topic_settings.RETENTION_MS]
        with pytest.raises(InvariantError):
            # Called alike, yet not the same: the topic's own counts there.
            topic_config({}, node_layers({}))[topic_defaults.MIN_INSYNC_REPLICAS]


class TestTopic:
    def test_its_own_goes_first(self) -> None:
        layers = node_layers({"log.segment.bytes": "3000000"}, cluster={"log.segment.bytes": "2000000"})
        found = topic_config({"segment.bytes": "1048576"}, layers).effective(topic_settings.SEGMENT_BYTES)
        assert found.value == 1_048_576
        assert found.source is TOPIC
        assert found.synonyms == (
            ConfigSynonym("segment.bytes", "1048576", TOPIC),
            ConfigSynonym("log.segment.bytes", "2000000", CLUSTER),
            ConfigSynonym("log.segment.bytes", "3000000", STATIC),
            ConfigSynonym("log.segment.bytes", "1073741824", DEFAULT),
        )

    @pytest.mark.parametrize(
        ("static", "value"),
        [
            ({}, 168 * HOUR_MS),
            ({"log.retention.hours": "2"}, 2 * HOUR_MS),
            ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
            ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
            ({"log.retention.hours": "2", "log.retention.ms": "4"}, 4),
            ({"log.retention.hours": "-1"}, -1),
            ({"log.retention.minutes": "-1"}, -1),
            ({"log.retention.hours": "2147483647"}, 2_147_483_647 * HOUR_MS),
        ],
    )
    def test_retention_ms_over_minutes_over_hours(self, static: dict[str, str], value: int) -> None:
        assert topic_config({}, node_layers(static))[topic_settings.RETENTION_MS] == value

    @pytest.mark.parametrize(
        ("static", "value"),
        [({}, 168 * HOUR_MS), ({"log.roll.hours": "2"}, 2 * HOUR_MS), ({"log.roll.hours": "2", "log.roll.ms": "4"}, 4)],
    )
    def test_roll_ms_over_hours(self, static: dict[str, str], value: int) -> None:
        assert topic_config({}, node_layers(static))[topic_settings.SEGMENT_MS] == value

    def test_a_nearer_layer_goes_before_a_finer_synonym(self) -> None:
        layers = node_layers({"log.retention.ms": "4"}, cluster={"log.retention.hours": "2"})
        found = topic_config({}, layers).effective(topic_settings.RETENTION_MS)
        assert (found.value, found.source) == (2 * HOUR_MS, CLUSTER)
        assert [(one.name, one.text) for one in found.synonyms] == [
            ("log.retention.hours", "2"),
            ("log.retention.ms", "4"),
            ("log.retention.hours", "168"),
        ]

    @pytest.mark.parametrize(
        ("setting", "synonym", "text"),
        [
            (topic_settings.CLEANUP_POLICY, "log.cleanup.policy", "compact"),
            (topic_settings.RETENTION_BYTES, "log.retention.bytes", "5"),
            (topic_settings.SEGMENT_INDEX_BYTES, "log.index.size.max.bytes", "120"),
            (topic_settings.INDEX_INTERVAL_BYTES, "log.index.interval.bytes", "5"),
            (topic_settings.FILE_DELETE_DELAY_MS, "log.segment.delete.delay.ms", "5"),
            (topic_settings.FLUSH_MESSAGES, "log.flush.interval.messages", "5"),
            (topic_settings.FLUSH_MS, "log.flush.interval.ms", "5"),
            (topic_settings.MAX_MESSAGE_BYTES, "message.max.bytes", "5"),
            (topic_settings.COMPRESSION_TYPE, "compression.type", "producer"),
            (topic_settings.MESSAGE_TIMESTAMP_TYPE, "log.message.timestamp.type", "LogAppendTime"),
            (topic_settings.MESSAGE_TIMESTAMP_BEFORE_MAX_MS, "log.message.timestamp.before.max.ms", "5"),
            (topic_settings.MESSAGE_TIMESTAMP_AFTER_MAX_MS, "log.message.timestamp.after.max.ms", "5"),
            (topic_settings.DELETE_RETENTION_MS, "log.cleaner.delete.retention.ms", "5"),
            (topic_settings.MIN_CLEANABLE_DIRTY_RATIO, "log.cleaner.min.cleanable.ratio", "0.25"),
            (topic_settings.MIN_COMPACTION_LAG_MS, "log.cleaner.min.compaction.lag.ms", "5"),
            (topic_settings.MAX_COMPACTION_LAG_MS, "log.cleaner.max.compaction.lag.ms", "5"),
            (topic_settings.MIN_INSYNC_REPLICAS, "min.insync.replicas", "5"),
            (topic_settings.UNCLEAN_LEADER_ELECTION_ENABLE, "unclean.leader.election.enable", "true"),
        ],
    )
    def test_the_node_s_name_for_it(self, setting: Setting[object], synonym: str, text: str) -> None:
        found = topic_config({}, node_layers({synonym: text})).effective(setting)
        assert (found.text, found.source) == (text, STATIC)

    def test_what_depends_on_the_cluster_has_no_value(self) -> None:
        found = topic_config({}, node_layers({})).effective(topic_settings.MIN_INSYNC_REPLICAS)
        assert (found.value, found.text, found.synonyms) == (None, None, ())


def test_the_values_of_a_log() -> None:
    layers = node_layers({"log.flush.interval.messages": "9", "producer.id.expiration.ms": "7"})
    values = resolve_log_settings(
        {"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"}, layers
    )
    assert (values.cleanup_compact, values.cleanup_delete, values.log_append_time) == (True, True, True)
    assert (values.flush_messages, values.producer_expiration_ms) == (9, 7)
    assert resolve_log_settings({"cleanup.policy": "compact"}, [Layer(STATIC, {})]).cleanup_delete is False
