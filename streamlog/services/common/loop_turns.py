"""Pieces of work of one kind take turns on the event loop: what one turn of it does of them is bounded, so that many
that begin at once do not hold up calls of others.

    less than the room of this turn was done, and none waits --> at once
    else waits in line --the next turn--> begins, if those before it in line have left room; else is first in line

Without turns 17 streams that have room for a message of 4 MiB each read them all before the node gets to anything
else, as do thousands of long polls that one record ends, or clients that follow the metadata when a node fails.
"""

from __future__ import annotations

import asyncio
from collections import deque


class LoopTurns:
    """Of one kind of work, in one node."""

    def __init__(self, *, room: int, least: int) -> None:
        """`room`: of one turn; its last piece may exceed it. `least`: what each piece takes of it."""
        self._room = room
        self._least = least
        self._used = 0  # in this turn
        self._first: deque[asyncio.Future[None]] = deque()  # their turn has come before, and there was no room left
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._woken = 0  # their turn has come, and they have not run yet
        self._is_counting = False  # the next turn is awaited

    async def begin(self) -> bool:
        """Once the caller may do one piece, before it next waits for anything. Whether others were in line."""
        is_shared = bool(self._woken or self._waiting or self._first)
        if is_shared or self._used >= self._room:
            await self._wait(self._waiting)
            while self._used >= self._room:
                await self._wait(self._first)
        self.took(self._least)
        return is_shared

    def took(self, more: int) -> None:
        """The piece has taken so much, beside the least."""
        self._used += more
        self._count()

    async def _wait(self, line: deque[asyncio.Future[None]]) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        self._count()
        await turn
        self._woken -= 1

    def _count(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._used = 0
        self._is_counting = False
        woken = 0
        while woken * self._least < self._room and (line := self._first or self._waiting):
            turn = line.popleft()
            if not turn.done():
                turn.set_result(None)
                woken += 1
        self._woken = woken
        if woken:
            self._count()
