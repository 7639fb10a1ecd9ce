"""How fast connections may be opened: `connection_creation_rate` of an address, `max.connection.creation.rate` of all.

    each LOOK_S   connections that were accepted since the last look, by address. What an address has opened beyond its
                  rate is a debt, which its rate pays off
    in debt       its requests to connect stay unanswered in the kernel (`syn_filter`), until the debt is paid

What arrives between two looks comes in; then the address waits for as long as that would have taken at its rate. So
over any time t no more than rate x (t + 1) are opened, and those of one look. The kernel of a caller that waits repeats
its request after 1, 3 and 7 s.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streamlog.ports.grpc_adapter.accepting import syn_filter

LOOK_S: Final = 0.5
BURST_S: Final = 1.0
REPORT_S: Final = 60.0
DEBTORS_MAX: Final = 10_000
"""Beyond it those who owe least are forgotten."""
ALL: Final = ""
"""In the place of an address: all of them."""


class CreationLimits(Protocol):
    """Connections a second; may change at any time."""

    @property
    def total(self) -> float | None:
        """None: no limit."""
        ...

    def of(self, address: str) -> float | None: ...

    @property
    def active(self) -> bool:
        """Whether there is any limit."""
        ...


class WatchedServer(Protocol):
    port: int

    @property
    def listening(self) -> Sequence[socket.socket]: ...

    def take_opened(self) -> Counter[str]:
        """How many connections were accepted since the last time, by address."""
        ...

    def stop_counting(self) -> None:
        """Until the next `take_opened`."""
        ...


class ConnectionRateWatch:
    """Of all servers of a process; `run` is its task."""

    def __init__(
        self,
        limits: CreationLimits,
        servers: Callable[[], Sequence[WatchedServer]],
        monotonic: Callable[[], float],
        report: Callable[[str], None],
    ) -> None:
        self.limits = limits
        self.held: dict[str, float] = {}  # addresses that may not connect now, ALL among them, and for how long, in s
        self.held_s = 0.0  # for how long addresses were held, in all, since the start
        self.counted = 0  # connections, while there was a limit
        self._servers = servers
        self._monotonic = monotonic
        self._report = report
        self._owed: dict[str, float] = {}  # by address: beyond its rate; below 0: it may open so many at once
        self._looked_at: float | None = None
        self._filtered: dict[int, tuple[tuple[str, ...], bool]] = {}
        self._reported_at = -REPORT_S
        self._failed = False

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self.limits.active or self._looked_at is not None:
                self.look()

    def look(self) -> None:
        now, servers = self._monotonic(), self._servers()
        if not self.limits.active:
            self._owed.clear()
            self._looked_at = None
            self.held = {}
            for server in servers:
                server.stop_counting()
            self._filter(servers)
            return
        is_first, elapsed = self._looked_at is None, now - (self._looked_at if self._looked_at is not None else now)
        self._looked_at = now
        opened = self._opened(servers)
        if not is_first:  # those that were open before the limit do not count
            self.held_s += elapsed * len(self.held)
            self.counted += opened[ALL]
            self._owe(opened, elapsed)
        self._filter(servers)
        self._report_held(opened, now)

    @staticmethod
    def _opened(servers: Sequence[WatchedServer]) -> Counter[str]:
        """Since the last look, by address, and by ALL."""
        opened: Counter[str] = Counter()
        for server in servers:
            opened.update(server.take_opened())
        opened[ALL] = opened.total()
        return opened

    def _owe(self, opened: Counter[str], elapsed: float) -> None:
        held: dict[str, float] = {}
        owed: dict[str, float] = {}
        for address in {*self._owed, *opened}:
            rate = self.limits.total if address == ALL else self.limits.of(address)
            if rate is None:
                continue
            burst = max(1.0, rate * BURST_S)
            before = max(-burst, self._owed.get(address, -burst) - rate * elapsed)
            left = before + opened[address]
            if left > -burst:
                owed[address] = left
            if left > 0:
                held[address] = left / rate
        most = sorted(owed, key=lambda one: owed[one], reverse=True)[:DEBTORS_MAX]
        self._owed = {address: owed[address] for address in most}
        longest = sorted(held, key=lambda one: held[one], reverse=True)[: syn_filter.ADDRESSES_MAX]
        self.held = {address: held[address] for address in held if address == ALL or address in longest}

    def _filter(self, servers: Sequence[WatchedServer]) -> None:
        addresses = tuple(sorted(self.held.keys() - {ALL}))
        ports = {server.port for server in servers}
        self._filtered = {port: one for port, one in self._filtered.items() if port in ports}
        wanted = (addresses, ALL in self.held)
        for server in servers:
            if self._filtered.get(server.port, ((), False)) == wanted:
                continue
            try:
                syn_filter.refuse(server.listening, addresses, everyone=wanted[1])
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    self._report(
                        "the limits of how fast connections are opened (connection_creation_rate, "
                        f"max.connection.creation.rate) are not enforced: the kernel refuses a socket filter ({error})"
                    )
                return
            self._filtered[server.port] = wanted
            self._failed = False

    def _report_held(self, opened: Counter[str], now: float) -> None:
        if not self.held or self._failed or now - self._reported_at < REPORT_S:
            return
        self._reported_at = now
        address = max(self.held, key=lambda one: self.held[one])
        rate = self.limits.total if address == ALL else self.limits.of(address)
        limit = "max.connection.creation.rate" if address == ALL else "connection_creation_rate"
        others = f", and {len(self.held) - 1} other addresses wait" if len(self.held) > 1 else ""
        self._report(
            f"{opened[address]} connections from {address or 'all addresses'} were opened in {LOOK_S:g} s, the limit "
            f"is {rate or 0:g} a second ({limit}): further ones wait for {self.held[address]:.1f} s{others}"
        )
