"""/audit: what was changed through the console, and who logged in; filter, download as JSON lines."""

from __future__ import annotations

import time

import msgspec
from nicegui import ui

from streamlog.console.access.audit import PAGE_MAX, AuditFilter, AuditLine, Kind
from streamlog.console.access.caller import current_caller, require
from streamlog.console.access.control import SessionCaller
from streamlog.console.access.database import AccessError
from streamlog.console.access.roles import Action
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.widgets.actions import refused
from streamlog.console.widgets.page import Page, show, view
from streamlog.console.widgets.table_view import Column, Row
from streamlog.errors import StreamlogError

_KINDS = {"": "All", Kind.CHANGE.value: "Changes", Kind.REFUSAL.value: "Refusals", Kind.LOGIN.value: "Logins"}
_SPANS = {0: "All", 3_600: "1 hour", 86_400: "1 day", 7 * 86_400: "7 days"}


COLUMNS = (
    Column("time", "Time"),
    Column("who", "User"),
    Column("address", "Address"),
    Column("action", "Action"),
    Column("target", "On what"),
    Column("result", "Result"),
)


def register(sampler: ClusterSampler) -> None:
    @view("/audit")
    async def audit() -> None:
        await show(sampler, "Audit", lambda page: _AuditPage(page).build(), needs_cluster=False)


class _AuditPage:
    """What is shown changes by Show alone: a table that grows while it is read cannot be read."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._lines: list[AuditLine] = []

    async def build(self) -> None:
        ui.label("What was changed through this console, refused, and who logged in.").classes("text-sm text-note")
        try:
            require(Action.AUDIT_READ)
        except StreamlogError as error:
            ui.label(error.message).classes("text-bad")
            return
        self._form()
        self._table = self._page.table(
            COLUMNS, self._rows, key="id", name="audit lines", empty="There are no such lines.", wide=True
        )
        self._older = ui.button("Older ones", on_click=self._add_older).props("flat no-caps color=inherit")
        await self._show()

    def _form(self) -> None:
        with ui.row().classes("w-full items-end gap-3"):
            self._who = ui.input("User").classes("w-40")
            self._kind = ui.select(_KINDS, label="Kind", value="").classes("w-32")
            self._text = ui.input("Containing").classes("w-40")
            self._span = ui.select(_SPANS, label="Since", value=0).classes("w-32")
            ui.button("Show", icon="search", on_click=self._show).props("no-caps")
            download = ui.button("Download as JSON lines", icon="download", on_click=self._download)
            download.props("flat no-caps color=inherit")
        for field in (self._who, self._text):
            field.on("keydown.enter", self._show)

    def _rows(self) -> list[Row]:
        return [{**msgspec.structs.asdict(line), "time": _time(line.at_ms)} for line in self._lines]

    async def _show(self) -> None:
        self._lines = []
        await self._add_older()

    async def _add_older(self) -> None:
        before = self._lines[-1].id if self._lines else None
        try:
            found = await self._read(before)
        except (StreamlogError, AccessError) as error:
            refused(str(error))
            found = []
        self._lines += found
        self._older.set_visibility(len(found) == PAGE_MAX)
        self._table.refresh()

    async def _download(self) -> None:
        """All lines of the filter, the newest first."""
        parts, before = [], None
        try:
            while found := await self._read(before):
                parts += [msgspec.json.encode(line) for line in found]
                before = found[-1].id
        except (StreamlogError, AccessError) as error:
            refused(str(error))
            return
        ui.download.content(b"".join(part + b"\n" for part in parts), "audit.jsonl", "application/jsonl")

    async def _read(self, before: int | None) -> list[AuditLine]:
        """Checked again at each event: the page may be older than the user's role."""
        require(Action.AUDIT_READ)
        caller = current_caller()
        assert isinstance(caller, SessionCaller)
        return await caller.access.audit_lines(self._chosen(), before)

    def _chosen(self) -> AuditFilter:
        since_ms = int((time.time() - self._span.value) * 1000) if self._span.value else 0
        return AuditFilter(
            who=(self._who.value or "").strip(),
            kind=self._kind.value,
            text=self._text.value or "",
            since_ms=since_ms,
        )


def _time(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
