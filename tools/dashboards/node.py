"""One node."""

from __future__ import annotations

from typing import Final

from tools.dashboards.page import Chart, Choice, Number, Page, Query, Section

NODE: Final = Page(
    "node",
    "streamlog: node",
    "One node: its process, its disks, its requests.",
    (
        Section(
            "Node",
            numbers=(
                Number("Ready", "1 while it serves clients.", 'streamlog_ready{instance="$instance"}', alarm_below=1),
                Number("Leaders", "", 'streamlog_leaders{instance="$instance"}'),
                Number("Replicas", "", 'streamlog_replicas{instance="$instance"}'),
                Number(
                    "Offline replicas",
                    "On failed disks, or damaged.",
                    'streamlog_offline_replicas{instance="$instance"}',
                    alarm_from=1,
                ),
                Number("Memory", "Resident set.", 'process_resident_memory_bytes{instance="$instance"}', "bytes"),
                Number("Open files", "", 'process_open_fds{instance="$instance"}'),
                Number(
                    "Certificate",
                    "Time until the first certificate of the node, or of its trusted authorities, expires.",
                    'min(streamlog_certificate_expiry_timestamp_seconds{instance="$instance"}) - time()',
                    "s",
                    alarm_below=30 * 86400,
                ),
            ),
        ),
        Section(
            "Process",
            charts=(
                Chart(
                    "CPU",
                    "Cores in use.",
                    "short",
                    (Query('rate(process_cpu_seconds_total{instance="$instance"}[1m])', "cores"),),
                ),
                Chart(
                    "Event loop delay",
                    "How late the event loop runs a timer: above 0.5 s the node has too much to do.",
                    "s",
                    (
                        Query(
                            "histogram_quantile(0.99, sum by (le) "
                            '(rate(streamlog_event_loop_delay_seconds_bucket{instance="$instance"}[5m])))',
                            "p99",
                        ),
                    ),
                ),
                Chart(
                    "Memory",
                    "Resident set.",
                    "bytes",
                    (Query('process_resident_memory_bytes{instance="$instance"}', "resident"),),
                ),
                Chart(
                    "Calls and streams open",
                    "At this moment, by method.",
                    "short",
                    (Query('topk(10, streamlog_rpc_open{instance="$instance"})', "{{method}}"),),
                ),
            ),
        ),
        Section(
            "Clients",
            charts=(
                Chart(
                    "Bytes for readers",
                    "Held for clients that have not taken them; at the limit readers wait.",
                    "bytes",
                    (
                        Query('streamlog_queued_response_bytes{instance="$instance"}', "held"),
                        Query('streamlog_queued_response_limit_bytes{instance="$instance"}', "limit"),
                    ),
                ),
                Chart(
                    "Readers that wait, and throttled ones",
                    "Waiting now; ended with THROTTLED a second.",
                    "short",
                    (
                        Query('streamlog_readers_waiting{instance="$instance"}', "waiting"),
                        Query(
                            'rate(streamlog_readers_throttled_total{instance="$instance"}[5m])', "throttled a second"
                        ),
                    ),
                ),
                Chart(
                    "Connections",
                    "Open, and those of them that have not sent a byte.",
                    "short",
                    (
                        Query('streamlog_connections{instance="$instance"}', "open"),
                        Query('streamlog_connections_silent{instance="$instance"}', "silent"),
                        Query('streamlog_connections_limit{instance="$instance"}', "limit"),
                    ),
                ),
                Chart(
                    "Connections ended",
                    "Closed because of a limit, and ended without having sent a byte.",
                    "cps",
                    (
                        Query('rate(streamlog_connections_closed_total{instance="$instance"}[5m])', "{{limit}}"),
                        Query('rate(streamlog_connections_ended_silent_total{instance="$instance"}[5m])', "silent"),
                    ),
                ),
                Chart(
                    "Descriptors",
                    "Open files, their limit, and those reserved for the disk.",
                    "short",
                    (
                        Query('process_open_fds{instance="$instance"}', "open"),
                        Query('process_max_fds{instance="$instance"}', "limit"),
                        Query('streamlog_reserved_descriptors{instance="$instance"}', "reserved"),
                    ),
                ),
                Chart(
                    "Bytes of producers that wait",
                    "To be appended; at the limit requests are refused.",
                    "bytes",
                    (
                        Query('streamlog_queued_request_bytes{instance="$instance"}', "waiting"),
                        Query('streamlog_queued_request_limit_bytes{instance="$instance"}', "limit"),
                    ),
                ),
                Chart(
                    "Logins and refusals",
                    "Passwords checked, and rights that callers lacked.",
                    "ops",
                    (
                        Query('rate(streamlog_logins_total{instance="$instance"}[5m])', "login {{result}}"),
                        Query(
                            'rate(streamlog_authorization_refused_total{instance="$instance"}[5m])',
                            "refused {{resource}}",
                        ),
                    ),
                ),
                Chart(
                    "Spans",
                    "Ended, where the node is traced, and those that no collector got.",
                    "ops",
                    (
                        Query('rate(streamlog_spans_total{instance="$instance"}[5m])', "ended"),
                        Query('rate(streamlog_spans_dropped_total{instance="$instance"}[5m])', "dropped: {{reason}}"),
                    ),
                ),
            ),
        ),
        Section(
            "Disks",
            charts=(
                Chart(
                    "Sync latency",
                    "Group commit: one sync for all that is dirty.",
                    "s",
                    (Query('streamlog:log_sync_duration_seconds:p99{instance="$instance"}', "{{log_dir}} p99"),),
                ),
                Chart(
                    "Syncs a second",
                    "Group commits of each log directory.",
                    "ops",
                    (Query('rate(streamlog_log_syncs_total{instance="$instance"}[1m])', "{{log_dir}}"),),
                ),
                Chart(
                    "Free",
                    "Of the file system of each log directory.",
                    "bytes",
                    (Query('streamlog_log_dir_free_bytes{instance="$instance"}', "{{log_dir}}"),),
                ),
                Chart(
                    "Scrubber",
                    "Share of the current round that has been read, or of the last one.",
                    "percentunit",
                    (
                        Query(
                            'streamlog_scrub_read_bytes{instance="$instance"}'
                            ' / (streamlog_scrub_total_bytes{instance="$instance"} > 0)',
                            "{{log_dir}}",
                        ),
                    ),
                ),
                Chart(
                    "Damaged ranges",
                    "Not repaired now; found and repaired an hour.",
                    "short",
                    (
                        Query('streamlog_damaged_ranges{instance="$instance"}', "{{log_dir}} damaged"),
                        Query(
                            'increase(streamlog_damaged_ranges_found_total{instance="$instance"}[1h])',
                            "{{log_dir}} found",
                        ),
                        Query(
                            'increase(streamlog_damaged_ranges_repaired_total{instance="$instance"}[1h])', "repaired"
                        ),
                    ),
                ),
                Chart(
                    "Logs in a sync",
                    "Mean number of logs that one group commit makes durable.",
                    "short",
                    (
                        Query(
                            'rate(streamlog_log_sync_logs_sum{instance="$instance"}[5m])'
                            ' / rate(streamlog_log_sync_logs_count{instance="$instance"}[5m])',
                            "{{log_dir}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
    (Choice("instance", "instance", "streamlog_ready"),),
)
