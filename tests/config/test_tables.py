"""The tables: sound in themselves, complete against Kafka 4.2, and of one mind with the parts that they configure."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import asdict, fields

from streamlog.config import node_layers, resolve_log_settings
from streamlog.config.setting import Section, Setting, Table, Update
from streamlog.config.settings import (
    client_settings,
    consumer_settings,
    group_settings,
    log_settings,
    node_settings,
    producer_settings,
    security_settings,
    tls_settings,
    topic_defaults,
    topic_settings,
)
from streamlog.config.settings.client_settings import ADMIN, CONSUMER, PRODUCER
from streamlog.config.settings.kafka_only import why_not, why_not_family
from streamlog.config.settings.node_settings import NODE
from streamlog.config.settings.topic_settings import TOPIC
from streamlog.config.unknown import explain
from streamlog.errors import InvariantError
from streamlog.metadata.settings import ControllerSettings
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.raft.settings import QuorumSettings
from streamlog.records import Codec
from streamlog.records.checks.validation import ProduceLimits
from streamlog.records.compression.codecs import LEVELS
from streamlog.storage.cleaning.cleaner import DEDUPE_BUFFER_BYTES
from streamlog.storage.cleaning.maintenance import MaintenanceConfig
from streamlog.storage.directories.directory import CHECKPOINT_INTERVAL_MS
from streamlog.storage.log_config import LogConfig

TABLES = {"server": NODE, "topic": TOPIC, "producer": PRODUCER, "consumer": CONSUMER, "admin": ADMIN}
MODULES = [
    client_settings,
    consumer_settings,
    group_settings,
    log_settings,
    node_settings,
    producer_settings,
    security_settings,
    tls_settings,
    topic_defaults,
    topic_settings,
]
KAFKA = [tuple(line.split()) for line in (Path(__file__).parent / "kafka_names.txt").read_text().splitlines()]


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda t: t.title)
def test_an_entry_is_sound(table: Table) -> None:
    for setting in table:
        assert setting.doc.endswith("."), setting.name
        assert setting.doc[0].isupper(), setting.name
        assert not setting.doc[:-1].endswith("."), setting.name
        assert setting.name == setting.name.strip().lower()
        assert setting.default_text, setting.name
        assert not (setting.ours and setting.kafka), setting.name
        if setting.default is not None and not setting.required:
            assert setting.kind.parse(setting.format(setting.default)) == setting.default


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_a_constant_is_called_as_its_setting(module: ModuleType) -> None:
    found = {name: value for name, value in vars(module).items() if isinstance(value, Setting)}
    assert found
    assert {name: value.constant for name, value in found.items()} == {name: name for name in found}


def test_secrets_are_marked() -> None:
    for table in TABLES.values():
        assert [s.name for s in table if s.kind.type_name == "password"] == [s.name for s in table if s.sensitive]
    assert {s.name for s in [*NODE, *PRODUCER] if s.sensitive} == {
        "ssl.keystore.key",
        "sasl.password",
        "sasl.oauthbearer.client.credentials.client.secret",
    }


@pytest.mark.parametrize("table", TABLES)
def test_each_name_of_kafka_4_2_is_a_setting_or_has_its_sentence(table: str) -> None:
    names = [name for of, name in KAFKA if of == table]
    assert len(names) > 30
    for name in names:
        setting = TABLES[table].get(name)
        if setting is not None:
            assert not setting.ours, name
        else:
            sentence = explain(TABLES[table], name)
            assert "is no setting" not in sentence
            assert sentence.startswith(f"{name} ")


def test_what_is_said_to_mean_nothing_is_no_setting_of_a_node_or_topic() -> None:
    assert [s.name for table in (NODE, TOPIC) for s in table if why_not(s.name) is not None] == []
    assert why_not_family("zookeeper.connection.timeout.ms") is not None


def test_every_topic_setting_has_its_synonyms_of_the_same_type_on_the_node() -> None:
    assert sorted(topic_defaults.SYNONYMS) == sorted(s.name for s in TOPIC)
    for name, synonyms in topic_defaults.SYNONYMS.items():
        topic = TOPIC.get(name)
        assert topic is not None
        assert topic.update is Update.CLUSTER_WIDE
        for synonym in synonyms:
            assert NODE.get(synonym.setting.name) is synonym.setting
            assert synonym.setting.update is Update.CLUSTER_WIDE
        # One truth: the last one's default is the topic's.
        assert synonyms[-1].in_unit(synonyms[-1].setting.default) == topic.default


def test_a_name_stands_once_in_a_table() -> None:
    part = Section("twice", (node_settings.NODE_ID,))
    with pytest.raises(InvariantError, match="have the same name"):
        Table("thing", [part, part])


class TestDefaultsAgreeWithTheParts:
    """A part has defaults of its own, for its tests and benchmarks; they must not drift from the documented ones."""

    def test_log(self) -> None:
        ours = asdict(resolve_log_settings({}, node_layers({"node.id": "1"})))
        limits = {f.name: f.default for f in fields(ProduceLimits)}
        assert ours.pop("log_append_time") is False
        assert ours.pop("timestamp_before_max_ms") == limits["timestamp_before_max_ms"]
        assert ours.pop("timestamp_after_max_ms") == limits["timestamp_after_max_ms"]
        theirs = {f.name: getattr(LogConfig(), f.name) for f in fields(LogConfig)}
        del theirs["timestamp_type"], theirs["unsynced_bytes_max"]
        assert ours == theirs

    def test_upkeep(self) -> None:
        config = MaintenanceConfig()
        assert log_settings.LOG_RETENTION_CHECK_INTERVAL_MS.default == config.retention_check_interval_ms
        assert log_settings.LOG_CLEANER_BACKOFF_MS.default == config.cleaner_backoff_ms
        assert log_settings.LOG_CLEANER_DEDUPE_BUFFER_SIZE.default == DEDUPE_BUFFER_BYTES
        assert log_settings.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS.default == CHECKPOINT_INTERVAL_MS

    def test_quorum(self) -> None:
        config = QuorumSettings()
        assert node_settings.CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS.default == config.election_timeout_min_ms
        assert 2 * config.election_timeout_min_ms == config.election_timeout_max_ms
        assert node_settings.CONTROLLER_QUORUM_HEARTBEAT_INTERVAL_MS.default == config.heartbeat_ms
        snapshot_bytes = node_settings.METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS.default
        assert snapshot_bytes == config.snapshot_journal_bytes

    def test_controller(self) -> None:
        config = ControllerSettings()
        of_node = {
            "session_timeout_ms": node_settings.BROKER_SESSION_TIMEOUT_MS.default,
            "num_partitions": node_settings.NUM_PARTITIONS.default,
            "default_replication_factor": node_settings.DEFAULT_REPLICATION_FACTOR.default,
            "min_insync_replicas": topic_defaults.MIN_INSYNC_REPLICAS.default,
            "unclean_leader_election_enable": topic_defaults.UNCLEAN_LEADER_ELECTION_ENABLE.default,
            "unclean_recovery_strategy": topic_defaults.UNCLEAN_RECOVERY_STRATEGY.default,
            "delete_topic_enable": node_settings.DELETE_TOPIC_ENABLE.default,
            "strict_topic_names": node_settings.TOPIC_NAMES_STRICT.default,
            "auto_leader_rebalance_enable": node_settings.AUTO_LEADER_REBALANCE_ENABLE.default,
            "leader_imbalance_per_broker_percentage": node_settings.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE.default,
            "leader_imbalance_check_interval_ms": 1000 * node_settings.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS.default,
            "offsets_topic_num_partitions": group_settings.OFFSETS_TOPIC_NUM_PARTITIONS.default,
            "offsets_topic_segment_bytes": group_settings.OFFSETS_TOPIC_SEGMENT_BYTES.default,
            "offsets_topic_replication_factor": group_settings.OFFSETS_TOPIC_REPLICATION_FACTOR.default,
            "transaction_state_log_num_partitions": group_settings.TRANSACTION_STATE_LOG_NUM_PARTITIONS.default,
            "transaction_state_log_segment_bytes": group_settings.TRANSACTION_STATE_LOG_SEGMENT_BYTES.default,
            "transaction_state_log_replication_factor": group_settings.TRANSACTION_STATE_LOG_REPLICATION_FACTOR.default,
            "transaction_state_log_min_isr": group_settings.TRANSACTION_STATE_LOG_MIN_ISR.default,
            "drain_partitions_max": node_settings.DRAIN_PARTITIONS_MAX.default,
        }
        assert of_node == asdict(config)

    def test_grpc(self) -> None:
        config = GrpcSettings()
        assert node_settings.SOCKET_REQUEST_MAX_BYTES.default == config.message_bytes_max
        waits = (client_settings.RECONNECT_BACKOFF_MS.default, client_settings.RECONNECT_BACKOFF_MAX_MS.default)
        assert waits == tuple(round(s * 1000) for s in config.backoff_s)

    def test_compression_levels(self) -> None:
        for codec, setting in {
            Codec.GZIP: producer_settings.COMPRESSION_GZIP_LEVEL,
            Codec.LZ4: producer_settings.COMPRESSION_LZ4_LEVEL,
            Codec.ZSTD: producer_settings.COMPRESSION_ZSTD_LEVEL,
        }.items():
            kind: Any = setting.kind
            assert (kind.low, kind.high, setting.default) == LEVELS[codec]
