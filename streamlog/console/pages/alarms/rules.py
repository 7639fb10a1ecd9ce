"""Rules, of /alarms: those in force, and what of them the file has."""

from __future__ import annotations

from typing import Final

from nicegui import ui

from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.alarms.messages import condition_text
from streamlog.console.alarms.rules import AlarmRule, RuleKind
from streamlog.console.pages.alarms.place import AlarmPlace, Warnings
from streamlog.console.pages.alarms.rule_form import RuleForm
from streamlog.console.widgets.layout import heading
from streamlog.console.widgets.table_view import Column, Row
from streamlog.console.widgets.tables import LiveTable

COLUMNS: Final = (
    Column("name", "Rule"),
    Column("state", "State"),
    Column("severity", "Severity"),
    Column("condition", "Fires when"),
    Column("channels", "Channels"),
    Column("origin", "From"),
)


class RulesView:
    def __init__(self, place: AlarmPlace) -> None:
        self._engine = place.engine
        self._warnings = Warnings()
        editable = may(Action.ALARM_RULES)
        with ui.row().classes("w-full items-center justify-between no-wrap"):
            heading("Rules")
            if editable:
                ui.button("New rule", icon="add", on_click=lambda: RuleForm(place, None)).props("no-caps")
        self._table = LiveTable(
            COLUMNS,
            lambda: _rows(self._engine),
            key="name",
            name="rules",
            on_open=(lambda row: RuleForm(place, self._engine.settings.rules[row["name"]])) if editable else None,
            wide=True,
        )
        ui.label(
            f"The rules are in {self._engine.path}. A rule of the file replaces the default one of its name."
        ).classes("text-sm text-note")

    async def refresh(self) -> None:
        problems = self._engine.rule_problems
        invalid = "The file of rules is not valid; the last valid rules are in force."
        self._warnings.show(invalid if problems else "", problems)
        self._table.refresh()


def _rows(engine: AlarmEngine) -> list[Row]:
    return [
        {
            "name": rule.name,
            "state": _state(engine, rule),
            "severity": rule.severity.value,
            "condition": condition_text(rule),
            "channels": ", ".join(rule.channels) or "all",
            "origin": "file" if rule.name in engine.settings.own else "default",
        }
        for rule in engine.settings.rules.values()
    ]


def _state(engine: AlarmEngine, rule: AlarmRule) -> str:
    if not rule.enabled:
        return "off"
    if rule.kind is RuleKind.SYNC_LATENCY:
        if not engine.settings.metrics:
            return "no data: metrics is not set"
        if engine.sync_problems:
            return f"no data of {len(engine.sync_problems)} nodes"
    return "on"
