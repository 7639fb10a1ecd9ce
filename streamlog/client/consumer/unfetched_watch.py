"""Warns of partitions that are to be read and are not fetched: the consumer waits for them without end.

    all fetched --one is not for LATE_S--> WARNING, again each REPEAT_S --all are--> INFO

What no node is asked for has no error of its own: the partition has no leader, its topic or position is not found.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from streamlog.client.connection.metadata import MetadataCache
from streamlog.client.consumer.fetcher import Fetcher
from streamlog.client.consumer.partition_reader import PartitionReader
from streamlog.client.durations import seconds
from streamlog.model import TopicPartition

_log: Final = logging.getLogger(__name__)

LOOK_S: Final = 2.0
LATE_S: Final = 10.0
"""Longer than a fail-over takes."""
REPEAT_S: Final = 30.0


class UnfetchedWatch:
    """Of one consumer."""

    def __init__(self, fetcher: Fetcher, metadata: MetadataCache) -> None:
        self._fetcher = fetcher
        self._metadata = metadata
        self._since: dict[TopicPartition, float] = {}  # of those that wait, on the loop's clock
        self._next_at: float | None = None  # of a warning; None: none waits for long

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            self._look(loop.time())

    def _look(self, now: float) -> None:
        readers = self._fetcher.readers
        self._since = {one: self._since.get(one, now) for one, reader in readers.items() if self._waits(reader)}
        late = [one for one, since in self._since.items() if now - since >= LATE_S]
        if not late:
            if self._next_at is not None:
                _log.info("all partitions are fetched again")
            self._next_at = None
            return
        if self._next_at is not None and now < self._next_at:
            return
        self._next_at = now + REPEAT_S
        first = min(late, key=self._since.__getitem__)
        others = f" and {len(late) - 1} more" if len(late) > 1 else ""
        waited, why = seconds(now - self._since[first]), self._why(readers[first])
        _log.warning("%s%s: not fetched for %s: %s", first, others, waited, why)

    def _waits(self, reader: PartitionReader) -> bool:
        if reader.paused or reader.held or reader.error is not None or reader.at_end:
            return False
        return reader.link is None or self._metadata.leader(reader.partition) is None

    def _why(self, reader: PartitionReader) -> str:
        if self._metadata.partition_count(reader.partition.topic) is None:
            return "its topic is not known yet"
        if self._metadata.leader(reader.partition) is None:
            return "it has no leader"
        return "its position is not known yet" if reader.position is None else "its leader has refused it"
