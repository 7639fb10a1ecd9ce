"""Charts of values over time: the history of one or more series, redrawn after each sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nicegui import ui

from streamlog.console.collection.history import Point
from streamlog.console.collection.rates import Series
from streamlog.console.collection.sampler import ClusterSampler

SPANS: Final = {"15 min": 900, "1 h": 3_600, "6 h": 21_600, "1 day": 86_400, "7 days": 604_800, "90 days": 7_776_000}
LINES_MAX: Final = 20
BYTES_PER_S: Final = "bytes/s"
"""Shown in the largest unit of which the highest value has at least one."""
_AXIS: Final = "#808080"  # readable on light and dark


class HistoryChart:
    """`series`: the lines by their names; they may change from one drawing to the next."""

    def __init__(
        self, sampler: ClusterSampler, title: str, unit: str, series: Callable[[], Mapping[str, Series]]
    ) -> None:
        self._sampler, self._title, self._unit, self._series = sampler, title, unit, series
        self._span_s = SPANS["15 min"]
        self._shown = chart(title, {}, unit)

    async def draw(self, span_s: int | None = None) -> None:
        self._span_s = span_s or self._span_s
        wanted = dict(list(self._series().items())[:LINES_MAX])
        lines = {name: await self._sampler.history(one, self._span_s) for name, one in wanted.items()}
        self._shown.options.update(chart_options(self._title, lines, self._unit, self._span_s))
        self._shown.update()


def chart(title: str, lines: Mapping[str, Sequence[Point]], unit: str) -> ui.echart:
    """Values over time, one line each."""
    shown = ui.echart(chart_options(title, lines, unit)).classes("w-full h-64")
    shown.props["role"], shown.props["aria-label"] = "img", f"{title} over time"
    return shown


def chart_options(title: str, lines: Mapping[str, Sequence[Point]], unit: str, span_s: int = 900) -> dict[str, Any]:
    now_ms = time.time() * 1000
    unit, factor = _unit(unit, lines)
    grey = {"color": _AXIS}
    return {
        "title": {"text": f"{title} ({unit})" if unit else title, "left": 0, "textStyle": {"fontSize": 14, **grey}},
        "aria": {"enabled": True},
        "animation": False,
        "backgroundColor": "transparent",
        "tooltip": {"trigger": "axis"},
        "legend": {"show": len(lines) > 1, "bottom": 0, "type": "scroll", "textStyle": grey},
        "grid": {"left": 64, "right": 16, "top": 44, "bottom": 56 if len(lines) > 1 else 28},
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
            "splitLine": {"lineStyle": {"color": _AXIS, "opacity": 0.25}},
        },
        "series": [
            {"name": name, "type": "line", "showSymbol": False, "data": [_place(point, factor) for point in points]}
            for name, points in lines.items()
        ],
    }


def _unit(unit: str, lines: Mapping[str, Sequence[Point]]) -> tuple[str, float]:
    """The unit to show, and how many of the given one it is."""
    if unit != BYTES_PER_S:
        return unit, 1
    highest = max((point.value or 0 for points in lines.values() for point in points), default=0)
    factor = 1
    for shown in (unit, "KiB/s", "MiB/s"):
        if highest < factor * 1024:
            return shown, factor
        factor *= 1024
    return "GiB/s", factor


def _place(point: Point, factor: float) -> tuple[int, float | None]:
    """As ECharts takes it; a value of None is a gap."""
    return point.at_s * 1000, None if point.value is None else round(point.value / factor, 2)


def span_choice(on_change: Callable[[int], object]) -> None:
    """The time span of charts."""
    ui.toggle(list(SPANS), value="15 min", on_change=lambda event: on_change(SPANS[event.value])).props(
        'dense no-caps unelevated padding="4px 12px" aria-label="Time span"'
    )
