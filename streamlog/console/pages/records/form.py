"""The form of /records: what to read, and how to show it. It is filled from the page's address, and kept in it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from nicegui import context, ui

from streamlog.console.browse import NEWEST, RECORDS_MAX, BrowseRequest, RecordFilter
from streamlog.console.decoding.process import SchemaDecoder
from streamlog.console.pages.records.schemas import SchemaChoice
from streamlog.console.widgets.page import Page

STARTS: Final = {NEWEST: "Newest", "beginning": "Beginning", "offset": "Offset", "time": "Time"}
SHOWN_AS: Final = {"text": "Text", "json": "JSON", "hex": "Hex", "schema": "By a schema"}
LIMIT: Final = 50


class RecordsForm:
    def __init__(self, page: Page, decoder: SchemaDecoder) -> None:
        given = context.client.request.query_params
        topic = given.get("topic", "")
        known = {one.name for one in page.latest.topics if not one.internal}
        names = sorted(known | ({topic} if topic else set()))  # it may have been created a moment ago
        with ui.row().classes("w-full items-end gap-3"):
            self.topic = ui.select(names, label="Topic", value=topic or None, with_input=True).classes("min-w-[14rem]")
            self.partition = _number("Partition (empty: all)", given.get("partition"), 0).classes("w-40")
            start = given.get("from", NEWEST)
            self.start = ui.select(STARTS, label="From", value=start if start in STARTS else NEWEST).classes("w-32")
            self.offset = _number("Offset", given.get("offset", "0"), 0).classes("w-32")
            self.offset.bind_visibility_from(self.start, "value", value="offset")
            now = datetime.now().astimezone().isoformat(timespec="seconds")
            self.moment = ui.input("Time", value=given.get("time", now)).classes("w-64")
            self.moment.bind_visibility_from(self.start, "value", value="time")
            self.limit = _number("At most", given.get("limit", str(LIMIT)), 1, RECORDS_MAX).classes("w-24")
        with ui.row().classes("w-full items-end gap-3"):
            self.text = ui.input("Containing", value=given.get("text", "")).classes("w-40")
            self.key = ui.input("Key containing", value=given.get("key", "")).classes("w-40")
            self.header = ui.input("Header (NAME or NAME=TEXT)", value=given.get("header", "")).classes("w-72")
            how = given.get("as", "text")
            self.how = ui.select(SHOWN_AS, label="Show as", value=how if how in SHOWN_AS else "text").classes("w-36")
            self.schemas = SchemaChoice(decoder)
            self.schemas.element.bind_visibility_from(self.how, "value", value="schema")

    def on_enter(self, handler: Callable[[], Awaitable[None]]) -> None:
        for one in (self.partition, self.offset, self.moment, self.limit, self.text, self.key, self.header):
            one.on("keydown.enter", handler)

    def request(self) -> BrowseRequest:
        """ValueError, with the reason."""
        if not self.topic.value:
            raise ValueError("Choose a topic")
        timestamp_ms = 0
        if self.start.value == "time":
            try:
                timestamp_ms = int(datetime.fromisoformat((self.moment.value or "").strip()).timestamp() * 1000)
            except (ValueError, OverflowError):
                raise ValueError("The time must be like 2026-11-23T15:00:00+01:00") from None
        return BrowseRequest(
            topic=self.topic.value,
            partition=None if self.partition.value is None else int(self.partition.value),
            start=self.start.value,
            offset=int(self.offset.value or 0),
            timestamp_ms=timestamp_ms,
            filter=RecordFilter(
                text=self.text.value or "", key=self.key.value or "", header=(self.header.value or "").strip()
            ),
            limit=int(self.limit.value or LIMIT),
        )

    def to_address(self) -> None:
        start = self.start.value
        values = {
            "topic": self.topic.value,
            "partition": None if self.partition.value is None else int(self.partition.value),
            "from": None if start == NEWEST else start,
            "offset": int(self.offset.value or 0) if start == "offset" else None,
            "time": self.moment.value if start == "time" else None,
            "limit": None if self.limit.value in (None, LIMIT) else int(self.limit.value),
            "text": self.text.value,
            "key": self.key.value,
            "header": self.header.value,
            "as": None if self.how.value == "text" else self.how.value,
        }
        given = json.dumps({name: str(value) for name, value in values.items() if value not in (None, "")})
        ui.run_javascript(
            f"history.replaceState(history.state, '', location.pathname + '?' + new URLSearchParams({given}))"
        )


def _number(label: str, text: str | None, least: int, most: int | None = None) -> ui.number:
    value = int(text) if text is not None and text.isdecimal() else None
    return ui.number(label, value=value, min=least, max=most, precision=0)
