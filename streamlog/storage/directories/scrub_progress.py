"""How far the scrubber of a log directory is."""

from __future__ import annotations

from msgspec import Struct


class ScrubProgress(Struct, kw_only=True):
    """Of the current round, or of the last one."""

    started_ms: int = -1  # -1: no round yet
    ended_ms: int = -1  # -1: still running
    read_bytes: int = 0
    total_bytes: int = 0  # of all logs, when it began
    damaged_ranges: int = 0  # found in it
