"""Reports to the controller which replicas of this node are on a failed disk, until the metadata have them offline.

The list is recomputed for each report: a topic deleted meanwhile is not reported, and a replica that a new registration
of this node has cleared is reported again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streamlog.errors import StreamlogError
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.isr import PARTITIONS_PER_REQUEST_MAX
from streamlog.ports import Probe

# The next report is sent so long after one that the metadata do not show by then.
REPEAT_MS: Final = 1_000


class OfflineReplicaReporter(Protocol):
    """The active controller."""

    async def report_offline_replicas(self, partitions: Sequence[PartitionKey]) -> None:
        """These replicas of this node are on a failed disk. StreamlogError where the report failed."""
        ...


class OfflineReports:
    """Owned by `Replicas`; `run` is a task of it. `unreported()`: what the metadata do not show yet."""

    def __init__(
        self, reporter: OfflineReplicaReporter, probe: Probe, unreported: Callable[[], Sequence[PartitionKey]]
    ) -> None:
        self._reporter = reporter
        self._probe = probe
        self._unreported = unreported
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """A replica may have gone offline."""
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
