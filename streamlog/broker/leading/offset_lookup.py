"""Offsets by place, as ListOffsets requests them: the ends, a timestamp, the largest timestamp."""

from __future__ import annotations

from streamlog.api.requests import OffsetPlace
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.model import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, IsolationLevel
from streamlog.storage.log.time_lookup import FoundOffset


async def offset_for(replica: LeaderReplica, place: OffsetPlace | int, isolation: IsolationLevel) -> FoundOffset:
    """The offset of `place`; an int: of the first record of this time (ms) or later. Offset -1: there is none.

    A new leader does not answer before the high watermark has reached what former leaders appended: the end would lie
    below what they have returned (KIP-207). The caller bounds the wait. Raises the error that ended the leadership.
    """
    replica.check()
    log = replica.log
    if place is OffsetPlace.EARLIEST:
        start = log.log_start_offset
        return FoundOffset(start, NO_TIMESTAMP, log.epochs.epoch_of(start))
    await replica.wait_for_former_leaders()
    if place is OffsetPlace.LATEST:
        return FoundOffset(replica.readable_end(isolation), NO_TIMESTAMP, replica.leader_epoch)
    time_ms = await log.largest_timestamp() if isinstance(place, OffsetPlace) else place
    found = None if time_ms == NO_TIMESTAMP else await log.offset_for_timestamp(time_ms)
    replica.check()
    if found is None or found.offset >= replica.readable_end(isolation):
        return FoundOffset(NO_OFFSET, NO_TIMESTAMP, NO_LEADER_EPOCH)
    return found
