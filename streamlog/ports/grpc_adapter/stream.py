"""The two ends of a streaming call over grpc.aio."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import grpc.aio

from streamlog.errors import InvariantError, Status
from streamlog.ports.grpc_adapter.handshakes import handshake_failure, is_refused_here
from streamlog.ports.grpc_adapter.settings import DETAILS_KEY, FROM_GRPC
from streamlog.ports.network import HandshakeError, NotSentError, RpcError

StreamCall: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"

CHANNEL_CLOSED: Final = "the channel was closed"
# grpc.aio's message for a send on a connection that has just broken, before the call has its status.
_SEND_FAILED: Final = "Internal error from Core"
# How gRPC's messages begin where it found no connection for a call.
_NO_CONNECTION: Final = ("failed to connect to all addresses", "DNS resolution failed")
# The end of the first of them: the address that was tried last, and what the system said.
_LAST_TRIED: Final = re.compile(
    r"ipv[46]:(?P<address>\S+): (?:Failed to connect to remote host: )?(?:connect: )?"
    r"(?P<reason>[^:;()]+?)(?: \(\d+\))?\Z"
)
_CALL_ENDED: Final = grpc.aio.BaseError  # on the serving side, once the call has ended or the server has stopped


class _ExclusiveUse:
    """At most one task sends and one receives. `send` and `recv` check it themselves: each message resumes every
    coroutine that waits for it, so there is one, not two.
    """

    def __init__(self) -> None:
        self._sending = False
        self._receiving = False
        self._done_sending = False

    @staticmethod
    def _two_sends() -> InvariantError:
        return InvariantError("two sends at a time on one stream, or one after the last")

    @staticmethod
    def _two_recvs() -> InvariantError:
        return InvariantError("two recvs at a time on one stream")


class ClientStream(_ExclusiveUse):
    """grpc.aio itself cancels the call when a read or write of it is cancelled."""

    def __init__(self, call: StreamCall) -> None:
        super().__init__()
        self._call = call

    async def send(self, message: bytes) -> None:
        if self._sending or self._done_sending:
            raise self._two_sends()
        self._sending = True
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise from_grpc(error) from None
        except asyncio.InvalidStateError:
            raise await self._status_of_call() from None
        finally:
            self._sending = False

    async def recv(self) -> bytes | None:
        if self._receiving:
            raise self._two_recvs()
        self._receiving = True
        try:
            message: Any = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_grpc(error) from None
        except asyncio.CancelledError:
            raise_if_channel_closed(self._call)
            raise
        finally:
            self._receiving = False
        return None if message is grpc.aio.EOF else bytes(message)

    async def done_sending(self) -> None:
        self._done_sending = True
        await self._call.done_writing()

    async def _status_of_call(self) -> RpcError:
        """The error of a send after the call has ended."""
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return RpcError(Status.UNAVAILABLE, "the call has ended")
        return _error(code, await self._call.details() or "")


class ServerStream(_ExclusiveUse):
    """Uses after the handler has ended, or after a cancelled use, raise CANCELLED."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context
        self._cancelled = False

    async def send(self, message: bytes) -> None:
        if self._sending or self._done_sending:
            raise self._two_sends()
        if self._cancelled:
            raise self._earlier_cancelled()
        self._sending = True
        try:
            await self._context.write(message)
        except _CALL_ENDED as error:
            raise RpcError(Status.CANCELLED, f"the caller disconnected: {error}") from None
        except asyncio.CancelledError:
            self._cancelled = True
            raise
        finally:
            self._sending = False

    async def recv(self) -> bytes | None:
        if self._receiving:
            raise self._two_recvs()
        if self._cancelled:
            raise self._earlier_cancelled()
        self._receiving = True
        try:
            message: Any = await self._context.read()  # or EOF, which the stubs do not know
        except _CALL_ENDED as error:
            raise RpcError(Status.CANCELLED, f"the caller disconnected: {error}") from None
        except asyncio.CancelledError:
            self._cancelled = True
            raise
        finally:
            self._receiving = False
        return None if message is grpc.aio.EOF else bytes(message)

    @staticmethod
    def _earlier_cancelled() -> RpcError:
        return RpcError(Status.CANCELLED, "an earlier send or recv was cancelled")

    async def done_sending(self) -> None:
        """The serving side ends the stream by returning from its handler."""


def from_grpc(error: grpc.aio.AioRpcError) -> RpcError:
    details = b""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            details = value
    return _error(error.code(), error.details() or "", details)


def _error(code: grpc.StatusCode, message: str, details: bytes = b"") -> RpcError:
    if code is grpc.StatusCode.INTERNAL and message == _SEND_FAILED:
        return RpcError(Status.UNAVAILABLE, "the connection broke")
    if code is grpc.StatusCode.UNAVAILABLE and (failure := handshake_failure(message)) is not None:
        return HandshakeError(Status.UNAVAILABLE, failure, is_refused_here=is_refused_here(message))
    if code is grpc.StatusCode.UNAVAILABLE and not details and message.startswith(_NO_CONNECTION):
        return NotSentError(Status.UNAVAILABLE, no_connection(message))
    return RpcError(FROM_GRPC[code], message, details_bin=details)


def no_connection(message: str) -> str:
    """For people; gRPC's own words where they have another form."""
    tried = _LAST_TRIED.search(message)
    if tried is None:
        return message
    reason = tried["reason"]
    return f"no connection to {unquote(tried['address'])}: {reason[0].lower()}{reason[1:]}"


def raise_if_channel_closed(call: grpc.aio.Call) -> None:
    """For `except CancelledError`: closing a channel cancels its calls, but not the task that waits for one."""
    task = asyncio.current_task()
    if call.cancelled() and task is not None and not task.cancelling():
        raise RpcError(Status.CANCELLED, CHANNEL_CLOSED) from None
