"""SimNetwork: the network port of one process. Connections are in fabric.py, calls in call.py.

An address is `host:port` with the host's name in the simulation. A channel connects when first used; while it backs off
after a refused connection its calls fail at once, as the real one's do.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from streamlog.aio.timeouts import timeout
from streamlog.errors import Status, StreamlogError
from streamlog.ports.network import (
    ANY_METHOD,
    CRASHED,
    CallInfo,
    NoListenerError,
    NotSentError,
    RpcError,
    StreamHandler,
    UnaryHandler,
)
from streamlog.sim.files.disk import os_error
from streamlog.sim.process import Process
from streamlog.sim.wires.call import ClientEnd, ServerEnd
from streamlog.sim.wires.fabric import Endpoint, Fabric, SimConnection, SimListener, host_of

BACKOFF_S: Final = (0.05, 0.2)
"""Between two attempts to connect, as `ports.grpc_adapter.settings` sets it."""
MESSAGE_BYTES_MAX: Final = 4 << 20
FIRST_FREE_PORT: Final = 30_000


class ClientSide:
    """The client's end of a connection: its calls."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.calls: dict[int, ClientEnd] = {}  # by number on this connection
        self._numbers = itertools.count()

    def add(self, call: ClientEnd) -> int:
        number = next(self._numbers)
        self.calls[number] = call
        return number

    def lost(self, why: str) -> None:
        for call in list(self.calls.values()):
            call.end(RpcError(Status.UNAVAILABLE, why))


class ServerSide:
    """The server's end of a connection: its running handlers."""

    def __init__(self, server: SimServer) -> None:
        self.process = server.process
        self.calls: dict[int, ServerEnd] = {}  # by the client's number
        self.message_bytes_max = server.message_bytes_max
        self._server = server

    def open_call(
        self, number: int, end: ServerEnd, method: str, metadata: Mapping[str, str], peer: str, timeout_s: float | None
    ) -> None:
        """A call's first frame has arrived. `timeout_s`: the caller's remaining time when it was sent."""
        fabric = self._server.fabric
        deadline = None if timeout_s is None else fabric.loop.now + timeout_s
        listener = self._server.listener
        certificate = fabric.certificates.get(host_of(peer))
        info = CallInfo(
            method=method,
            listener=listener,
            peer=peer,
            metadata=metadata,
            deadline=deadline,
            identity=None if certificate is None else certificate.subject,
            names=() if certificate is None else certificate.names,
        )
        self.calls[number] = end
        end.task = fabric.loop.create_task(self._server.handle(end, info), context=self.process.context())
        end.task.add_done_callback(lambda _: self.calls.pop(number, None), context=fabric.context())
        if deadline is not None:
            fabric.at(deadline, end.abandon)

    def lost(self, why: str) -> None:
        for call in list(self.calls.values()):
            call.abandon()


class SimServer:
    """Serves one address from `SimNetwork.listen` until it is closed or its process dies."""

    def __init__(
        self,
        network: SimNetwork,
        address: str,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
        listener: str,
    ) -> None:
        self.address = address
        self.listener = listener
        self.process = network.process
        self.fabric = network.fabric
        self.message_bytes_max = network.message_bytes_max
        self._on_crash = network.on_crash
        self._unary = dict(unary)
        self._streaming = dict(streaming)
        self._connections: list[tuple[SimConnection, ServerSide]] = []
        self._closed = False
        self.fabric.listeners[address] = self

    def accept(self, client: Endpoint, client_host: str) -> SimConnection:
        side = ServerSide(self)
        connection = SimConnection(self.fabric, client_host, client, host_of(self.address), side)
        self._connections = [(c, s) for c, s in self._connections if c.open]
        self._connections.append((connection, side))
        return connection

    async def handle(self, end: ServerEnd, info: CallInfo) -> None:
        """Run the handler of one call, and send its status."""
        status: RpcError | None = None
        try:
            await self._serve(end, info)
        except RpcError as error:
            status = error
        except StreamlogError as error:
            status = RpcError.of(error)
        except asyncio.CancelledError:
            status = RpcError(Status.CANCELLED, "the handler was cancelled")
        except Exception as error:  # noqa: BLE001  reported to the owner
            status = RpcError(Status.UNKNOWN, CRASHED)
            self._on_crash(error)
            self.process.enter()  # `on_crash` may have ended the process
        end.answer(status)

    async def _serve(self, end: ServerEnd, info: CallInfo) -> None:
        if self._closed:
            raise RpcError(Status.UNAVAILABLE, "the server is closing")
        if info.method in self._unary:
            request = await end.recv()
            if request is not None:
                await end.send(await self._unary[info.method](request, info))
        elif (serve := self._streaming.get(info.method) or self._streaming.get(ANY_METHOD)) is not None:
            await serve(end, info)
        else:
            raise RpcError(Status.UNIMPLEMENTED, "Method not found!")

    async def close(self, *, grace_s: float = 0.0) -> None:
        self._closed = True
        if self.fabric.listeners.get(self.address) is self:
            del self.fabric.listeners[self.address]
        calls = [call for _, side in self._connections for call in side.calls.values()]
        running = [call.task for call in calls if call.task is not None and not call.task.done()]
        if running and grace_s > 0:
            await asyncio.wait(running, timeout=grace_s)
        for call in calls:
            call.shut()
        for connection, _ in self._connections:
            connection.down.put(partial(connection.reset, "the server has closed"))
        self._connections.clear()


