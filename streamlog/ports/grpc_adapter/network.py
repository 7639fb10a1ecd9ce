"""The network port over gRPC, with opaque bytes. One event loop owns everything here; close the network before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from streamlog.ports.forks import note_owner
from streamlog.ports.grpc_adapter.accepting.connection_rate import ConnectionRateWatch, CreationLimits
from streamlog.ports.grpc_adapter.accepting.connections import OpenConnections
from streamlog.ports.grpc_adapter.channel import CallLogin, ConnectionEvents, GrpcChannel
from streamlog.ports.grpc_adapter.handlers import Handlers
from streamlog.ports.grpc_adapter.metadata import Pairs
from streamlog.ports.grpc_adapter.server import GrpcServer
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
from streamlog.ports.grpc_adapter.tls.refusals import Refusals
from streamlog.ports.network import StreamHandler, UnaryHandler


class GrpcNetwork:
    """`on_crash` gets unexpected exceptions of handlers, `on_connections` a message about connections that were closed,
    `events` what happens to the connections of channels. `tls`: mutual TLS on all channels, and on servers; the network
    follows its files. `listeners`: by name, for servers with other credentials; None: plain text. `metadata`: of all
    calls; `login`: more of it, where it changes. `without_rate`: names of listeners that the limits of connections a
    second do not hold for.

    In a process that was forked from its own, calls raise ClientClosedError (`forks`).
    """

    def __init__(
        self,
        *,
        on_crash: Callable[[Exception], None],
        on_connections: Callable[[str], None] = lambda _: None,
        settings: GrpcSettings | None = None,
        tls: TlsCredentials | None = None,
        listeners: Mapping[str, TlsCredentials | None] | None = None,
        metadata: Pairs = (),
        login: CallLogin | None = None,
        without_rate: frozenset[str] = frozenset(),
        events: ConnectionEvents | None = None,
    ) -> None:
        note_owner(self)
        self._on_crash = on_crash
        self._on_connections = on_connections
        self._settings = settings or GrpcSettings()
        self._tls = tls
        self._listeners = dict(listeners or {})
        self._metadata = metadata
        self._login = login
        self._without_rate = without_rate
        self._events = events
        self._rated: list[GrpcServer] = []
        self.connection_rates: ConnectionRateWatch | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._rate_tasks: list[asyncio.Task[None]] = []
        self._servers: list[GrpcServer] = []
        self._channels: list[GrpcChannel] = []

    def forked(self) -> None:
        for channel in self._channels:
            channel.forked()

    async def listen(
        self,
        address: str,
        *,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
        listener: str = "",
    ) -> GrpcServer:
        self._watch_files()
        tls = self._listeners.get(listener, self._tls)
        handlers = Handlers(unary, streaming, self._on_crash, listener)
        server = GrpcServer(address, handlers, self._settings, tls, self._on_connections)
        await server.start()
        self._servers = [known for known in self._servers if not known.closed]
        self._rated = [known for known in self._rated if not known.closed]
        self._servers.append(server)
        if listener not in self._without_rate:
            self._rated.append(server)
        return server

    def connect(self, address: str) -> GrpcChannel:
        self._watch_files()
        channel = GrpcChannel(address, self._settings, self._tls, self._metadata, self._login, self._events)
        self._channels = [known for known in self._channels if not known.closed]
        self._channels.append(channel)
        return channel

    async def call_each(self, method: str, timeout_s: float) -> None:
        """Call a method with an empty request on each connection that has calls."""
        async with asyncio.TaskGroup() as calls:
            for channel in self._channels:
                if not channel.closed:
                    calls.create_task(channel.call_each(method, timeout_s))

    def limit_connection_rates(self, limits: CreationLimits, monotonic: Callable[[], float]) -> None:
        """Of the servers that listen now and later. In the running loop."""
        watch = ConnectionRateWatch(
            limits, lambda: [one for one in self._rated if not one.closed], monotonic, self._on_connections
        )
        self.connection_rates = watch
        self._rate_tasks.append(asyncio.get_running_loop().create_task(watch.run()))

    def open_connections(self) -> list[OpenConnections]:
        """Of the open servers."""
        return [one.connections for one in self._servers if not one.closed]

    def refusals(self) -> list[Refusals]:
        """Of the open servers over TLS."""
        return [one.refusals for one in self._servers if not one.closed and one.refusals is not None]

    async def close(self) -> None:
        """Close channels and servers that are still open."""
        for task in (*self._watching, *self._rate_tasks):
            task.cancel()
        for channel in self._channels:
            await channel.close()
        for server in self._servers:
            await server.close()

    def _watch_files(self) -> None:
        if not self._watching:
            every = {id(one): one for one in (self._tls, *self._listeners.values()) if one is not None}
            self._watching = [asyncio.get_running_loop().create_task(one.watch()) for one in every.values()]
