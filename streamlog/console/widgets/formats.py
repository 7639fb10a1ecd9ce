"""Numbers, sizes, times and names of the cluster as text for pages. Pure."""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import quote

from streamlog.client.admin.values import ConfigSource
from streamlog.console.collection.figures import GroupFigures
from streamlog.printable import escaped

LINE_CHARACTERS: Final = 120
SOURCES: Final = {
    ConfigSource.DEFAULT: "default",
    ConfigSource.STATIC_BROKER: "node's file",
    ConfigSource.DYNAMIC_ALL_BROKERS: "all nodes",
    ConfigSource.DYNAMIC_BROKER: "this node",
    ConfigSource.TOPIC: "topic",
}
"""Where the value of a setting comes from. Those but for the default and the file were set in the cluster."""
_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400


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


def duration(seconds: float) -> str:
    """In the largest unit of which there are at least two: 90 s, 3 min, 5 h, 4 days."""
    for unit, unit_s in (("days", _DAY_S), ("h", _HOUR_S), ("min", _MINUTE_S)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def moment(timestamp_ms: int) -> str:
    """A local time; empty for none (-1). A time that no clock shows is a number."""
    if timestamp_ms < 0:
        return ""
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    try:
        return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}.{milliseconds:03}"
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)


def one_line(text: str, characters: int = LINE_CHARACTERS) -> str:
    """The beginning of `text` for a cell; control characters and direction marks are escaped."""
    head = escaped(text[:characters])
    return head if len(text) <= characters else f"{head} ..."


def page_of(section: str, name: object) -> str:
    """The address of the view of one thing. Group names may have any character, '/' included."""
    return f"/{section}/{quote(str(name), safe='')}"


def catch_up(figures: GroupFigures) -> str:
    """Estimated time until a group has no lag."""
    seconds = figures.caught_up_s
    if figures.keeps_pace:
        return "keeps pace"
    if seconds is None:
        return "does not shrink"
    return "now" if seconds == 0 else duration(seconds)


def bytes_text(value: object) -> str:
    """For columns of sizes, which are sorted as numbers."""
    return size(value) if isinstance(value, int | float) else str(value)


def number_text(value: object) -> str:
    """For columns of large numbers, which are sorted as numbers."""
    return number(value) if isinstance(value, int | float) else str(value)
