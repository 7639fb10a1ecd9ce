"""Reports broken streams to the active controller, which then probes the node at their other end.

The nodes at the other end of a stream notice first that a node has failed; the controller would notice when its session
expires, some seconds later. A report names one registration: a node that has restarted meanwhile is not affected.
"""

from __future__ import annotations

import asyncio

from streamlog.controller import ControllerLink
from streamlog.errors import StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId
from streamlog.ports import Probe, RpcError


class Suspicions:
    """Owned by the node; `run` is a task of it."""

    def __init__(self, link: ControllerLink, view: MetadataView, probe: Probe) -> None:
        self._link = link
        self._view = view
        self._probe = probe
        self._suspected: dict[BrokerId, BrokerEpoch] = {}  # to be reported; at most one a node
        self._reports = asyncio.Event()

    def suspect(self, broker_id: BrokerId) -> None:
        """A working stream to the node broke. Returns at once; does nothing where the node is fenced already."""
        broker = self._view.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            self._suspected[broker_id] = broker.epoch
            self._reports.set()

    async def run(self) -> None:
        """For ever. One report at a time, since they share the controller's probe."""
        while True:
            await self._reports.wait()
            self._reports.clear()
            while self._suspected:
                broker_id, epoch = self._suspected.popitem()
                self._probe("suspected", broker=broker_id, epoch=epoch)
                try:
                    await self._link.suspect(broker_id, epoch)
                except (StreamlogError, RpcError) as error:
                    # The controller will notice by the expired session.
                    self._probe("suspicion_not_reported", broker=broker_id, reason=str(error))
