"""What the views of /alarms share: the engine, a place for dialogs, and a user's actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct
from nicegui import ui

from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.widgets.actions import refused
from streamlog.errors import StreamlogError


class AlarmPlace(Struct):
    engine: AlarmEngine
    dialogs: ui.element  # a dialog stays open where another view is chosen
    refresh: Callable[[], Awaitable[None]]  # of the view that is shown

    async def act(self, work: Awaitable[None], done: str) -> bool:
        """Performs a user's action and shows its result. False: it failed."""
        try:
            await work
        except StreamlogError as error:
            with self.dialogs:  # the button that was pressed may be gone
                refused(error.message)
            return False
        else:
            with self.dialogs:
                ui.notify(done, type="positive")
            return True
        finally:
            await self.refresh()


class AlarmView(Protocol):
    """Built once, when it is chosen. Its controls stay while what they belong to does."""

    async def refresh(self) -> None:
        """Shows what has changed since."""


class Warnings:
    """A text and its details, as long as there is a text."""

    def __init__(self) -> None:
        self._place = ui.column().classes("w-full gap-4 empty:hidden")
        self._shown: tuple[str, tuple[str, ...]] = ("", ())

    def show(self, text: str, details: Sequence[str] = ()) -> None:
        wanted = text, tuple(details)
        if wanted == self._shown:
            return
        self._shown = wanted
        self._place.clear()
        if not text:
            return
        with self._place, ui.card().classes("w-full p-3 gap-1 border-l-4 border-amber-500").props('role="alert"'):
            ui.label(text).classes("font-semibold")
            for one in details:
                ui.label(one).classes("text-sm")
