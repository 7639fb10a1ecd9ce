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
from streamlog.ports import Clock
from streamlog.printable import escaped

_log: Final = logging.getLogger(__name__)

REPEAT_S: Final = 30.0
"""Between two warnings of one node."""
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
        if failing is not None:
            _log.info("connected to %s, after %s", address, seconds(self._clock.monotonic() - failing.since))
        elif address in self._lost:
            _log.info("connected to %s again", address)
        else:
            _log.debug("connected to %s", address)
        self._lost.discard(address)

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
        _log.warning("%s%s", escaped(reason), for_so_long)

    def lost(self, address: str, reason: str) -> None:
        self._lost.add(address)
        _log.info("lost the connection to %s: %s", address, escaped(reason))
