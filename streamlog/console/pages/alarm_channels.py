"""The channels on /alarms: where notices go, whether they arrived, a test. Channels are changed in the file alone."""

from __future__ import annotations

import time
from typing import Final

from nicegui import ui

from streamlog.console.access.caller import may, permitted
from streamlog.console.access.roles import Action
from streamlog.console.alarms.deliveries import DeliveryStatus
from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.collection.history_database import HistoryError
from streamlog.console.pages.alarm_place import AlarmPlace
from streamlog.console.widgets.layout import heading
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


async def show_channels(place: AlarmPlace) -> None:
    engine = place.engine
    channels = engine.settings.channels
    heading("Channels", "" if channels else "None: alarms are shown here, and sent nowhere.")
    for name, channel in channels.items():
        with ui.card().classes("w-full p-3 gap-1"):
            with ui.row().classes("w-full items-center justify-between"):
                ui.label(f"{name} ({channel.type})").classes("font-semibold")
                if may(Action.ALARM_TEST):
                    ui.button(
                        "Send a test",
                        on_click=lambda name=name: place.act(_test(engine, name), f"{name} took the test."),
                    ).props('no-caps outline dense padding="2px 12px"')
            resolved = "" if channel.send_resolved else "; without what is resolved"
            ui.label(f"{channel.shown}{resolved}").classes("text-sm")
    ui.label(f"Channels are added and changed in {engine.path}; their secrets stay outside of it.").classes(
        "text-sm text-note"
    )
    heading("Deliveries", f"{engine.queued} waiting" if engine.queued else "")
    try:
        deliveries = await engine.book.deliveries(DELIVERIES_SHOWN)
    except HistoryError as error:
        ui.label(str(error)).classes("text-bad")
        return
    rows: list[Row] = [
        {
            "key": one.delivery_id,
            "at": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.created_at_s)),
            "channel": one.channel,
            "notice": one.notice.title,
            "status": "waiting" if one.status is DeliveryStatus.QUEUED else one.status.value,
            "tries": one.tries,
            "failure": one.failure,
        }
        for one in deliveries
    ]
    LiveTable(DELIVERIES, lambda: rows, key="key", name="deliveries", empty="Nothing was sent yet.", wide=True)


async def _test(engine: AlarmEngine, name: str) -> None:
    async with permitted(Action.ALARM_TEST, f"channel {name}") as attempt:
        if failure := await engine.test(name):
            attempt.result = "failed"
            raise InvalidRequestError(f"Channel {name} did not take the test: {failure}.")
