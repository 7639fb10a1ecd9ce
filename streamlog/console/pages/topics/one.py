"""/topics/NAME: partitions, rates, readers and their lag, settings."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from streamlog.client.admin.values import ConfigResource, TopicDescription
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.pages.topics.forms import change_setting, delete_topic, grow_topic
from streamlog.console.widgets.formats import SOURCES, bytes_text, catch_up, number, number_text, page_of, size
from streamlog.console.widgets.layout import heading, tile
from streamlog.console.widgets.page import Page
from streamlog.console.widgets.table_view import Column, Row
from streamlog.errors import StreamlogError
from streamlog.model import TopicPartition

PARTITION_COLUMNS = (
    Column("partition", "Partition"),
    Column("leader", "Leader", is_bad=lambda value: value == "none"),
    Column("replicas", "Replicas"),
    Column("isr", "In sync"),
    Column("elr", "Eligible"),
    Column("offline", "Offline", is_bad=bool),
    Column("start", "Log start"),
    Column("end", "Log end"),
    Column("rate", "Records/s"),
    Column("size", "Size", bytes_text),
)
READER_COLUMNS = (
    Column("group", "Group"),
    Column("lag", "Lag (records)", number_text),
    Column("behind", "Caught up in"),
    Column("state", "State"),
    Column("members", "Members"),
)
SETTING_COLUMNS = (
    Column("name", "Setting"),
    Column("value", "Value"),
    Column("source", "Source"),
    Column("default", "Default"),
    Column("what", "Meaning"),
)


async def build(page: Page, name: str) -> None:
    if _topic(page, name) is None:
        await page.sampler.refresh()  # it may have been created a moment ago
    if _topic(page, name) is None:
        ui.label(f"There is no topic {name}.").classes("text-bad break-all")
        return
    with page.actions:
        ui.button("Records", icon="article").props("no-caps outline type=a").props["href"] = f"/records?topic={name}"
        if may(Action.TOPIC_GROW):
            grow = ui.button("More partitions", icon="call_split", on_click=lambda: grow_topic(page, name))
            grow.props("no-caps outline")
        if may(Action.TOPIC_DELETE):
            delete = ui.button("Delete", icon="delete", on_click=lambda: delete_topic(page, name))
            delete.props("no-caps outline color=negative")
    await page.live(lambda: _tiles(page, name))
    heading("Partitions")
    page.table(
        PARTITION_COLUMNS,
        lambda: partition_rows(page, name),
        key="partition",
        name="partitions",
        to=lambda row: f"/records?topic={name}&partition={row['partition']}",
        addressed=True,
    )
    heading("Groups that read it")
    page.table(
        READER_COLUMNS,
        lambda: reader_rows(page, name),
        key="group",
        name="groups",
        to=lambda row: page_of("groups", row["group"]),
        empty="No group has commits here.",
    )
    await page.charts(
        ("Records written", "records/s", lambda: {name: ("topic.records", name)}),
        ("Log growth", "bytes/s", lambda: {name: ("topic.bytes", name)}),
    )
    await _settings(page, name)


def _topic(page: Page, name: str) -> TopicDescription | None:
    return next((one for one in page.latest.topics if one.name == name), None)


def _tiles(page: Page, name: str) -> None:
    topic, figures = _topic(page, name), page.sampler.figures
    if topic is None:
        ui.label("The topic has been deleted.").classes("text-bad")
        return
    found, rate = figures.topics.get(name), figures.rates.get(name)
    without = sum(one.leader is None for one in topic.partitions)
    behind = sum(len(one.isr) < len(one.replicas) for one in topic.partitions)
    with ui.row().classes("w-full gap-3"):
        tile("Partitions", number(topic.partition_count), note=f"{topic.replication_factor} replicas each")
        tile("Offline partitions", number(without), bad=without > 0)
        tile("Under-replicated", number(behind), bad=behind > 0)
        if rate is not None:
            tile("Written", f"{number(rate.records_per_s)}/s", note=f"{size(rate.bytes_per_s)}/s")
        if found is not None:
            tile("Size", size(found.size_bytes), note=f"{number(found.offsets_held)} offsets")
            tile("Groups", number(len(found.groups)))
        minimum = page.latest.state.min_insync_replicas.get(name)
        if minimum is not None:
            tile("min.insync.replicas", number(minimum))


def partition_rows(page: Page, name: str) -> Sequence[Row]:
    topic, earlier = _topic(page, name), page.sampler.earlier
    rows: list[Row] = []
    for one in () if topic is None else topic.partitions:
        at = TopicPartition(name, one.partition)
        end = page.latest.ends.get(at)
        old = None if earlier is None else earlier.ends.get(at)
        rate = None
        if earlier is not None and end is not None and old is not None:
            passed_s = page.latest.monotonic_s - earlier.monotonic_s
            rate = round(max(0, end.log_end - old.log_end) / passed_s, 1)
        rows.append(
            {
                "partition": one.partition,
                "leader": "none" if one.leader is None else one.leader,
                "replicas": ", ".join(map(str, one.replicas)),
                "isr": ", ".join(map(str, one.isr)),
                "elr": ", ".join(map(str, one.elr)),
                "offline": ", ".join(map(str, one.offline)),
                "start": None if end is None else end.log_start,
                "end": None if end is None else end.log_end,
                "rate": rate,
                "size": None if end is None else end.size_bytes,
            }
        )
    return rows


def reader_rows(page: Page, name: str) -> Sequence[Row]:
    figures = page.sampler.figures
    listed = {one.group: one for one in page.latest.groups}
    found = figures.topics.get(name)
    return [
        {
            "group": group,
            "state": listed[group].state.value,
            "members": listed[group].member_count,
            "lag": figures.groups[group].lag[name],
            "behind": catch_up(figures.groups[group]),
        }
        for group in (() if found is None else found.groups)
        if group in listed
    ]


async def _settings(page: Page, name: str) -> None:
    rows: list[Row] = []

    async def read() -> None:
        [found] = await page.sampler.admin.describe_configs([ConfigResource.topic(name)])
        if found.error is not None:
            raise found.error
        rows[:] = [
            {
                "name": entry.name,
                "value": entry.value or "",
                "source": SOURCES.get(entry.source, entry.source.value),
                "default": entry.default_value or "",
                "what": entry.documentation,
            }
            for entry in found.entries
        ]

    heading("Settings")
    try:
        await read()
    except StreamlogError as error:
        ui.label(error.message).classes("text-bad")
        return

    async def changed() -> None:
        await read()
        table.refresh()

    table = page.table(
        SETTING_COLUMNS,
        lambda: rows,
        key="name",
        name="settings",
        on_open=(lambda row: change_setting(page, name, row, changed)) if may(Action.TOPIC_CONFIG) else None,
        wide=True,
    )
