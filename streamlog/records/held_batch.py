"""A description of a batch in a replica, by which another replica finds out whether it has the same batch.

The CRC of a batch covers all but its first 21 bytes; with base offset and leader epoch in addition, two batches with
the same description are the same bytes. Compaction may have rewritten one of them: then offsets, epoch and
`origin` are still the same, which no cleaning changes.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.model import LeaderEpoch, Offset
from streamlog.records.header import BatchHeader

_ORIGIN: Final = struct.Struct(">qhii")


class HeldBatch(NamedTuple):
    base_offset: Offset
    next_offset: Offset
    leader_epoch: LeaderEpoch
    crc: int
    origin: int  # of the producer's id, epoch and sequence, and of how many offsets it takes

    @classmethod
    def of(cls, header: BatchHeader) -> HeldBatch:
        origin = crc32c(
            _ORIGIN.pack(header.producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta)
        )
        return cls(header.base_offset, header.next_offset, header.leader_epoch, header.crc, origin)
