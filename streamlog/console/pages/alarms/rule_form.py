"""The form that adds, changes or removes a rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nicegui import ui

from streamlog.console.access.caller import permitted
from streamlog.console.access.roles import Action
from streamlog.console.alarms.durations import duration_text
from streamlog.console.alarms.rules import DEFAULT_RULES, KINDS, AlarmRule, RuleKind, Unit
from streamlog.console.alarms.settings.fields import FieldProblem, Fields
from streamlog.console.alarms.settings.rule_file import RuleFileError, read_rule
from streamlog.console.pages.alarms.place import AlarmPlace
from streamlog.console.widgets.layout import heading
from streamlog.errors import InvalidRequestError
from streamlog.monitor import Severity

_UNITS: Final = {
    Unit.COUNT: "a number",
    Unit.SECONDS: "a duration, such as 10m",
    Unit.SHARE: "a share, such as 0.9",
}


class RuleForm:
    """A dialog. What it has is read as the file is, with the same messages."""

    def __init__(self, place: AlarmPlace, rule: AlarmRule | None) -> None:
        self._place, self._engine = place, place.engine
        self._rule = rule or AlarmRule(name="", kind=RuleKind.LAG_RECORDS, above=10_000)
        self._new = rule is None
        with place.dialogs, ui.dialog(value=True) as self._dialog, ui.card().classes("w-full max-w-lg gap-2"):
            heading("New rule" if rule is None else f"Rule {rule.name}")
            if rule is None:
                self._name = ui.input("Name").classes("w-full")
            self._kind = ui.select(
                {kind.value: kind.value for kind in RuleKind},
                value=self._rule.kind.value,
                label="Kind",
            ).classes("w-full")
            self._inputs: dict[str, Any] = {}
            fields = ui.refreshable(self._show_fields)
            fields()
            self._kind.on_value_change(fields.refresh)
            self._buttons()

    def _show_fields(self) -> None:
        kind, rule = RuleKind(self._kind.value), self._rule
        described = KINDS[kind]
        ui.label(f"Fires when {described.text.replace('`above`', 'ABOVE')}.").classes("text-sm")
        found: dict[str, Any] = {}
        if described.unit is not Unit.NONE:
            above = _above_text(rule) if kind is rule.kind else _default_above(kind)
            found["above"] = ui.input(f"Above ({_UNITS[described.unit]})", value=above)
        found["for"] = ui.input("For (a duration)", value=duration_text(rule.for_s))
        found["keep_firing_for"] = ui.input("Keep firing for", value=duration_text(rule.keep_firing_for_s))
        for name in described.filters:
            value = ", ".join(map(str, getattr(rule, name)))
            hint = "ids; empty: all" if name == "nodes" else "patterns, such as orders*, !orders-tmp"
            found[name] = ui.input(f"{name.capitalize()} ({hint})", value=value)
        names = list(self._engine.settings.channels)
        found["severity"] = ui.select([one.value for one in Severity], value=rule.severity.value, label="Severity")
        channels = [name for name in rule.channels if name in names]
        found["channels"] = ui.select(names, value=channels, label="Channels (none: all)", multiple=True)
        found["enabled"] = ui.switch("Enabled", value=rule.enabled)
        for one in found.values():
            one.classes("w-full")
        self._inputs = found

    def _buttons(self) -> None:
        own, default = self._rule.name in self._engine.settings.own, _is_default(self._rule.name)
        with ui.row():
            ui.button("Save", on_click=self._save).props("no-caps")
            if own and not self._new:
                text = "Reset to default" if default else "Delete"
                ui.button(text, color="negative", on_click=self._remove).props("no-caps outline")
            ui.button("Cancel", on_click=self._dialog.close).props("flat no-caps color=inherit")

    async def _save(self) -> None:
        if await self._place.act(self._set(), "The rule is saved."):
            self._dialog.close()

    async def _set(self) -> None:
        name = str(self._name.value or "").strip() if self._new else self._rule.name
        if self._new and name in self._engine.settings.rules:
            raise InvalidRequestError(f"There is a rule {name} already.")
        async with permitted(Action.ALARM_RULES, f"rule {name}"):
            try:
                rule = read_rule(name, Fields(_table(self._kind.value, self._inputs)))
                await self._engine.set_rule(rule)
            except FieldProblem as problem:
                raise InvalidRequestError(f"Rule {name}: {problem}.") from None
            except RuleFileError as error:
                raise InvalidRequestError(f"The file of rules was not changed: {error.problems[0]}.") from None
            except OSError as error:
                raise InvalidRequestError(f"{self._engine.path} was not changed: {error.strerror}.") from None

    async def _remove(self) -> None:
        if await self._place.act(self._unset(), "The rule is removed from the file."):
            self._dialog.close()

    async def _unset(self) -> None:
        async with permitted(Action.ALARM_RULES, f"removal of rule {self._rule.name}"):
            try:
                await self._engine.remove_rule(self._rule.name)
            except RuleFileError as error:
                raise InvalidRequestError(f"The file of rules was not changed: {error.problems[0]}.") from None
            except OSError as error:
                raise InvalidRequestError(f"{self._engine.path} was not changed: {error.strerror}.") from None


def _table(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """As the file would have it. FieldProblem."""
    found: dict[str, Any] = {"kind": kind}
    for name, one in inputs.items():
        value = one.value
        if name in ("topics", "groups", "nodes"):
            parts = [part.strip() for part in str(value or "").split(",") if part.strip()]
            if parts:
                found[name] = [_node_id(part) for part in parts] if name == "nodes" else parts
        elif name == "above":
            found[name] = _number(str(value)) if KINDS[RuleKind(kind)].unit is not Unit.SECONDS else str(value).strip()
        elif name == "channels":
            if value:
                found[name] = list(value)
        else:
            found[name] = value.strip() if isinstance(value, str) else value
    return found


def _number(text: str) -> float:
    try:
        return float(text.replace(",", "").strip())
    except ValueError:
        raise FieldProblem("above", f"{text[:40]!r} is not a number") from None


def _node_id(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise FieldProblem("nodes", f"{text[:40]!r} is not a node id") from None


def _above_text(rule: AlarmRule) -> str:
    return duration_text(rule.above) if KINDS[rule.kind].unit is Unit.SECONDS else f"{rule.above:.15g}"


def _default_above(kind: RuleKind) -> str:
    default = KINDS[kind].above
    return "" if default is None else _above_text(AlarmRule(name="", kind=kind, above=default))


def _is_default(name: str) -> bool:
    return any(rule.name == name for rule in DEFAULT_RULES)
