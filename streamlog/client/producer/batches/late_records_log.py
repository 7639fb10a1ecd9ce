"""Warns of records that wait to be acknowledged: their error comes only after delivery.timeout.ms, two minutes by
default.

    all in time --one waits LATE_S--> WARNING, again each REPEAT_S --none does any more--> INFO
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from streamlog.client.durations import seconds
from streamlog.client.producer.batches.partition_queue import PartitionQueue
from streamlog.printable import escaped

_log: Final = logging.getLogger(__name__)

LATE_S: Final = 10.0
"""Beyond linger.ms. Longer than a fail-over takes."""
REPEAT_S: Final = 30.0
LOOK_S: Final = 1.0


class LateRecordsLog:
    """Of one producer. Times are the loop's."""

    def __init__(self, linger_s: float) -> None:
        self._late_s = linger_s + LATE_S
        self._next_at: float | None = None  # of a warning; None: no record is late
        self._look_at = 0.0

    def look(self, queues: Collection[PartitionQueue], now: float) -> tuple[int, str] | None:
        """At all queues with unsettled batches: a level and a text, to be passed to `log` outside of the guard, since a
        handler of the program may wait for a thread that sends.
        """
        if queues and now < self._look_at:
            return None
        self._look_at = now + LOOK_S
        ages_s = {queue: now - opened_at for queue in queues if (opened_at := queue.waits_since()) is not None}
        late = [queue for queue, age_s in ages_s.items() if age_s > self._late_s]
        if not late:
            was_late, self._next_at = self._next_at is not None, None
            text = f"no records have waited for more than {seconds(self._late_s)} to be acknowledged any more"
            return (logging.INFO, text) if was_late else None
        if self._next_at is not None and now < self._next_at:
            return None
        self._next_at = now + REPEAT_S
        first = max(late, key=ages_s.__getitem__)
        others = f" and {len(late) - 1} more partitions" if len(late) > 2 else " and 1 more partition" * (len(late) - 1)
        waited, why = seconds(ages_s[first]), escaped(first.why_undelivered())
        return (
            logging.WARNING,
            f"records of {first.partition}{others} have waited for {waited} to be acknowledged: {why}",
        )

    @staticmethod
    def log(line: tuple[int, str]) -> None:
        level, text = line
        _log.log(level, "%s", text)
