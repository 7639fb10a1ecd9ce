"""/alarms: what fires and what is pending, the history, rules, silences and channels."""

from __future__ import annotations

import time
from typing import Any, Final

from nicegui import context, ui

from streamlog.console.access.caller import may, permitted
from streamlog.console.access.roles import Action
from streamlog.console.alarms.durations import duration_s, duration_text
from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.alarms.evaluation import AlarmState, AlarmStatus
from streamlog.console.alarms.messages import threshold_text
from streamlog.console.collection.history_database import HistoryError
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.pages.alarm_channels import show_channels
from streamlog.console.pages.alarm_place import AlarmPlace
from streamlog.console.pages.alarm_rules import show_rules
from streamlog.console.widgets.layout import heading
from streamlog.console.widgets.page import Page, show, view
from streamlog.console.widgets.table_view import Column, Row
from streamlog.console.widgets.tables import LiveTable
from streamlog.errors import InvalidRequestError
from streamlog.monitor import Severity

VIEWS: Final = ("Now", "History", "Rules", "Silences", "Channels")
CARDS_MAX: Final = 50
EVENTS_SHOWN: Final = 500
PENDING: Final = (
    Column("rule", "Rule"),
    Column("subject", "Subject"),
    Column("summary", "Condition"),
    Column("for", "Holds for"),
)
EVENTS: Final = (
    Column("at", "Time"),
    Column("change", "Change"),
    Column("severity", "Severity"),
    Column("rule", "Rule"),
    Column("summary", "Condition"),
)
SILENCES: Final = ("30m", "1h", "4h", "1d", "7d")


def register(sampler: ClusterSampler, engine: AlarmEngine) -> None:
    @view("/alarms")
    async def alarms() -> None:
        await show(sampler, "Alarms", lambda page: _AlarmsPage(page, engine).build(), needs_cluster=False)


class _AlarmsPage:
    """One of VIEWS, which is in the address: ?view=rules."""

    def __init__(self, page: Page, engine: AlarmEngine) -> None:
        self._page, self._engine = page, engine
        given = context.client.request.query_params.get("view", "")
        self._current = next((one for one in VIEWS if one.lower() == given), VIEWS[0])
        self._pending: LiveTable | None = None
        self._body = ui.refreshable(lambda: self._draw(place))
        place = AlarmPlace(engine, ui.element(), self._body.refresh)

    async def build(self) -> None:
        with self._page.actions:
            choice = ui.toggle(list(VIEWS), value=self._current, on_change=self._choose)
            choice.props('dense no-caps unelevated padding="4px 12px" aria-label="View"')
        self._shown = shown_state(self._engine, self._current)
        self._page.each_sample(self._sampled)
        await self._body()

    def _choose(self, event: Any) -> None:
        self._current = event.value
        self._shown = shown_state(self._engine, self._current)
        ui.navigate.history.replace(f"/alarms?view={self._current.lower()}")
        self._body.refresh()

    def _sampled(self) -> None:
        """Draws again only what changed: a button keeps its focus."""
        before, self._shown = self._shown, shown_state(self._engine, self._current)
        if before != self._shown:
            self._body.refresh()
        elif self._pending is not None:
            self._pending.refresh()

    async def _draw(self, place: AlarmPlace) -> None:
        if self._engine.problem:
            _warning(self._engine.problem, ())
        self._pending = _now(place) if self._current == "Now" else None
        if self._pending is None:
            await _view(self._current, place)


def shown_state(engine: AlarmEngine, name: str) -> tuple[object, ...]:
    """What a view depends on, but for the times of pending alarms."""
    firing = tuple((one.key, one.summary, one.acknowledged_by) for one in engine.alarms(AlarmStatus.FIRING))
    rules = (id(engine.settings), tuple(engine.rule_problems))
    of_view: tuple[object, ...]
    match name:
        case "Now":
            of_view = (*rules, len(engine.book.silences), firing, bool(engine.alarms(AlarmStatus.PENDING)))
        case "History":
            of_view = (tuple((key, acknowledged_by) for key, _, acknowledged_by in firing),)
        case "Rules":
            of_view = (*rules, len(engine.sync_problems))
        case "Silences":
            of_view = (len(engine.book.silences),)
        case _:
            of_view = (*rules, engine.queued)
    return name, engine.problem, *of_view


