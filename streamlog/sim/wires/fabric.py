"""The network between simulated hosts: links, connections, and their faults.

A connection is two wires. A wire is FIFO with its own random delays, so frames of different connections can overtake
each other and frames of one cannot. What the wires carry is defined in call.py.

- A blocked link (one way) holds frames, as TCP does. After `keepalive_s` the clients of its connections close them. The
  server is notified when the link is unblocked, or times out after `server_keepalive_s`: until then it has a half-open
  connection.
- A reset loses everything in flight.
- When a process dies on a running host, its peers get a reset at once (RST). After a power cut they get nothing until
  their keep-alive times out; the same goes for a stopped process (SIGSTOP).
- A frame for a connection that the running host no longer has is answered by a reset.

Everything here runs outside all processes: frames arrive even at a process that is paused or about to die.
"""

from __future__ import annotations

import contextvars
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol, TypeAlias

from streamlog.sim.loop import SimLoop
from streamlog.sim.process import Process

Link: TypeAlias = tuple[str, str]
"""From one host to another; the way back is a second link."""

KEEPALIVE_S: Final = 4.0
"""Keep-alive time plus time-out of `ports.grpc_adapter.settings`: of who has connected."""
SERVER_KEEPALIVE_S: Final = 12.0
"""The same of a server."""
CONNECT_S: Final = 2.0
"""Time-out of a connection attempt."""
DELAY_S: Final = (2e-4, 1.2e-3)
_DELAY_MIN_S, _DELAY_RANGE_S = DELAY_S[0], DELAY_S[1] - DELAY_S[0]
STALL_CHANCE: Final = 0.03
STALL_S: Final = 0.05
"""Longest extra delay of a frame: a retransmission, a busy kernel."""


class Endpoint(Protocol):
    """One process's end of a connection."""

    @property
    def process(self) -> Process: ...

    def lost(self, why: str) -> None:
        """The connection is closed; called once at most, never in a dead process."""
        ...


class Wire:
    """One direction of a connection. Frames sent at one instant arrive together, as one segment."""

    def __init__(self, connection: SimConnection, link: Link) -> None:
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
        fabric, frames = self._fabric, self._frames
        now = fabric.loop.now
        if self._put_at == now and frames:
            frames[-1][1].append(deliver)
            return
        self._put_at = now
        arrival = now + fabric.delay_s()
        if arrival > self._last:
            self._last = arrival
        frames.append((self._last, [deliver]))
        if not self._armed:
            self.arm()

    def arm(self) -> None:
        """Schedule the delivery of the first frame, unless the link is blocked."""
        if self._frames and not self._armed and self.link not in self._fabric.blocked:
            self._armed = True
            self._fabric.at(max(self._frames[0][0], self._fabric.loop.now), self._pump)

    def _pump(self) -> None:
        self._armed = False
        frames, fabric, connection = self._frames, self._fabric, self._connection
        now = fabric.loop.now
        while frames and connection.open and self.link not in fabric.blocked:
            if frames[0][0] > now:
                break
            _, deliveries = frames.popleft()
            fabric.frames += 1
            if not connection.refuse(self.link[1]):
                for deliver in deliveries:
                    if connection.open:  # an earlier frame may have closed it
                        deliver()
        if frames:
            self.arm()

    def clear(self) -> None:
        self._frames.clear()


class SimConnection:
    """Open until it is reset, which notifies both ends whose process still runs; or until the client's end closes it,
    of which the server's end is notified later.
    """

    def __init__(self, fabric: Fabric, client_host: str, client: Endpoint, server_host: str, server: Endpoint) -> None:
        self.fabric = fabric
        self.open = True
        self._server_notified = False
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
        """Whether a frame for `host` is lost because its process is dead; it is answered by a reset."""
        end = self.client if host == self.client_host else self.server
        if end.process.alive:
            return False
        if host not in self.fabric.dark:
            self.fabric.after(self.fabric.delay_s(), lambda: self.reset("connection reset by peer"))
        return True

    def reset(self, why: str) -> None:
        if self.open:
            self._close()
            self._notify(self.client, why)
            self.notify_server(why)

    def close_client(self, why: str) -> None:
        """Close at the client's end, which notifies the server."""
        if self.open:
            self._close()
            self._notify(self.client, why)
            self.fabric.notify_server_later(self)

    def notify_server(self, why: str) -> None:
        if not self._server_notified:
            self._server_notified = True
            self._notify(self.server, why)

    def _close(self) -> None:
        self.open = False
        self.up.clear()
        self.down.clear()
        self.fabric.connections.remove(self)

    def _notify(self, end: Endpoint, why: str) -> None:
        if end.process.alive:
            end.lost(why)


class SimListener(Protocol):
    """A server at an address."""

    @property
    def process(self) -> Process: ...

    def accept(self, client: Endpoint, client_host: str) -> SimConnection: ...


