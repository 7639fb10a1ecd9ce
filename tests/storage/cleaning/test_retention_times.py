"""Retention by time where the time index is wrong: it has no checksum, and batches that are not due stay."""

from __future__ import annotations

from streamlog.sim.machine import Machine
from streamlog.storage.log_config import LogConfig
from tests.storage.rig import Rig

DAY_MS = 86_400_000
NOW_MS = 20_000 * DAY_MS
CONFIG = LogConfig(segment_index_bytes=1024, segment_bytes=600)


def restarted(damage: bytes | None, age_ms: int) -> Rig:
    """Three segments with records of this age; the newest time in the index of the first begins with `damage`."""
    rig = Rig(Machine(1), CONFIG)
    rig.now_ms = NOW_MS
    for _ in range(9):
        rig.append(b"v" * 100, timestamp=NOW_MS - age_ms)
    rig.stop()
    path = rig.log.segments.first.path(".timeindex")
    rig.start()
    if damage is not None:
        rig.machine.disk.damage(path, 0, damage)
    return rig


def test_what_only_the_index_calls_old_stays_and_the_index_is_rebuilt() -> None:
    rig = restarted(bytes(4), age_ms=1000)
    for _ in range(2):
        assert rig.retain(NOW_MS, 9) == 0
    rebuilt = [fields["path"] for event, fields in rig.events if event == "index_rebuilt"]
    assert rebuilt == [rig.log.segments.first.path(".timeindex")]
    assert len(rig.values()) == 9


def test_what_is_old_by_its_batches_goes() -> None:
    rig = restarted(None, age_ms=8 * DAY_MS)
    assert rig.retain(NOW_MS, 9) == 3


def test_a_damaged_segment_is_examined_before_it_goes() -> None:
    """It is not kept for ever: there may be no replica to repair it from."""
    rig = restarted(None, age_ms=8 * DAY_MS)
    segment = rig.log.segments.first
    rig.machine.disk.damage(segment.path(".log"), 16, b"\1")  # the magic byte of the first batch
    assert rig.retain(NOW_MS, 9) == 0
    assert segment in rig.log.damaged_segments
    assert rig.retain(NOW_MS, 9) == 3
