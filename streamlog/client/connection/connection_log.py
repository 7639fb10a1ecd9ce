"""What a client logs of its connections.

    connected  --lost--------------------------> INFO
    an attempt fails --first, and each REPEAT_S--> WARNING --connected--> INFO, with how long it took

Clients go on by themselves while nodes restart, so nothing of it is an error; without it a program that waits would
say nothing until a timeout.
"""

from __future__ import annotations

import logging
from typing import Final

from streamlog.ports import Clock
from streamlog.printable import escaped

_log: Final = logging.getLogger(__name__)

REPEAT_S: Final = 30.0
"""Between two warnings of one node."""


class ConnectionLog:
    """The ConnectionEvents of one client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failing: dict[str, tuple[float, float]] = {}  # by address: since when, and when that was logged

    def connected(self, address: str) -> None:
        failing = self._failing.pop(address, None)
        if failing is None:
            _log.debug("connected to %s", address)
        else:
            _log.info(
                "connected to %s, after %.3g s without a connection", address, self._clock.monotonic() - failing[0]
            )

    def failed(self, address: str, reason: str) -> None:
        now = self._clock.monotonic()
        since_s, logged_s = self._failing.get(address, (now, -REPEAT_S))
        if now < logged_s + REPEAT_S:
            return
        for_s = f", for {now - since_s:.3g} s now" if now > since_s else ""
        _log.warning("%s%s; it is tried again", escaped(reason), for_s)
        self._failing[address] = since_s, now

    def lost(self, address: str, reason: str) -> None:
        _log.info("lost the connection to %s: %s", address, escaped(reason))
