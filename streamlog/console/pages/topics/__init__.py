"""/topics: all topics; /topics/NAME: one of them (`one`); what changes them is in `forms`."""

from __future__ import annotations

from nicegui import ui

from streamlog.client.admin.values import TopicDescription
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.pages.topics.forms import new_topic
from streamlog.console.pages.topics.one import build
from streamlog.console.widgets.formats import bytes_text, number_text, page_of
from streamlog.console.widgets.page import Page, show, view
from streamlog.console.widgets.table_view import Column, Row

COLUMNS = (
    Column("topic", "Topic"),
    Column("partitions", "Partitions"),
    Column("replicas", "Replicas"),
    Column("state", "State", is_bad=lambda value: value != "ok"),
    Column("records", "Offsets held", number_text),
    Column("size", "Size", bytes_text),
    Column("rate", "Records/s"),
    Column("bytes", "Growth/s", bytes_text),
    Column("groups", "Groups"),
)


def register(sampler: ClusterSampler) -> None:
    @view("/topics")
    async def topics() -> None:
        await show(sampler, "Topics", _list)

    @view("/topics/{name}")
    async def topic(name: str) -> None:
        await show(sampler, f"Topic {name}", lambda page: build(page, name))


def _list(page: Page) -> None:
    with page.actions:
        internal = ui.switch("Internal topics")
        if may(Action.TOPIC_CREATE):
            ui.button("New topic", icon="add", on_click=lambda: new_topic(page)).props("no-caps")
    table = page.table(
        COLUMNS,
        lambda: topic_rows(page, internal=internal.value),
        key="topic",
        name="topics",
        to=lambda row: page_of("topics", row["topic"]),
        empty="There are no topics yet.",
        addressed=True,
    )
    internal.on_value_change(table.refresh)


def topic_rows(page: Page, *, internal: bool) -> list[Row]:
    figures, rows = page.sampler.figures, []
    for topic in page.latest.topics:
        if topic.internal and not internal:
            continue
        found, rate = figures.topics.get(topic.name), figures.rates.get(topic.name)
        rows.append(
            {
                "topic": topic.name,
                "partitions": topic.partition_count,
                "replicas": topic.replication_factor,
                "state": state_of(topic),
                "records": 0 if found is None else found.offsets_held,
                "size": 0 if found is None else found.size_bytes,
                "rate": 0.0 if rate is None else round(rate.records_per_s, 1),
                "bytes": 0 if rate is None else round(rate.bytes_per_s),
                "groups": 0 if found is None else len(found.groups),
            }
        )
    return list(rows)


def state_of(topic: TopicDescription) -> str:
    if any(one.leader is None for one in topic.partitions):
        return "offline"
    return "under-replicated" if any(len(one.isr) < len(one.replicas) for one in topic.partitions) else "ok"
