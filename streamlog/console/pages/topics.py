"""/topics: all topics, and a form for a new one; /topics/NAME: partitions, rates, readers, settings, deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from nicegui import ui

from streamlog.client.admin.values import ConfigChange, ConfigResource, NewTopic, TopicDescription
from streamlog.config import Operation
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
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
    tried,
    waiting,
)
from streamlog.console.rates import Rate
from streamlog.console.sample import Sample
from streamlog.console.sampler import ClusterSampler
from streamlog.errors import StreamlogError
from streamlog.model import TopicPartition


def register(sampler: ClusterSampler) -> None:
    @ui.page("/topics")
    def topics() -> None:
        show_internal = False

        @ui.refreshable
        def body() -> None:
            if not waiting(sampler):
                _list(sampler, show_internal=show_internal)

        def switch(value: bool) -> None:
            nonlocal show_internal
            show_internal = value
            body.refresh()

        with frame(sampler, "Topics", body.refresh):
            with ui.row().classes("w-full items-center justify-between"):
                heading("Topics")
                with ui.row().classes("items-center"):
                    ui.switch("Internal topics", on_change=lambda event: switch(event.value))
                    if may(Action.TOPIC_CREATE):
                        ui.button("New topic", icon="add", on_click=lambda: _new_topic(sampler)).props("no-caps")
            body()

    @ui.page("/topics/{name}")
    async def topic(name: str) -> None:
        @ui.refreshable
        def body() -> None:
            if not waiting(sampler):
                _topic(sampler, name)

        span_s = 900

        async def draw(new_span_s: int | None = None) -> None:
            nonlocal span_s
            span_s = new_span_s or span_s
            points = await sampler.history(("topic.records", name), span_s)
            shown.options.update(chart_options("Records written", {name: points}, "records/s", span_s))
            shown.update()

        with frame(sampler, f"Topic {name}", lambda: (body.refresh(), asyncio.ensure_future(draw()))):
            with ui.row().classes("w-full items-center justify-between"):
                heading(f"Topic {name}")
                with ui.row():
                    ui.button(
                        "Records", icon="article", on_click=lambda: ui.navigate.to(f"/records?topic={name}")
                    ).props("no-caps outline")
                    if may(Action.TOPIC_GROW):
                        grow = ui.button("More partitions", icon="call_split", on_click=lambda: _grow(sampler, name))
                        grow.props("no-caps outline")
                    if may(Action.TOPIC_DELETE):
                        drop = ui.button(
                            "Delete", icon="delete", color="negative", on_click=lambda: _delete(sampler, name)
                        )
                        drop.props("no-caps outline")
            body()
            span_choice(draw)
            shown = chart("Records written", {name: []}, "records/s")
            await draw()
            await _settings(sampler, name)


def _list(sampler: ClusterSampler, *, show_internal: bool) -> None:
    latest = sampler.latest
    assert latest is not None
    rates = sampler.rates
    rows = [
        {
            "topic": topic.name,
            "partitions": topic.partition_count,
            "replicas": topic.replication_factor,
            "state": _state(topic),
            "records": _held(latest, topic),
            "size_bytes": (used := _size(latest, topic)),
            "size": size(used),
            "rate": round(rates[topic.name].records_per_s, 1) if topic.name in rates else 0,
            "groups": sum(
                any(at.topic == topic.name for at in latest.committed.get(g.group, {})) for g in latest.groups
            ),
        }
        for topic in latest.topics
        if show_internal or not topic.internal
    ]
    columns = (
        ("topic", "Topic"),
        ("partitions", "Partitions"),
        ("replicas", "Replicas"),
        ("state", "State"),
        ("records", "Offsets held"),
        ("size", "Size"),
        ("rate", "Records/s"),
        ("groups", "Groups"),
    )
    table(columns, rows, key="topic", to=lambda row: f"/topics/{row['topic']}", empty="There are no topics yet.")


def _state(topic: TopicDescription) -> str:
    if any(one.leader is None for one in topic.partitions):
        return "offline"
    return "under-replicated" if any(len(one.isr) < len(one.replicas) for one in topic.partitions) else "ok"


def _held(latest: Sample, topic: TopicDescription) -> int:
    ends = (latest.ends.get(TopicPartition(topic.name, one.partition)) for one in topic.partitions)
    return sum(end.log_end - end.log_start for end in ends if end is not None)


def _size(latest: Sample, topic: TopicDescription) -> int:
    ends = (latest.ends.get(TopicPartition(topic.name, one.partition)) for one in topic.partitions)
    return sum(end.size_bytes for end in ends if end is not None)


def _topic(sampler: ClusterSampler, name: str) -> None:
    latest = sampler.latest
    assert latest is not None
    found = next((one for one in latest.topics if one.name == name), None)
    if found is None:
        ui.label(f"There is no topic {name}, or it has just been created.")
        return
    rate = sampler.rates.get(name, Rate())
    with ui.row().classes("w-full gap-3"):
        tile("Partitions", number(found.partition_count), note=f"{found.replication_factor} replicas each")
        tile("Offsets held", number(_held(latest, found)))
        tile("Size", size(_size(latest, found)), note="of one replica each")
        tile(
            "Written",
            f"{number(rate.records_per_s)}/s",
            note=f"{size(rate.bytes_per_s)}/s",
        )
        tile("State", state := _state(found), bad=state != "ok")
    rows: list[Mapping[str, object]] = []
    for one in found.partitions:
        end = latest.ends.get(TopicPartition(name, one.partition))
        rows.append(
            {
                "partition": one.partition,
                "leader": "none" if one.leader is None else str(one.leader),
                "replicas": ", ".join(map(str, one.replicas)),
                "isr": ", ".join(map(str, one.isr)),
                "elr": ", ".join(map(str, one.elr)),
                "start": "" if end is None else end.log_start,
                "end": "" if end is None else end.log_end,
                "size": "" if end is None else size(end.size_bytes),
            }
        )
    columns = (
        ("partition", "Partition"),
        ("leader", "Leader"),
        ("replicas", "Replicas"),
        ("isr", "In sync"),
        ("elr", "Eligible"),
        ("start", "Log start"),
        ("end", "Log end"),
        ("size", "Size"),
    )
    table(columns, rows, key="partition")
    _readers(sampler, latest, name)


def _readers(sampler: ClusterSampler, latest: Sample, name: str) -> None:
    rows = []
    for group in latest.groups:
        lags = [lag for at, lag in latest.lag(group.group).items() if at.topic == name]
        if lags:
            rows.append({"group": group.group, "state": group.state.value, "lag": sum(lags)})
    heading("Groups that read it")
    columns = (("group", "Group"), ("state", "State"), ("lag", "Lag (records)"))
    table(columns, rows, key="group", to=lambda row: f"/groups/{row['group']}", empty="No group has commits here.")


async def _settings(sampler: ClusterSampler, name: str) -> None:
    changeable = may(Action.TOPIC_CONFIG)
    heading("Settings", "A click changes one." if changeable else "")
    try:
        [found] = await sampler.admin.describe_configs([ConfigResource.topic(name)])
        if found.error is not None:
            raise found.error
    except StreamlogError as error:
        ui.label(error.message).classes("text-negative")
        return
    rows = [
        {"name": entry.name, "value": entry.value or "", "source": entry.source.value, "what": entry.documentation}
        for entry in found.entries
    ]
    columns = (("name", "Setting"), ("value", "Value"), ("source", "From"), ("what", "What it does"))
    shown = table(columns, rows, key="name").props("wrap-cells")
    if not changeable:
        return
    shown.classes("cursor-pointer")
    shown.on("rowClick", lambda event: _change(sampler, name, event.args[1]["name"], event.args[1]["value"]))


def _change(sampler: ClusterSampler, topic: str, setting: str, value: str) -> None:
    with ui.dialog(value=True) as dialog, ui.card():
        ui.label(f"{setting} of topic {topic}").classes("font-semibold")
        given = ui.input("Value", value=value).props("autofocus")

        async def alter(change: ConfigChange) -> None:
            if await tried(sampler.admin.alter_config(ConfigResource.topic(topic), [change]), f"{setting} is changed."):
                dialog.close()
                ui.navigate.reload()

        with ui.row():
            ui.button("Set", on_click=lambda: alter(ConfigChange(name=setting, value=given.value)))
            ui.button(
                "Back to the default", on_click=lambda: alter(ConfigChange(name=setting, operation=Operation.DELETE))
            ).props("flat no-caps")
            ui.button("Cancel", on_click=dialog.close).props("flat")


def _new_topic(sampler: ClusterSampler) -> None:
    with ui.dialog(value=True) as dialog, ui.card().classes("min-w-[20rem]"):
        ui.label("New topic").classes("text-lg font-semibold")
        name = ui.input("Name").props("autofocus").classes("w-full")
        partitions = ui.number("Partitions (empty: the cluster's default)", min=1, precision=0).classes("w-full")
        replicas = ui.number("Replicas (empty: the cluster's default)", min=1, precision=0).classes("w-full")

        async def create() -> None:
            topic = NewTopic(
                name=name.value or "",
                partitions=None if partitions.value is None else int(partitions.value),
                replication_factor=None if replicas.value is None else int(replicas.value),
            )
            work = sampler.admin.create_topic(
                topic.name, partitions=topic.partitions, replication_factor=topic.replication_factor
            )
            if await tried(work, f"Topic {topic.name} is created."):
                dialog.close()
                await sampler.refresh()

        with ui.row():
            ui.button("Create", on_click=create)
            ui.button("Cancel", on_click=dialog.close).props("flat")


def _grow(sampler: ClusterSampler, name: str) -> None:
    with ui.dialog(value=True) as dialog, ui.card():
        ui.label(f"How many partitions shall {name} have in all?")
        ui.label("Partition counts only grow, and keys move to other partitions.").classes("text-sm opacity-80")
        count = ui.number("Partitions", min=1, precision=0).props("autofocus")

        async def grow() -> None:
            if await tried(sampler.admin.grow_topic(name, int(count.value or 0)), f"Topic {name} has grown."):
                dialog.close()
                await sampler.refresh()

        with ui.row():
            ui.button("Grow", on_click=grow)
            ui.button("Cancel", on_click=dialog.close).props("flat")


def _delete(sampler: ClusterSampler, name: str) -> None:
    with ui.dialog(value=True) as dialog, ui.card():
        ui.label(f"Delete topic {name} with all its records?").classes("font-semibold")
        ui.label("There is no way back. Type its name to confirm.")
        typed = ui.input("Name of the topic").props("autofocus")

        async def delete() -> None:
            if typed.value != name:
                ui.notify(f"Type {name} to delete it.", type="warning")
            elif await tried(sampler.admin.delete_topic(name), f"Topic {name} is deleted."):
                await sampler.refresh()
                ui.navigate.to("/topics")

        with ui.row():
            ui.button("Delete", color="negative", on_click=delete)
            ui.button("Cancel", on_click=dialog.close).props("flat")
