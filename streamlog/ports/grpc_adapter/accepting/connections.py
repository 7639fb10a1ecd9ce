"""Limits a server's connections, in all and by address: `max.connections`, `max.connections.per.ip`.

    accepted --> more than per_address of its address? --> one of that address is closed
             --> more than total?                      --> one of the address that has most is closed

Of those the oldest that has said nothing yet is closed, the new one excepted, else the newest. So callers that hold
connections without a word do not keep others out. Each step takes the same time with any number of connections, and of
addresses: a flood meets it with each connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

REPORT_S: Final = 60.0
"""Between two reports while connections are being closed."""


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    total: int
    per_address: int


class Accepted(Protocol):
    address: str  # of the peer, without its port

    def abort(self) -> None: ...


class _Address:
    """One that has connections, the oldest first."""

    __slots__ = ("every", "silent")

    def __init__(self) -> None:
        self.every: dict[Accepted, None] = {}
        self.silent: dict[Accepted, None] = {}


class _BySize:
    """Addresses by their number of connections."""

    def __init__(self) -> None:
        self._addresses: dict[int, dict[str, None]] = {}
        self._largest = 0

    @property
    def largest(self) -> str:
        """An address that has most connections."""
        return next(iter(self._addresses[self._largest]))

    def change(self, address: str, before: int, now: int) -> None:
        """By one."""
        if now:
            self._addresses.setdefault(now, {})[address] = None
            self._largest = max(self._largest, now)
        if before:
            of_before = self._addresses[before]
            del of_before[address]
            if not of_before:
                del self._addresses[before]
                if before == self._largest:
                    self._largest = now


class OpenConnections:
    """Of one server. On its event loop."""

    def __init__(
        self,
        port: int,
        limits: ConnectionLimits | None,
        report: Callable[[str], None],
        monotonic: Callable[[], float],
    ) -> None:
        """Without `limits` they are only counted."""
        self.limits = limits
        # Since the start: closed by a limit; and all that ended without having sent a byte.
        self.closed_per_address = self.closed_total = self.ended_silent = 0
        self._port = port
        self._report = report
        self._monotonic = monotonic
        self._addresses: dict[str, _Address] = {}
        self._by_size = _BySize()
        self.count = 0
        self.silent_count = 0  # of these: nothing has come from them yet; over TLS, the handshake is not complete
        self._opened: Counter[str] | None = None  # by address; None: not counted now
        self._unreported = 0
        self._reported_at = -REPORT_S

    def add(self, one: Accepted) -> None:
        """A new one, which is silent. May abort it, or another one."""
        of_one = self._addresses.setdefault(one.address, _Address())
        of_one.every[one] = of_one.silent[one] = None
        self.count += 1
        self.silent_count += 1
        self._by_size.change(one.address, len(of_one.every) - 1, len(of_one.every))
        if self._opened is not None:
            self._opened[one.address] += 1
        if self.limits is None:
            return
        if len(of_one.every) > self.limits.per_address:
            self.closed_per_address += 1
            self._close_one(of_one, self.limits)
        elif self.count > self.limits.total:
            self.closed_total += 1
            self._close_one(self._addresses[self._by_size.largest], self.limits)

    def _close_one(self, of_one: _Address, limits: ConnectionLimits) -> None:
        newest = next(reversed(of_one.every))
        surplus = next(iter(of_one.silent), newest)
        self._unreported += 1
        now = self._monotonic()
        if now - self._reported_at >= REPORT_S:
            self._report(
                f"{self.count} connections to port {self._port}: {self._unreported} were closed, silent ones and "
                f"the newest first; the limits are {limits.total} (max.connections) and {limits.per_address} from one "
                "address (max.connections.per.ip)"
            )
            self._reported_at, self._unreported = now, 0
        self.remove(surplus)
        surplus.abort()

    def has_spoken(self, one: Accepted) -> None:
        """Its first byte has come; over TLS: after the handshake. Idempotent."""
        of_one = self._addresses.get(one.address)
        if of_one is not None and of_one.silent.pop(one, one) is None:
            self.silent_count -= 1

    def remove(self, one: Accepted) -> None:
        """It has ended. Idempotent."""
        of_one = self._addresses.get(one.address)
        if of_one is None or of_one.every.pop(one, one) is not None:
            return
        self.count -= 1
        self._by_size.change(one.address, len(of_one.every) + 1, len(of_one.every))
        if of_one.silent.pop(one, one) is None:
            self.silent_count -= 1
            self.ended_silent += 1
        if not of_one.every:
            del self._addresses[one.address]

    def take_opened(self) -> Counter[str]:
        """How many were opened since the last time, by address; they are counted from the first time on."""
        opened, self._opened = self._opened, Counter()
        return opened or Counter()

    def stop_counting(self) -> None:
        """Until the next `take_opened`."""
        self._opened = None
