"""The segments of one log: when they roll, their names and sizes (SEMANTICS 11)."""

from __future__ import annotations

import pytest

from streamlog.errors import (
    MessageTooLargeError,
)
from streamlog.sim.machine import Machine
from streamlog.storage.log_config import LogConfig
from tests.storage.rig import Rig


def test_segments_roll_by_size_age_index_and_on_demand() -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=24, segment_bytes=1000, segment_ms=500, index_interval_bytes=1))
    rig.append(b"x" * 300)
    rig.append(b"x" * 300)
    assert [s.base_offset for s in rig.log.segments] == [0]
    rig.append(b"x" * 500)
    assert [s.base_offset for s in rig.log.segments] == [0, 2]
    rig.append(b"x", timestamp=1501)
    assert [s.base_offset for s in rig.log.segments] == [0, 2, 3]
    for _ in range(4):
        rig.append(b"x", timestamp=1501)
    assert len(rig.log.segments) == 5  # an index of 24 bytes has three places, a time index one
    rig.do(rig.log.roll_now)
    assert len(rig.log.segments) == 6
    assert rig.values()[-1] == (7, b"x")
    with pytest.raises(MessageTooLargeError):
        rig.append(b"x" * 1001)
    rig.machine.close()


def test_files_are_named_and_preallocated_as_kafkas() -> None:
    rig = Rig(Machine(1), LogConfig())
    rig.append(b"x")
    directory = rig.log.directory
    names = rig.do(lambda: rig.machine.fs.list(directory))
    assert names == [f"{0:020d}.index", f"{0:020d}.log", f"{0:020d}.timeindex"]

    def size(name: str) -> int:
        file = rig.machine.fs.open_readonly(f"{directory}/{name}")
        return file.size()

    assert rig.do(lambda: size(names[0])) == 10485760
    assert rig.do(lambda: size(names[2])) == 10485756
    rig.machine.run(rig.directory.checkpoint())
    assert "leader-epoch-checkpoint" in rig.do(lambda: rig.machine.fs.list(directory))
    rig.machine.close()
