"""Transactional batches for tests of a partition's leader."""

from __future__ import annotations

from streamlog.model import Acks, Appended, ProducerId
from streamlog.records.header import TRANSACTIONAL_BIT
from tests.broker.rig import QUEUED, Opening, Rig
from tests.storage.batches import batch

PID = ProducerId(7)


def transactional(*values: bytes, epoch: int = 0, sequence: int = 0, pid: int = PID) -> bytes:
    return batch(values, producer=(pid, epoch, sequence), attributes=TRANSACTIONAL_BIT)


async def confirmed() -> None:
    """The coordinator knows the transaction."""


def begin(rig: Rig, *values: bytes, epoch: int = 0, sequence: int = 0, pid: int = PID) -> Appended:
    """A batch on its way through verification, if it needs one."""
    data = transactional(*values, epoch=epoch, sequence=sequence, pid=pid)

    async def sending() -> Appended:
        return await rig.leader().appends.append(data, Acks.LEADER, QUEUED, Opening(confirmed))

    return rig.machine.run(sending())
