"""One page: built when the cluster is known, and kept current by each sample without being built again.

no sample, or no node answers     the page says so; the console's own pages (alarms, audit) are shown all the same
the cluster is known              `build` was called once; after each sample the page's parts read their values again
no node answers any more          the parts are hidden and the page says why, until a node answers
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from nicegui import ui

from streamlog.console.collection.rates import Series
from streamlog.console.collection.sample import Sample
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.widgets.charts import HistoryChart, span_choice
from streamlog.console.widgets.layout import frame, outage
from streamlog.console.widgets.table_view import Column
from streamlog.console.widgets.tables import LiveTable, Rows

RESPONSE_S: Final = 45.0
Work = Callable[[], Awaitable[object] | object]


class Page:
    """`actions`: beside the title, for buttons."""

    def __init__(self, sampler: ClusterSampler, actions: ui.row) -> None:
        self.sampler = sampler
        self.actions = actions
        self._parts: list[Work] = []

    @property
    def latest(self) -> Sample:
        """The last sample. Only for parts of the page: they are read while the cluster is known."""
        assert self.sampler.latest is not None
        return self.sampler.latest

    async def live(self, build: Work) -> None:
        """A part without controls, which is built again after each sample."""
        with ui.column().classes("w-full gap-4 empty:hidden") as place:
            pass

        async def rebuild() -> None:
            place.clear()
            with place:
                await _done(build())

        self._parts.append(rebuild)
        await rebuild()

    def table(self, columns: Sequence[Column], rows: Rows, **options: Any) -> LiveTable:
        """Options: as of LiveTable."""
        table = LiveTable(columns, rows, **options)
        self._parts.append(table.refresh)
        return table

    async def charts(self, *described: tuple[str, str, Callable[[], Mapping[str, Series]]]) -> None:
        """Title, unit and series of each; with one choice of the time span."""
        shown: list[HistoryChart] = []

        async def draw(span_s: int | None = None) -> None:
            for one in shown:
                await one.draw(span_s)

        span_choice(draw)
        with ui.grid(columns="repeat(auto-fit, minmax(min(100%, 28rem), 1fr))").classes("w-full gap-4"):
            shown += [HistoryChart(self.sampler, title, unit, series) for title, unit, series in described]
        self._parts.append(draw)
        await draw()

    def each_sample(self, work: Work) -> None:
        self._parts.append(work)

    async def refresh(self) -> None:
        for part in list(self._parts):
            await _done(part())


def view(address: str) -> Callable[[Callable[..., Awaitable[None]]], object]:
    """Registers a page. What it has before its first call of the cluster is sent at once, since the timer of the frame
    waits for the browser; that gets the rest when the call has ended, which takes longer than NiceGUI waits by default.
    """
    return ui.page(address, response_timeout=RESPONSE_S)


async def show(
    sampler: ClusterSampler,
    title: str,
    build: Callable[[Page], Awaitable[object] | object],
    *,
    needs_cluster: bool = True,
) -> None:
    built = False

    async def refresh() -> None:
        nonlocal built
        known = not needs_cluster or (sampler.latest is not None and sampler.latest.state.cluster is not None)
        content.set_visibility(known)
        actions.set_visibility(known)
        problem.set_visibility(not known)
        problem.clear()
        if not known:
            with problem:
                outage(sampler)
        elif built:
            with content:
                await page.refresh()
        else:
            built = True
            with content:
                await _done(build(page))

    with frame(sampler, title, refresh):
        with ui.row().classes("w-full items-center justify-between"):
            ui.label(title).classes("text-xl font-semibold break-all").props('role="heading" aria-level="1"')
            actions = ui.row().classes("items-center gap-2")
        problem = ui.column().classes("w-full").props('aria-live="polite"')
        content = ui.column().classes("w-full gap-4")
        page = Page(sampler, actions)
        await refresh()


async def _done(result: object) -> None:
    if inspect.isawaitable(result):
        await result
