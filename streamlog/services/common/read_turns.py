"""Readers take turns: what all of them read in one turn of the event loop is bounded, so that many that read at once
do not hold up calls of others.

    fewer than TURN_BYTES were read in this turn, and none waits --> reads at once
    else waits in line --the next turn--> reads, if those before it in line have left some of TURN_BYTES; else first
    in line

A message costs about 2 ms of the loop's time a MiB (copies, and the pages for them), and 0.1 ms however small it is.
Without turns 17 streams that have room for 4 MiB each read them all before the node gets to anything else, as do
thousands of long polls that one record ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

TURN_BYTES: Final = 1 << 20
"""One message may exceed it."""
READ_BYTES: Final = 32 << 10
"""What a read counts for beside its bytes."""
RECORDS_A_TURN: Final = 1_000
"""Of one call that gets records one by one, which take some 4 us each."""


class ReadTurns:
    """Of one node."""

    def __init__(self) -> None:
        self._read_bytes = 0  # in this turn
        self._first: deque[asyncio.Future[None]] = deque()  # their turn has come before, and there was nothing left
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._woken = 0  # their turn has come, and they have not run yet
        self._is_counting = False  # the next turn is awaited

    async def begin(self) -> bool:
        """Once the caller may read; it reads without waiting for anything else first. Whether others were in
        line.
        """
        is_shared = bool(self._woken or self._waiting or self._first)
        if is_shared or self._read_bytes >= TURN_BYTES:
            await self._wait(self._waiting)
            while self._read_bytes >= TURN_BYTES:
                await self._wait(self._first)
        self.has_read(READ_BYTES)
        return is_shared

    def has_read(self, size: int) -> None:
        self._read_bytes += size
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
        self._read_bytes = 0
        self._is_counting = False
        woken = 0
        while woken < TURN_BYTES // READ_BYTES and (line := self._first or self._waiting):
            turn = line.popleft()
            if not turn.done():
                turn.set_result(None)
                woken += 1
        self._woken = woken
        if woken:
            self._count()
