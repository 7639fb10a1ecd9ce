"""Pieces of work of one kind take turns on the event loop, so that many that begin together do not hold up calls of
others.

    there is room in this turn, and none waits --> at once
    else waits in line; each turn that follows takes as many of the line as it has room for, at least one
"""

from __future__ import annotations

import asyncio
from collections import deque


class WeightedTurns:
    def __init__(self, room: int) -> None:
        """`room`: weight of what one turn does. A heavier piece has a turn for itself."""
        self._room = room
        self._used = 0  # in this turn
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._is_counting = False  # the next turn is awaited

    async def wait(self, weight: int) -> None:
        """Until the caller may do this piece of work, before it next waits. Those that came before go first."""
        if not self._waiting and self._fits(weight):
            self._use(weight)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, weight))
        await turn

    def _fits(self, weight: int) -> bool:
        return not self._used or self._used + weight <= self._room

    def _use(self, weight: int) -> None:
        self._used += weight
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._used = 0
        self._is_counting = False
        while self._waiting:
            turn, weight = self._waiting[0]
            if not turn.done():  # otherwise it was cancelled
                if not self._fits(weight):
                    return
                self._use(weight)
                turn.set_result(None)
            self._waiting.popleft()
