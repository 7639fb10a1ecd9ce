"""Telling the controller which replicas of this node are on a disk that failed, until the metadata says so.

The list is made anew for each report, so that a topic deleted meanwhile is not told, and a replica that a new
registration of this node has put back on the list is told again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streamlog.errors import StreamlogError
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.isr import PARTITIONS_PER_REQUEST_MAX
from streamlog.ports import Probe

# How long after one report the next is made, where the metadata does not tell of it by then.
REPEAT_MS: Final = 1_000


class OfflineReplicaReporter(Protocol):
    """The active controller."""

    async def report_offline_replicas(self, partitions: Sequence[PartitionKey]) -> None:
        """These replicas of this node are on a failed disk. StreamlogError where the report failed."""
        ...


class OfflineReports:
    """Owned by `Replicas`; `run` is a task of it. `unreported()`: what the cluster does not know yet."""

    def __init__(
        self, reporter: OfflineReplicaReporter, probe: Probe, unreported: Callable[[], Sequence[PartitionKey]]
    ) -> None:
        self._reporter = reporter
        self._probe = probe
        self._unreported = unreported
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something may have to be told."""
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while partitions := self._unreported():
                await self._report(partitions[:PARTITIONS_PER_REQUEST_MAX])
                await asyncio.sleep(REPEAT_MS / 1000)

    async def _report(self, partitions: Sequence[PartitionKey]) -> None:
        try:
            await self._reporter.report_offline_replicas(partitions)
        except StreamlogError as e:
            self._probe("offline_replicas_not_reported", count=len(partitions), reason=str(e))
