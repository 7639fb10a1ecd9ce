"""The network between simulated hosts: links, connections, and what can go wrong with them.

A connection is two wires. A wire is FIFO with its own random delays, so frames of different connections overtake one
another and frames of one never do. What the wires carry is the calls' affair (call.py).

- A blocked link (one way) holds frames, as TCP does with what it cannot send. When it has been blocked for
  `keepalive_s`, both ends of each connection over it find out by themselves, and reset.
- A reset loses all that is in flight.
- A process that dies on a host that lives says so at once (RST); a host without power says nothing, until the
  keep-alive of the other end finds out. The same goes for a process that is stopped (SIGSTOP).
- A frame that reaches a living host where nobody holds the connection any more is answered by a reset.

Everything here runs outside all processes: frames arrive at a process that is paused or about to die.
"""

from __future__ import annotations

import contextvars
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeAlias

from streamlog.sim.loop import SimLoop
from streamlog.sim.process import Process

Link: TypeAlias = tuple[str, str]
"""From one host to another; the way back is another link."""

KEEPALIVE_S: Final = 4.0
"""Keep-alive time plus time-out of `ports.grpc_network`."""
CONNECT_S: Final = 2.0
"""How long an attempt to connect waits for an answer."""
DELAY_S: Final = (2e-4, 1.2e-3)
STALL_CHANCE: Final = 0.03
STALL_S: Final = 0.05
"""Of a frame, and how long at most: a retransmission, a busy kernel."""


class Endpoint(Protocol):
    """One process's end of a connection."""

    @property
    def process(self) -> Process: ...

    def lost(self, why: str) -> None:
        """The connection is gone; called once at most, and not in a dead process."""
        ...


class Wire:
    """One direction of one connection. What is put on it at one instant arrives at one instant, as one segment."""

    def __init__(self, connection: Connection, link: Link) -> None:
        self.link = link
        self._connection = connection
        self._fabric = connection.fabric
        # (arrival, deliveries); arrivals never fall
        self._frames: deque[tuple[float, list[Callable[[], None]]]] = deque()
        self._last = 0.0  # arrival of the latest
        self._put_at = -1.0  # when the latest was put
        self._armed = False

    def put(self, deliver: Callable[[], None]) -> None:
        if not self._connection.open:
            return
        now = self._fabric.loop.now
        if self._put_at == now and self._frames:
            self._frames[-1][1].append(deliver)
            return
        self._put_at = now
        self._last = max(self._last, now + self._fabric.delay_s())
        self._frames.append((self._last, [deliver]))
        self.arm()

    def arm(self) -> None:
        """See to it that the first frame is delivered when it is due, unless the link is blocked."""
        if self._frames and not self._armed and self.link not in self._fabric.blocked:
            self._armed = True
            self._fabric.at(max(self._frames[0][0], self._fabric.loop.now), self._pump)

    def _pump(self) -> None:
        self._armed = False
        while self._frames and self._connection.open and self.link not in self._fabric.blocked:
            if self._frames[0][0] > self._fabric.loop.now:
                break
            _, deliveries = self._frames.popleft()
            self._fabric.frames += 1
            if not self._connection.refuse(self.link[1]):
                for deliver in deliveries:
                    if self._connection.open:  # what came before may have ended it
                        deliver()
        self.arm()

    def clear(self) -> None:
        self._frames.clear()


class Connection:
    """Open until it is reset; then both ends are told, each if its process still lives and has not been told yet."""

    def __init__(self, fabric: Fabric, client_host: str, client: Endpoint, server_host: str, server: Endpoint) -> None:
        self.fabric = fabric
        self.open = True
        self.client_host, self.server_host = client_host, server_host
        self.client, self.server = client, server
        self.up = Wire(self, (client_host, server_host))
        self.down = Wire(self, (server_host, client_host))
        fabric.connections.append(self)

    def touches(self, link: Link) -> bool:
        return link in (self.up.link, self.down.link)

    def held_by(self, process: Process) -> bool:
        return process in (self.client.process, self.server.process)

    def refuse(self, host: str) -> bool:
        """A frame has come to `host`. If its process there is dead the frame is lost, and answered by a reset."""
        end = self.client if host == self.client_host else self.server
        if end.process.alive:
            return False
        if host not in self.fabric.dark:
            self.fabric.after(self.fabric.delay_s(), lambda: self.reset("connection reset by peer"))
        return True

    def reset(self, why: str) -> None:
        if not self.open:
            return
        self.open = False
        self.up.clear()
        self.down.clear()
        self.fabric.connections.remove(self)
        for end in (self.client, self.server):
            if end.process.alive:
                end.lost(why)


