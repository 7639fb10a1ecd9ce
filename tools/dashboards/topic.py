"""One topic."""

from __future__ import annotations

from typing import Final

from tools.dashboards.page import Chart, Choice, Number, Page, Query, Section

TOPIC: Final = Page(
    "topic",
    "streamlog: topic",
    "One topic: what goes in and out, what it holds, how well it is replicated.",
    (
        Section(
            "Topic",
            numbers=(
                Number(
                    "Partitions", "Partitions that have a leader.", 'sum(streamlog_is_leader{topic="$topic"})', "short"
                ),
                Number("Records in", "", 'streamlog:topic_records_in:rate1m{topic="$topic"}', "cps"),
                Number("Bytes in", "", 'streamlog:topic_bytes_in:rate1m{topic="$topic"}', "Bps"),
                Number("Bytes out", "", 'streamlog:topic_bytes_out:rate1m{topic="$topic"}', "Bps"),
                Number(
                    "Size",
                    "Bytes on disk, one copy of each partition.",
                    'sum(max by (partition) (streamlog_log_size_bytes{topic="$topic"}))',
                    "bytes",
                ),
                Number(
                    "Smallest ISR",
                    "In-sync replicas of the partition that has fewest.",
                    'min(streamlog_isr_size{topic="$topic"})',
                    alarm_below=1,
                ),
            ),
        ),
        Section(
            "Partitions",
            charts=(
                Chart(
                    "Records appended by partition",
                    "Growth of the log end offset at the leader: skew shows here.",
                    "cps",
                    (
                        Query(
                            'topk(20, max by (partition) (deriv(streamlog_log_end_offset{topic="$topic"}[1m])))',
                            "{{partition}}",
                        ),
                    ),
                ),
                Chart(
                    "Size by partition",
                    "Bytes on disk.",
                    "bytes",
                    (
                        Query(
                            'topk(20, max by (partition) (streamlog_log_size_bytes{topic="$topic"}))', "{{partition}}"
                        ),
                    ),
                ),
                Chart(
                    "Records not committed yet",
                    "Between high watermark and log end offset, at the leader.",
                    "short",
                    (
                        Query(
                            'topk(20, max by (partition) (streamlog_uncommitted_records{topic="$topic"}))',
                            "{{partition}}",
                        ),
                    ),
                ),
                Chart(
                    "Follower lag",
                    "Records that a follower has not received.",
                    "short",
                    (
                        Query(
                            'topk(20, streamlog_follower_lag_records{topic="$topic"})',
                            "{{partition}} on {{follower}}",
                        ),
                    ),
                ),
                Chart(
                    "Records retained by partition",
                    "Between log start offset and log end offset.",
                    "short",
                    (
                        Query(
                            'topk(20, max by (partition) (streamlog_log_end_offset{topic="$topic"}'
                            ' - streamlog_log_start_offset{topic="$topic"}))',
                            "{{partition}}",
                        ),
                    ),
                ),
                Chart(
                    "Lag of groups that read it",
                    "Records between committed offset and high watermark.",
                    "short",
                    (
                        Query(
                            'topk(10, sum by (group) (streamlog:group_lag_records{topic="$topic"}))',
                            "{{group}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
    (Choice("topic", "topic", "streamlog_log_end_offset"),),
)