async def _view(name: str, place: AlarmPlace) -> None:
    engine = place.engine
    if name == "History":
        await _history(engine)
    elif name == "Rules":
        if engine.rule_problems:
            _warning("The file of rules is not valid; the last valid rules are in force.", engine.rule_problems)
        show_rules(place)
    elif name == "Silences":
        _silences(place)
    else:
        await show_channels(place)


def _warning(text: str, details: Any) -> None:
    with ui.card().classes("w-full p-3 gap-1 border-l-4 border-amber-500").props('role="alert"'):
        ui.label(text).classes("font-semibold")
        for one in details:
            ui.label(one).classes("text-sm")


def _now(place: AlarmPlace) -> LiveTable | None:
    """The table of pending alarms, where there are some."""
    engine = place.engine
    firing, pending = engine.alarms(AlarmStatus.FIRING), engine.alarms(AlarmStatus.PENDING)
    if engine.rule_problems:
        _warning("The file of rules is not valid; the last valid rules are in force: see Rules.", ())
    heading("Firing", "" if firing else "None.")
    for alarm in firing[:CARDS_MAX]:
        _card(place, alarm)
    if len(firing) > CARDS_MAX:
        ui.label(f"and {len(firing) - CARDS_MAX} more")
    heading("Pending", "conditions that do not hold for long enough yet" if pending else "None.")
    if not pending:
        return None
    return LiveTable(PENDING, lambda: _pending_rows(engine), key="key", name="pending alarms", wide=True)


def _pending_rows(engine: AlarmEngine) -> list[Row]:
    rules = engine.settings.rules
    return [
        {
            "key": "\n".join((one.rule, *one.subject)),
            "rule": one.rule,
            "subject": one.subject_text,
            "summary": one.summary,
            "for": f"{duration_text(round(one.held_s))} of {duration_text(rules[one.rule].for_s)}"
            if one.rule in rules
            else "",
        }
        for one in engine.alarms(AlarmStatus.PENDING)
    ]


def firing_card(alarm: AlarmState, note: str = "") -> ui.card:
    """What fires, since when, and what to do."""
    critical = alarm.severity is Severity.CRITICAL
    edge = "border-red-600" if critical else "border-amber-500"
    with ui.card().classes(f"w-full p-3 gap-1 border-l-4 {edge}") as card:
        with ui.row().classes("items-center gap-2 no-wrap"):
            icon = ui.icon("error" if critical else "warning", color="negative" if critical else "amber-9")
            icon.props('role="img" aria-hidden="false"').props["aria-label"] = alarm.severity.value
            ui.label(alarm.summary).classes("font-semibold")
        threshold = threshold_text(alarm.kind, alarm.above)
        limit = f", limit {threshold}" if threshold else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alarm.fired_at_s or alarm.began_at_s))
        ui.label(f"{alarm.severity.value}, rule {alarm.rule}{limit}, since {since}{note}").classes("text-sm")
        ui.label(f"What to do: {alarm.remedy}").classes("text-sm")
    return card


def _card(place: AlarmPlace, alarm: AlarmState) -> None:
    engine = place.engine
    note = f", acknowledged by {alarm.acknowledged_by}" if alarm.acknowledged_by else ""
    note += ", silenced" if engine.is_silenced(alarm) else ""
    with firing_card(alarm, note), ui.row().classes("gap-2"):
        if may(Action.ALARM_SILENCE):
            if not alarm.acknowledged_by:
                ui.button(
                    "Acknowledge", on_click=lambda: place.act(_acknowledge(engine, alarm), "Acknowledged.")
                ).props('no-caps outline dense padding="2px 12px"')
            ui.button("Silence", on_click=lambda: _silence_dialog(place, alarm.rule, alarm.subject_text)).props(
                'no-caps outline dense padding="2px 12px"'
            )


