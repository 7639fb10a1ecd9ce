"""/alarms: what fires and what is pending, the history, rules, silences and channels."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from nicegui import ui

from streamlog.console.access.caller import may, permitted
from streamlog.console.access.roles import Action
from streamlog.console.alarms.durations import duration_s, duration_text
from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.alarms.evaluation import AlarmState, AlarmStatus
from streamlog.console.alarms.messages import threshold_text
from streamlog.console.alarms.rules import KINDS
from streamlog.console.history import HistoryError
from streamlog.console.layout import frame, heading, table
from streamlog.console.pages.alarm_channels import show_channels
from streamlog.console.pages.alarm_place import AlarmPlace
from streamlog.console.pages.alarm_rules import show_rules
from streamlog.console.sampler import ClusterSampler
from streamlog.errors import InvalidRequestError
from streamlog.monitor import Severity

VIEWS: Final = ("Now", "History", "Rules", "Silences", "Channels")
CARDS_MAX: Final = 50
EVENTS_SHOWN: Final = 500
SILENCES: Final = ("30m", "1h", "4h", "1d", "7d")


def register(sampler: ClusterSampler, engine: AlarmEngine) -> None:
    @ui.page("/alarms")
    async def alarms(view: str = "now") -> None:
        current = next((one for one in VIEWS if one.lower() == view), VIEWS[0])
        body = ui.refreshable(lambda: _view(current, place))

        def choose(event: Any) -> None:
            nonlocal current
            current = event.value
            ui.navigate.history.replace(f"/alarms?view={current.lower()}")
            body.refresh()

        shown = _state(engine)

        def sampled() -> None:
            """Draws again only what changed: a button keeps its focus."""
            nonlocal shown
            before, shown = shown, _state(engine)
            if before != shown:
                body.refresh()

        with frame(sampler, "Alarms", sampled):
            with ui.row().classes("w-full items-center justify-between"):
                heading("Alarms")
                ui.toggle(list(VIEWS), value=current, on_change=choose).props("dense no-caps unelevated")
            place = AlarmPlace(engine, ui.element(), body.refresh)
            await body()


def _state(engine: AlarmEngine) -> tuple[object, ...]:
    """What the page depends on."""
    return (
        id(engine.settings),
        tuple(engine.rule_problems),
        engine.problem,
        engine.queued,
        len(engine.book.silences),
        *((one.key, one.summary, one.acknowledged_by) for one in engine.alarms(AlarmStatus.FIRING)),
        *((one.key, one.held_s) for one in engine.alarms(AlarmStatus.PENDING)),
    )


async def _view(name: str, place: AlarmPlace) -> None:
    engine = place.engine
    if engine.problem:
        _warning(engine.problem, ())
    if name == "Now":
        _now(place)
    elif name == "History":
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


def _now(place: AlarmPlace) -> None:
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
    if pending:
        rules = engine.settings.rules
        rows = [
            {
                "key": "\n".join((one.rule, *one.subject)),
                "rule": one.rule,
                "subject": one.subject_text,
                "summary": one.summary,
                "for": f"{duration_text(round(one.held_s))} of {duration_text(rules[one.rule].for_s)}"
                if one.rule in rules
                else "",
            }
            for one in pending
        ]
        columns = (("rule", "Rule"), ("subject", "Subject"), ("summary", "Condition"), ("for", "Holds for"))
        table(columns, rows, key="key")


def firing_card(alarm: AlarmState, note: str = "") -> ui.card:
    """What fires, since when, and what to do."""
    critical = alarm.severity is Severity.CRITICAL
    edge = "border-red-600" if critical else "border-amber-500"
    with ui.card().classes(f"w-full p-3 gap-1 border-l-4 {edge}") as card:
        with ui.row().classes("items-center gap-2"):
            ui.icon("error" if critical else "warning").classes("text-bad" if critical else "text-amber-700")
            ui.label(alarm.summary).classes("font-semibold")
        threshold = threshold_text(alarm.kind, alarm.above)
        limit = f", limit {threshold}" if threshold else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alarm.fired_at_s or alarm.began_at_s))
        ui.label(f"{alarm.severity.value}, rule {alarm.rule}{limit}, since {since}{note}").classes("text-sm")
        ui.label(f"What to do: {KINDS[alarm.kind].remedy}").classes("text-sm")
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
                ).props("no-caps outline dense padding=2px_12px")
            ui.button("Silence", on_click=lambda: _silence_dialog(place, alarm.rule, alarm.subject_text)).props(
                "no-caps outline dense padding=2px_12px"
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

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Silence", on_click=create).props("no-caps")


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
                    "no-caps outline dense padding=2px_12px"
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
    rows: list[Mapping[str, object]] = [
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
    columns = (
        ("at", "Time"),
        ("change", "Change"),
        ("severity", "Severity"),
        ("rule", "Rule"),
        ("summary", "Condition"),
    )
    table(columns, rows, key="key", empty="No alarm has fired yet.")


def firing_on_overview(engine: AlarmEngine) -> None:
    """The overview's part: what fires and was not acknowledged."""
    firing = [one for one in engine.alarms(AlarmStatus.FIRING) if not one.acknowledged_by]
    if not firing:
        return
    with ui.row().classes("items-baseline gap-3 w-full"):
        heading("Alarms", f"{len(firing)} firing")
        ui.link("all alarms", "/alarms")
    for one in firing[:3]:
        firing_card(one)
