"""Silences, of /alarms: those in force, and the dialog that adds one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from nicegui import ui

from streamlog.console.access.caller import may, permitted
from streamlog.console.access.roles import Action
from streamlog.console.alarms.durations import duration_s, duration_text
from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.alarms.evaluation import Silence
from streamlog.console.pages.alarms.place import AlarmPlace
from streamlog.console.widgets.layout import Heading, heading
from streamlog.console.widgets.live_list import LiveList
from streamlog.errors import InvalidRequestError

SILENCES: Final = ("30m", "1h", "4h", "1d", "7d")
TEXT_MAX: Final = 500


class SilencesView:
    def __init__(self, place: AlarmPlace) -> None:
        self._place, self._engine = place, place.engine
        with ui.row().classes("w-full items-center justify-between no-wrap"):
            self._heading = Heading("Silences")
            if may(Action.ALARM_SILENCE):
                ui.button("New silence", icon="add", on_click=lambda: silence_dialog(place, "*", "*")).props("no-caps")
        self._cards = LiveList(self._card)

    async def refresh(self) -> None:
        silences = {one.silence_id: one for one in self._engine.book.silences if one.until_s > time.time()}
        self._heading.note("" if silences else "None.")
        self._cards.show(silences)

    def _card(self, silence: Silence) -> Callable[[Silence], None]:
        place, engine = self._place, self._engine
        with ui.card().classes("w-full p-3 gap-1"):
            ui.label(f"Rule {silence.rule}, subject {silence.subject}").classes("font-semibold")
            ends = ui.label().classes("text-sm")
            if may(Action.ALARM_SILENCE):
                ui.button("End now", on_click=lambda: place.act(_end(engine, silence.silence_id), "Ended.")).props(
                    'no-caps outline dense padding="2px 12px"'
                )

        def show(one: Silence) -> None:
            left = duration_text(max(0, round(one.until_s - time.time())))
            ends.set_text(f"ends in {left}, by {one.created_by}{f': {one.comment}' if one.comment else ''}")

        show(silence)
        return show


def silence_dialog(place: AlarmPlace, rule: str, subject: str) -> None:
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
    if max(len(rule), len(subject), len(comment)) > TEXT_MAX:
        raise InvalidRequestError(f"Patterns and comment must have at most {TEXT_MAX} characters.")
    async with permitted(Action.ALARM_SILENCE, f"rule {rule}, subject {subject}, for {during}") as attempt:
        try:
            await engine.book.silence(rule.strip(), subject.strip(), duration_s(during), comment, attempt.user.name)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from None


async def _end(engine: AlarmEngine, silence_id: str) -> None:
    async with permitted(Action.ALARM_SILENCE, f"end of silence {silence_id}"):
        await engine.book.end_silence(silence_id)
