"""Durations as text: `200ms`, `30s`, `5m`, `1h`, `2d`. Pure."""

from __future__ import annotations

import re
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PARTS: Final = re.compile(r"(\d{1,9})(ms|s|m|h|d)", re.ASCII)
DURATION_MAX_S: Final = 366 * 86_400.0


def duration_s(text: str) -> float:
    """ValueError: it is not a duration. `1h30m` is the sum of its parts."""
    parts = _PARTS.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("must be a duration such as 200ms, 30s, 5m, 1h or 2d")
    found = sum(int(number) * _UNITS_MS[unit] for number, unit in parts) / 1000
    if found > DURATION_MAX_S:
        raise ValueError("must be at most 366d")
    return found


def duration_text(seconds: float) -> str:
    """The shortest text; `duration_s` of it is the same to a millisecond."""
    left_ms = round(seconds * 1000)
    parts = []
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, left_ms = divmod(left_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
