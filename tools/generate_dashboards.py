"""deploy/grafana/*.json from the tables below: dashboards of the cluster, of a topic, of a group and of a node.

    python tools/generate_dashboards.py            writes them (`make dashboards`)
    python tools/generate_dashboards.py --check    exit code 1 where a file is not what it would write

Their expressions are Prometheus', over the metrics that docs/monitoring.md lists and the recording rules in
deploy/prometheus; a test checks that each metric exists. The JSON is made by Grafana's own library.
"""

from __future__ import annotations

import argparse
import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueColorMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, Threshold, ThresholdsMode, VariableRefresh
from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "deploy" / "grafana"
_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH: Final = 24  # of Grafana's grid


class Query(Struct, frozen=True):
    expression: str
    legend: str = ""


class Number(Struct, frozen=True):
    """One figure, now. `alarm_from`: red from here on; `alarm_below`: red below."""

    title: str
    help: str
    expression: str
    unit: str = "short"
    alarm_from: float | None = None
    alarm_below: float | None = None


class Chart(Struct, frozen=True):
    title: str
    help: str
    unit: str
    queries: tuple[Query, ...]
    may_be_negative: bool = False


class Section(Struct, frozen=True):
    title: str
    numbers: tuple[Number, ...] = ()
    charts: tuple[Chart, ...] = ()


class Choice(Struct, frozen=True):
    """A variable of the page, with the label's values to choose from."""

    name: str
    label: str
    metric: str


class Page(Struct, frozen=True):
    name: str  # of the file, and the end of the uid
    title: str
    help: str
    sections: tuple[Section, ...]
    choices: tuple[Choice, ...] = ()


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

GROUP: Final = Page(
    "group",
    "streamlog: group",
    "One consumer group: members, lag, how fast it reads.",
    (
        Section(
            "Group",
            numbers=(
                Number("Members", "", 'max(streamlog_group_members{group="$group"})'),
                Number("Lag", "Records behind, all topics.", 'sum(streamlog:group_lag_records{group="$group"})'),
                Number(
                    "Rebalances in an hour",
                    "New epochs of the group.",
                    'sum(changes(streamlog_group_epoch{group="$group"}[1h]))',
                ),
                Number(
                    "Committed a second",
                    "Growth of committed offsets.",
                    'sum(deriv(streamlog_group_committed_offset{group="$group"}[5m]))',
                    "cps",
                ),
            ),
        ),
        Section(
            "Lag",
            charts=(
                Chart(
                    "Lag by topic",
                    "Records between committed offset and high watermark.",
                    "short",
                    (Query('sum by (topic) (streamlog:group_lag_records{group="$group"})', "{{topic}}"),),
                ),
                Chart(
                    "Lag by partition",
                    "The 20 partitions that are furthest behind.",
                    "short",
                    (
                        Query(
                            'topk(20, streamlog:group_lag_records{group="$group"})',
                            "{{topic}}-{{partition}}",
                        ),
                    ),
                ),
                Chart(
                    "Committed a second by topic",
                    "How fast the group reads.",
                    "cps",
                    (
                        Query(
                            'sum by (topic) (deriv(streamlog_group_committed_offset{group="$group"}[5m]))', "{{topic}}"
                        ),
                    ),
                ),
                Chart(
                    "Members",
                    "Members of the group.",
                    "short",
                    (Query('max(streamlog_group_members{group="$group"})', "members"),),
                ),
            ),
        ),
    ),
    (Choice("group", "group", "streamlog_group_members"),),
)

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

PAGES: Final = (CLUSTER, TOPIC, GROUP, NODE)


def expressions() -> list[str]:
    """All of them, as Prometheus reads them: with a name for each variable."""
    found = []
    for page in PAGES:
        for section in page.sections:
            found += [number.expression for number in section.numbers]
            found += [query.expression for chart in section.charts for query in chart.queries]
    return found


def _thresholds(number: Number) -> dashboard.ThresholdsConfig:
    if number.alarm_from is not None:
        steps = [Threshold(value=None, color="green"), Threshold(value=number.alarm_from, color="red")]
    elif number.alarm_below is not None:
        steps = [Threshold(value=None, color="red"), Threshold(value=number.alarm_below, color="green")]
    else:
        steps = [Threshold(value=None, color="text")]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _number(number: Number, width: int) -> stat.Panel:
    return (
        stat.Panel()
        .title(number.title)
        .description(number.help)
        .datasource(_SOURCE)
        .unit(number.unit)
        .color_mode(BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(number))
        .with_target(prometheus.Dataquery().ref_id("A").expr(number.expression).instant())
        .span(width)
        .height(4)
    )


def _chart(chart: Chart) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(chart.title)
        .description(chart.help)
        .datasource(_SOURCE)
        .unit(chart.unit)
        .fill_opacity(8)
        .span(_WIDTH // 2)
        .height(8)
    )
    if not chart.may_be_negative:
        panel = panel.min(0)
    for reference, query in zip(string.ascii_uppercase, chart.queries, strict=False):
        target = prometheus.Dataquery().ref_id(reference).expr(query.expression).legend_format(query.legend)
        panel = panel.with_target(target)
    return panel


def text_of(page: Page) -> str:
    built = (
        dashboard.Dashboard(page.title)
        .uid(f"streamlog-{page.name}")
        .description(page.help)
        .tags(["streamlog"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for choice in page.choices:
        built = built.with_variable(
            dashboard.QueryVariable(choice.name)
            .label(choice.name)
            .datasource(_SOURCE)
            .query(f"label_values({choice.metric}, {choice.label})")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        )
    for section in page.sections:
        built = built.with_row(dashboard.Row(section.title))
        for number in section.numbers:
            built = built.with_panel(_number(number, _WIDTH // len(section.numbers)))
        for chart in section.charts:
            built = built.with_panel(_chart(chart))
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a file differs")
    check = parser.parse_args(arguments).check
    stale = []
    for page in PAGES:
        path = FOLDER / f"{page.name}.json"
        text = text_of(page)
        if check and (not path.exists() or path.read_text() != text):
            stale.append(str(path.relative_to(ROOT)))
        elif not check:
            path.write_text(text)
    if stale:
        print(f"{', '.join(stale)}: not what tools/generate_dashboards.py writes; run make dashboards", file=sys.stderr)
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
