"""/groups/NAME: state, lag over time, partitions, members; delete the group or committed offsets."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from streamlog.client.admin.group_values import GroupDescription
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.collection.rates import Series, partition_lag_series
from streamlog.console.pages.groups.reset import open_reset
from streamlog.console.widgets.actions import confirmed_by_name, run
from streamlog.console.widgets.formats import catch_up, number, number_text
from streamlog.console.widgets.layout import heading, tile
from streamlog.console.widgets.page import Page
from streamlog.console.widgets.table_view import Column, Row
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition

PARTITION_COLUMNS = (
    Column("at", "Partition"),
    Column("committed", "Committed"),
    Column("end", "Log end"),
    Column("lag", "Lag", number_text),
    Column("member", "Member"),
)
MEMBER_COLUMNS = (
    Column("client", "Client"),
    Column("host", "Host"),
    Column("member", "Member id"),
    Column("instance", "Instance id"),
    Column("epoch", "Epoch"),
    Column("count", "Partitions"),
    Column("partitions", "Assignment"),
    Column("topics", "Subscribed to"),
)
ASSIGNMENT_SHOWN = 20


class _Group:
    """The group's description, read again after each sample; the last one stays while its coordinator is moved."""

    def __init__(self, page: Page, name: str) -> None:
        self.page, self.name = page, name
        self.found: GroupDescription | None = None
        self.problem = ""

    async def read(self) -> None:
        try:
            self.found, self.problem = await self.page.sampler.admin.describe_group(self.name), ""
        except StreamlogError as error:
            self.problem = error.message

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        return self.page.latest.committed.get(self.name, {})


async def build(page: Page, name: str) -> None:
    group = _Group(page, name)
    await group.read()
    page.each_sample(group.read)
    with page.actions:
        if may(Action.GROUP_OFFSETS):
            ui.button("Reset offsets", icon="replay", on_click=lambda: open_reset(page, name)).props("no-caps outline")
        if may(Action.GROUP_DELETE):
            delete = ui.button("Delete group", icon="delete", on_click=lambda: _delete(page, name))
            delete.props("no-caps outline color=negative")
    await page.live(lambda: _tiles(group))
    await page.charts(
        ("Lag by topic", "records", lambda: lag_lines(page, name)),
        ("Lag by partition, the largest ones", "records", lambda: partition_lag_lines(page, name)),
    )
    heading("Partitions")
    changeable = may(Action.GROUP_OFFSETS)
    page.table(
        PARTITION_COLUMNS,
        lambda: partition_rows(group),
        key="at",
        name="partitions",
        addressed=True,
        actions=(lambda row: ["Delete offset"] if row["committed"] is not None else []) if changeable else None,
        on_action=lambda _, row: _delete_offset(page, name, row["topic"], row["partition"]),
        empty="No offsets are committed.",
    )
    heading("Members")
    page.table(
        MEMBER_COLUMNS,
        lambda: member_rows(group),
        key="member",
        name="members",
        empty="The group has no members now.",
        wide=True,
    )


def lag_lines(page: Page, name: str) -> dict[str, Series]:
    found = page.sampler.figures.groups.get(name)
    topics = sorted(found.lag, key=lambda topic: -found.lag[topic]) if found is not None else []
    return {topic: ("group.lag", f"{name}\n{topic}") for topic in topics}


def partition_lag_lines(page: Page, name: str) -> dict[str, Series]:
    """The largest first: the chart shows a limited number of them."""
    lags = page.latest.lag(name)
    return {str(at): partition_lag_series(name, at) for at in sorted(lags, key=lambda at: (-lags[at], at))}


def _tiles(group: _Group) -> None:
    if group.problem:
        ui.label(group.problem).classes("text-bad")
    found, figures = group.found, group.page.sampler.figures.groups.get(group.name)
    with ui.row().classes("w-full gap-3"):
        if found is not None:
            tile("State", found.state.value, note=f"assignor {found.assignor}" if found.assignor else "")
            tile("Members", number(len(found.members)))
            tile("Coordinator", "none" if found.coordinator is None else f"node {found.coordinator}")
        if figures is not None:
            tile("Lag", number(figures.total_lag), note="records")
            note = f"{number(figures.incoming_per_s)}/s written"
            tile("Committed", f"{number(figures.committed_per_s)}/s", note=note)
            tile("Caught up in", catch_up(figures), note="at the rates of now")


def partition_rows(group: _Group) -> list[Row]:
    owners = {} if group.found is None else group.found.owners()
    rows: list[Row] = []
    for at in sorted({*group.committed, *owners}):
        end, owner, offset = group.page.latest.ends.get(at), owners.get(at), group.committed.get(at)
        rows.append(
            {
                "at": str(at),
                "topic": at.topic,
                "partition": at.partition,
                "committed": offset,
                "end": None if end is None else end.log_end,
                "lag": None if offset is None or end is None else max(0, end.log_end - offset),
                "member": "" if owner is None else f"{owner.client_id or owner.member_id} ({owner.host})",
            }
        )
    return rows


def member_rows(group: _Group) -> list[Row]:
    rows: list[Row] = []
    for one in () if group.found is None else group.found.members:
        more = len(one.assignment) - ASSIGNMENT_SHOWN
        shown = ", ".join(map(str, one.assignment[:ASSIGNMENT_SHOWN]))
        rows.append(
            {
                "member": one.member_id,
                "client": one.client_id,
                "instance": one.instance_id,
                "host": one.host,
                "epoch": one.epoch,
                "count": len(one.assignment),
                "partitions": f"{shown} and {more} more" if more > 0 else shown,
                "topics": one.pattern or ", ".join(one.topics[:ASSIGNMENT_SHOWN]),
            }
        )
    return rows


def _delete(page: Page, name: str) -> None:
    async def delete() -> bool:
        async def work() -> None:
            for one in await page.sampler.admin.delete_groups([name]):
                if one.error is not None:
                    raise one.error

        if not await run(page.sampler, work, f"Group {name} is deleted."):
            return False
        ui.navigate.to("/groups")
        return True

    confirmed_by_name(
        f"Delete group {name} and all its committed offsets?",
        "Its consumers start where auto.offset.reset says. A group with members is not deleted: stop them first.",
        name,
        delete,
    )


def _delete_offset(page: Page, name: str, topic: str, partition: int) -> None:
    at = TopicPartition(topic, PartitionId(partition))

    async def delete() -> bool:
        async def work() -> None:
            for one in await page.sampler.admin.delete_group_offsets(name, [at]):
                if one.error is not None:
                    raise one.error

        done = f"The committed offset of {at} is deleted."
        return await run(page.sampler, work, done)

    confirmed_by_name(
        f"Delete the committed offset of group {name} in {at}?",
        "The group then starts there where auto.offset.reset says. Members must not be subscribed to the topic.",
        str(at),
        delete,
    )
