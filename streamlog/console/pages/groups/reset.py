"""Resets the committed offsets of a group: to a place, shown before it is done; refused while the group has members."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from nicegui import ui

from streamlog.client.admin.offset_resets import ResetKind, ResetTo, check_empty, plan_reset
from streamlog.config.offset_reset import parse_duration_ms
from streamlog.console.actions import refused, run
from streamlog.console.page import Page
from streamlog.console.table_view import Column, Row
from streamlog.console.tables import LiveTable
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
    admin = page.sampler.admin
    try:
        committed = await admin.list_group_offsets(group)
    except StreamlogError as error:
        refused(error.message)
        return
    plan: dict[TopicPartition, Offset] = {}
    topics = sorted({at.topic for at in committed} | {topic.name for topic in page.latest.topics if not topic.internal})

    def rows() -> Sequence[Row]:
        found = []
        for at, offset in plan.items():
            old = committed[at].offset if at in committed else None
            difference = None if old is None else offset - old
            found.append({"at": str(at), "old": old, "new": offset, "difference": difference})
        return found

    with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-3xl"):
        ui.label(f"Reset offsets of group {group}").classes("text-lg font-semibold break-all").props(
            'role="heading" aria-level="2"'
        )
        with ui.row().classes("w-full items-end gap-3"):
            topic = ui.select([ALL_TOPICS, *topics], label="Topic", value=ALL_TOPICS, with_input=True).classes("w-72")
            place = ui.select(PLACES, label="To", value="earliest").classes("w-72")
            text = ui.input("Offset, time or duration").classes("w-72")
            text.bind_visibility_from(place, "value", backward=lambda value: value not in ("earliest", "latest"))
        problem = ui.label("").classes("text-bad").props('role="alert"')
        table = LiveTable(COLUMNS, rows, key="at", name="new offsets", empty="Choose Preview to see the new offsets.")

        async def preview() -> None:
            problem.set_text("")
            plan.clear()
            try:
                to = reset_to(place.value, (text.value or "").strip(), time.time_ns() // 1_000_000)
                await check_empty(admin, group)
                if topic.value == ALL_TOPICS:
                    partitions = sorted(committed)
                else:
                    described = await admin.describe_topic(topic.value)
                    partitions = [TopicPartition(topic.value, one.partition) for one in described.partitions]
                plan.update(await plan_reset(admin, committed, partitions, to))
                if not plan:
                    problem.set_text("The group has no committed offsets: choose a topic.")
            except StreamlogError as error:
                problem.set_text(
                    f"Refused: {error.message}. Stop its members first." if _live(error) else error.message
                )
            except ValueError as error:
                problem.set_text(f"{error}.")
            table.refresh()
            execute.set_enabled(bool(plan))

        async def reset() -> None:
            async def work() -> None:
                await check_empty(admin, group)
                for one in await admin.alter_group_offsets(group, plan):
                    if one.error is not None:
                        raise one.error

            done = f"{len(plan)} offsets of group {group} are reset."
            if await run(page.sampler, work, done):
                dialog.close()

        def stale() -> None:
            plan.clear()
            table.refresh()
            execute.disable()

        for choice in (topic, place, text):
            choice.on_value_change(stale)
        with ui.row():
            ui.button("Preview", on_click=preview).props("no-caps")
            execute = ui.button("Reset", on_click=reset).props("no-caps color=negative")
            execute.disable()
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps color=inherit")


def _live(error: StreamlogError) -> bool:
    return error.code == "NON_EMPTY_GROUP"
