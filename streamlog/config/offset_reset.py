"""`auto.offset.reset`: where a consumer without a committed offset starts (KIP-1106 for `by_duration`)."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from streamlog.config.kinds import INT64_MAX, ValueKind

BY_DURATION: Final = "by_duration"
# ISO 8601 as Java's Duration reads it: days, hours, minutes, seconds with a fraction.
_DURATION: Final = re.compile(
    r"P(?:(\d{1,12})D)?(?:T(?=\d)(?:(\d{1,12})H)?(?:(\d{1,12})M)?(?:(\d{1,12})(?:\.(\d{1,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


class AutoOffsetReset(Struct, frozen=True):
    """`strategy`: earliest, latest, none or by_duration, which alone has a `duration_ms`."""

    strategy: str
    duration_ms: int = 0

    def __str__(self) -> str:
        if self.strategy != BY_DURATION:
            return self.strategy
        seconds, ms = divmod(self.duration_ms, 1000)
        return f"{BY_DURATION}:PT{seconds}" + (f".{ms:03}S" if ms else "S")


class AutoOffsetResetKind(ValueKind[AutoOffsetReset], frozen=True):
    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return "latest, earliest, none, by_duration:PnDTnHnMn.nS"

    def parse(self, text: str) -> AutoOffsetReset:
        strategy, separator, duration = text.strip().partition(":")
        if not separator and strategy in ("earliest", "latest", "none"):
            return AutoOffsetReset(strategy)
        if strategy != BY_DURATION:
            raise ValueError(f"must be one of {self.limit}")
        return AutoOffsetReset(BY_DURATION, parse_duration_ms(duration))


def parse_duration_ms(text: str) -> int:
    """ISO 8601, not negative; rounded down to milliseconds. ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError("the duration must be in ISO 8601, such as P1DT2H3M4.5S")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    fraction_ms = int(f"{found.group(5) or 0:0<3}"[:3])
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
    if total > INT64_MAX:
        raise ValueError("the duration is too long")
    return total
