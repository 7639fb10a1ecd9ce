"""An alarm that fires, on a card: what it is, since when, and what to do."""

from __future__ import annotations

import time

from nicegui import ui

from streamlog.console.alarms.evaluation import AlarmState
from streamlog.console.alarms.messages import threshold_text
from streamlog.monitor import Severity


class AlarmCard:
    """`below`: a place for controls."""

    def __init__(self) -> None:
        with ui.card().classes("w-full p-3 gap-1 border-l-4") as self._card:
            with ui.row().classes("items-center gap-2 no-wrap"):
                self._icon = ui.icon("").props('role="img" aria-hidden="false"')
                self._summary = ui.label().classes("font-semibold")
            self._state = ui.label().classes("text-sm")
            self._remedy = ui.label().classes("text-sm")
            self.below = ui.row().classes("gap-2 empty:hidden")

    def show(self, alarm: AlarmState, note: str = "") -> None:
        critical = alarm.severity is Severity.CRITICAL
        edges = ("border-red-600", "border-amber-500")
        self._card.classes(add=edges[not critical], remove=edges[critical])
        self._icon.set_name("error" if critical else "warning")
        self._icon.props(f'color={"negative" if critical else "amber-9"} aria-label="{alarm.severity.value}"')
        self._summary.set_text(alarm.summary)
        threshold = threshold_text(alarm.kind, alarm.above)
        limit = f", limit {threshold}" if threshold else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alarm.fired_at_s or alarm.began_at_s))
        self._state.set_text(f"{alarm.severity.value}, rule {alarm.rule}{limit}, since {since}{note}")
        self._remedy.set_text(f"What to do: {alarm.remedy}")
