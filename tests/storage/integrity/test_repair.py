"""Repair of the segment that is appended to: what was appended since its examination stays."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from streamlog.model import Offset
from streamlog.sim.machine import Machine
from streamlog.storage.integrity.repair import repair_segment
from streamlog.storage.log_config import LogConfig
from tests.storage.rig import Rig


@pytest.mark.parametrize("compact", [False, True])
def test_what_is_appended_after_the_examination_is_in_the_repaired_log(compact: bool) -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, index_interval_bytes=100, cleanup_compact=compact))
    for number in range(10):
        rig.append(b"v%d" % number, keys=[b"k%d" % number])
    rig.sync()
    segment, intact = rig.log.segments.active, rig.read(0)
    size = len(intact) // 10
    rig.machine.disk.damage(segment.path(".log"), 4 * size + 65, b"??")
    segment.verified.forget()
    found = rig.machine.run(rig.log.examine(segment))
    assert found is not None
    for number in range(10, 12):
        rig.append(b"v%d" % number, keys=[b"k%d" % number])
    rig.sync()

    async def fetch(begin: Offset, end: Offset) -> AsyncIterator[bytes]:
        yield intact[begin * size : end * size]

    assert rig.machine.run(repair_segment(rig.machine.fs, rig.log, segment, found, fetch))
    rig.append(b"v12", keys=[b"k12"])
    assert rig.values() == [(number, b"v%d" % number) for number in range(13)]
    rig.machine.close()
