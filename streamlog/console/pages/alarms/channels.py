"""Channels, of /alarms: where notices go, whether they arrived, a test. Channels are changed in the file alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from nicegui import ui

from streamlog.console.access.caller import may, permitted
from streamlog.console.access.roles import Action
from streamlog.console.alarms.channels import Channel
from streamlog.console.alarms.deliveries import DeliveryStatus
from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.collection.history_database import HistoryError
from streamlog.console.pages.alarms.place import AlarmPlace, Warnings
from streamlog.console.widgets.layout import Heading
from streamlog.console.widgets.live_list import LiveList
from streamlog.console.widgets.table_view import Column, Row
from streamlog.console.widgets.tables import LiveTable
from streamlog.errors import InvalidRequestError

DELIVERIES_SHOWN: Final = 200
DELIVERIES: Final = (
    Column("at", "Time"),
    Column("channel", "Channel"),
    Column("notice", "Notice"),
    Column("status", "Status"),
    Column("tries", "Tries"),
    Column("failure", "Last failure"),
)


class ChannelsView:
    def __init__(self, place: AlarmPlace) -> None:
        self._place, self._engine = place, place.engine
        self._rows: list[Row] = []
        self._read: int | None = None
        self._channels = Heading("Channels")
        self._cards = LiveList(self._card)
        ui.label(f"Channels are added and changed in {self._engine.path}; their secrets stay outside of it.").classes(
            "text-sm text-note"
        )
        self._deliveries = Heading("Deliveries")
        self._warnings = Warnings()
        empty = "Nothing was sent yet."
        self._table = LiveTable(DELIVERIES, lambda: self._rows, key="key", name="deliveries", empty=empty, wide=True)

    async def refresh(self) -> None:
        """Reads the database only where it was written since."""
        engine = self._engine
        channels = engine.settings.channels
        self._channels.note("" if channels else "None: alarms are shown here, and sent nowhere.")
        self._cards.show({(name, channel.type): (name, channel) for name, channel in channels.items()})
        self._deliveries.note(f"{engine.queued} waiting" if engine.queued else "")
        written = engine.book.written_count
        if written == self._read:
            return
        try:
            self._rows = await _rows(engine)
        except HistoryError as error:
            self._warnings.show(str(error))
            return
        self._read = written
        self._warnings.show("")
        self._table.refresh()

    def _card(self, first: tuple[str, Channel]) -> Callable[[tuple[str, Channel]], None]:
        place, engine, (name, channel) = self._place, self._engine, first
        with ui.card().classes("w-full p-3 gap-1"):
            with ui.row().classes("w-full items-center justify-between"):
                ui.label(f"{name} ({channel.type})").classes("font-semibold")
                if may(Action.ALARM_TEST):
                    ui.button(
                        "Send a test", on_click=lambda: place.act(_test(engine, name), f"{name} took the test.")
                    ).props('no-caps outline dense padding="2px 12px"')
            where = ui.label().classes("text-sm")

        def show(item: tuple[str, Channel]) -> None:
            where.set_text(f"{item[1].shown}{'' if item[1].send_resolved else '; without what is resolved'}")

        show(first)
        return show


async def _rows(engine: AlarmEngine) -> list[Row]:
    return [
        {
            "key": one.delivery_id,
            "at": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.created_at_s)),
            "channel": one.channel,
            "notice": one.notice.title,
            "status": "waiting" if one.status is DeliveryStatus.QUEUED else one.status.value,
            "tries": one.tries,
            "failure": one.failure,
        }
        for one in await engine.book.deliveries(DELIVERIES_SHOWN)
    ]


async def _test(engine: AlarmEngine, name: str) -> None:
    async with permitted(Action.ALARM_TEST, f"channel {name}") as attempt:
        if failure := await engine.test(name):
            attempt.result = "failed"
            raise InvalidRequestError(f"Channel {name} did not take the test: {failure}.")
