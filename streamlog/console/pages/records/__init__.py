"""/records: look into a topic from its newest or first records, an offset or a time; filter; follow; write a record.

form        what to read and how to show it: it is the page's address too
details     one record: headers, copy
schemas     the schema file that values are decoded with
writing     write a record
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

from nicegui import context, ui

from streamlog.client import ConsumerRecord
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.actions import refused
from streamlog.console.browse import RECORDS_MAX, RecordTail, browse
from streamlog.console.decoding import Shown, as_json_line, as_text
from streamlog.console.formats import moment, one_line
from streamlog.console.page import Page, show, view
from streamlog.console.pages.records.details import open_details
from streamlog.console.pages.records.form import RecordsForm
from streamlog.console.pages.records.writing import build_writing
from streamlog.console.sampler import ClusterSampler
from streamlog.console.table_view import Column, Row
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


def register(sampler: ClusterSampler, settings: Mapping[str, object]) -> None:
    @view("/records")
    async def records() -> None:
        await show(sampler, "Records", lambda page: _RecordsPage(page, settings).build())


class _RecordsPage:
    def __init__(self, page: Page, settings: Mapping[str, object]) -> None:
        self._page, self._settings = page, settings
        self._records: deque[ConsumerRecord] = deque(maxlen=RECORDS_MAX)
        self._rows: list[Row] = []
        self._tailing = False

    def build(self) -> None:
        self._form = form = RecordsForm(self._page)
        with ui.row().classes("items-center gap-2"):
            self._read = ui.button("Read", icon="search", on_click=self.read).props("no-caps")
            self._follow = ui.button("Follow", icon="play_arrow", on_click=self.follow).props("no-caps outline")
            download = ui.button("Download as JSON lines", icon="download", on_click=self._download)
            download.props("no-caps flat color=inherit")
        self._status = ui.label("").classes("text-sm text-note").props('aria-live="polite"')
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
        if may(Action.RECORD_WRITE):
            build_writing(self._settings, form.topic)
        if form.topic.value:
            ui.timer(0, self.read, once=True)  # not before the page was sent: a read may take seconds

    async def read(self) -> None:
        self._tailing = False
        try:
            question = self._form.request()
        except ValueError as problem:
            refused(f"{problem}.")
            return
        self._form.to_address()
        self._read.disable()
        self._status.set_text("Reading ...")
        try:
            found = await browse(self._page.sampler.admin, self._settings, question)
        except StreamlogError as error:
            self._status.set_text(error.message)
            return
        finally:
            self._read.enable()
        self._records = deque(found.records, maxlen=RECORDS_MAX)
        await self._show_again()
        more = "" if found.complete else "; there may be more"
        self._status.set_text(f"{len(found.records)} records shown, {found.scanned:,} looked at{more}.")

    async def follow(self) -> None:
        if self._tailing:
            self._tailing = False
            return
        try:
            question = self._form.request()
        except ValueError as problem:
            refused(f"{problem}.")
            return
        self._tailing = True
        self._follow.set_text("Stop")
        self._follow.set_icon("stop")
        self._records = deque(maxlen=TAIL_KEPT)
        await self._show_again()
        tail = RecordTail(self._settings, question.topic, question.filter)
        try:
            await tail.start(self._page.sampler.admin, question.partition)
            await self._follow_on(tail)
            self._status.set_text(f"{len(self._records)} records; stopped.")
        except StreamlogError as error:
            self._status.set_text(error.message)
        finally:
            self._tailing = False
            self._follow.set_text("Follow")
            self._follow.set_icon("play_arrow")
            await tail.close()

    async def _follow_on(self, tail: RecordTail) -> None:
        client, seen = context.client, 0
        while self._tailing and not client.is_deleted:
            self._status.set_text(f"Following: {seen:,} new records, the last {len(self._records)} shown.")
            found = await tail.read(TAIL_AT_ONCE, TAIL_WAIT_S)
            if found:
                seen += len(found)
                self._records.extendleft(found)
                await self._show_again()

    async def _show_again(self) -> None:
        """Decodes in a thread: there may be many megabytes."""
        how, decode = self._form.how.value, self._form.schemas.decode
        records = list(self._records)

        def rows() -> list[Row]:
            return [
                _row(one, as_text(one.key, "hex" if how == "hex" else "text"), as_text(one.value, how, decode))
                for one in records
            ]

        self._rows = await asyncio.to_thread(rows)
        self._table.refresh()

    def _open(self, row: Row) -> None:
        record = next((one for one in self._records if _id(one) == row["id"]), None)
        if record is not None:
            open_details(record, self._form.how.value, self._form.schemas.decode)

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
