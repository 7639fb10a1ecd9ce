"""Readers take turns: what all of them read in one turn of the event loop is bounded, so that many that read at once
do not hold up calls of others.

    fewer than TURN_BYTES were read in this turn, and none waits --> reads at once
    else waits in line; in each turn that follows one of the line reads --> no bytes left, or none waits

A message costs about 2 ms of the loop's time a MiB (copies, and the pages for them). Without turns 17 streams that
have room for 4 MiB each read them all before the node gets to anything else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

TURN_BYTES: Final = 1 << 20
"""One message may exceed it."""
RECORDS_A_TURN: Final = 1_000
"""Of one call that gets records one by one, which take some 4 us each."""


class ReadTurns:
    """Of one node."""

    def __init__(self) -> None:
        self._read_bytes = 0  # in this turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_counting = False  # the next turn is awaited

    @property
    def may_read(self) -> bool:
        """Without waiting."""
        return self._read_bytes < TURN_BYTES and not self._waiting

    async def wait(self) -> None:
        """For a turn with room. Those that came before go first."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._count()
        await turn

    def has_read(self, size: int) -> None:
        self._read_bytes += size
        self._count()

    def _count(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._read_bytes = 0
        self._is_counting = False
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
                self._count()
                return
