"""A truncation while an earlier segment of the log is repaired: what was found in a later one is not used any more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from streamlog.broker.repair.log_repairs import Repairs
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, Offset, TopicId, TopicPartition
from streamlog.sim.machine import Machine
from streamlog.storage.log_config import LogConfig
from tests.storage.rig import Rig


class TruncatingSource:
    """Gives what the log had; first the log is truncated."""

    def __init__(self, rig: Rig, batches: list[bytes], end: Offset) -> None:
        self._rig = rig
        self._batches = batches
        self._end = end

    async def batches(
        self, node: BrokerId, topic_id: TopicId, at: TopicPartition, begin: Offset, end: Offset
    ) -> AsyncIterator[bytes]:
        await self._rig.log.truncate(self._end)
        for offset in range(begin, end):
            yield self._batches[offset]


def test_damage_that_a_truncation_has_removed_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(Machine(1), LogConfig(segment_index_bytes=1024, segment_bytes=600))
    for _ in range(9):
        rig.append(b"v" * 100)
    rig.sync()
    batches = [rig.read(offset, 1) for offset in range(9)]
    for segment in list(rig.log.segments)[:2]:
        rig.machine.disk.damage(segment.path(".log"), len(batches[0]) + 65, b"??")
        segment.verified.forget()
        rig.machine.run(rig.log.examine(segment))
    assert len(rig.log.damaged_segments) == 2
    repairs = Repairs(
        BrokerId(1),
        rig.machine.fs,
        cast(MetadataView, None),
        TruncatingSource(rig, batches, Offset(rig.log.segments.at(1).base_offset + 1)),
        rig.probe,
        topic_id_of=lambda _: TopicId(bytes(16)),
        hand_over=lambda log, error: None,
        spawn=lambda work: work.close(),
    )
    monkeypatch.setattr(repairs, "_sources", lambda _: [BrokerId(2)])
    assert rig.machine.run(repairs.repair(rig.log)) == []
    rig.machine.close()
