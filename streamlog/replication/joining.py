"""Whether the end of a follower's log equals the leader's at the same offsets (I20): pure, both ends as values.

Epochs show where two histories diverge (KIP-101). They do not detect bytes that changed on a replica's disk: a batch's
base offset and epoch stand before its CRC, and with another base offset the log ends elsewhere, or at the same offset
with a hole in it. So a follower names its last batches, and the leader compares them. The result is the offset from
which the follower must fetch again; nothing after it is trusted.

Nor are epochs further back compared by this. After an unclean stop the follower has read those above the recovery point
from its batches, with nothing to compare them with, so it names them too.

Replicas of a compacted log are compacted independently: a batch that only one of them has may have been compacted away,
and a batch that both have may have fewer records in one. Of such logs only what compaction never changes is compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from streamlog.model import NO_LEADER_EPOCH, LeaderEpoch, Offset
from streamlog.records.held_batch import HeldBatch


def first_difference(
    theirs: Sequence[HeldBatch],
    ours: Sequence[HeldBatch],
    *,
    fetch_offset: Offset,
    log_start: Offset,
    has_gaps: bool,
) -> Offset | None:
    """Where the follower's log differs; None: nowhere. `theirs` are its last batches and reach to `fetch_offset`,
    `ours` all that the leader has at these offsets. `log_start`: the leader's. `has_gaps`: one of the logs has been
    compacted.
    """
    if not theirs:
        return None
    at = {held.base_offset: held for held in ours}
    end: Offset | None = None  # of the previous batch, which equals the leader's
    for held in theirs:
        if end is not None and held.base_offset != end and (held.base_offset < end or not has_gaps):
            return end
        if held.base_offset >= log_start and not _is_same(held, at, ours, has_gaps=has_gaps):
            return held.base_offset if end is None else end
        end = held.next_offset
    return end if end != fetch_offset else None


def _is_same(held: HeldBatch, at: dict[Offset, HeldBatch], ours: Sequence[HeldBatch], *, has_gaps: bool) -> bool:
    mine = at.get(held.base_offset)
    if not has_gaps:
        return mine == held
    if mine is not None:
        return mine._replace(crc=0) == held._replace(crc=0)
    return not any(other.base_offset < held.next_offset and held.base_offset < other.next_offset for other in ours)


class UnprovenEpochs(NamedTuple):
    """All leader epochs of the log from `start_offset` on, each with its first offset; both rise."""

    start_offset: Offset
    epochs: Sequence[tuple[LeaderEpoch, Offset]]


def first_epoch_difference(
    theirs: UnprovenEpochs, ours: Sequence[tuple[LeaderEpoch, Offset]], *, fetch_offset: Offset
) -> Offset | None:
    """Where an epoch of the follower's records is not that of the leader's; None: nowhere below `fetch_offset`. `ours`
    begins with the leader's log. Neither log has gaps.
    """
    if not ours:
        return None
    begin = max(theirs.start_offset, ours[0][1])
    starts = {begin, *(start for _, start in (*theirs.epochs, *ours) if start > begin)}
    for offset in sorted(starts):
        if offset < fetch_offset and _epoch_at(theirs.epochs, offset) != _epoch_at(ours, offset):
            return offset
    return None


def _epoch_at(epochs: Sequence[tuple[LeaderEpoch, Offset]], offset: Offset) -> LeaderEpoch:
    index = bisect_right(epochs, offset, key=lambda entry: entry[1])
    return epochs[index - 1][0] if index else NO_LEADER_EPOCH
