"""History, of /alarms: what fired, was acknowledged, was resolved."""

from __future__ import annotations

import time
from typing import Final

from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.collection.history_database import HistoryError
from streamlog.console.pages.alarms.place import AlarmPlace, Warnings
from streamlog.console.widgets.layout import heading
from streamlog.console.widgets.table_view import Column, Row
from streamlog.console.widgets.tables import LiveTable

EVENTS_SHOWN: Final = 500
EVENTS: Final = (
    Column("at", "Time"),
    Column("change", "Change"),
    Column("severity", "Severity"),
    Column("rule", "Rule"),
    Column("summary", "Condition"),
)


class HistoryView:
    def __init__(self, place: AlarmPlace) -> None:
        self._engine = place.engine
        self._rows: list[Row] = []
        self._read: int | None = None
        heading("History", "the last 90 days")
        self._warnings = Warnings()
        empty = "No alarm has fired yet."
        self._table = LiveTable(EVENTS, lambda: self._rows, key="key", name="alarm history", empty=empty, wide=True)

    async def refresh(self) -> None:
        """Reads the database only where it was written since."""
        written = self._engine.book.written_count
        if written == self._read:
            return
        try:
            self._rows = await _rows(self._engine)
        except HistoryError as error:
            self._warnings.show(str(error))
            return
        self._read = written
        self._warnings.show("")
        self._table.refresh()


async def _rows(engine: AlarmEngine) -> list[Row]:
    return [
        {
            "key": number,
            "at": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.at_s)),
            "change": one.change + (f" by {one.by}" if one.by else ""),
            "severity": one.severity,
            "rule": one.rule,
            "summary": one.summary,
        }
        for number, one in enumerate(await engine.book.events(EVENTS_SHOWN))
    ]
