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
from streamlog.client.waits_log import REPEAT_S, write
from streamlog.ports import Clock
from streamlog.printable import escaped

_log: Final = logging.getLogger(__name__)

FORGOTTEN_S: Final = 60.0
"""After so long without an attempt, the next one that fails is a first one."""


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
            write(_log, (logging.INFO, f"connected to {address}, after {for_s}"))
        elif was_lost:
            write(_log, (logging.INFO, f"connected to {address} again"))
        else:
            write(_log, (logging.DEBUG, f"connected to {address}"))

    def failed(self, address: str, reason: str) -> None:
        now = self._clock.monotonic()
        failing = self._failing.get(address)
        if failing is None or now > failing.tried_at + FORGOTTEN_S:
            failing = self._failing[address] = _Failing(now)
        failing.tried_at = now
        if failing.logged_at is not None and now < failing.logged_at + REPEAT_S:
            return
        failing.logged_at = now
        for_so_long = f", for {seconds(now - failing.since)} now" if now > failing.since else ""
        write(_log, (logging.WARNING, f"{escaped(reason)}{for_so_long}"))

    def lost(self, address: str, reason: str) -> None:
        self._lost.add(address)
        write(_log, (logging.INFO, f"lost the connection to {address}: {escaped(reason)}"))
