"""What all pages share: the frame with its navigation, tiles, tables, charts, number formats."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from nicegui import app, context, ui

from streamlog.console.history import Point
from streamlog.console.sampler import ClusterSampler
from streamlog.errors import StreamlogError

NAVIGATION: Final = (
    ("/", "Overview", "dashboard"),
    ("/brokers", "Brokers", "dns"),
    ("/topics", "Topics", "view_list"),
    ("/records", "Records", "article"),
    ("/groups", "Groups", "groups"),
    ("/quorum", "Quorum", "how_to_vote"),
)
SPANS: Final = {"15 min": 900, "1 h": 3_600, "6 h": 21_600, "1 day": 86_400, "7 days": 604_800, "90 days": 7_776_000}
ROWS_PER_PAGE: Final = 25
PRIMARY: Final = "#1f5fa8"
NEGATIVE: Final = "#c62828"
"""Both have a contrast of 4.5 to 1 with white."""
_AXIS: Final = "#808080"  # readable on light and dark

Column = tuple[str, str]
"""(field, heading). Numbers are aligned to the right."""


@contextmanager
def frame(sampler: ClusterSampler, title: str, refresh: Callable[[], object]) -> Iterator[None]:
    """A page. `refresh` is called after each sample, while the page is open."""
    ui.page_title(f"{title} - streamlog")
    section = f"/{context.client.request.url.path.split('/')[1]}"
    ui.colors(primary=PRIMARY, negative=NEGATIVE)
    dark = ui.dark_mode(app.storage.user.get("dark"))
    ui.query(".nicegui-content").classes("p-4 gap-4 w-full max-w-screen-xl mx-auto")
    with ui.header().classes("items-center gap-2 py-2 px-4 bg-primary"):
        ui.link("streamlog", "/").classes("text-white text-lg font-bold no-underline mr-4")
        with ui.element("nav").classes("flex flex-row flex-wrap gap-1 items-center").props('aria-label="Main"'):
            for address, name, icon in NAVIGATION:
                shown = ui.button(name, icon=icon, on_click=lambda address=address: ui.navigate.to(address))
                shown.props("flat dense no-caps color=white")
                if address == section:
                    shown.classes("bg-white/25").props('aria-current="page"')
        ui.space()
        _freshness(sampler)

        def toggle() -> None:
            dark.value = not _is_dark(dark.value)
            app.storage.user["dark"] = dark.value

        ui.button(icon="dark_mode", on_click=toggle).props('flat dense color=white aria-label="Light or dark"')
    ui.element("h1").classes("sr-only")
    yield
    client = context.client
    sampler.add_listener(client.id, lambda: _in(client, refresh))
    client.on_disconnect(lambda: sampler.remove_listener(client.id))


def _in(client: Any, refresh: Callable[[], object]) -> None:
    if client.has_socket_connection:
        with client:
            refresh()


def _is_dark(value: bool | None) -> bool:
    return bool(value)


def _freshness(sampler: ClusterSampler) -> None:
    """The age of the data; and a problem of the console itself."""

    def text() -> str:
        latest = sampler.latest
        if latest is None:
            return "connecting to the cluster ..."
        if latest.state.cluster is None:
            return "no node answers"
        return f"{latest.state.cluster.cluster_id} · {max(0, time.time() - latest.at_s):.0f} s ago"

    label = ui.label(text()).classes("text-white text-sm")
    ui.timer(1.0, lambda: label.set_text(text()))
    problem = ui.icon("warning", color="amber").tooltip("")
    problem.bind_visibility_from(sampler, "history_problem", backward=bool)


def heading(text: str, note: str = "") -> None:
    with ui.row().classes("items-baseline gap-3 w-full"):
        ui.label(text).classes("text-xl font-semibold").props('role="heading" aria-level="2"')
        if note:
            ui.label(note).classes("text-sm opacity-80")


def tile(name: str, value: str, *, bad: bool = False, note: str = "") -> None:
    with ui.card().classes("p-3 gap-0 min-w-[9rem] grow"):
        ui.label(name).classes("text-sm opacity-80")
        ui.label(value).classes(f"text-2xl font-semibold {'text-negative' if bad else ''}")
        if note:
            ui.label(note).classes("text-xs opacity-80")


def table(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, object]],
    *,
    key: str,
    to: Callable[[Mapping[str, Any]], str] | None = None,
    empty: str = "There is nothing to show.",
) -> ui.table:
    """A table with sorting, paging and a text filter; a click on a row opens `to`. Cells are shown as text."""
    described = [
        {
            "name": field,
            "label": name,
            "field": field,
            "sortable": True,
            "align": "right" if rows and isinstance(rows[0].get(field), int | float) else "left",
        }
        for field, name in columns
    ]
    shown = ui.table(
        columns=described, rows=[dict(row) for row in rows], row_key=key, pagination={"rowsPerPage": ROWS_PER_PAGE}
    )
    shown.classes("w-full").props(f'flat bordered dense no-data-label="{empty}"')
    if len(rows) <= ROWS_PER_PAGE:
        shown.props("hide-pagination")
    else:
        with shown.add_slot("top-right"):
            search = ui.input(placeholder="Filter").props('dense clearable aria-label="Filter"')
            search.bind_value(shown, "filter")
    if to is not None:
        shown.classes("cursor-pointer")
        shown.on("rowClick", lambda event: ui.navigate.to(to(event.args[1])))
    return shown


def chart(title: str, lines: Mapping[str, Sequence[Point]], unit: str) -> ui.echart:
    """Values over time, one line each."""
    return ui.echart(chart_options(title, lines, unit)).classes("w-full h-64")


def chart_options(title: str, lines: Mapping[str, Sequence[Point]], unit: str, span_s: int = 900) -> dict[str, Any]:
    now_ms = time.time() * 1000
    grey = {"color": _AXIS}
    return {
        "title": {"text": f"{title} ({unit})" if unit else title, "left": 0, "textStyle": {"fontSize": 14, **grey}},
        "aria": {"enabled": True},
        "animation": False,
        "backgroundColor": "transparent",
        "tooltip": {"trigger": "axis"},
        "legend": {"show": len(lines) > 1, "bottom": 0, "type": "scroll", "textStyle": grey},
        "grid": {"left": 64, "right": 16, "top": 40, "bottom": 48},
        "xAxis": {
            "type": "time",
            "min": now_ms - span_s * 1000,
            "max": now_ms,
            "axisLabel": {"hideOverlap": True, **grey},
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "minInterval": 1,
            "axisLabel": grey,
            "splitLine": {"lineStyle": {"opacity": 0.3}},
        },
        "series": [
            {"name": name, "type": "line", "showSymbol": False, "data": [_place(point) for point in points]}
            for name, points in lines.items()
        ],
    }


def _place(point: Point) -> tuple[int, float | None]:
    """As ECharts takes it; a value of None is a gap."""
    return point.at_s * 1000, None if point.value is None else round(point.value, 2)


def span_choice(on_change: Callable[[int], object]) -> None:
    """The time span of charts."""
    ui.toggle(list(SPANS), value="15 min", on_change=lambda event: on_change(SPANS[event.value])).props(
        "dense no-caps unelevated"
    )


def waiting(sampler: ClusterSampler) -> bool:
    """True where the cluster's state is unknown, which the page then says."""
    latest = sampler.latest
    if latest is None:
        with ui.row().classes("items-center gap-2"):
            ui.spinner()
            ui.label("Connecting to the cluster ...")
        return True
    if latest.state.cluster is None:
        reason = next(iter(latest.state.missing.values()))
        with ui.card().classes("w-full"):
            ui.label("No node of the cluster answers.").classes("text-lg font-semibold text-negative")
            ui.label(reason.message)
            ui.label("The console retries, and shows the cluster as soon as a node answers.")
        return True
    return False


async def tried(work: Any, done: str) -> bool:
    """Performs a user's action and shows its result. False: it failed."""
    try:
        await work
    except StreamlogError as error:
        ui.notify(error.message, type="negative", multi_line=True, close_button="Close", timeout=0)
        return False
    ui.notify(done, type="positive")
    return True


def number(value: float) -> str:
    """1,234 or 12.3."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def size(value: float) -> str:
    """In units of 1,024 bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
