"""Warns of records that wait to be acknowledged: their error comes only after delivery.timeout.ms, two minutes by
default.

    all in time --one waits LATE_S--> WARNING, again each REPEAT_S --none does any more--> INFO
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from streamlog.client.producer.batches.partition_queue import PartitionQueue
from streamlog.printable import escaped

_log: Final = logging.getLogger(__name__)

LATE_S: Final = 10.0
"""Beyond linger.ms. Longer than a fail-over takes."""
REPEAT_S: Final = 30.0


class LateRecordsLog:
    """Of one producer. Times are the loop's."""

    def __init__(self, linger_s: float) -> None:
        self._late_s = linger_s + LATE_S
        self._next_at: float | None = None  # of a warning; None: no record is late

    def look(self, queues: Collection[PartitionQueue], now: float) -> None:
        """At all queues with unsettled batches; a few times a second at most."""
        ages_s = {queue: now - opened_at for queue in queues if (opened_at := queue.waits_since()) is not None}
        late = [queue for queue, age_s in ages_s.items() if age_s > self._late_s]
        if not late:
            if self._next_at is not None:
                _log.info("no records have waited for more than %.3g s to be acknowledged any more", self._late_s)
            self._next_at = None
            return
        if self._next_at is not None and now < self._next_at:
            return
        self._next_at = now + REPEAT_S
        first = max(late, key=ages_s.__getitem__)
        others = f" and of {len(late) - 1} other partitions" if len(late) > 1 else ""
        _log.warning(
            "records of %s%s have waited for %.3g s to be acknowledged: %s",
            first.partition,
            others,
            ages_s[first],
            escaped(first.why_undelivered()),
        )