async def _acknowledge(engine: AlarmEngine, alarm: AlarmState) -> None:
    async with permitted(Action.ALARM_SILENCE, f"alarm {alarm.rule}, {alarm.subject_text}") as attempt:
        if not await engine.book.acknowledge(alarm.key, attempt.user.name):
            raise InvalidRequestError("This alarm does not fire any more.")


def _silence_dialog(place: AlarmPlace, rule: str, subject: str) -> None:
    with place.dialogs, ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-md"):
        heading("Silence alarms")
        ui.label("No notifications are sent about alarms that match; the page still shows them.").classes("text-sm")
        of_rule = ui.input("Rule (* matches all)", value=rule).classes("w-full")
        of_subject = ui.input("Subject (* matches all)", value=subject).classes("w-full")
        during = ui.select(list(SILENCES), value="1h", label="For").classes("w-full")
        comment = ui.input("Comment").classes("w-full")

        async def create() -> None:
            work = _silence(place.engine, of_rule.value, of_subject.value, str(during.value), comment.value)
            if await place.act(work, "The alarms are silenced."):
                dialog.close()

        with ui.row():
            ui.button("Silence", on_click=create).props("no-caps")
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps color=inherit")


async def _silence(engine: AlarmEngine, rule: str, subject: str, during: str, comment: str) -> None:
    if not rule.strip() or not subject.strip():
        raise InvalidRequestError("Give a pattern for the rule and for the subject; * matches all.")
    if max(len(rule), len(subject), len(comment)) > 500:
        raise InvalidRequestError("Patterns and comment must have at most 500 characters.")
    async with permitted(Action.ALARM_SILENCE, f"rule {rule}, subject {subject}, for {during}") as attempt:
        try:
            await engine.book.silence(rule.strip(), subject.strip(), duration_s(during), comment, attempt.user.name)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from None


def _silences(place: AlarmPlace) -> None:
    engine = place.engine
    silences = [one for one in engine.book.silences if one.until_s > time.time()]
    with ui.row().classes("w-full items-center justify-between"):
        heading("Silences", "" if silences else "None.")
        if may(Action.ALARM_SILENCE):
            ui.button("New silence", icon="add", on_click=lambda: _silence_dialog(place, "*", "*")).props("no-caps")
    for one in silences:
        with ui.card().classes("w-full p-3 gap-1"):
            ui.label(f"Rule {one.rule}, subject {one.subject}").classes("font-semibold")
            left = duration_text(max(0, round(one.until_s - time.time())))
            comment = f": {one.comment}" if one.comment else ""
            ui.label(f"ends in {left}, by {one.created_by}{comment}").classes("text-sm")
            if may(Action.ALARM_SILENCE):
                ui.button("End now", on_click=lambda one=one: place.act(_end(engine, one.silence_id), "Ended.")).props(
                    'no-caps outline dense padding="2px 12px"'
                )


async def _end(engine: AlarmEngine, silence_id: str) -> None:
    async with permitted(Action.ALARM_SILENCE, f"end of silence {silence_id}"):
        await engine.book.end_silence(silence_id)


async def _history(engine: AlarmEngine) -> None:
    heading("History", "the last 90 days")
    try:
        events = await engine.book.events(EVENTS_SHOWN)
    except HistoryError as error:
        _warning(str(error), ())
        return
    rows: list[Row] = [
        {
            "key": number,
            "at": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.at_s)),
            "change": one.change + (f" by {one.by}" if one.by else ""),
            "severity": one.severity,
            "rule": one.rule,
            "summary": one.summary,
        }
        for number, one in enumerate(events)
    ]
    LiveTable(EVENTS, lambda: rows, key="key", name="alarm history", empty="No alarm has fired yet.", wide=True)
