"""From a request's headers to its handler, and from the handler's outcome to the status of the call.

    headers --not gRPC's--> a status of HTTP, once the whole request has come
        |--method unknown, metadata too large, deadline wrong--> a status of gRPC
        |--unary--> waits for the whole request --> handler
        +--stream-------------------------------> handler

A handler is a task of its own, which is cancelled when the caller leaves or its deadline has passed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from streamlog.errors import Status, StreamlogError, clear_tracebacks
from streamlog.ports.grpc_adapter.frames import Code
from streamlog.ports.grpc_adapter.metadata import (
    METADATA_BYTES_MAX,
    RequestHeaders,
    has_length,
    timeout_of,
)
from streamlog.ports.grpc_adapter.server_connection import CALLER_GONE, ServerCall, ServerConnection
from streamlog.ports.network import ANY_METHOD, CRASHED, CallInfo, RpcError, StreamHandler, UnaryHandler

METADATA_BYTES_FREE: Final = 2 << 10
"""What a call's metadata has beyond this is counted among what is held."""
METADATA_TOO_LARGE: Final = (
    f"the call's metadata is larger than {METADATA_BYTES_MAX} bytes: send less, for instance a shorter token"
)
CANCELLED_TURNS: Final = 8
"""Of the event loop. A cancellation takes one for each task that it passes through."""
HTTP_METHOD_NOT_ALLOWED: Final = 405
HTTP_UNSUPPORTED_MEDIA_TYPE: Final = 415


