"""Warns of records that wait to be acknowledged: their error comes only after delivery.timeout.ms, two minutes by
default.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from streamlog.client.durations import seconds
from streamlog.client.log_lines import LATE_S, Line, WaitsLog, write
from streamlog.client.producer.batches.partition_queue import PartitionQueue

_log: Final = logging.getLogger(__name__)

LOOK_S: Final = 1.0


class LateRecordsLog:
    """Of one producer. Times are the loop's."""

    def __init__(self, linger_s: float) -> None:
        self._late_s = linger_s + LATE_S
        ended = f"no record has waited for {seconds(self._late_s)} to be acknowledged any more"
        self._waits = WaitsLog(ended, self._late_s)
        self._look_at = 0.0

    def look(self, queues: Collection[PartitionQueue], now: float) -> Line | None:
        """At all queues with unsettled batches. What it returns is passed to `log` outside of the guard: a handler of
        the program may wait for a thread that sends.
        """
        if queues and now < self._look_at:
            return None
        self._look_at = now + LOOK_S
        ages_s = {queue: now - opened_at for queue in queues if (opened_at := queue.waits_since()) is not None}
        return self._waits.look(max(ages_s.values(), default=None), lambda: self._warning(ages_s), now)

    def _warning(self, ages_s: dict[PartitionQueue, float]) -> str:
        late = sum(age_s > self._late_s for age_s in ages_s.values())
        first = max(ages_s, key=ages_s.__getitem__)
        others = f" and {late - 1} more partitions" if late > 2 else " and 1 more partition" if late == 2 else ""
        waited, why = seconds(ages_s[first]), first.why_undelivered()
        return f"records of {first.partition}{others} have waited for {waited} to be acknowledged: {why}"

    @staticmethod
    def log(line: Line | None) -> None:
        write(_log, line)
