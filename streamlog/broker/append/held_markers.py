"""Markers that wait a moment for the producer's next transaction, to be written and replicated with its first batch.

    marker that opens the next transaction --its first batch arrives, or HOLD_S has passed--> appended

A producer that runs one transaction after another mostly sends that batch within milliseconds. A marker by itself
would cost every replica as much as a batch: a round trip and a sync. If the batch does not arrive, readers of committed
records wait HOLD_S longer.

Nothing is acknowledged before the marker is appended: a held marker may be lost with the leadership, and its
coordinator sends it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from streamlog.errors import StreamlogError
from streamlog.model import Appended, ProducerId

HOLD_S: Final = 0.01


class _Held:
    def __init__(self, append: Callable[[], Appended]) -> None:
        self.append = append
        self.done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()


class HeldMarkers:
    """Of one leadership; one a producer."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[ProducerId, _Held] = {}

    async def hold(self, producer_id: ProducerId, append: Callable[[], Appended]) -> Appended:
        """Until it is released; returns or raises what `append` does. If cancelled, the marker is not appended."""
        self.release(producer_id)
        held = self._held[producer_id] = _Held(append)
        timer = asyncio.get_running_loop().call_later(HOLD_S, self.release, producer_id)
        try:
            return await held.done
        finally:
            timer.cancel()
            if self._held.get(producer_id) is held:
                del self._held[producer_id]

    def release(self, producer_id: ProducerId) -> None:
        """Append the held marker of this producer, if there is one."""
        held = self._held.pop(producer_id, None)
        if held is None or held.done.done():
            return
        try:
            held.done.set_result(held.append())
        except StreamlogError as error:
            held.done.set_exception(error)

    def end(self, error: StreamlogError) -> None:
        """The leadership has ended: nothing more is appended."""
        held_by_producer, self._held = self._held, {}
        for held in held_by_producer.values():
            if not held.done.done():
                held.done.set_exception(error)
