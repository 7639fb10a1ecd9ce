"""Resets the committed offsets of a group: to a place, shown before it is done; refused while the group has members."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from nicegui import ui

from streamlog.client.admin.offset_resets import Committed, ResetKind, ResetTo, check_empty, plan_reset
from streamlog.config.offset_reset import parse_duration_ms
from streamlog.console.widgets.actions import refused, run
from streamlog.console.widgets.page import Page
from streamlog.console.widgets.table_view import Column, Row
from streamlog.console.widgets.tables import LiveTable
from streamlog.errors import StreamlogError
from streamlog.model import Offset, TopicPartition

ALL_TOPICS: Final = "All topics with committed offsets"
PLACES: Final = {
    "earliest": "The earliest record",
    "latest": "The end",
    "offset": "An offset",
    "shift": "A number of offsets from the committed one",
    "time": "A time",
    "duration": "A time ago",
}
COLUMNS: Final = (
    Column("at", "Partition"),
    Column("old", "Committed now"),
    Column("new", "New offset"),
    Column("difference", "Difference"),
)


def reset_to(place: str, text: str, now_ms: int) -> ResetTo:
    """What a user chose and typed. ValueError: the text is not of that kind, with the reason."""
    match place:
        case "earliest":
            return ResetTo(ResetKind.EARLIEST)
        case "latest":
            return ResetTo(ResetKind.LATEST)
        case "offset":
            if not text.isdecimal():
                raise ValueError(f"{text!r} is not an offset: give a number from 0")
            return ResetTo(ResetKind.OFFSET, int(text))
        case "shift":
            try:
                return ResetTo(ResetKind.SHIFT, int(text))
            except ValueError:
                raise ValueError(f"{text!r} is not a number of offsets: give one such as -100") from None
        case "time":
            try:
                return ResetTo(ResetKind.TIME, max(0, round(datetime.fromisoformat(text).timestamp() * 1000)))
            except (ValueError, OverflowError):
                raise ValueError(f"{text!r} is not a time: give one such as 2026-11-23T15:00:00+01:00") from None
        case _:
            try:
                return ResetTo(ResetKind.TIME, max(0, now_ms - parse_duration_ms(text)))
            except ValueError as problem:
                raise ValueError(f"{text!r} is not a duration such as PT1H or P2DT3H4M: {problem}") from None


async def open_reset(page: Page, group: str) -> None:
    try:
        committed = await page.sampler.admin.list_group_offsets(group)
    except StreamlogError as error:
        refused(error.message)
        return
    _ResetDialog(page, group, committed)


class _ResetDialog:
    """What is chosen -> Preview -> a plan that is shown -> Reset. A change of what is chosen drops the plan."""

    def __init__(self, page: Page, group: str, committed: Committed) -> None:
        self._sampler, self._admin = page.sampler, page.sampler.admin
        self._group, self._committed = group, committed
        self._plan: dict[TopicPartition, Offset] = {}
        topics = {at.topic for at in committed} | {one.name for one in page.latest.topics if not one.internal}
        with ui.dialog(value=True) as self._dialog, ui.card().classes("w-full max-w-3xl"):
            title = ui.label(f"Reset offsets of group {group}").classes("text-lg font-semibold break-all")
            title.props('role="heading" aria-level="2"')
            self._choices(sorted(topics))
            self._problem = ui.label("").classes("text-bad").props('role="alert"')
            self._table = LiveTable(
                COLUMNS, self._rows, key="at", name="new offsets", empty="Choose Preview to see the new offsets."
            )
            self._buttons()

    def _choices(self, topics: Sequence[str]) -> None:
        with ui.row().classes("w-full items-end gap-3"):
            self._topic = ui.select([ALL_TOPICS, *topics], label="Topic", value=ALL_TOPICS, with_input=True)
            self._place = ui.select(PLACES, label="To", value="earliest")
            self._text = ui.input("Offset, time or duration")
            self._text.bind_visibility_from(
                self._place, "value", backward=lambda value: value not in ("earliest", "latest")
            )
        for choice in (self._topic, self._place, self._text):
            choice.classes("w-72")
            choice.on_value_change(self._drop_plan)

    def _buttons(self) -> None:
        with ui.row():
            ui.button("Preview", on_click=self._preview).props("no-caps")
            self._execute = ui.button("Reset", on_click=self._reset).props("no-caps color=negative")
            self._execute.disable()
            ui.button("Cancel", on_click=self._dialog.close).props("flat no-caps color=inherit")

    def _rows(self) -> Sequence[Row]:
        found = []
        for at, offset in self._plan.items():
            old = self._committed[at].offset if at in self._committed else None
            difference = None if old is None else offset - old
            found.append({"at": str(at), "old": old, "new": offset, "difference": difference})
        return found

    def _drop_plan(self) -> None:
        self._plan = {}
        self._table.refresh()
        self._execute.disable()

    async def _preview(self) -> None:
        self._drop_plan()
        self._problem.set_text("")
        try:
            self._plan = await self._planned()
        except StreamlogError as error:
            reason = f"Refused: {error.message}. Stop its members first." if _live(error) else error.message
            self._problem.set_text(reason)
        except ValueError as error:
            self._problem.set_text(f"{error}.")
        self._table.refresh()
        self._execute.set_enabled(bool(self._plan))

    async def _planned(self) -> dict[TopicPartition, Offset]:
        """StreamlogError; ValueError: what is chosen gives no plan."""
        to = reset_to(self._place.value, (self._text.value or "").strip(), time.time_ns() // 1_000_000)
        await check_empty(self._admin, self._group)
        found = await plan_reset(self._admin, self._committed, await self._partitions(), to)
        if not found:
            raise ValueError("The group has no committed offsets: choose a topic")
        return found

    async def _partitions(self) -> list[TopicPartition]:
        if self._topic.value == ALL_TOPICS:
            return sorted(self._committed)
        described = await self._admin.describe_topic(self._topic.value)
        return [TopicPartition(self._topic.value, one.partition) for one in described.partitions]

    async def _reset(self) -> None:
        done = f"{len(self._plan)} offsets of group {self._group} are reset."
        if await run(self._sampler, self._alter, done):
            self._dialog.close()

    async def _alter(self) -> None:
        await check_empty(self._admin, self._group)
        for one in await self._admin.alter_group_offsets(self._group, self._plan):
            if one.error is not None:
                raise one.error


def _live(error: StreamlogError) -> bool:
    return error.code == "NON_EMPTY_GROUP"
