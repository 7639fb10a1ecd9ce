"""Warns of partitions that are to be read and are not fetched: the consumer waits for them without end.

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
from streamlog.client.log_lines import LATE_S, WaitsLog, write
from streamlog.model import TopicPartition

_log: Final = logging.getLogger(__name__)

LOOK_S: Final = 2.0


class UnfetchedWatch:
    """Of one consumer."""

    def __init__(self, fetcher: Fetcher, metadata: MetadataCache) -> None:
        self._fetcher = fetcher
        self._metadata = metadata
        self._since: dict[TopicPartition, float] = {}  # of those that wait, on the loop's clock
        self._waits_log = WaitsLog("no partition has waited for 10 s to be fetched any more")

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            self._look(loop.time())

    def _look(self, now: float) -> None:
        readers = self._fetcher.readers
        self._since = {one: self._since.get(one, now) for one, reader in readers.items() if self._waits(reader)}
        first = min(self._since, key=self._since.__getitem__, default=None)
        longest_s = None if first is None else now - self._since[first]
        write(_log, self._waits_log.look(longest_s, lambda: self._warning(first, now), now))

    def _warning(self, first: TopicPartition | None, now: float) -> str:
        assert first is not None, "one waits"
        late = sum(now - since >= LATE_S for since in self._since.values())
        others = f" and {late - 1} more" if late > 1 else ""
        have = "have" if late > 1 else "has"
        waited, why = seconds(now - self._since[first]), self._why(self._fetcher.readers[first])
        return f"{first}{others} {have} not been fetched for {waited}: {why}"

    def _waits(self, reader: PartitionReader) -> bool:
        if reader.paused or reader.held or reader.error is not None or reader.at_end:
            return False
        return reader.link is None or self._metadata.leader(reader.partition) is None

    def _why(self, reader: PartitionReader) -> str:
        if self._metadata.partition_count(reader.partition.topic) is None:
            return "the topic is not known yet"
        if self._metadata.leader(reader.partition) is None:
            return f"{reader.partition} has no leader"
        return "the position is not known yet" if reader.position is None else "the leader has refused it"
