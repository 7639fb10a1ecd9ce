"""The serving side of the network port: an address, its connections, and their end.

accepted --limits--> TLS, where it has it --> preface, settings, acknowledged --> calls
               |        |                         |
               +--------+-------------------------+--not within handshake_s--> closed
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.accepting.connections import OpenConnections
from streamlog.ports.grpc_adapter.accepting.deferred_accept import defer_accept
from streamlog.ports.grpc_adapter.accepting.listener import Acceptor, bind
from streamlog.ports.grpc_adapter.handlers import Handlers
from streamlog.ports.grpc_adapter.inflow import Inflow
from streamlog.ports.grpc_adapter.send_progress import SendProgress
from streamlog.ports.grpc_adapter.server_connection import ServerConnection
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
from streamlog.ports.grpc_adapter.tls.handshakes import refused_caller
from streamlog.ports.grpc_adapter.tls.refusals import Refusals

HANDLERS_END_S: Final = 2.0
"""How long `close` waits for handlers that end."""
CLOSE_TLS_S: Final = 1.0
"""How long the other end may take to acknowledge the end of TLS."""

BEYOND_LIMIT: Final = "there were more connections than the limits allow"


class GrpcServer:
    """Made, started and closed once."""

    def __init__(
        self,
        address: str,
        handlers: Handlers,
        settings: GrpcSettings,
        tls: TlsCredentials | None,
        report: Callable[[str], None],
    ) -> None:
        """`report`: gets messages about connections that were closed."""
        self.address = address
        self.closed = False
        self.handlers = handlers
        self.settings = settings
        self.inflow = Inflow(settings.unread_bytes_max, settings.calls_max)
        self.connections: OpenConnections
        self.refusals: Refusals | None = None  # of callers over TLS
        self.is_tls = tls is not None
        self.requires_client = tls is not None and tls.requires_client
        self._tls = tls
        self._report = report
        self._listener: Acceptor
        self._open: dict[ServerConnection, None] = {}
        self._beginning: dict[ServerConnection, asyncio.Task[str]] = {}  # until it is open
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """OSError if the address cannot be bound."""
        bound = await bind(self.address)
        self.port: int = bound[0].getsockname()[1]
        self.address = f"{self.address.rpartition(':')[0]}:{self.port}"
        if self.settings.defers_silent:
            defer_accept(bound)
        loop = asyncio.get_running_loop()
        self.connections = OpenConnections(self.port, self.settings.connections, self._report, loop.time)
        if self._tls is not None:
            self.refusals = Refusals(self.port, self._report)
        self._listener = Acceptor(bound, self._on_accept, self._report)
        self._watching = loop.create_task(self._watch())

    @property
    def listening(self) -> Sequence[socket.socket]:
        return self._listener.sockets

    def take_opened(self) -> Counter[str]:
        return self.connections.take_opened()

    def stop_counting(self) -> None:
        self.connections.stop_counting()

    def _on_accept(self, made: socket.socket, address: str, port: int) -> None:
        connection = ServerConnection(self, address, port)
        if self.refusals is not None:
            self.refusals.begun += 1
        beginning = asyncio.get_running_loop().create_task(self._begin(connection, made))
        self._beginning[connection] = beginning
        # A callback, for a task that is cancelled before its first step has no other end.
        beginning.add_done_callback(partial(self._has_begun, connection, made))
        self.connections.add(connection)

    async def _begin(self, connection: ServerConnection, made: socket.socket) -> str:
        """Until the connection is open; else the reason why it is not."""
        tls = self._tls
        try:
            await connection.loop.connect_accepted_socket(
                lambda: connection,
                made,
                ssl=None if tls is None else tls.server_context,
                ssl_handshake_timeout=None if tls is None else self.settings.handshake_s,
                ssl_shutdown_timeout=None if tls is None else CLOSE_TLS_S,
            )
        except Exception as error:  # noqa: BLE001  whatever the caller did, its connection ends and nothing else
            return refused_caller(error)
        return ""

    def _has_begun(self, connection: ServerConnection, made: socket.socket, beginning: asyncio.Task[str]) -> None:
        del self._beginning[connection]
        reason = BEYOND_LIMIT if beginning.cancelled() else beginning.result()
        if not connection.is_open:
            made.close()
            self._has_ended(connection, reason)
        elif reason:  # uvloop does not call connection_lost then
            connection.lose(reason)

    def connection_has_begun(self, connection: ServerConnection) -> None:
        """Called by itself."""
        self._open[connection] = None

    def connection_has_ended(self, connection: ServerConnection, reason: str) -> None:
        """Called by itself."""
        del self._open[connection]
        self._has_ended(connection, reason)

    def _has_ended(self, connection: ServerConnection, reason: str) -> None:
        self.connections.remove(connection)
        if self.refusals is not None and not connection.has_called and not self.closed:
            self.refusals.ended(connection.peer, reason)

    def abort(self, connection: ServerConnection) -> None:
        """Beyond a limit of connections."""
        beginning = self._beginning.get(connection)
        if connection.is_open:
            connection.lose(BEYOND_LIMIT)
        elif beginning is not None:
            beginning.cancel()

    async def _watch(self) -> None:
        """Pings those from which nothing comes, and closes those that are not used. One that does not answer, but takes
        what was written before, is asked again the next time.
        """
        settings, loop = self.settings, asyncio.get_running_loop()
        while True:
            looked = list(self._open)
            for one in looked:
                one.heard = False
            await asyncio.sleep(settings.server_keepalive_s)
            asked: list[tuple[ServerConnection, SendProgress]] = []
            for one in looked:
                if not one.calls and loop.time() - one.idle_since > settings.server_idle_s:
                    one.leave()
                elif not one.heard and not one.is_closed:
                    asked.append((one, SendProgress(one.transport)))
                    one.write(frames.PING_OF_OURS)
            if asked:
                await asyncio.sleep(settings.keepalive_timeout_s)
                for one, progress in asked:
                    if not one.heard and not one.is_closed and not progress.has_advanced():
                        one.lose("the caller does not answer")

    async def close(self, *, grace_s: float = 0.0) -> None:
        if self.closed:
            return
        self.closed = True
        if self._watching is not None:
            self._watching.cancel()
        self._listener.close()
        beginning = list(self._beginning.values())
        for one in beginning:
            one.cancel()
        if beginning:
            await asyncio.wait(beginning)
        for connection in list(self._open):
            connection.leave()
        if grace_s:
            await self.handlers.wait_until_ended(grace_s)
        for connection in list(self._open):
            connection.lose("the server has stopped")
        await self.handlers.wait_until_ended(HANDLERS_END_S)
