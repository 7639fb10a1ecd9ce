"""Whether the end of a follower's log is what the leader has at the same offsets (I20): pure, both ends as values.

Epochs tell where two histories part (KIP-101). They say nothing of a replica whose bytes have changed on its disk: the
bytes in front of a batch's CRC hold its base offset and its epoch, and with another base offset the log ends somewhere
else, or at the same place with a hole in it. So a follower names its last batches, and the leader compares. What comes
out is the offset from which on the follower must fetch again; behind it nothing is believed.

Replicas of a log that compaction has been at are cleaned each in its own time: a batch that one has and the other has
not may have been cleaned away, and one that both have may have fewer records here than there. Of such logs only what
cleaning never changes is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamlog.model import Offset
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
    `ours` all that the leader has at these offsets. `log_start`: the leader's. `has_gaps`: compaction has been
    at one of them.
    """
    if not theirs:
        return None
    at = {held.base_offset: held for held in ours}
    end: Offset | None = None  # of the batch before, which is the leader's as well
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
