"""The calling side of the network port over grpc.aio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import grpc
import grpc.aio

from streamlog.errors import Status
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.stream import ClientStream, from_grpc, raise_if_channel_closed
from streamlog.ports.network import RpcError


class GrpcChannel:
    """One connection; made on first use."""

    def __init__(self, address: str, settings: GrpcSettings, credentials: grpc.ChannelCredentials | None) -> None:
        self.closed = False
        options = settings.channel()
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options)
        # Callables by method, which are more expensive to make than to call. At most as many as there are methods.
        self._unary: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._streams: dict[str, grpc.aio.StreamStreamMultiCallable[bytes, bytes]] = {}

    async def unary(
        self,
        method: str,
        request: bytes,
        *,
        timeout_s: float,
        metadata: Mapping[str, str] | None = None,
    ) -> bytes:
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
        await self._channel.close()


def _pairs(metadata: Mapping[str, str] | None) -> tuple[tuple[str, str], ...] | None:
    return None if metadata is None else tuple((key.lower(), value) for key, value in metadata.items())
