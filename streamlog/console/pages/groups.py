"""/groups: all consumer groups and their lag; /groups/NAME: members, partitions, lag over time."""

from __future__ import annotations

import asyncio

from nicegui import ui

from streamlog.client.admin.group_values import GroupDescription
from streamlog.console.layout import (
    chart,
    chart_options,
    frame,
    heading,
    number,
    span_choice,
    table,
    tile,
    waiting,
)
from streamlog.console.rates import lag_by_topic
from streamlog.console.sample import Sample
from streamlog.console.sampler import ClusterSampler
from streamlog.errors import StreamlogError


def register(sampler: ClusterSampler) -> None:
    @ui.page("/groups")
    def groups() -> None:
        @ui.refreshable
        def body() -> None:
            if not waiting(sampler):
                _list(sampler)

        with frame(sampler, "Groups", body.refresh):
            heading("Consumer groups")
            body()

    @ui.page("/groups/{name}")
    async def group(name: str) -> None:
        span_s = 900

        @ui.refreshable
        async def body() -> None:
            if not waiting(sampler):
                await _group(sampler, name)

        async def draw(new_span_s: int | None = None) -> None:
            nonlocal span_s
            span_s = new_span_s or span_s
            topics = sorted({at.topic for at in sampler.latest.committed.get(name, {})}) if sampler.latest else []
            lines = {topic: await sampler.history(("group.lag", f"{name}\n{topic}"), span_s) for topic in topics}
            shown.options.update(chart_options("Lag by topic", lines, "records", span_s))
            shown.update()

        with frame(sampler, f"Group {name}", lambda: (body.refresh(), asyncio.ensure_future(draw()))):
            heading(f"Group {name}")
            span_choice(draw)
            shown = chart("Lag by topic", {}, "records")
            await draw()
            await body()


def _list(sampler: ClusterSampler) -> None:
    latest = sampler.latest
    assert latest is not None
    rows = [
        {
            "group": one.group,
            "state": one.state.value,
            "members": one.member_count,
            "coordinator": one.coordinator,
            "topics": ", ".join(lag_by_topic(lags := latest.lag(one.group))),
            "lag": sum(lags.values()),
            "rate": round(sampler.consumed_per_s(one.group), 1),
        }
        for one in latest.groups
    ]
    columns = (
        ("group", "Group"),
        ("state", "State"),
        ("members", "Members"),
        ("coordinator", "Coordinator"),
        ("topics", "Topics"),
        ("lag", "Lag (records)"),
        ("rate", "Committed/s"),
    )
    table(columns, rows, key="group", to=lambda row: f"/groups/{row['group']}", empty="There are no groups yet.")


async def _group(sampler: ClusterSampler, name: str) -> None:
    latest = sampler.latest
    assert latest is not None
    try:
        found = await sampler.admin.describe_group(name)
    except StreamlogError as error:
        ui.label(error.message).classes("text-negative")
        return
    lags = latest.lag(name)
    rate = sampler.consumed_per_s(name)
    lag = sum(lags.values())
    with ui.row().classes("w-full gap-3"):
        tile("State", found.state.value)
        tile("Members", number(len(found.members)))
        tile("Lag", number(lag), note="records")
        tile("Committed", f"{number(rate)}/s")
        tile("Caught up in", _eta(sampler, latest, name, lag, rate), note="at the rates of now")
        tile("Coordinator", "none" if found.coordinator is None else f"node {found.coordinator}")
    _partitions(latest, found)
    _members(found)


def _eta(sampler: ClusterSampler, latest: Sample, name: str, lag: int, rate: float) -> str:
    if lag == 0:
        return "now"
    topics = {at.topic for at in latest.committed.get(name, {})}
    incoming = sum(one.records_per_s for topic, one in sampler.rates.items() if topic in topics)
    if rate <= incoming:
        return "never"
    seconds = lag / (rate - incoming)
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )


def _partitions(latest: Sample, found: GroupDescription) -> None:
    heading("Partitions")
    owners = found.owners()
    committed = latest.committed.get(found.group, {})
    rows = []
    for at in sorted({*committed, *owners}):
        end, owner = latest.ends.get(at), owners.get(at)
        offset = committed.get(at)
        rows.append(
            {
                "key": str(at),
                "topic": at.topic,
                "partition": at.partition,
                "committed": "" if offset is None else offset,
                "end": "" if end is None else end.log_end,
                "lag": "" if offset is None or end is None else max(0, end.log_end - offset),
                "member": "" if owner is None else f"{owner.client_id or owner.member_id} ({owner.host})",
            }
        )
    columns = (
        ("topic", "Topic"),
        ("partition", "Partition"),
        ("committed", "Committed"),
        ("end", "Log end"),
        ("lag", "Lag"),
        ("member", "Member"),
    )
    table(columns, rows, key="key")


def _members(found: GroupDescription) -> None:
    heading("Members")
    rows = [
        {
            "member": one.member_id,
            "client": one.client_id,
            "instance": one.instance_id,
            "host": one.host,
            "epoch": one.epoch,
            "partitions": ", ".join(map(str, one.assignment)),
        }
        for one in found.members
    ]
    columns = (
        ("client", "Client"),
        ("host", "Host"),
        ("member", "Member id"),
        ("instance", "Instance id"),
        ("epoch", "Epoch"),
        ("partitions", "Partitions"),
    )
    table(columns, rows, key="member", empty="The group has no members now.")
