"""/records: look into a topic from its newest or first records, an offset or a time; filter; follow; write a record.

form        what to read and how to show it: it is the page's address too
details     one record: headers, copy
schemas     the schema file that values are decoded with
writing     write a record
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from nicegui import context, ui

from streamlog.client import ConsumerRecord
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.browse import KEPT_BYTES_MAX, RECORDS_MAX, BrowseRequest, RecordTail, browse, drop_beyond
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.decoding.process import Schema, SchemaDecoder
from streamlog.console.decoding.text import Shown, as_json_line, as_text
from streamlog.console.pages.records.details import open_details
from streamlog.console.pages.records.form import RecordsForm
from streamlog.console.pages.records.writing import build_writing
from streamlog.console.widgets.actions import refused
from streamlog.console.widgets.formats import moment, one_line
from streamlog.console.widgets.page import Page, show, view
from streamlog.console.widgets.table_view import Column, Row
from streamlog.errors import StreamlogError

COLUMNS = (
    Column("at", "Offset"),
    Column("partition", "Partition"),
    Column("time", "Time"),
    Column("key", "Key"),
    Column("value", "Value"),
)
TAIL_KEPT = 500
TAIL_AT_ONCE = 500
TAIL_WAIT_S = 1.0
SEARCHES_MAX = 8
_searches: Final = asyncio.Semaphore(SEARCHES_MAX)
"""Searches of all pages that run at the same time; others wait. One event loop."""


def register(sampler: ClusterSampler, settings: Mapping[str, object], decoder: SchemaDecoder) -> None:
    @view("/records")
    async def records() -> None:
        await show(sampler, "Records", lambda page: _RecordsPage(page, settings, decoder).build())


class _RecordsPage:
    def __init__(self, page: Page, settings: Mapping[str, object], decoder: SchemaDecoder) -> None:
        self._page, self._settings, self._decoder = page, settings, decoder
        self._records: deque[ConsumerRecord] = deque(maxlen=RECORDS_MAX)
        self._rows: list[Row] = []
        self._tail: RecordTail | None = None  # None: not followed, or to be stopped
        self._following = False
        self._latest: object = None  # the search or the tail that was begun last: the page shows its records alone

    def build(self) -> None:
        self._form = form = RecordsForm(self._page, self._decoder)
        with ui.row().classes("items-center gap-2"):
            self._read = ui.button("Read", icon="search", on_click=self.read).props("no-caps")
            self._button = ui.button("Follow", icon="play_arrow", on_click=self.follow).props("no-caps outline")
            download = ui.button("Download as JSON lines", icon="download", on_click=self._download)
            download.props("no-caps flat color=inherit")
        if may(Action.RECORD_WRITE):
            build_writing(self._settings, form.topic)  # above what is read: that grows while it is followed
        self._status = ui.label("").classes("text-sm text-note min-h-[1.25rem]").props('aria-live="polite"')
        self._table = self._page.table(
            COLUMNS,
            lambda: self._rows,
            key="id",
            name="records",
            on_open=self._open,
            empty="Choose Read to see records.",
            wide=True,
        )
        form.on_enter(self.read)
        form.how.on_value_change(self._show_again)
        form.schemas.on_change(self._show_again)
        if form.topic.value:
            ui.timer(0, self.read, once=True)  # not before the page was sent: a read may take seconds

    async def read(self) -> None:
        self._tail = None
        try:
            question = self._form.request()
        except ValueError as problem:
            refused(f"{problem}.")
            return
        if self._read.enabled:
            self._form.to_address()
            await self._search(question)

    async def _search(self, question: BrowseRequest) -> None:
        """One at a time in a page: Enter in a field asks for one, too."""
        self._latest = question
        self._read.disable()
        self._status.set_text("Reading ...")
        try:
            async with _searches:
                found = await browse(self._page.sampler.admin, self._settings, question)
        except StreamlogError as error:
            self._say(question, error.message)
            return
        finally:
            self._read.enable()
        if self._latest is not question:
            return
        self._records = deque(found.records, maxlen=RECORDS_MAX)
        await self._show_again()
        more = "" if found.complete else "; there may be more"
        self._say(question, f"{len(found.records)} records shown, {found.scanned:,} looked at{more}.")

    def _say(self, work: object, text: str) -> None:
        if self._latest is work:
            self._status.set_text(text)

    async def follow(self) -> None:
        if self._tail is not None:
            self._tail = None
            return
        try:
            question = self._form.request()
        except ValueError as problem:
            refused(f"{problem}.")
            return
        if self._following:
            return  # the one that was stopped has not ended yet
        self._following = True
        try:
            await self._follow(RecordTail(self._settings, question.topic, question.filter), question.partition)
        finally:
            self._following = False

    async def _follow(self, tail: RecordTail, partition: int | None) -> None:
        self._latest = self._tail = tail
        self._button.set_text("Stop")
        self._button.set_icon("stop")
        self._records = deque(maxlen=TAIL_KEPT)
        await self._show_again()
        try:
            await tail.start(self._page.sampler.admin, partition)
            await self._show_new(tail)
            self._say(tail, f"{len(self._records)} records; stopped.")
        except StreamlogError as error:
            self._say(tail, error.message)
        finally:
            self._tail = None
            self._button.set_text("Follow")
            self._button.set_icon("play_arrow")
            await tail.close()

    async def _show_new(self, tail: RecordTail) -> None:
        client, seen = context.client, 0
        while self._tail is tail and not client.is_deleted:
            self._status.set_text(f"Following: {seen:,} new records, the last {len(self._records)} shown.")
            found = await tail.read(TAIL_AT_ONCE, TAIL_WAIT_S)
            if found and self._tail is tail:
                seen += len(found)
                self._records.extendleft(found)
                drop_beyond(self._records, KEPT_BYTES_MAX)
                await self._show_again()

    async def _show_again(self) -> None:
        """Decodes in a thread, or in the decoder's process: there may be many megabytes."""
        how, schema = self._form.how.value, self._form.schemas.schema
        records = list(self._records)
        values = await self._values(records, how, schema)

        def rows() -> list[Row]:
            return [
                _row(one, as_text(one.key, "hex" if how == "hex" else "text"), value)
                for one, value in zip(records, values, strict=True)
            ]

        self._rows = await asyncio.to_thread(rows)
        self._table.refresh()

    async def _values(self, records: Sequence[ConsumerRecord], how: str, schema: Schema | None) -> list[Shown]:
        if how == "schema" and schema is not None:
            return await self._decoder.shown(schema, [one.value for one in records])
        return await asyncio.to_thread(lambda: [as_text(one.value, how) for one in records])

    async def _open(self, row: Row) -> None:
        record = next((one for one in self._records if _id(one) == row["id"]), None)
        if record is not None:
            how = self._form.how.value
            value = await self._values([record], how, self._form.schemas.schema)
            open_details(record, how, value[0])

    def _download(self) -> None:
        lines = "".join(f"{as_json_line(one)}\n" for one in self._records)
        ui.download.content(lines.encode(), "records.jsonl")


def _row(record: ConsumerRecord, key: Shown, value: Shown) -> Row:
    return {
        "id": _id(record),
        "at": record.offset,
        "partition": record.partition,
        "time": moment(record.timestamp_ms),
        "key": one_line(key.text),
        "value": one_line(value.text),
    }


def _id(record: ConsumerRecord) -> str:
    return f"{record.partition}:{record.offset}"
