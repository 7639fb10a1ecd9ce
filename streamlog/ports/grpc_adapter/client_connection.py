"""The calling end of one connection, and the streams of its calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from streamlog.errors import Status
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.call import Http2Call
from streamlog.ports.grpc_adapter.connection import STREAM_WINDOW_BYTES, Http2Connection
from streamlog.ports.grpc_adapter.frames import Code
from streamlog.ports.grpc_adapter.inflow import Inflow
from streamlog.ports.grpc_adapter.metadata import HeaderFields, Pairs, status_of
from streamlog.ports.network import NotSentError, RpcError

CHANNEL_CLOSED: Final = "the channel was closed"
CALL_ENDED: Final = "the call has ended"
TOGETHER_BYTES_MAX: Final = 4096
"""A request up to this size goes out together with its call's headers."""
_OF_CODE: Final = {
    Code.REFUSED_STREAM: Status.UNAVAILABLE,
    Code.CANCEL: Status.CANCELLED,
    Code.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
    Code.INADEQUATE_SECURITY: Status.PERMISSION_DENIED,
}
_OK: Final = (b":status", b"200")


class ConnectionEndedError(ConnectionError):
    """Before the peer's settings had come."""


class ClientCall(Http2Call):
    __slots__ = ("has_response",)

    def __init__(self, connection: Http2Connection, number: int, send_window: int) -> None:
        super().__init__(connection, number, send_window)
        self.has_response = False  # its headers have come