class SimChannel:
    def __init__(self, network: SimNetwork, address: str) -> None:
        self._network = network
        self._fabric = network.fabric
        self._process = network.process
        self._address = address
        self._side = ClientSide(self._process)
        self._connection: SimConnection | None = None
        self._failure = NotSentError  # of the last attempt to connect
        self._retry_at = 0.0  # of the fabric's time; calls before it fail at once
        self._closed = False

    async def unary(
        self,
        method: str,
        request: bytes,
        *,
        timeout_s: float,
        metadata: Mapping[str, str] | None = None,
    ) -> bytes:
        self._process.enter()
        try:
            async with timeout(timeout_s), self._call(method, metadata, timeout_s) as call:
                await call.send(request)
                await call.done_sending()
                reply = await call.recv()
                if reply is None or await call.recv() is not None:
                    raise RpcError(Status.INTERNAL, "not exactly one reply")
                return reply
        except TimeoutError:
            raise RpcError(Status.DEADLINE_EXCEEDED, "Deadline Exceeded") from None

    @asynccontextmanager
    async def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AsyncIterator[ClientEnd]:
        self._process.enter()
        async with self._call(method, metadata, None) as call:
            yield call

    @asynccontextmanager
    async def _call(
        self, method: str, metadata: Mapping[str, str] | None, timeout_s: float | None
    ) -> AsyncIterator[ClientEnd]:
        begin = self._fabric.loop.now
        connection = await self._connected()
        far_side, rng, limit = connection.server, self._fabric.rng, self._network.message_bytes_max
        assert isinstance(far_side, ServerSide)
        near = ClientEnd(self._process, connection.up, rng, limit)
        far = ServerEnd(far_side.process, connection.down, rng, far_side.message_bytes_max)
        near.peer, far.peer = far, near
        number = self._side.add(near)
        left_s = None if timeout_s is None else begin + timeout_s - self._fabric.loop.now
        lower = {key.lower(): value for key, value in (metadata or {}).items()}
        peer = f"{self._network.host}:0"
        connection.up.put(lambda: far_side.open_call(number, far, method, lower, peer, left_s))
        try:
            yield near
        finally:
            self._side.calls.pop(number, None)
            near.hang_up()

    async def _connected(self) -> SimConnection:
        """The open connection, or a new one. NotSentError."""
        if self._closed:
            raise NotSentError(Status.UNAVAILABLE, "the channel is closed")
        if self._connection is not None and self._connection.open:
            return self._connection
        if self._fabric.loop.now < self._retry_at:
            await asyncio.sleep(0)
            raise self._failure(Status.UNAVAILABLE, "failed to connect; backing off")
        await asyncio.sleep(self._fabric.delay_s() + self._fabric.delay_s())
        if self._listener() is None and not self._refused():
            await asyncio.sleep(self._fabric.connect_s)
        if self._connection is None or not self._connection.open:  # another call may have made one
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> SimConnection:
        listener = self._listener()
        if listener is None:
            self._retry_at = self._fabric.loop.now + self._fabric.rng.uniform(*BACKOFF_S)
            self._failure = NoListenerError if self._refused() else NotSentError
            raise self._failure(Status.UNAVAILABLE, "failed to connect")
        self._side = ClientSide(self._process)
        return listener.accept(self._side, self._network.host)

    def _listener(self) -> SimListener | None:
        """The server, if it completes the handshake now: of a stopped process, TCP accepts and HTTP/2 stays silent."""
        listener = self._fabric.listeners.get(self._address)
        if listener is None or listener.process.paused or not self._answers():
            return None
        return listener

    def _refused(self) -> bool:
        """The host is reachable, and no server listens on the address."""
        return self._answers() and self._address not in self._fabric.listeners

    def _answers(self) -> bool:
        return self._fabric.answers(self._network.host, host_of(self._address))

    async def close(self) -> None:
        """Cancels open calls."""
        self._closed = True
        for call in list(self._side.calls.values()):
            call.hang_up()
        if self._connection is not None:
            self._connection.up.put(partial(self._connection.reset, "the client has closed"))


class SimNetwork:
    """The access of one process to one fabric. `on_crash` gets unexpected errors of handlers."""

    def __init__(
        self,
        fabric: Fabric,
        process: Process,
        host: str,
        *,
        on_crash: Callable[[Exception], None] | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self.fabric = fabric
        self.process = process
        self.host = host
        self.message_bytes_max = message_bytes_max
        self.on_crash = on_crash or self._report_to_loop
        process.on_death(lambda: fabric.died(process, host))

    def _report_to_loop(self, error: Exception) -> None:
        self.fabric.loop.call_exception_handler({"message": f"a handler of {self.process} failed", "exception": error})

    async def listen(
        self,
        address: str,
        *,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
        listener: str = "",
    ) -> SimServer:
        self.process.enter()
        await asyncio.sleep(0)
        host, _, port = address.rpartition(":")
        if host != self.host:
            raise os_error(errno.EADDRNOTAVAIL, address)
        if port == "0":
            ports = (f"{host}:{number}" for number in itertools.count(FIRST_FREE_PORT))
            address = next(free for free in ports if free not in self.fabric.listeners)
        if address in self.fabric.listeners:
            raise os_error(errno.EADDRINUSE, address)
        return SimServer(self, address, unary, streaming, listener)

    def connect(self, address: str) -> SimChannel:
        self.process.enter()
        return SimChannel(self, address)
