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
from streamlog.console.layout import frame, heading, table
from streamlog.console.sampler import ClusterSampler
from streamlog.errors import StreamlogError

_KINDS = {"": "All", Kind.CHANGE.value: "Changes", Kind.REFUSAL.value: "Refusals", Kind.LOGIN.value: "Logins"}
_SPANS = {0: "All", 3_600: "1 hour", 86_400: "1 day", 7 * 86_400: "7 days"}


def register(sampler: ClusterSampler) -> None:
    @ui.page("/audit")
    async def audit() -> None:
        with frame(sampler, "Audit", lambda: None):
            heading("Audit", "What was changed through this console, refused, and who logged in.")
            try:
                require(Action.AUDIT_READ)
            except StreamlogError as error:
                ui.label(error.message).classes("text-negative")
                return
            await _log()


async def _log() -> None:
    pages: list[list[AuditLine]] = []
    with ui.row().classes("w-full items-end gap-3"):
        who = ui.input("User").classes("w-40")
        kind = ui.select(_KINDS, label="Kind", value="").classes("w-32")
        text = ui.input("Containing").classes("w-40")
        span = ui.select(_SPANS, label="Since", value=0).classes("w-32")
        ui.button("Show", icon="search", on_click=lambda: show()).props("no-caps")
        ui.button("Download as JSON lines", icon="download", on_click=lambda: download()).props("flat no-caps")

    def chosen() -> AuditFilter:
        since_ms = int((time.time() - span.value) * 1000) if span.value else 0
        return AuditFilter(who=who.value.strip(), kind=kind.value, text=text.value, since_ms=since_ms)

    @ui.refreshable
    def result() -> None:
        lines = [line for page in pages for line in page]
        columns = (
            ("time", "Time"),
            ("who", "User"),
            ("address", "Address"),
            ("action", "Action"),
            ("target", "On what"),
            ("result", "Result"),
        )
        rows = [{**msgspec.structs.asdict(line), "time": _time(line.at_ms)} for line in lines]
        table(columns, rows, key="id", empty="There are no such lines.").props("wrap-cells")
        if pages and len(pages[-1]) == PAGE_MAX:
            ui.button("Older ones", on_click=lambda: older()).props("flat no-caps")

    async def read(before: int | None) -> list[AuditLine]:
        """Checked again at each event: the page may be older than the user's role."""
        require(Action.AUDIT_READ)
        caller = current_caller()
        assert isinstance(caller, SessionCaller)
        return await caller.access.audit_lines(chosen(), before)

    async def show() -> None:
        try:
            pages[:] = [await read(None)]
        except (StreamlogError, AccessError) as error:
            ui.notify(str(error), type="negative", multi_line=True)
        result.refresh()

    async def older() -> None:
        try:
            pages.append(await read(pages[-1][-1].id))
        except (StreamlogError, AccessError) as error:
            ui.notify(str(error), type="negative", multi_line=True)
        result.refresh()

    async def download() -> None:
        """All lines of the filter, the newest first."""
        parts, before = [], None
        try:
            while found := await read(before):
                parts += [msgspec.json.encode(line) for line in found]
                before = found[-1].id
        except (StreamlogError, AccessError) as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        ui.download.content(b"".join(part + b"\n" for part in parts), "audit.jsonl", "application/jsonl")

    for field in (who, text):
        field.on("keydown.enter", show)
    pages.append(await read(None))
    result()


def _time(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
