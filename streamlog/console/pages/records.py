"""/records: look into a topic from its newest or first records, an offset or a time; find text; write a record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime

from nicegui import ui

from streamlog.client import ConsumerRecord
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.browse import RECORDS_MAX, BrowseRequest, BrowseResult, as_json_line, browse, shown
from streamlog.console.guard import write_record
from streamlog.console.layout import frame, heading, table, tried, waiting
from streamlog.console.sampler import ClusterSampler
from streamlog.errors import StreamlogError

_STARTS = {"newest": "Newest", "beginning": "Beginning", "offset": "Offset", "time": "Time"}


def register(sampler: ClusterSampler, settings: Mapping[str, object]) -> None:
    @ui.page("/records")
    async def records(topic: str = "") -> None:
        with frame(sampler, "Records", lambda: None):
            heading("Records")
            if waiting(sampler):
                return
            assert sampler.latest is not None
            known = {one.name for one in sampler.latest.topics if not one.internal}
            names = sorted(known | ({topic} if topic else set()))  # it may have been created a moment ago
            found: BrowseResult | None = None

            with ui.row().classes("w-full items-end gap-3"):
                chosen = ui.select(names, label="Topic", value=topic or None, with_input=True)
                chosen.classes("min-w-[14rem]")
                partition = ui.number("Partition (empty: all)", min=0, precision=0).classes("w-40")
                start = ui.select(_STARTS, label="From", value="newest").classes("w-32")
                offset = ui.number("Offset", value=0, min=0, precision=0).classes("w-32")
                offset.bind_visibility_from(start, "value", value="offset")
                moment = ui.input("Time", value=datetime.now().astimezone().isoformat(timespec="seconds")).classes(
                    "w-64"
                )
                moment.bind_visibility_from(start, "value", value="time")
                containing = ui.input("Containing").classes("w-40")
                limit = ui.number("At most", value=50, min=1, max=RECORDS_MAX, precision=0).classes("w-24")
                how = ui.select({"text": "Text", "json": "JSON", "hex": "Hex"}, label="Show as", value="text")
                button = ui.button("Read", icon="search").props("no-caps")

            @ui.refreshable
            def result() -> None:
                if found is not None:
                    _result(found, how.value)

            async def read() -> None:
                nonlocal found
                if not chosen.value:
                    ui.notify("Choose a topic.", type="warning")
                    return
                try:
                    timestamp_ms = int(datetime.fromisoformat(moment.value).timestamp() * 1000)
                except ValueError:
                    ui.notify("The time must be like 2026-11-23T15:00:00+01:00.", type="warning")
                    return
                question = BrowseRequest(
                    topic=chosen.value,
                    partition=None if partition.value is None else int(partition.value),
                    start=start.value,
                    offset=int(offset.value or 0),
                    timestamp_ms=timestamp_ms,
                    containing=containing.value or "",
                    limit=int(limit.value or 50),
                )
                button.disable()
                try:
                    found = await browse(sampler.admin, settings, question)
                except StreamlogError as error:
                    ui.notify(error.message, type="negative", multi_line=True)
                finally:
                    button.enable()
                result.refresh()

            button.on_click(read)
            how.on_value_change(result.refresh)
            containing.on("keydown.enter", read)
            result()
            if may(Action.RECORD_WRITE):
                _writing(settings, chosen)
            if chosen.value:
                await read()


def _result(found: BrowseResult, how: str) -> None:
    more = "" if found.complete else "; there may be more"
    with ui.row().classes("w-full items-center justify-between"):
        ui.label(f"{len(found.records)} records shown, {found.scanned:,} looked at{more}.").classes("text-sm text-note")
        lines = "".join(f"{as_json_line(one)}\n" for one in found.records)
        ui.button(
            "Download as JSON lines", icon="download", on_click=lambda: ui.download.content(lines, "records.jsonl")
        ).props("flat no-caps dense")
    rows = [
        {
            "id": f"{one.partition}:{one.offset}",
            "partition": one.partition,
            "offset": one.offset,
            "time": _time(one.timestamp_ms),
            "key": _short(shown(one.key, how)),
            "value": _short(shown(one.value, how)),
        }
        for one in found.records
    ]
    columns = (("partition", "Partition"), ("offset", "Offset"), ("time", "Time"), ("key", "Key"), ("value", "Value"))
    by_id = {f"{one.partition}:{one.offset}": one for one in found.records}
    view = table(columns, rows, key="id", empty="No record was found.").classes("cursor-pointer")
    view.on("rowClick", lambda event: _details(by_id[event.args[1]["id"]], how))


def _details(record: ConsumerRecord, how: str) -> None:
    with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-3xl"):
        ui.label(f"{record.topic}-{record.partition}, offset {record.offset}, {_time(record.timestamp_ms)}").classes(
            "font-semibold"
        )
        for name, data in (("Key", record.key), ("Value", record.value)):
            ui.label(name).classes("text-sm text-note")
            _block(shown(data, how))
        if record.headers:
            ui.label("Headers").classes("text-sm text-note")
            _block("\n".join(f"{name}: {shown(value, how)}" for name, value in record.headers))
        with ui.row():
            ui.button("Copy value", on_click=lambda: ui.clipboard.write(shown(record.value, how))).props("flat no-caps")
            ui.button("Close", on_click=dialog.close).props("flat")


def _block(text: str) -> None:
    ui.label(text).classes("font-mono text-sm whitespace-pre-wrap break-all w-full max-h-80 overflow-auto")


def _writing(settings: Mapping[str, object], topic: ui.select) -> None:
    with ui.expansion("Write a record", icon="edit").classes("w-full"):
        key = ui.input("Key (empty: none)").classes("w-full")
        value = ui.textarea("Value").classes("w-full")

        async def write() -> None:
            if not topic.value:
                ui.notify("Choose a topic.", type="warning")
                return

            data = (value.value or "").encode()
            work = write_record(settings, topic.value, data, key=key.value.encode() if key.value else None)
            await tried(work, f"A record is written to {topic.value}.")

        ui.button("Write", icon="send", on_click=write).props("no-caps")


def _short(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= 120 else f"{line[:120]} ..."


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return ""
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    try:
        return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}.{milliseconds:03}"
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
