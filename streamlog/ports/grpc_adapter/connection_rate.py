"""How fast connections may be opened: `connection_creation_rate` of an address, `max.connection.creation.rate` of all.

    each LOOK_S   new connections by address: those that are open and were not before, and those that ended meanwhile
                  and had made a call. What an address has opened beyond its rate is a debt, which its rate pays off
    in debt       its requests to connect stay unanswered in the kernel (`syn_filter`), until the debt is paid

gRPC's core accepts connections by itself, so they are counted when they exist. What arrives between two looks comes in;
then the address waits for as long as that would have taken at its rate. So over any time t no more than rate x (t + 1)
are opened, and those of one look. The kernel of a caller that waits repeats its request after 1, 3 and 7 s.

Not counted: connections that are opened and closed between two looks and make no call; of those over TLS their number
is known (`HandshakeWatch.begun`), which counts against the rate of all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streamlog.ports.grpc_adapter import syn_filter
from streamlog.ports.grpc_adapter.connections import connections_of

LOOK_S: Final = 0.5
BURST_S: Final = 1.0
REPORT_S: Final = 60.0
DEBTORS_MAX: Final = 10_000
"""Beyond it those who owe least are forgotten."""
ALL: Final = ""
"""In the place of an address: all of them."""


class CreationLimits(Protocol):
    """Connections a second; may change at any time. Called in a thread."""

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

    def take_callers(self) -> list[str]:
        """Peers that have made a first call since the last time, as host:port."""
        ...

    def take_handshakes(self) -> int:
        """How many handshakes have begun since the last time."""
        ...

    def count_no_callers(self) -> None:
        """Until the next `take_callers`."""
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
        self._known: dict[int, set[str]] = {}  # peers by port, as of the last look
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
                await asyncio.to_thread(self.look)

    def look(self) -> None:
        now, servers = self._monotonic(), self._servers()
        if not self.limits.active:
            self._owed.clear()
            self._known.clear()
            self._looked_at = None
            self.held = {}
            for server in servers:
                server.count_no_callers()
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

    def _opened(self, servers: Sequence[WatchedServer]) -> Counter[str]:
        """Since the last look, by address, and by ALL."""
        opened: Counter[str] = Counter()
        known: dict[int, set[str]] = {}
        for server in servers:
            now = {f"{_plain(one.address)} {one.port}" for one in connections_of(server.port)}
            callers = {_peer(one) for one in server.take_callers()}
            handshakes = server.take_handshakes()
            known[server.port] = now
            new = (now | callers) - self._known.get(server.port, set())
            opened.update(peer.partition(" ")[0] for peer in new)
            opened[ALL] += max(len(new), handshakes)
        self._known = known
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
                syn_filter.refuse(server.port, addresses, everyone=wanted[1])
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


def _plain(address: str) -> str:
    """The listening socket may be of IPv6, with IPv4 addresses in its form."""
    return address.removeprefix("::ffff:").partition("%")[0]


def _peer(text: str) -> str:
    """Of host:port, an IPv6 address in brackets."""
    host, _, port = text.rpartition(":")
    return f"{_plain(host.strip('[]'))} {port}"
