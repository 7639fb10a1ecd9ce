"""Now, of /alarms: what fires, to be acknowledged or silenced, and what is pending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nicegui import ui

from streamlog.console.access.caller import may, permitted
from streamlog.console.access.roles import Action
from streamlog.console.alarms.durations import duration_text
from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.alarms.evaluation import AlarmState, AlarmStatus
from streamlog.console.pages.alarms.cards import AlarmCard
from streamlog.console.pages.alarms.place import AlarmPlace, Warnings
from streamlog.console.pages.alarms.silences import silence_dialog
from streamlog.console.widgets.layout import Heading
from streamlog.console.widgets.live_list import LiveList
from streamlog.console.widgets.table_view import Column, Row
from streamlog.console.widgets.tables import LiveTable
from streamlog.errors import InvalidRequestError

CARDS_MAX: Final = 50
PENDING: Final = (
    Column("rule", "Rule"),
    Column("subject", "Subject"),
    Column("summary", "Condition"),
    Column("for", "Holds for"),
)


class NowView:
    def __init__(self, place: AlarmPlace) -> None:
        self._place, self._engine = place, place.engine
        self._warnings = Warnings()
        self._firing = Heading("Firing")
        self._cards = LiveList(self._card)
        self._more = ui.label()
        self._pending = Heading("Pending")
        with ui.column().classes("w-full") as self._holds:
            self._table = LiveTable(
                PENDING, lambda: _pending_rows(self._engine), key="key", name="pending alarms", wide=True
            )

    async def refresh(self) -> None:
        engine = self._engine
        firing, pending = engine.alarms(AlarmStatus.FIRING), engine.alarms(AlarmStatus.PENDING)
        invalid = "The file of rules is not valid; the last valid rules are in force: see Rules."
        self._warnings.show(invalid if engine.rule_problems else "")
        self._firing.note("" if firing else "None.")
        self._cards.show({alarm.key: alarm for alarm in firing[:CARDS_MAX]})
        self._more.set_text(f"and {len(firing) - CARDS_MAX} more")
        self._more.set_visibility(len(firing) > CARDS_MAX)
        self._pending.note("conditions that do not hold for long enough yet" if pending else "None.")
        self._holds.set_visibility(bool(pending))
        self._table.refresh()

    def _card(self, first: AlarmState) -> Callable[[AlarmState], None]:
        place, engine = self._place, self._engine
        card, acknowledge = AlarmCard(), None
        if may(Action.ALARM_SILENCE):
            with card.below:
                acknowledge = ui.button(
                    "Acknowledge", on_click=lambda: place.act(_acknowledge(engine, first), "Acknowledged.")
                ).props('no-caps outline dense padding="2px 12px"')
                ui.button("Silence", on_click=lambda: silence_dialog(place, first.rule, first.subject_text)).props(
                    'no-caps outline dense padding="2px 12px"'
                )

        def show(alarm: AlarmState) -> None:
            note = f", acknowledged by {alarm.acknowledged_by}" if alarm.acknowledged_by else ""
            card.show(alarm, note + (", silenced" if engine.is_silenced(alarm) else ""))
            if acknowledge is not None:
                acknowledge.set_visibility(not alarm.acknowledged_by)

        show(first)
        return show


async def _acknowledge(engine: AlarmEngine, alarm: AlarmState) -> None:
    async with permitted(Action.ALARM_SILENCE, f"alarm {alarm.rule}, {alarm.subject_text}") as attempt:
        if not await engine.book.acknowledge(alarm.key, attempt.user.name):
            raise InvalidRequestError("This alarm does not fire any more.")


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
