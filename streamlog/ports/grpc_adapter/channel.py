"""The calling side of the network port over grpc.aio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Protocol, TypeAlias

import grpc
import grpc.aio

from streamlog.errors import Status
from streamlog.ports.grpc_adapter.credentials import TlsCredentials
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.stream import (
    CHANNEL_CLOSED,
    ClientStream,
    StreamCall,
    from_grpc,
    raise_if_channel_closed,
)
from streamlog.ports.network import NotSentError, RpcError

Pairs: TypeAlias = tuple[tuple[str, str], ...]
"""Metadata of calls."""


class CallLogin(Protocol):
    async def metadata(self) -> Pairs:
        """Of a call that begins now. RpcError where the caller cannot log in."""
        ...


class _Connection:
    """One connection of gRPC, and its calls."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.calls = 0
        self.retired = False  # later calls use another one; closed after its last call
        # Callables by method, which are more expensive to make than to call. At most as many as there are methods.
        self.unary: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self.streams: dict[str, grpc.aio.StreamStreamMultiCallable[bytes, bytes]] = {}


class GrpcChannel:
    """One connection; made on first use. With TLS, another one for later calls when the certificates were renewed."""

    def __init__(
        self,
        address: str,
        settings: GrpcSettings,
        tls: TlsCredentials | None,
        metadata: Pairs = (),
        login: CallLogin | None = None,
    ) -> None:
        """`metadata`: of all calls, besides their own; `login`: more of it, where it changes."""
        self._metadata = metadata
        self._login = login
        self.closed = False
        self._address = address
        self._settings = settings
        self._tls = tls
        self._retired: set[_Connection] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._connecting: set[asyncio.Task[None]] = set()  # waits of streams
        self._open()

    def _open(self) -> None:
        options = self._settings.channel()
        if self._tls is None:
            self._current = _Connection(grpc.aio.insecure_channel(self._address, options))
        else:
            self._version = self._tls.version
            self._current = _Connection(grpc.aio.secure_channel(self._address, self._tls.channel, options))

    def _begin(self) -> _Connection:
        """The connection of a new call."""
        if self._tls is not None and self._tls.version != self._version and not self.closed:
            old = self._current
            old.retired = True
            self._retired.add(old)
            self._open()
            self._close_unused(old)
        self._current.calls += 1
        return self._current

    def _end(self, connection: _Connection) -> None:
        connection.calls -= 1
        if connection.retired:
            self._close_unused(connection)

    def _close_unused(self, connection: _Connection) -> None:
        if connection.calls == 0 and connection in self._retired:
            self._retired.discard(connection)
            task = asyncio.get_running_loop().create_task(connection.channel.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def unary(
        self,
        method: str,
        request: bytes,
        *,
        timeout_s: float,
        metadata: Mapping[str, str] | None = None,
    ) -> bytes:
        common = await self._common()
        connection = self._begin()
        try:
            try:
                call = _unary(connection, method)(request, timeout=timeout_s, metadata=_pairs(metadata, common))
            except grpc.aio.UsageError as error:
                raise NotSentError(Status.UNAVAILABLE, str(error)) from None
            try:
                return await call
            except grpc.aio.AioRpcError as error:
                raise from_grpc(error) from None
            except asyncio.CancelledError:
                raise_if_channel_closed(call)
                raise
        finally:
            self._end(connection)

    @asynccontextmanager
    async def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AsyncIterator[ClientStream]:
        common = await self._common()
        connection = self._begin()
        try:
            if method not in connection.streams:
                connection.streams[method] = connection.channel.stream_stream(method)
            try:
                call = connection.streams[method](metadata=_pairs(metadata, common))
            except grpc.aio.UsageError as error:
                raise NotSentError(Status.UNAVAILABLE, str(error)) from None
            try:
                await self._connected(call)
                yield ClientStream(call)
            except grpc.aio.AioRpcError as error:
                raise from_grpc(error) from None
            finally:
                call.cancel()
        finally:
            self._end(connection)

    async def _connected(self, call: StreamCall) -> None:
        """Until the call has a connection. `close` ends this wait, where grpc.aio's own leaves it as it is."""
        connecting = asyncio.ensure_future(call.wait_for_connection())
        self._connecting.add(connecting)
        try:
            await connecting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.closed and task is not None and not task.cancelling():
                raise RpcError(Status.CANCELLED, CHANNEL_CLOSED) from None
            raise
        finally:
            self._connecting.discard(connecting)

    async def _common(self) -> Pairs:
        return self._metadata if self._login is None else (*self._metadata, *await self._login.metadata())

    async def call_each(self, method: str, timeout_s: float) -> None:
        """Call a method with an empty request on each connection that has calls. Its failures are left to these."""
        if self._login is None:
            return
        metadata = _pairs(None, await self._common())
        for connection in [self._current, *self._retired]:
            if connection.calls:
                connection.calls += 1
                try:
                    with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
                        await _unary(connection, method)(b"", timeout=timeout_s, metadata=metadata)
                finally:
                    self._end(connection)

    async def close(self) -> None:
        """Cancels calls in progress."""
        self.closed = True
        for old in list(self._retired):
            await old.channel.close()
        await self._current.channel.close()
        for connecting in self._connecting:
            connecting.cancel()


def _unary(connection: _Connection, method: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    if method not in connection.unary:
        connection.unary[method] = connection.channel.unary_unary(method)
    return connection.unary[method]


def _pairs(metadata: Mapping[str, str] | None, common: Pairs) -> Pairs | None:
    if metadata is None:
        return common or None
    return (*common, *((key.lower(), value) for key, value in metadata.items()))