class Certificate(NamedTuple):
    """What a server knows of a client's verified certificate."""

    subject: str
    names: tuple[str, ...] = ()


class Fabric:
    """One for each simulation. The nemesis uses block, heal, reset, slow, dark."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.slow = 1.0  # factor on every delay
        self.keepalive_s = KEEPALIVE_S
        self.server_keepalive_s = SERVER_KEEPALIVE_S
        self.connect_s = CONNECT_S
        self.frames = 0  # delivered
        self.listeners: dict[str, SimListener] = {}  # by address
        self.connections: list[SimConnection] = []  # open ones, oldest first
        self._left: list[SimConnection] = []  # closed by the client while the link to the server is blocked
        self.certificates: dict[str, Certificate] = {}  # by host: its connections are as over TLS
        self.blocked: dict[Link, float] = {}  # link -> since when
        self.dark: dict[str, bool] = {}  # hosts without power; a dict as an ordered set
        self._context = contextvars.copy_context()

    def delay_s(self) -> float:
        """Of the next frame."""
        draw = self.rng.random
        if draw() < STALL_CHANCE:
            return self.slow * STALL_S * draw()
        return self.slow * (_DELAY_MIN_S + _DELAY_RANGE_S * draw())  # as Random.uniform, without its call

    def context(self) -> contextvars.Context:
        """Of no process."""
        return self._context.copy()

    def at(self, when: float, action: Callable[[], None]) -> None:
        self.loop.call_at(when, action, context=self._context)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.loop.now + delay_s, action)

    def answers(self, source: str, target: str) -> bool:
        """Whether a connection attempt gets a response, including a refusal."""
        return (source, target) not in self.blocked and (target, source) not in self.blocked and target not in self.dark

    # Faults.

    def block(self, source: str, target: str) -> None:
        """One way: frames from `source` to `target` wait until `heal`. Block both ways for a partition."""
        since = self.blocked.setdefault((source, target), self.loop.now)
        self.after(self.keepalive_s, lambda: self._expire((source, target), since))

    def _expire(self, link: Link, since: float) -> None:
        if self.blocked.get(link) == since:
            for connection in [c for c in self.connections if c.touches(link)]:
                connection.close_client("keepalive timed out")

    def notify_server_later(self, connection: SimConnection) -> None:
        """Notify it that its client has closed the connection."""
        if connection.up.link in self.blocked:
            self._left.append(connection)
            rest_s = max(0.0, self.server_keepalive_s - self.keepalive_s)
            self.after(rest_s, lambda: connection.notify_server("keepalive timed out"))
        else:
            self.after(self.delay_s(), lambda: connection.notify_server("connection reset by peer"))

    def heal(self, links: Iterable[Link] | None = None) -> None:
        """Unblock these links, or all; held frames are delivered."""
        for link in list(self.blocked) if links is None else links:
            self.blocked.pop(link, None)
        for connection in self.connections:
            connection.up.arm()
            connection.down.arm()
        left, self._left = self._left, []
        for connection in left:
            self.notify_server_later(connection)

    def reset(self, one: str, other: str) -> None:
        """Cut every connection between two hosts; new ones are possible at once."""
        self._reset(lambda connection: connection.touches((one, other)), "connection reset")

    def silence(self, process: Process) -> None:
        """The process has been stopped (SIGSTOP): its peers' keep-alives time out."""
        self.after(self.keepalive_s, lambda: self._close_clients_of(process))
        self.after(self.server_keepalive_s, lambda: self._give_up(process))

    def _close_clients_of(self, process: Process) -> None:
        """Close its clients' connections."""
        if process.paused:
            for connection in [c for c in self.connections if c.server.process is process]:
                connection.close_client("keepalive timed out")

    def _give_up(self, process: Process) -> None:
        if process.paused:
            self._reset_of(process, "keepalive timed out")

    def died(self, process: Process, host: str) -> None:
        """Called when the process dies. Without power no reset is sent."""
        for address in [a for a, listener in self.listeners.items() if listener.process is process]:
            del self.listeners[address]
        if host in self.dark or any(host in link for link in self.blocked):
            self.after(self.keepalive_s, lambda: self._reset_to(process))
            self.after(self.server_keepalive_s, lambda: self._reset_of(process, "keepalive timed out"))
        else:
            self.after(self.delay_s(), lambda: self._reset_of(process, "connection reset by peer"))

    def _reset_to(self, process: Process) -> None:
        self._reset(lambda connection: connection.server.process is process, "keepalive timed out")

    def _reset_of(self, process: Process, why: str) -> None:
        self._reset(lambda connection: connection.held_by(process), why)

    def _reset(self, matches: Callable[[SimConnection], bool], why: str) -> None:
        for connection in [c for c in self.connections if matches(c)]:
            connection.reset(why)


def host_of(address: str) -> str:
    """Of `host:port`."""
    return address.rpartition(":")[0]
