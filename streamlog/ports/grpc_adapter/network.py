"""The network port over grpc.aio, with opaque bytes. One event loop owns everything here.

The network keeps references to its servers: an unreferenced grpc.aio server is collected and silently stops listening.
Close the network before its loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import grpc

from streamlog.ports.forks import note_use
from streamlog.ports.grpc_adapter.channel import GrpcChannel
from streamlog.ports.grpc_adapter.connections import ConnectionWatch
from streamlog.ports.grpc_adapter.late_events import silence_late_events
from streamlog.ports.grpc_adapter.server import GrpcServer, Handlers
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.network import StreamHandler, UnaryHandler


class GrpcNetwork:
    """`on_crash` gets unexpected exceptions of handlers, `on_connections` a message when connections exceed the limits.
    For TLS pass both credentials.

    ClientClosedError in a process that was forked from one with a network (`forks`).
    """

    def __init__(
        self,
        *,
        on_crash: Callable[[Exception], None],
        on_connections: Callable[[str], None] = lambda _: None,
        settings: GrpcSettings | None = None,
        server_credentials: grpc.ServerCredentials | None = None,
        channel_credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        note_use()
        silence_late_events()
        self._on_crash = on_crash
        self._on_connections = on_connections
        self._settings = settings or GrpcSettings()
        self._server_credentials = server_credentials
        self._channel_credentials = channel_credentials
        self._servers: list[GrpcServer] = []
        self._channels: list[GrpcChannel] = []

    async def listen(
        self,
        address: str,
        *,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
    ) -> GrpcServer:
        handlers = Handlers(unary, streaming, self._on_crash, verified=self._server_credentials is not None)
        server = GrpcServer(address, handlers, self._settings, self._server_credentials, self._on_connections)
        await server.start()
        self._servers = [known for known in self._servers if not known.closed]
        self._servers.append(server)
        return server

    def connect(self, address: str) -> GrpcChannel:
        channel = GrpcChannel(address, self._settings, self._channel_credentials)
        self._channels = [known for known in self._channels if not known.closed]
        self._channels.append(channel)
        return channel

    def connection_watches(self) -> list[ConnectionWatch]:
        """Of the open servers whose connections are limited."""
        return [one.connections for one in self._servers if not one.closed and one.connections is not None]

    async def close(self) -> None:
        """Close channels and servers that are still open."""
        for channel in self._channels:
            await channel.close()
        for server in self._servers:
            await server.close()
