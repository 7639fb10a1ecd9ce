"""What a client logs of its connections.

    connected  --lost----------------------------> INFO --connected--> INFO
    an attempt fails --first, and each REPEAT_S--> WARNING --connected--> INFO, with how long it took

Clients go on by themselves while nodes restart, so nothing of it is an error; without it a program that waits would
say nothing until a timeout.
"""

from __future__ import annotations

import logging
from typing import Final

from streamlog.client.durations import seconds
from streamlog.client.log_lines import REPEAT_S, inform, warn, write
from streamlog.ports import Clock

_log: Final = logging.getLogger(__name__)

FORGOTTEN_S: Final = 60.0
"""After so long without an attempt, the next one that fails is a first one."""

LOST_MAX: Final = 1_000
"""Addresses whose next connection is logged; nodes may have another one each time."""


class _Failing:
    def __init__(self, now: float) -> None:
        self.since = now
        self.tried_at = now
        self.logged_at: float | None = None


class ConnectionLog:
    """The ConnectionEvents of one client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failing: dict[str, _Failing] = {}  # by address
        self._lost: set[str] = set()  # addresses

    def connected(self, address: str) -> None:
        failing = self._failing.pop(address, None)
        was_lost = address in self._lost
        self._lost.discard(address)
        if failing is not None:
            for_s = seconds(self._clock.monotonic() - failing.since)
            inform(_log, f"connected to {address}, after {for_s}")
        elif was_lost:
            inform(_log, f"connected to {address} again")
        else:
            write(_log, (logging.DEBUG, f"connected to {address}"))

    def failed(self, address: str, reason: str) -> None:
        now = self._clock.monotonic()
        failing = self._failing.get(address)
        if failing is None or now > failing.tried_at + FORGOTTEN_S:
            self._failing = {one: known for one, known in self._failing.items() if now <= known.tried_at + FORGOTTEN_S}
            failing = self._failing[address] = _Failing(now)
        failing.tried_at = now
        if failing.logged_at is not None and now < failing.logged_at + REPEAT_S:
            return
        failing.logged_at = now
        for_so_long = f", for {seconds(now - failing.since)} now" if now > failing.since else ""
        warn(_log, f"{reason}{for_so_long}")

    def lost(self, address: str, reason: str) -> None:
        if len(self._lost) >= LOST_MAX:
            self._lost.clear()
        self._lost.add(address)
        inform(_log, f"lost the connection to {address}: {reason}")
