"""/ : is the cluster well, how much goes through it, who lags, what is wrong and what to do."""

from __future__ import annotations

import asyncio

from nicegui import ui

from streamlog.client.admin.values import NodeState
from streamlog.console.layout import (
    chart,
    chart_options,
    frame,
    heading,
    number,
    size,
    span_choice,
    table,
    tile,
    waiting,
)
from streamlog.console.rates import total
from streamlog.console.sampler import ClusterSampler
from streamlog.monitor import Severity, findings_of

_LAGS_SHOWN = 10


def register(sampler: ClusterSampler) -> None:
    @ui.page("/")
    async def overview() -> None:
        with frame(sampler, "Overview", lambda: (facts.refresh(), asyncio.ensure_future(draw()))):

            @ui.refreshable
            def facts() -> None:
                if not waiting(sampler):
                    _tiles(sampler)
                    _findings(sampler)
                    _lags(sampler)

            facts()
            span_s = 900

            async def draw(new_span_s: int | None = None) -> None:
                nonlocal span_s
                span_s = new_span_s or span_s
                for shown, (title, series, unit) in charts.items():
                    points = await sampler.history((series, ""), span_s)
                    shown.options.update(chart_options(title, {title: points}, unit, span_s))
                    shown.update()

            with ui.row().classes("items-center w-full justify-between"):
                heading("Over time")
                span_choice(draw)
            charts = {}
            with ui.grid(columns="repeat(auto-fit, minmax(min(100%, 28rem), 1fr))").classes("w-full gap-4"):
                for title, series, unit in (
                    ("Records written", "cluster.records", "records/s"),
                    ("Log growth", "cluster.bytes", "bytes/s"),
                    ("Under-replicated partitions", "cluster.under_replicated", ""),
                    ("Active nodes", "cluster.nodes", ""),
                ):
                    charts[chart(title, {title: []}, unit)] = (title, series, unit)
            await draw()


def _tiles(sampler: ClusterSampler) -> None:
    latest = sampler.latest
    assert latest is not None
    cluster = latest.state.cluster
    assert cluster is not None
    active = sum(node.state is NodeState.ACTIVE for node in cluster.nodes)
    rate = total(sampler.rates)
    used = sum(end.size_bytes for end in latest.ends.values())
    with ui.row().classes("w-full gap-3"):
        tile("Nodes active", f"{active} of {len(cluster.nodes)}", bad=active < len(cluster.nodes))
        controller = "none" if cluster.controller is None else f"node {cluster.controller}"
        tile("Controller", controller, bad=cluster.controller is None)
        tile("Topics", number(cluster.topic_count), note=f"{number(cluster.partition_count)} partitions")
        tile("Offline", number(cluster.offline_partition_count), bad=cluster.offline_partition_count > 0)
        behind = cluster.under_replicated_partition_count
        tile("Under-replicated", number(behind), bad=behind > 0)
        tile("Written", f"{number(rate.records_per_s)}/s", note=f"{size(rate.bytes_per_s)}/s")
        tile("Data", size(used), note="of one replica each")


def _findings(sampler: ClusterSampler) -> None:
    assert sampler.latest is not None
    found = findings_of(sampler.latest.state)
    heading("What is wrong now", "" if found else "Nothing: the cluster is healthy.")
    for one in found:
        critical = one.severity is Severity.CRITICAL
        with ui.card().classes(f"w-full p-3 gap-1 border-l-4 {'border-red-600' if critical else 'border-amber-500'}"):
            with ui.row().classes("items-center gap-2"):
                ui.icon("error" if critical else "warning", color="negative" if critical else "amber-9")
                ui.label(one.problem).classes("font-semibold")
            ui.label(f"Why: {one.cause}").classes("text-sm")
            ui.label(f"What to do: {one.remedy}").classes("text-sm")


def _lags(sampler: ClusterSampler) -> None:
    latest = sampler.latest
    assert latest is not None
    rows = [
        {"group": one.group, "state": one.state.value, "members": one.member_count, "lag": sum(lags.values())}
        for one in latest.groups
        if (lags := latest.lag(one.group))
    ]
    rows.sort(key=lambda row: -int(str(row["lag"])))
    heading("Largest lags")
    columns = (("group", "Group"), ("state", "State"), ("members", "Members"), ("lag", "Lag (records)"))
    table(
        columns,
        rows[:_LAGS_SHOWN],
        key="group",
        to=lambda row: f"/groups/{row['group']}",
        empty="No group has commits.",
    )