class Handlers:
    """By full method name. Without a handler of ANY_METHOD unknown methods are UNIMPLEMENTED. `listener`: the server's
    name.
    """

    def __init__(
        self,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
        on_crash: Callable[[Exception], None],
        listener: str = "",
    ) -> None:
        self._unary = {name.encode(): handler for name, handler in unary.items()}
        self._streaming = {name.encode(): handler for name, handler in streaming.items()}
        self._any = streaming.get(ANY_METHOD)
        self._on_crash = on_crash
        self._listener = listener
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, connection: ServerConnection, call: ServerCall) -> None:
        """The headers of a call have come."""
        headers = call.headers
        if headers is None:
            connection.count_reset()
            call.reset(Code.PROTOCOL_ERROR, RpcError(Status.INTERNAL, "the headers are not those of a request"))
        elif headers.http_method != b"POST":
            self._refuse_http(connection, call, HTTP_METHOD_NOT_ALLOWED)
        elif not headers.is_grpc:
            self._refuse_http(connection, call, HTTP_UNSUPPORTED_MEDIA_TYPE)
        else:
            try:
                self._admit(call, headers)
            except RpcError as error:
                call.finish(error)
                return
            self._route(connection, call, headers)

    def _refuse_http(self, connection: ServerConnection, call: ServerCall, status: int) -> None:
        call.http_status, call.discards = status, True
        if call.peer_is_done:
            self.request_has_ended(connection, call)

    @staticmethod
    def _admit(call: ServerCall, headers: RequestHeaders) -> None:
        """RpcError."""
        if headers.size > METADATA_BYTES_MAX:
            raise RpcError(Status.RESOURCE_EXHAUSTED, METADATA_TOO_LARGE)
        if headers.size > METADATA_BYTES_FREE:
            call.keep(headers.size - METADATA_BYTES_FREE)
        if headers.timeout is not None:
            timeout_s = timeout_of(headers.timeout)
            if timeout_s is None:
                raise RpcError(Status.INTERNAL, "the header grpc-timeout is not a timeout, such as 500m or 10S")
            call.deadline = time.monotonic() + timeout_s
            call.timer = call.connection.loop.call_later(timeout_s, _end_at_deadline, call)
        call.encoding = headers.encoding

    def _route(self, connection: ServerConnection, call: ServerCall, headers: RequestHeaders) -> None:
        path = headers.path
        if path in self._unary:
            if call.peer_is_done:
                self.request_has_ended(connection, call)
            return
        handler = self._streaming.get(path) or self._any
        if handler is None:
            call.finish(RpcError(Status.UNIMPLEMENTED, "Method not found!"))
            return
        info = self._info(connection, call, headers)
        self._start(call, self._serve_stream(call, handler, info))

    def request_has_ended(self, connection: ServerConnection, call: ServerCall) -> None:
        """The caller has sent all of it."""
        headers = call.headers
        if headers is None or call.ended:
            return
        if not has_length(headers.lengths, call.received):
            connection.count_reset()
            call.reset(Code.PROTOCOL_ERROR, RpcError(Status.INTERNAL, "the request has another content-length"))
        elif call.http_status:
            self._start(call, call.respond_http())
        else:
            info = self._info(connection, call, headers)
            self._start(call, self._serve_unary(call, self._unary[headers.path], info))

    def _info(self, connection: ServerConnection, call: ServerCall, headers: RequestHeaders) -> CallInfo:
        certificate = connection.certificate
        return CallInfo(
            method=headers.path.decode("ascii", "replace"),
            listener=self._listener,
            peer=connection.peer,
            metadata=headers.metadata,
            identity=None if certificate is None else certificate.subject,
            names=() if certificate is None else certificate.names,
            certificate=None if certificate is None else certificate.pem,
            deadline=call.deadline,
            transport=_Transport(call),
        )

    @staticmethod
    async def _serve_unary(call: ServerCall, handler: UnaryHandler, info: CallInfo) -> None:
        request = await call.next()
        if request is None or call.has_message:
            raise RpcError(Status.INTERNAL, "a call of this method has one request")
        await call.respond(await handler(request, info))

    @staticmethod
    async def _serve_stream(call: ServerCall, handler: StreamHandler, info: CallInfo) -> None:
        await handler(ServerStream(call), info)

    def _start(self, call: ServerCall, work: Coroutine[Any, Any, None]) -> None:
        loop = call.connection.loop
        call.headers = None  # it is not needed any more
        call.task = task = loop.create_task(self._serve_call(work, call))
        self._running.add(task)
        task.add_done_callback(partial(self._has_ended, call, work))

    def _has_ended(self, call: ServerCall, work: Coroutine[Any, Any, None], task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        work.close()  # it may have been cancelled before it began
        call.task = None  # it knows its frames, if it was cancelled, and they the call
        call.release()

    async def _serve_call(self, work: Coroutine[Any, Any, None], call: ServerCall) -> None:
        try:
            await work
        except RpcError as error:
            refusal = error
            clear_tracebacks(error)
        except StreamlogError as error:
            refusal = RpcError.of(error)
            clear_tracebacks(error)
        except asyncio.CancelledError as error:
            clear_tracebacks(error)
            call.reset(Code.CANCEL, RpcError(Status.CANCELLED, CALLER_GONE))  # if it was cancelled by something else
            raise
        except Exception as error:  # noqa: BLE001  passed to the owner
            refusal = RpcError(Status.UNKNOWN, CRASHED)
            self._on_crash(error)
        else:
            call.finish(None)
            return
        call.finish(refusal)

    async def wait_until_ended(self, timeout_s: float) -> None:
        running = self._running - {asyncio.current_task()}
        if running:
            await asyncio.wait(running, timeout=timeout_s)


def _end_at_deadline(call: ServerCall) -> None:
    call.cancel_handler()
    call.finish(RpcError(Status.DEADLINE_EXCEEDED, "Deadline Exceeded"))


class ServerStream:
    """The serving end of a stream. Uses after the call has ended, or after a cancelled use, raise CANCELLED."""

    __slots__ = ("_call", "_is_cancelled")

    def __init__(self, call: ServerCall) -> None:
        self._call = call
        self._is_cancelled = False

    async def send(self, message: bytes) -> None:
        call = self._call
        if self._is_cancelled:
            raise _earlier_cancelled()
        if call.ended:
            raise await self._end()
        if not call.has_responded:
            call.begin_response()
        try:
            await call.send(message)
        except asyncio.CancelledError:
            self._is_cancelled = True
            raise

    async def recv(self) -> bytes | None:
        call = self._call
        if self._is_cancelled:
            raise _earlier_cancelled()
        try:
            message = await call.next()
        except asyncio.CancelledError:
            self._is_cancelled = True
            raise
        if message is None and call.ended and (call.error is not None or not call.peer_is_done):
            raise await self._end()
        return message

    async def _end(self) -> RpcError:
        """How the call has ended. A handler that is being cancelled does not see an error in one of its tasks before
        the cancellation: a task group that has both keeps its frames.
        """
        call = self._call
        if call.task is not None and call.task.cancelling():
            for _ in range(CANCELLED_TURNS):
                await asyncio.sleep(0)
        return call.failure() or RpcError(Status.CANCELLED, CALLER_GONE)

    async def done_sending(self) -> None:
        """The serving side ends the stream by returning from its handler."""


def _earlier_cancelled() -> RpcError:
    return RpcError(Status.CANCELLED, "an earlier send or recv was cancelled")


class _Transport:
    """The CallTransport of one call, in the task of its handler, which also sends the response."""

    __slots__ = ("_call",)

    def __init__(self, call: ServerCall) -> None:
        self._call = call

    def on_release(self, work: Callable[[], object], /) -> None:
        if self._call.task is not None:
            self._call.task.add_done_callback(lambda _: work())

    def abandon(self) -> None:
        call = self._call
        call.cancel_handler()
        call.reset(Code.CANCEL, RpcError(Status.CANCELLED, "the caller does not read"))
