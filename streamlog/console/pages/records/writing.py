"""Writes one record."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from streamlog.console.guard import write_record
from streamlog.console.widgets.actions import refused
from streamlog.errors import StreamlogError


def headers_of(text: str) -> list[tuple[str, bytes | None]]:
    """Lines of name=value. ValueError: one has no '='."""
    found: list[tuple[str, bytes | None]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = line.partition("=")
        if not separator:
            raise ValueError(f"{line!r} is not a header: give NAME=VALUE in each line")
        found.append((name.strip(), value.strip().encode()))
    return found


def build_writing(settings: Mapping[str, object], topic: ui.select) -> None:
    with ui.expansion("Write a record", icon="edit").classes("w-full").props("duration=0"):
        with ui.row().classes("w-full items-end gap-3"):
            key = ui.input("Key (empty: none)").classes("grow")
            partition = ui.number("Partition (empty: by the key)", min=0, precision=0).classes("w-56")
            null = ui.checkbox("Null value (deletes the key where compacted)")
        value = ui.textarea("Value").classes("w-full")
        value.bind_enabled_from(null, "value", backward=lambda chosen: not chosen)
        headers = ui.textarea("Headers, as NAME=VALUE in each line").props("rows=2").classes("w-full")

        async def write() -> None:
            result.text = ""
            if not topic.value:
                refused("Choose a topic.")
                return
            try:
                written = await write_record(
                    settings,
                    topic.value,
                    None if null.value else (value.value or "").encode(),
                    key=key.value.encode() if key.value else None,
                    headers=headers_of(headers.value or ""),
                    partition=None if partition.value is None else int(partition.value),
                )
            except StreamlogError as error:
                refused(error.message)
            except ValueError as problem:
                refused(f"{problem}.")
            else:
                at = f"{written.topic}-{written.partition} at offset {written.offset}"
                result.text = f"The record was written to {at}."

        ui.button("Write", icon="send", on_click=write).props("no-caps")
        result = ui.label()  # stays: the offset is there to be copied
        result.classes("break-all min-h-[1.5rem]").props('role="status"')
