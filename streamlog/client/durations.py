"""Durations in messages."""

from __future__ import annotations


def seconds(duration_s: float) -> str:
    return f"{duration_s:.3g} s" if duration_s < 100 else f"{duration_s:.0f} s"
