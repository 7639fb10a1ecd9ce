"""Retention by time where the wall clock is wrong, or not known to be right."""

from __future__ import annotations

from streamlog.model import Offset
from streamlog.sim.machine import Machine
from streamlog.storage.log_config import LogConfig
from tests.storage.rig import Rig

CONFIG = LogConfig(segment_index_bytes=1024, retention_ms=1_000)
FAR_MS = 10**15
"""A wall clock that is centuries ahead."""


def aged(rig: Rig) -> None:
    rig.append(b"v")
    rig.log.segments.active.appended_s = 50.0


def retain(rig: Rig, now_ms: int | None, now_s: float | None) -> int:
    return rig.retain(now_ms, rig.log.log_end_offset, now_s)


def test_what_is_younger_by_the_monotonic_clock_stays() -> None:
    rig = Rig(Machine(1), CONFIG)
    aged(rig)
    assert retain(rig, FAR_MS, 50.5) == 0
    assert retain(rig, FAR_MS, 51.5) == 1


def test_nothing_goes_by_time_while_the_clock_is_in_doubt() -> None:
    rig = Rig(Machine(1), CONFIG)
    aged(rig)
    assert retain(rig, None, 10**9) == 0
    assert rig.log.log_start_offset == Offset(0)
