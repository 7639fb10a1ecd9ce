"""/alarms: what fires, and what was done about it.

now, history, rules, silences, channels    a view each
rule_form                                  adds, changes or removes a rule
cards                                      an alarm that fires
place                                      what the views share
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nicegui import context, ui

from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.pages.alarms.channels import ChannelsView
from streamlog.console.pages.alarms.history import HistoryView
from streamlog.console.pages.alarms.now import NowView
from streamlog.console.pages.alarms.place import AlarmPlace, AlarmView, Warnings
from streamlog.console.pages.alarms.rules import RulesView
from streamlog.console.pages.alarms.silences import SilencesView
from streamlog.console.widgets.page import Page, show, view

VIEWS: Final[dict[str, Callable[[AlarmPlace], AlarmView]]] = {
    "Now": NowView,
    "History": HistoryView,
    "Rules": RulesView,
    "Silences": SilencesView,
    "Channels": ChannelsView,
}


def register(sampler: ClusterSampler, engine: AlarmEngine) -> None:
    @view("/alarms")
    async def alarms() -> None:
        await show(sampler, "Alarms", lambda page: _AlarmsPage(page, engine).build(), needs_cluster=False)


class _AlarmsPage:
    """One of VIEWS, which is in the address: ?view=rules."""

    def __init__(self, page: Page, engine: AlarmEngine) -> None:
        self._page, self._engine = page, engine
        given = context.client.request.query_params.get("view", "")
        self._current = next((one for one in VIEWS if one.lower() == given), next(iter(VIEWS)))
        self._warnings = Warnings()
        self._body = ui.column().classes("w-full gap-4")
        self._place = AlarmPlace(engine, ui.element(), self._refresh)

    async def build(self) -> None:
        with self._page.actions:
            choice = ui.toggle(list(VIEWS), value=self._current, on_change=self._choose)
            choice.props('dense no-caps unelevated padding="4px 12px" aria-label="View"')
        self._build_view()
        self._page.each_sample(self._refresh)
        await self._refresh()

    async def _choose(self, event: Any) -> None:
        self._current = event.value
        ui.navigate.history.replace(f"/alarms?view={self._current.lower()}")
        self._body.clear()
        self._build_view()
        await self._refresh()

    def _build_view(self) -> None:
        with self._body:
            self._shown = VIEWS[self._current](self._place)

    async def _refresh(self) -> None:
        self._warnings.show(self._engine.problem)
        await self._shown.refresh()