class ClientConnection(Http2Connection):
    is_client = True
    first_window_bytes = STREAM_WINDOW_BYTES

    def __init__(self, *, message_bytes_max: int, tls_version: int = 0) -> None:
        # Responses are bounded by the window of each call, and calls by their caller.
        super().__init__(message_bytes_max=message_bytes_max, inflow=Inflow(frames.WINDOW_MAX, frames.WINDOW_MAX))
        self.tls_version = tls_version  # of the certificates that it was made with
        self.begun: asyncio.Future[None] = self.loop.create_future()  # the peer's settings have come
        self.has_heard_tls = False  # the first that came was an alert or a handshake of TLS
        self.on_lost_by_peer: Callable[[str], None] | None = (
            None  # called with the reason, unless this end has closed it
        )
        self._is_ended_here = False
        self._reason = ""  # the peer's, for which it takes no more calls
        self._next = 1
        self._waiting: deque[asyncio.Future[None]] = deque()  # for the end of another call, beyond the peer's limit

    async def open(self, fields: Pairs, message: bytes | None = None) -> Http2Call:
        """Begin a call; with `message`, that is all it sends. NotSentError where the connection takes no calls."""
        while len(self.calls) >= self.calls_max and not self.is_leaving:
            await self._wait_for_turn()
        if self.is_leaving:
            raise NotSentError(Status.UNAVAILABLE, "the connection is being closed")
        call = ClientCall(self, self._next, self._initial_window)
        self._next += 2
        self.calls[call.number] = call
        if self._next > frames.WINDOW_MAX:
            self.retire()  # it has no more numbers for calls
        headers = self.headers_frame(call.number, fields, last=False)
        if message is None or len(message) > TOGETHER_BYTES_MAX:
            self.write(headers)
            if message is not None:
                await self._send_only(call, message)
            return call
        size = len(message) + frames.PREFIX_BYTES
        if size > min(call.send_window, self.send_window) or self.is_paused:
            self.write(headers)
            await self._send_only(call, message)
            return call
        call.send_window -= size
        self.send_window -= size
        call.is_done = True
        self.write(headers + frames.message_header(len(message), frames.END_STREAM, call.number) + message)
        return call

    async def _wait_for_turn(self) -> None:
        turn: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had its turn
                self._let_one_go()
            raise

    async def _send_only(self, call: Http2Call, message: bytes) -> None:
        try:
            await call.send(message, last=True)
        except asyncio.CancelledError:
            call.reset(Code.CANCEL, None)
            call.drop()
            raise

    def give_up_connecting(self) -> None:
        if self.is_open:
            self.lose("no answer")
        self.begun.cancel()

    def retire(self) -> None:
        """No more calls: it ends with the last of them."""
        self.is_leaving = True
        self._let_waiting_go()
        self._end_if_unused()

    def end(self, code: Code, reason: str) -> None:
        self._is_ended_here = code is Code.NO_ERROR
        super().end(code, reason)

    def _end_if_unused(self) -> None:
        if self.is_leaving and not self.calls and not self.is_closed:
            self.end(Code.NO_ERROR, "")

    def forget(self, call: Http2Call) -> None:
        super().forget(call)
        self._let_one_go()
        if self.is_leaving:
            self.loop.call_soon(self._end_if_unused)

    def _let_one_go(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break

    def data_received(self, data: bytes) -> None:
        if not self.has_settings:
            self.has_heard_tls = data[:1] in (b"\x15", b"\x16")
        super().data_received(data)

    def _is_idle(self, number: int) -> bool:
        return number >= self._next or not number % 2

    def on_fields(self, number: int, fields: HeaderFields, *, is_last: bool) -> None:
        self.check_begun(number)
        call = self.calls.get(number)
        if call is None:
            self.count_idle(1)
            return
        assert isinstance(call, ClientCall)
        if is_last:
            self._on_trailers(call, fields)
        elif _is_interim(fields):
            self.count_idle(1)
        elif _OK not in fields or call.has_response:
            self.count_reset()
            error = None if call.has_response else status_of(fields)
            call.reset(Code.PROTOCOL_ERROR, error or RpcError(Status.INTERNAL, "headers within a response"))
        else:
            call.has_response = True

    def _on_trailers(self, call: Http2Call, fields: HeaderFields) -> None:
        error = status_of(fields)
        if error is None and call.is_incomplete:
            error = RpcError(Status.INTERNAL, "the response ends within a message")
        self._end_call(call, error)

    def _end_call(self, call: Http2Call, error: RpcError | None) -> None:
        call.peer_is_done = True
        if not call.is_done:
            self.write(frames.reset(call.number, Code.NO_ERROR))
        self.forget(call)
        call.end(error)

    def on_peer_done(self, call: Http2Call) -> None:
        self._end_call(call, RpcError(Status.INTERNAL, "the response ends without a status"))

    def on_peer_reset(self, call: Http2Call, code: int) -> None:
        self.forget(call)
        try:
            status = _OF_CODE.get(Code(code), Status.INTERNAL)
        except ValueError:
            status = Status.INTERNAL
        if status is Status.UNAVAILABLE:
            call.end(NotSentError(status, "the node takes no more calls on this connection"))
        else:
            call.end(RpcError(status, f"the node has reset the call (HTTP/2 error {code})"))

    def refuse(self, call: Http2Call, error: RpcError) -> None:
        call.reset(Code.CANCEL, error)

    def on_lost(self, call: Http2Call, reason: str) -> None:
        call.end(RpcError(Status.UNAVAILABLE, reason))

    def on_settings(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)
        self._let_waiting_go()  # they look again: it may take more calls now

    def on_leaving(self, last: int, reason: str) -> None:
        for call in [one for one in self.calls.values() if one.number > last]:
            self.forget(call)
            call.end(NotSentError(Status.UNAVAILABLE, "the node takes no more calls on this connection"))
        self._reason = reason
        self.retire()

    def on_closed(self, reason: str) -> None:
        if not self.begun.done():
            self.begun.set_exception(ConnectionEndedError(reason))
            self.begun.exception()  # it may be that nothing waits for it
        self._let_waiting_go()
        if self.on_lost_by_peer is not None and (self._reason or not self._is_ended_here):
            self.loop.call_soon(self.on_lost_by_peer, self._reason or reason)  # this one's end depends on nothing in it

    def _let_waiting_go(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


def _is_interim(fields: HeaderFields) -> bool:
    """A status of 1xx, before the response's own."""
    return any(name == b":status" and value.startswith(b"1") for name, value in fields[:1])


class ClientStream:
    """The calling end of a stream."""

    __slots__ = ("_call",)

    def __init__(self, call: Http2Call) -> None:
        self._call = call

    async def send(self, message: bytes) -> None:
        call = self._call
        if call.ended:
            raise call.failure() or RpcError(Status.UNAVAILABLE, CALL_ENDED)
        try:
            await call.send(message)
        except asyncio.CancelledError:
            self._cancel()
            raise

    async def recv(self) -> bytes | None:
        call = self._call
        try:
            message = await call.next()
        except asyncio.CancelledError:
            self._cancel()
            raise
        if message is None and (failure := call.failure()) is not None:
            raise failure
        return message

    def _cancel(self) -> None:
        self._call.reset(Code.CANCEL, RpcError(Status.CANCELLED, "an earlier send or recv was cancelled"))

    async def done_sending(self) -> None:
        self._call.finish_sending()
