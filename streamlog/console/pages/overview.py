"""/ : is the cluster well, how much goes through it, who lags, what is wrong and what to do."""

from __future__ import annotations

from nicegui import ui

from streamlog.client.admin.values import NodeState
from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.alarms.evaluation import AlarmStatus
from streamlog.console.alarms.rules import RuleKind
from streamlog.console.collection.history import SIZE_BYTES_MAX
from streamlog.console.collection.rates import total
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.pages.alarms.cards import AlarmCard
from streamlog.console.widgets.formats import catch_up, number, number_text, page_of, size
from streamlog.console.widgets.layout import Heading, heading, tile
from streamlog.console.widgets.page import Page, show, view
from streamlog.console.widgets.table_view import Column, Row
from streamlog.monitor import Severity, findings_of

LAGS_SHOWN = 10
ALARMS_SHOWN = 5
FOUND_KINDS = frozenset(
    {
        RuleKind.CLUSTER_UNREACHABLE,
        RuleKind.NODE_DOWN,
        RuleKind.NO_QUORUM,
        RuleKind.OFFLINE_PARTITIONS,
        RuleKind.UNDER_MIN_ISR,
        RuleKind.UNDER_REPLICATED,
        RuleKind.LOG_DIR_OFFLINE,
        RuleKind.HANGING_TRANSACTION,
    }
)
"""Alarms of these are about what `findings_of` finds."""


def register(sampler: ClusterSampler, alarms: AlarmEngine) -> None:
    @view("/")
    async def overview() -> None:
        await show(sampler, "Overview", lambda page: _build(page, alarms))


async def _build(page: Page, alarms: AlarmEngine) -> None:
    await page.live(lambda: _tiles(page))
    with ui.row().classes("items-baseline gap-3 w-full no-wrap"):
        title = Heading("What is wrong now")
        link = ui.link("", "/alarms").classes("whitespace-nowrap")
    await page.live(lambda: _wrong_now(page, alarms, title, link))
    heading("Largest lags")
    page.table(
        (
            Column("group", "Group"),
            Column("lag", "Lag (records)", number_text),
            Column("behind", "Caught up in"),
            Column("state", "State"),
            Column("members", "Members"),
        ),
        lambda: lag_rows(page)[:LAGS_SHOWN],
        key="group",
        name="groups by lag",
        to=lambda row: page_of("groups", row["group"]),
        empty="No group has commits.",
    )
    heading("Over time", _history_note(page.sampler.history_bytes))
    await page.charts(
        ("Records written", "records/s", lambda: {"Records written": ("cluster.records", "")}),
        ("Log growth", "bytes/s", lambda: {"Log growth": ("cluster.bytes", "")}),
        ("Under-replicated partitions", "", lambda: {"Under-replicated": ("cluster.under_replicated", "")}),
        ("Active nodes", "", lambda: {"Active nodes": ("cluster.nodes", "")}),
    )


def _history_note(used_bytes: int) -> str:
    """Empty for a database whose size the console does not bound."""
    return f"History on disk: {size(used_bytes)} of at most {size(SIZE_BYTES_MAX)}." if used_bytes else ""


def _tiles(page: Page) -> None:
    latest = page.latest
    cluster = latest.state.cluster
    assert cluster is not None
    active = sum(node.state is NodeState.ACTIVE for node in cluster.nodes)
    rate = total(page.sampler.rates)
    disks = [directory for node in latest.state.log_dirs for directory in node.log_dirs]
    fullest = min(
        (one.usable_bytes / one.total_bytes for one in disks if one.usable_bytes is not None and one.total_bytes),
        default=None,
    )
    used = sum(replica.size_bytes for one in disks for replica in one.replicas)
    with ui.row().classes("w-full gap-3"):
        tile("Nodes active", f"{active} of {len(cluster.nodes)}", bad=active < len(cluster.nodes))
        controller = "none" if cluster.controller is None else f"node {cluster.controller}"
        tile("Controller", controller, bad=cluster.controller is None)
        hidden = latest.state.hidden_topic_count
        seen = f", {number(hidden)} of the topics are hidden from the console's user" if hidden else ""
        tile("Topics", number(cluster.topic_count), note=f"{number(cluster.partition_count)} partitions{seen}")
        tile("Offline partitions", number(cluster.offline_partition_count), bad=cluster.offline_partition_count > 0)
        behind = cluster.under_replicated_partition_count
        tile("Under-replicated", number(behind), bad=behind > 0)
        tile("Written", f"{number(rate.records_per_s)}/s", note=f"{size(rate.bytes_per_s)}/s")
        free = "" if fullest is None else f"fullest disk: {fullest:.0%} free"
        tile("Logs on disk", size(used), note=free)


def _wrong_now(page: Page, alarms: AlarmEngine, title: Heading, link: ui.link) -> None:
    """Findings, and the alarms that are not about the same. Acknowledged alarms are on /alarms only."""
    found = findings_of(page.latest.state)
    firing = [one for one in alarms.alarms(AlarmStatus.FIRING) if not one.acknowledged_by]
    others = [one for one in firing if one.kind not in FOUND_KINDS]
    nothing = "Nothing: the cluster is healthy."
    if page.latest.state.hidden_topic_count:
        nothing = "Nothing in what the console's user may see."
    title.note("" if found or others else nothing)
    link.set_text(f"{len(firing)} alarms" if len(firing) > 1 else "1 alarm")
    link.set_visibility(bool(firing))
    for one in found:
        critical = one.severity is Severity.CRITICAL
        with ui.card().classes(f"w-full p-3 gap-1 border-l-4 {'border-red-600' if critical else 'border-amber-500'}"):
            with ui.row().classes("items-center gap-2 no-wrap"):
                icon = ui.icon("error" if critical else "warning", color="negative" if critical else "amber-9")
                icon.props('role="img" aria-hidden="false"').props["aria-label"] = "critical" if critical else "warning"
                ui.label(one.problem).classes("font-semibold")
            ui.label(f"Why: {one.cause}").classes("text-sm")
            ui.label(f"What to do: {one.remedy}").classes("text-sm")
    for alarm in others[:ALARMS_SHOWN]:
        AlarmCard().show(alarm)


def lag_rows(page: Page) -> list[Row]:
    """Of groups with commits, the largest lag first."""
    figures = page.sampler.figures.groups
    rows: list[Row] = [
        {
            "group": one.group,
            "state": one.state.value,
            "members": one.member_count,
            "lag": figures[one.group].total_lag,
            "behind": catch_up(figures[one.group]),
        }
        for one in page.latest.groups
        if one.group in figures and figures[one.group].lag
    ]
    return sorted(rows, key=lambda row: -int(str(row["lag"])))