class Listener(Protocol):
    """What serves at an address."""

    @property
    def process(self) -> Process: ...

    def accept(self, client: Endpoint, client_host: str) -> Connection: ...


class Fabric:
    """One a simulation. The nemesis's handles: block, heal, reset, slow, dark."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.slow = 1.0  # factor on every delay
        self.keepalive_s = KEEPALIVE_S
        self.connect_s = CONNECT_S
        self.frames = 0  # delivered
        self.listeners: dict[str, Listener] = {}  # by address
        self.connections: list[Connection] = []  # open ones, oldest first
        self.blocked: dict[Link, float] = {}  # link -> since when
        self.dark: dict[str, bool] = {}  # hosts without power; a dict as an ordered set
        self._context = contextvars.copy_context()

    def delay_s(self) -> float:
        """Of the next frame."""
        if self.rng.random() < STALL_CHANCE:
            return self.slow * STALL_S * self.rng.random()
        return self.slow * self.rng.uniform(*DELAY_S)

    def context(self) -> contextvars.Context:
        """Of no process."""
        return self._context.copy()

    def at(self, when: float, action: Callable[[], None]) -> None:
        self.loop.call_at(when, action, context=self._context)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.loop.now + delay_s, action)

    def answers(self, source: str, target: str) -> bool:
        """Whether a connection attempt gets any answer, be it a refusal."""
        return (source, target) not in self.blocked and (target, source) not in self.blocked and target not in self.dark

    # Faults.

    def block(self, source: str, target: str) -> None:
        """One way: frames from `source` to `target` wait until `heal`. Call it for both ways for a full cut."""
        since = self.blocked.setdefault((source, target), self.loop.now)
        self.after(self.keepalive_s, lambda: self._expire((source, target), since))

    def _expire(self, link: Link, since: float) -> None:
        if self.blocked.get(link) == since:
            self._reset(lambda connection: connection.touches(link), "keepalive timed out")

    def heal(self, links: Iterable[Link] | None = None) -> None:
        """Open these links, or all; what waited goes on."""
        for link in list(self.blocked) if links is None else links:
            self.blocked.pop(link, None)
        for connection in self.connections:
            connection.up.arm()
            connection.down.arm()

    def reset(self, one: str, other: str) -> None:
        """Cut every connection between two hosts; new ones are possible at once."""
        self._reset(lambda connection: connection.touches((one, other)), "connection reset")

    def silence(self, process: Process) -> None:
        """The process has been stopped (SIGSTOP): who talks to it finds out by the keep-alive."""
        self.after(self.keepalive_s, lambda: self._give_up(process))

    def _give_up(self, process: Process) -> None:
        if process.paused:
            self._reset_of(process, "keepalive timed out")

    def died(self, process: Process, host: str) -> None:
        """Called in the moment of death. Without power nobody says good-bye."""
        for address in [a for a, listener in self.listeners.items() if listener.process is process]:
            del self.listeners[address]
        cut_off = any(host in link for link in self.blocked)
        wait = self.keepalive_s if host in self.dark or cut_off else self.delay_s()
        self.after(wait, lambda: self._reset_of(process, "connection reset by peer"))

    def _reset_of(self, process: Process, why: str) -> None:
        self._reset(lambda connection: connection.held_by(process), why)

    def _reset(self, doomed: Callable[[Connection], bool], why: str) -> None:
        for connection in [c for c in self.connections if doomed(c)]:
            connection.reset(why)


def host_of(address: str) -> str:
    """Of `host:port`."""
    return address.rpartition(":")[0]
