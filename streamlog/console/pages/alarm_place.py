"""What the parts of /alarms share: the engine, a place for dialogs, and actions that draw the page again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct
from nicegui import ui

from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.widgets.actions import refused
from streamlog.errors import StreamlogError


class AlarmPlace(Struct):
    engine: AlarmEngine
    dialogs: ui.element  # a dialog stays open while the view beside it is drawn again
    redraw: Callable[[], object]

    async def act(self, work: Awaitable[None], done: str) -> bool:
        """Performs a user's action and shows its result. False: it failed."""
        try:
            await work
        except StreamlogError as error:
            refused(error.message)
            return False
        else:
            ui.notify(done, type="positive")
            return True
        finally:
            self.redraw()
