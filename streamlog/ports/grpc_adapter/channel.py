"""The calling side of the network port over grpc.aio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import grpc
import grpc.aio

from streamlog.errors import Status
from streamlog.ports.grpc_adapter.credentials import TlsCredentials
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.stream import ClientStream, from_grpc, raise_if_channel_closed
from streamlog.ports.network import RpcError

OLD_CALLS_S: Final = 365 * 86_400.0
"""Calls of a connection with earlier certificates end when they end: streams between nodes may last for months."""


class GrpcChannel:
    """One connection; made on first use. With TLS, another one for later calls when the certificates were renewed."""

    def __init__(self, address: str, settings: GrpcSettings, tls: TlsCredentials | None) -> None:
        self.closed = False
        self._address = address
        self._settings = settings
        self._tls = tls
        self._closing: set[asyncio.Task[None]] = set()  # channels with earlier certificates
        self._open()

    def _open(self) -> None:
        options = self._settings.channel()
        if self._tls is None:
            self._version = 0
            self._channel = grpc.aio.insecure_channel(self._address, options)
        else:
            self._version = self._tls.version
            self._channel = grpc.aio.secure_channel(self._address, self._tls.channel, options)
        # Callables by method, which are more expensive to make than to call. At most as many as there are methods.
        self._unary: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._streams: dict[str, grpc.aio.StreamStreamMultiCallable[bytes, bytes]] = {}

    def _renew(self) -> None:
        """Open another connection; the old one is closed after its calls."""
        old = self._channel
        self._open()
        task = asyncio.get_running_loop().create_task(old.close(OLD_CALLS_S))
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
        if self._tls is not None and self._tls.version != self._version and not self.closed:
            self._renew()
        if method not in self._unary:
            self._unary[method] = self._channel.unary_unary(method)
        try:
            call = self._unary[method](request, timeout=timeout_s, metadata=_pairs(metadata))
        except grpc.aio.UsageError as error:
            raise RpcError(Status.UNAVAILABLE, str(error)) from None
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise from_grpc(error) from None
        except asyncio.CancelledError:
            raise_if_channel_closed(call)
            raise

    @asynccontextmanager
    async def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AsyncIterator[ClientStream]:
        if self._tls is not None and self._tls.version != self._version and not self.closed:
            self._renew()
        if method not in self._streams:
            self._streams[method] = self._channel.stream_stream(method)
        try:
            call = self._streams[method](metadata=_pairs(metadata))
        except grpc.aio.UsageError as error:
            raise RpcError(Status.UNAVAILABLE, str(error)) from None
        try:
            await call.wait_for_connection()
            yield ClientStream(call)
        except grpc.aio.AioRpcError as error:
            raise from_grpc(error) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """Cancels calls in progress."""
        self.closed = True
        for task in self._closing:
            task.cancel()
        await self._channel.close()


def _pairs(metadata: Mapping[str, str] | None) -> tuple[tuple[str, str], ...] | None:
    return None if metadata is None else tuple((key.lower(), value) for key, value in metadata.items())
