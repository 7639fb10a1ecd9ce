"""The node's settings as input of the controller's decisions."""

from __future__ import annotations

from streamlog.config import Config
from streamlog.config.settings import group_settings, topic_defaults
from streamlog.config.settings import node_settings as node
from streamlog.metadata.partitions.replica_states import RecoveryStrategy
from streamlog.metadata.settings import ControllerSettings


def controller_settings(config: Config) -> ControllerSettings:
    return ControllerSettings(
        session_timeout_ms=config[node.BROKER_SESSION_TIMEOUT_MS],
        num_partitions=config[node.NUM_PARTITIONS],
        default_replication_factor=config[node.DEFAULT_REPLICATION_FACTOR],
        min_insync_replicas=config[topic_defaults.MIN_INSYNC_REPLICAS],
        unclean_leader_election_enable=config[topic_defaults.UNCLEAN_LEADER_ELECTION_ENABLE],
        unclean_recovery_strategy=_strategy(config[topic_defaults.UNCLEAN_RECOVERY_STRATEGY]),
        delete_topic_enable=config[node.DELETE_TOPIC_ENABLE],
        strict_topic_names=config[node.TOPIC_NAMES_STRICT],
        auto_leader_rebalance_enable=config[node.AUTO_LEADER_REBALANCE_ENABLE],
        leader_imbalance_per_broker_percentage=config[node.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE],
        leader_imbalance_check_interval_ms=1_000 * config[node.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS],
        offsets_topic_num_partitions=config[group_settings.OFFSETS_TOPIC_NUM_PARTITIONS],
        offsets_topic_segment_bytes=config[group_settings.OFFSETS_TOPIC_SEGMENT_BYTES],
        offsets_topic_replication_factor=config[group_settings.OFFSETS_TOPIC_REPLICATION_FACTOR],
        transaction_state_log_num_partitions=config[group_settings.TRANSACTION_STATE_LOG_NUM_PARTITIONS],
        transaction_state_log_segment_bytes=config[group_settings.TRANSACTION_STATE_LOG_SEGMENT_BYTES],
        transaction_state_log_replication_factor=config[group_settings.TRANSACTION_STATE_LOG_REPLICATION_FACTOR],
        transaction_state_log_min_isr=config[group_settings.TRANSACTION_STATE_LOG_MIN_ISR],
        drain_partitions_max=config[node.DRAIN_PARTITIONS_MAX],
    )


def _strategy(text: str | None) -> RecoveryStrategy | None:
    return None if text is None else RecoveryStrategy(text)
