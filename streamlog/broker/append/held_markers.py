"""Markers that wait a moment for the transaction behind them, to go to the disk and to the followers with its first
batch.

    marker that opens the next transaction --its first batch is there, or HOLD_S is over--> appended

A producer that has one transaction after another sends that batch within milliseconds, mostly. A marker of its own
would cost every replica as much as a batch does: a message there and back, and a sync. Readers of committed records
wait HOLD_S longer where the batch does not come.

Nothing is promised before the marker is appended: what is held may be lost with the leadership, and its coordinator
asks again.
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
        """Until it is released; whatever `append` answers, or raises. It is not appended when this is cancelled."""
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
        """Append what is held of this producer, now."""
        held = self._held.pop(producer_id, None)
        if held is None or held.done.done():
            return
        try:
            held.done.set_result(held.append())
        except StreamlogError as error:
            held.done.set_exception(error)

    def end(self, error: StreamlogError) -> None:
        """The leadership is over: nothing is appended any more."""
        held_by_producer, self._held = self._held, {}
        for held in held_by_producer.values():
            if not held.done.done():
                held.done.set_exception(error)
