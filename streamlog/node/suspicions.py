"""Broken streams are told to the active controller, which takes a second look at the node at their other end.

Those that serve or follow streams find out first that a node has died; the controller finds out by its silence, some
seconds later. What is told is a suspicion of one registration: a node that has come back meanwhile is not meant.
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
        self._suspected: dict[BrokerId, BrokerEpoch] = {}  # to be told; no more than there are nodes
        self._news = asyncio.Event()

    def suspect(self, broker_id: BrokerId) -> None:
        """A stream that had worked broke. Synchronous; nothing where the node is fenced already."""
        broker = self._view.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            self._suspected[broker_id] = broker.epoch
            self._news.set()

    async def run(self) -> None:
        """For ever. Told one after the other: they share the controller's second look."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._suspected:
                broker_id, epoch = self._suspected.popitem()
                self._probe("suspected", broker=broker_id, epoch=epoch)
                try:
                    await self._link.suspect(broker_id, epoch)
                except (StreamlogError, RpcError) as error:
                    # Its session will tell.
                    self._probe("suspicion_untold", broker=broker_id, reason=str(error))
