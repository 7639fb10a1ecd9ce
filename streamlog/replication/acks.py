"""Producers that wait for the high watermark to pass their records (acks=all, SEMANTICS 5).

waiting --high watermark at or above the end--> acknowledged, or NOT_ENOUGH_REPLICAS_AFTER_APPEND where the ISR has
                                                shrunk below the minimum meanwhile
        --leadership lost--------------------> OUTCOME_UNKNOWN: the next leader may or may not have them
"""

from __future__ import annotations

from streamlog.aio.offset_waiters import OffsetWaiters
from streamlog.errors import NotEnoughReplicasAfterAppendError
from streamlog.model import Offset


class AckWaiters(OffsetWaiters):
    """Owned by the partition's leader. `add(end_offset)`: done when the high watermark reaches it."""

    __slots__ = ()

    def passed(self, high_watermark: Offset, *, enough_replicas: bool) -> None:
        for end, future in self.reached(high_watermark):
            if enough_replicas:
                future.set_result(None)
            else:
                future.set_exception(
                    NotEnoughReplicasAfterAppendError(
                        f"the records up to {end} are in the log, but fewer replicas than min.insync.replicas hold them"
                    )
                )
