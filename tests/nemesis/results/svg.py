"""Pictures over time as inline SVG: bands, bars and lines on one axis; no script, no file beside the page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

WIDTH: Final = 1180
LEFT: Final = 150
RIGHT: Final = 10
PALETTE: Final = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#9c755f")
NO_LEADER: Final = "#d62728"


def colour(number: int) -> str:
    """Of a node; 0 is none."""
    return NO_LEADER if number == 0 else PALETTE[(number - 1) % len(PALETTE)]


class Chart:
    """Rows from top to bottom, each at a height of its own, on one axis of seconds."""

    def __init__(self, end_s: float) -> None:
        self._end_s = max(end_s, 1.0)
        self._parts: list[str] = []
        self._y = 4.0

    def _x(self, at_s: float) -> float:
        share = min(max(at_s / self._end_s, 0.0), 1.0)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def title(self, text: str) -> None:
        self._y += 16
        self._parts.append(f'<text x="4" y="{self._y:.0f}" class="title">{html.escape(text)}</text>')
        self._y += 6

    def _label(self, text: str, height: float) -> None:
        middle = self._y + height / 2 + 4
        self._parts.append(f'<text x="{LEFT - 6}" y="{middle:.0f}" text-anchor="end">{html.escape(text)}</text>')

    def bands(self, label: str, spans: Iterable[tuple[float, float, str, str]], height: int = 14) -> None:
        """(from, to, colour, what it is)"""
        self._label(label, height)
        for begin, end, fill, what in spans:
            x, width = self._x(begin), max(1.5, self._x(end) - self._x(begin))
            self._parts.append(
                f'<rect x="{x}" y="{self._y:.0f}" width="{width:.1f}" height="{height - 2}" fill="{fill}">'
                f"<title>{html.escape(what)}</title></rect>"
            )
        self._y += height

    def columns(
        self, label: str, values: Sequence[float], step_s: float, fill: str, unit: str, height: int = 60
    ) -> None:
        """One column a step, from 0 on; the highest one fills the height."""
        most = max(values, default=0) or 1
        self._scale(label, most, unit, height)
        for number, value in enumerate(values):
            size = value / most * (height - 4)
            x, width = self._x(number * step_s), self._x((number + 1) * step_s) - self._x(number * step_s)
            self._parts.append(
                f'<rect x="{x}" y="{self._y + height - size:.1f}" width="{max(width, 0.5):.1f}" '
                f'height="{size:.1f}" fill="{fill}"/>'
            )
        self._y += height + 4

    def lines(
        self, label: str, series: Iterable[tuple[str, str, Sequence[tuple[float, float]]]], unit: str, height: int = 60
    ) -> None:
        """(name, colour, points)"""
        drawn = list(series)
        most = max((value for _, _, points in drawn for _, value in points), default=0) or 1
        self._scale(label, most, unit, height)
        for name, stroke, points in drawn:
            path = " ".join(f"{self._x(at)},{self._y + height - v / most * (height - 4):.1f}" for at, v in points)
            self._parts.append(
                f'<polyline points="{path}" fill="none" stroke="{stroke}"><title>{html.escape(name)}</title></polyline>'
            )
        self._y += height + 4

    def _scale(self, label: str, most: float, unit: str, height: int) -> None:
        self._label(label, height)
        text = f"{most:,.0f} {unit}" if most >= 10 else f"{most:.2g} {unit}"
        self._parts.append(
            f'<rect x="{LEFT}" y="{self._y:.0f}" width="{WIDTH - LEFT - RIGHT}" height="{height}" class="field"/>'
            f'<text x="{LEFT - 6}" y="{self._y + 9:.0f}" text-anchor="end" class="scale">{html.escape(text)}</text>'
        )

    def axis(self) -> None:
        step = next((s for s in (5, 10, 20, 30, 60, 120, 300, 600) if self._end_s / s <= 16), 1200)
        self._y += 12
        for at in range(0, int(self._end_s) + 1, step):
            x = self._x(at)
            self._parts.insert(0, f'<line x1="{x}" x2="{x}" y1="0" y2="{self._y:.0f}" class="grid"/>')
            self._parts.append(f'<text x="{x}" y="{self._y + 10:.0f}" text-anchor="middle" class="scale">{at} s</text>')
        self._y += 16

    def marks(self, label: str, points: Iterable[tuple[float, str]], height: int = 14) -> None:
        """(when, what)"""
        self._label(label, height)
        for at, what in points:
            x, y = self._x(at), self._y + height / 2
            self._parts.append(
                f'<circle cx="{x}" cy="{y:.0f}" r="4" fill="{NO_LEADER}"><title>{html.escape(what)}</title></circle>'
            )
        self._y += height

    def svg(self) -> str:
        return f'<svg viewBox="0 0 {WIDTH} {self._y:.0f}" width="100%" role="img">' + "\n".join(self._parts) + "</svg>"
