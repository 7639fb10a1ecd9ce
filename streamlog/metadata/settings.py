"""The controller's settings, with Kafka's names; their ranges are checked by the config layer.

Where Kafka's default loses data or fails a small cluster, ours differs (SEMANTICS 5). `None`: the default depends on
the cluster.
"""

from __future__ import annotations

from msgspec import Struct

from streamlog.metadata.partitions.replica_states import RecoveryStrategy


class ControllerSettings(Struct, frozen=True, kw_only=True):
    session_timeout_ms: int = 6_000  # broker.session.timeout.ms
    num_partitions: int = 1  # num.partitions
    default_replication_factor: int | None = None  # default.replication.factor; None: min(3, live nodes)
    min_insync_replicas: int | None = None  # min.insync.replicas; None: 2 where there are 3 replicas or more, else 1
    unclean_leader_election_enable: bool = False  # unclean.leader.election.enable
    unclean_recovery_strategy: RecoveryStrategy | None = None  # unclean.recovery.strategy; None: by the one above
    delete_topic_enable: bool = True  # delete.topic.enable
    strict_topic_names: bool = False  # topic.names.strict (ours): neither '.' nor '_' in the names of users' topics
    auto_leader_rebalance_enable: bool = True  # auto.leader.rebalance.enable
    leader_imbalance_per_broker_percentage: int = 10  # leader.imbalance.per.broker.percentage
    leader_imbalance_check_interval_ms: int = 300_000  # leader.imbalance.check.interval.seconds
    offsets_topic_num_partitions: int = 50  # offsets.topic.num.partitions
    offsets_topic_segment_bytes: int = 100 << 20  # offsets.topic.segment.bytes
    offsets_topic_replication_factor: int | None = None  # offsets.topic.replication.factor; None: min(3, live nodes)
    transaction_state_log_num_partitions: int = 50  # transaction.state.log.num.partitions
    transaction_state_log_segment_bytes: int = 100 << 20  # transaction.state.log.segment.bytes
    transaction_state_log_replication_factor: int | None = None  # transaction.state.log.replication.factor; likewise
    transaction_state_log_min_isr: int | None = None  # transaction.state.log.min.isr; None: 2, with fewer replicas all
    drain_partitions_max: int = 32  # drain.partitions.max (ours): of one drained node, how many move at the same time
