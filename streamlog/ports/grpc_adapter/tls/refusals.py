"""Callers over TLS whose connection ended before a first call: counted, and reported with the reason, once a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

REPORT_S: Final = 60.0


class Refusals:
    """Of one server."""

    def __init__(
        self, port: int, report: Callable[[str], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.begun = 0  # handshakes, since the start
        self.ended_without_call = 0  # connections
        self._port = port
        self._report = report
        self._monotonic = monotonic
        self._reported_at = -REPORT_S
        self._unreported = 0

    def ended(self, peer: str, reason: str) -> None:
        """`reason`: of the last one, what failed."""
        self.ended_without_call += 1
        self._unreported += 1
        now = self._monotonic()
        if now - self._reported_at < REPORT_S:
            return
        what = f"the connection from {peer} to port {self._port} was"
        if self._unreported > 1:
            what = f"{self._unreported} connections to port {self._port}, the last from {peer}, were"
        self._report(f"{what} closed before a first call: {reason}")
        self._reported_at, self._unreported = now, 0
