"""Ids for idempotent producers. The controller allocates them to nodes in blocks, so that most cost no round trip.

A node that restarts requests a new block and leaves the rest of the old one unused: no id is ever allocated twice.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from streamlog.errors import QuorumUnavailableError
from streamlog.model import ProducerId


class ProducerIdSource(Protocol):
    """The active controller."""

    async def allocate_producer_ids(self) -> tuple[ProducerId, int]:
        """A block for this node alone: first, count. StreamlogError."""
        ...


class ProducerIdBlocks:
    """One a node."""

    def __init__(self, source: ProducerIdSource) -> None:
        self._source = source
        self._next = 0
        self._end = 0  # half-open
        self._requesting = asyncio.Lock()  # one request for a block at a time

    async def next(self) -> ProducerId:
        """An id that no other producer has had. StreamlogError where the controller cannot be reached."""
        while self._next == self._end:
            async with self._requesting:
                if self._next == self._end:
                    await self._request_block()
        producer_id = ProducerId(self._next)
        self._next += 1
        return producer_id

    async def _request_block(self) -> None:
        first, count = await self._source.allocate_producer_ids()
        if count < 1 or first < self._end:
            raise QuorumUnavailableError(
                f"the controller has allocated {count} producer ids from {first} on, but this node has had those below "
                f"{self._end}: they are not used"
            )
        self._next, self._end = first, first + count
