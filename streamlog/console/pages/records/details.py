"""One record in a dialog: where it is, key, value, headers; copied as text or as a JSON line."""

from __future__ import annotations

from nicegui import ui

from streamlog.client import ConsumerRecord
from streamlog.console.browse import size_of
from streamlog.console.decoding.text import Shown, as_json_line, as_text, headers_as_text
from streamlog.console.widgets.formats import moment, size


def open_details(record: ConsumerRecord, how: str, value: Shown) -> None:
    with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-3xl"):
        place = f"{record.topic}-{record.partition}, offset {record.offset}"
        ui.label(place).classes("text-lg font-semibold break-all").props('role="heading" aria-level="2"')
        ui.label(f"{moment(record.timestamp_ms)}, {size(size_of(record))}").classes("text-sm text-note")
        _block("Key", as_text(record.key, "hex" if how == "hex" else "text"))
        _block("Value", value)
        if record.headers:
            _block(f"Headers ({len(record.headers):,})", Shown(headers_as_text(record, how)))
        with ui.row():
            ui.button("Copy value", icon="content_copy", on_click=lambda: _copy(value.text)).props(
                "flat no-caps color=inherit"
            )
            ui.button("Copy as JSON", icon="data_object", on_click=lambda: _copy(as_json_line(record))).props(
                "flat no-caps color=inherit"
            )
            ui.button("Close", on_click=dialog.close).props("flat no-caps color=inherit autofocus")


def _copy(text: str) -> None:
    ui.clipboard.write(text)
    ui.notify("Copied.", type="positive")


def _block(name: str, shown: Shown) -> None:
    ui.label(name).classes("text-sm text-note")
    if shown.problem:
        ui.label(f"Shown as text: {shown.problem}").classes("text-sm text-bad")
    block = ui.label(shown.text).classes(
        "font-mono text-sm whitespace-pre-wrap break-all w-full max-h-80 overflow-auto"
    )
    block.props('tabindex="0" role="region"').props["aria-label"] = name
