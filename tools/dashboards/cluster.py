"""The whole cluster."""

from __future__ import annotations

from typing import Final

from tools.dashboards.page import Chart, Number, Page, Query, Section

CLUSTER: Final = Page(
    "cluster",
    "streamlog: cluster",
    "Whether the cluster is well, and how much goes through it.",
    (
        Section(
            "Health",
            numbers=(
                Number("Nodes ready", "Nodes that serve clients.", "sum(streamlog_ready)", alarm_below=1),
                Number(
                    "Controller",
                    "1 where the metadata quorum has a leader.",
                    "sum(streamlog_active_controller)",
                    alarm_below=1,
                ),
                Number(
                    "Offline partitions",
                    "Partitions without a leader: neither written nor read.",
                    "max(streamlog_cluster_offline_partitions)",
                    alarm_from=1,
                ),
                Number(
                    "Under min ISR",
                    "Partitions that refuse writes with acks=all.",
                    "sum(streamlog_under_min_isr_partitions)",
                    alarm_from=1,
                ),
                Number(
                    "Under-replicated",
                    "Partitions with fewer in-sync replicas than replicas.",
                    "sum(streamlog_under_replicated_partitions)",
                    alarm_from=1,
                ),
                Number(
                    "Waiting for replicas",
                    "Leaderless partitions whose active replicas prove no safe leader.",
                    "max(streamlog_controller_recovery_waiting_partitions)",
                    alarm_from=1,
                ),
                Number(
                    "Damaged ranges",
                    "Found on disks and not repaired.",
                    "sum(streamlog_damaged_ranges)",
                    alarm_from=1,
                ),
                Number(
                    "Offline directories",
                    "Log directories of failed disks.",
                    "count(streamlog_log_dir_online == 0) or vector(0)",
                    alarm_from=1,
                ),
            ),
        ),
        Section(
            "Throughput",
            charts=(
                Chart(
                    "Bytes in by topic",
                    "Record batches appended by producers.",
                    "Bps",
                    (Query("topk(10, streamlog:topic_bytes_in:rate1m)", "{{topic}}"),),
                ),
                Chart(
                    "Bytes out by topic",
                    "Record batches sent to consumers.",
                    "Bps",
                    (Query("topk(10, streamlog:topic_bytes_out:rate1m)", "{{topic}}"),),
                ),
                Chart(
                    "Records in by topic",
                    "Records appended by producers.",
                    "cps",
                    (Query("topk(10, streamlog:topic_records_in:rate1m)", "{{topic}}"),),
                ),
                Chart(
                    "Replication",
                    "Bytes that leaders send to followers.",
                    "Bps",
                    (
                        Query(
                            "sum by (instance) (rate(streamlog_topic_replication_bytes_out_total[1m]))", "{{instance}}"
                        ),
                    ),
                ),
            ),
        ),
        Section(
            "Requests",
            charts=(
                Chart(
                    "Requests by method",
                    "Calls served, and streams opened.",
                    "reqps",
                    (Query("topk(10, sum by (method) (rate(streamlog_rpc_requests_total[1m])))", "{{method}}"),),
                ),
                Chart(
                    "Errors by method and status",
                    "Calls that ended with another status than OK.",
                    "reqps",
                    (
                        Query(
                            "topk(10, sum by (method, status) (rate(streamlog_rpc_errors_total[1m])))",
                            "{{method}} {{status}}",
                        ),
                    ),
                ),
                Chart(
                    "Latency by method, p99",
                    "Time from a request's arrival to its response.",
                    "s",
                    (Query("topk(10, streamlog:rpc_duration_seconds:p99)", "{{method}}"),),
                ),
                Chart(
                    "Leaders by node",
                    "Partitions led: uneven for long means that the preferred leaders were not elected.",
                    "short",
                    (Query("streamlog_leaders", "{{instance}}"),),
                ),
            ),
        ),
        Section(
            "Replication and elections",
            charts=(
                Chart(
                    "ISR changes",
                    "In-sync replica sets that shrank and grew.",
                    "cps",
                    (
                        Query("sum(rate(streamlog_isr_shrinks_total[5m]))", "shrinks"),
                        Query("sum(rate(streamlog_isr_expands_total[5m]))", "expands"),
                    ),
                ),
                Chart(
                    "Leader elections",
                    "Leaders elected by the controller; unclean ones may lose records, proven ones did not.",
                    "cps",
                    (
                        Query("sum(rate(streamlog_controller_leader_elections_total[5m]))", "all"),
                        Query("sum(rate(streamlog_controller_proven_leader_elections_total[5m]))", "proven"),
                        Query("sum(rate(streamlog_controller_unclean_leader_elections_total[5m]))", "unclean"),
                    ),
                ),
                Chart(
                    "Voters behind the quorum's leader",
                    "Entries of the metadata log that a voter has not received.",
                    "short",
                    (Query("max by (voter) (streamlog_quorum_voter_lag_entries)", "voter {{voter}}"),),
                ),
                Chart(
                    "Commits of the metadata",
                    "From a change's arrival at the active controller to its commit by a majority of the voters.",
                    "s",
                    (
                        Query(
                            "histogram_quantile(0.99, "
                            "sum by (le) (rate(streamlog_quorum_commit_duration_seconds_bucket[5m])))",
                            "p99",
                        ),
                    ),
                ),
                Chart(
                    "Clocks",
                    "How far each node's wall clock is ahead of what most nodes agree on.",
                    "s",
                    (Query("streamlog_clock_skew_seconds", "{{instance}}"),),
                    may_be_negative=True,
                ),
                Chart(
                    "Corrupt batches",
                    "Refused from producers, and skipped for readers that ask for it, by topic.",
                    "cps",
                    (
                        Query(
                            "sum by (topic) (rate(streamlog_topic_corrupt_batches_refused_total[5m]))",
                            "{{topic}} refused",
                        ),
                        Query(
                            "sum by (topic) (rate(streamlog_topic_corrupt_batches_skipped_total[5m]))",
                            "{{topic}} skipped",
                        ),
                    ),
                ),
                Chart(
                    "Lag of groups",
                    "Records between committed offset and high watermark, all partitions.",
                    "short",
                    (Query("topk(10, sum by (group) (streamlog:group_lag_records))", "{{group}}"),),
                ),
            ),
        ),
    ),
)
