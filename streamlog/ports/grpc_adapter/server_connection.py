"""The serving end of one connection, and its calls."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final, cast

from streamlog.errors import Status
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.accepting.listener import peer_text
from streamlog.ports.grpc_adapter.call import COPIED_BYTES_MAX, Http2Call
from streamlog.ports.grpc_adapter.connection import Http2Connection
from streamlog.ports.grpc_adapter.frames import Code, ConnectionFault
from streamlog.ports.grpc_adapter.metadata import (
    CONTENT_TYPE,
    HeaderFields,
    RequestHeaders,
    RequestMemory,
    is_trailers,
    status_fields,
)
from streamlog.ports.grpc_adapter.tls.peer_certificate import NONE, PeerCertificate, peer_certificate
from streamlog.ports.network import RpcError

if TYPE_CHECKING:
    from streamlog.ports.grpc_adapter.server import GrpcServer

RESPONSE: Final = (
    (":status", "200"),
    ("content-type", CONTENT_TYPE),
    ("grpc-accept-encoding", "identity,deflate,gzip"),
)
CALLER_GONE: Final = "the caller disconnected"
NOT_GRPC: Final = b"This port serves gRPC: a POST with content-type application/grpc.\n"


class ServerCall(Http2Call):
    __slots__ = ("deadline", "has_responded", "headers", "http_status", "is_released", "task", "timer")

    def __init__(
        self, connection: Http2Connection, number: int, send_window: int, headers: RequestHeaders | None
    ) -> None:
        super().__init__(connection, number, send_window)
        self.headers = headers  # None: not those of a request; or the handler runs
        self.has_responded = False  # headers were sent
        self.task: asyncio.Task[None] | None = None  # of its handler
        self.timer: asyncio.TimerHandle | None = None  # of its deadline
        self.deadline: float | None = None
        self.http_status = 0  # to be answered by this: it is not gRPC's
        self.is_released = False

    def begin_response(self) -> None:
        if not self.has_responded:
            self.has_responded = True
            self.connection.write(self.connection.headers_frame(self.number, RESPONSE, last=False))

    async def respond(self, message: bytes) -> None:
        """The only message, and the status OK."""
        connection, needed = self.connection, len(message) + frames.PREFIX_BYTES
        room = min(self.send_window, connection.send_window, connection.frame_bytes_max)
        if needed > room or connection.is_paused or self.has_responded:
            self.begin_response()
            if not self.ended:
                await self.send(message)
            self.finish(None)
            return
        if self.ended:
            return
        self.send_window -= needed
        connection.send_window -= needed
        self._end_with(
            connection.headers_frame(self.number, RESPONSE, last=False),
            frames.message_header(len(message), 0, self.number),
            message,
            connection.headers_frame(self.number, status_fields(None), last=True),
        )

    def finish(self, error: RpcError | None) -> None:
        """The status; None: OK."""
        if self.ended:
            return
        if self.is_broken:
            self.reset(Code.CANCEL, RpcError(Status.CANCELLED, "a message was sent in part"))
            return
        fields = status_fields(error)
        if not self.has_responded:
            fields = (*RESPONSE, *fields)
        self._end_with(self.connection.headers_frame(self.number, fields, last=True))

    async def respond_http(self) -> None:
        self.has_responded = True
        fields = ((":status", str(self.http_status)), ("content-type", "text/plain"))
        self.connection.write(self.connection.headers_frame(self.number, fields, last=False))
        await self.send_data(NOT_GRPC, last=True)
        if not self.ended:
            self._end_with()

    def _end_with(self, *parts: bytes) -> None:
        """Of the last that is sent; the peer need not go on either."""
        if not self.peer_is_done:
            parts = (*parts, frames.reset(self.number, Code.NO_ERROR))
        connection, data = self.connection, b"".join(parts)
        if len(connection.calls) > 1 and len(data) <= COPIED_BYTES_MAX:
            connection.write_soon(data)  # calls that came together are often answered together
        else:
            connection.write(data)
        connection.forget(self)
        self.end(None)

    def end(self, error: RpcError | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        super().end(error)
        if self.task is None:
            self.release()

    def release(self) -> None:
        """It has ended, and its handler too."""
        self.drop()
        if not self.is_released:
            self.is_released = True
            cast(ServerConnection, self.connection).release_call()

    def cancel(self, reason: str = CALLER_GONE) -> None:
        """The caller has left."""
        self.cancel_handler()
        self.end(RpcError(Status.CANCELLED, reason))

    def cancel_handler(self) -> None:
        """To be called before the call's end, so that uses of the stream know why it has ended."""
        if self.task is not None:
            self.task.cancel()


class ServerConnection(Http2Connection):
    is_client = False
    first_window_bytes = frames.WINDOW_DEFAULT

    def __init__(self, server: GrpcServer, address: str, port: int) -> None:
        """Of the caller."""
        super().__init__(message_bytes_max=server.settings.message_bytes_max, inflow=server.inflow)
        self.address = address
        self.peer = peer_text(address, port)
        self._requests = RequestMemory()
        self.certificate: PeerCertificate | None = None  # None: not TLS
        self.has_called = False
        self._running = 0  # calls that have not ended, or whose handler has not
        self.idle_since = self.loop.time()  # when its last call ended
        self._server = server
        self._preface = b""
        self._has_preface = False
        self._deadline: asyncio.TimerHandle | None = None  # for its settings

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Over TLS: once the handshake is complete."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self._server.settings.handshake_s, self._end_unless_ready)
        self._server.connection_has_begun(self)
        if self._server.is_tls:
            self._identify(transport.get_extra_info("ssl_object"))

    def _identify(self, secured: ssl.SSLObject | None) -> None:
        """A caller whose certificate cannot be read is refused, and not treated as one without TLS."""
        self.certificate = NONE
        if secured is None:
            self.lose("it does not use TLS")
            return
        try:
            self.certificate = peer_certificate(secured)
        except (ssl.SSLError, ValueError) as error:
            self.lose(f"its certificate is not accepted ({error})")
            return
        if self._server.requires_client and self.certificate.pem is None:
            self.lose("it has no certificate, which ssl.client.auth requires")

    def _end_unless_ready(self) -> None:
        if not self.is_ready and not self.is_closed:
            self.end(Code.SETTINGS_TIMEOUT, "the settings were not acknowledged in time")

    def data_received(self, data: bytes) -> None:
        if self.is_closed:
            return
        if not self._has_preface:
            self._server.connections.has_spoken(self)
            self._preface += data
            if not frames.PREFACE.startswith(self._preface[: len(frames.PREFACE)]):
                self.end(Code.PROTOCOL_ERROR, "it does not speak HTTP/2")
                return
            if len(self._preface) < len(frames.PREFACE):
                return
            data, self._preface, self._has_preface = self._preface[len(frames.PREFACE) :], b"", True
        super().data_received(data)

    def _is_idle(self, number: int) -> bool:
        return number > self.last_number or not number % 2

    def on_fields(self, number: int, fields: HeaderFields, *, is_last: bool) -> None:
        call = self.calls.get(number)
        if call is not None:
            self._on_trailers(call, fields, is_last=is_last)
            return
        if not number % 2:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a stream of the client with an even number")
        if number <= self.last_number:
            if number in self._left:
                self.count_idle(1)
                return
            raise ConnectionFault(Code.STREAM_CLOSED, "HEADERS of a stream that has ended")
        self.last_number = number
        if self.is_leaving or not self._inflow.has_room_for_call(self._running):
            self.count_reset()
            self.write(frames.reset(number, Code.REFUSED_STREAM))
            if not is_last:
                self._leave(number)
            return
        self.has_called = True
        self._inflow.calls += 1
        self._running += 1
        made = ServerCall(self, number, self._initial_window, self._requests.request(fields))
        self.calls[number] = made
        if is_last:
            made.peer_is_done = True
        self._server.handlers.begin(self, made)

    def _on_trailers(self, call: Http2Call, fields: HeaderFields, *, is_last: bool) -> None:
        if call.peer_is_done:
            raise ConnectionFault(Code.STREAM_CLOSED, "HEADERS of a stream that has ended")
        if not is_last:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "trailers that do not end the stream")
        if not is_trailers(fields):
            self.count_reset()
            self.give_up(call, Code.PROTOCOL_ERROR, RpcError(Status.INTERNAL, "the caller has sent invalid trailers"))
            return
        call.on_done()
        self.on_peer_done(call)

    def on_peer_done(self, call: Http2Call) -> None:
        if call.is_incomplete and not call.discards:
            self.count_reset()
            self.refuse(call, RpcError(Status.INTERNAL, "the request ends within a message"))
        else:
            self._server.handlers.request_has_ended(self, cast(ServerCall, call))

    def on_peer_reset(self, call: Http2Call, code: int) -> None:
        self.idle_since = self.loop.time()
        cast(ServerCall, call).cancel()
        self._end_once_unused()

    def refuse(self, call: Http2Call, error: RpcError) -> None:
        cast(ServerCall, call).cancel_handler()
        cast(ServerCall, call).finish(error)

    def give_up(self, call: Http2Call, code: Code, error: RpcError) -> None:
        cast(ServerCall, call).cancel_handler()
        super().give_up(call, code, error)

    def on_lost(self, call: Http2Call, reason: str) -> None:
        cast(ServerCall, call).cancel()

    def on_leaving(self, last: int, reason: str) -> None:
        self._end_once_unused()

    def on_closed(self, reason: str) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._server.connection_has_ended(self, reason)

    def abort(self) -> None:
        """Beyond a limit."""
        self._server.abort(self)

    def forget(self, call: Http2Call) -> None:
        super().forget(call)
        self.idle_since = self.loop.time()
        self._end_once_unused()

    def release_call(self) -> None:
        self._inflow.calls -= 1
        self._running -= 1

    def leave(self) -> None:
        """No more calls: it ends with the last of them."""
        if not self.is_leaving:
            self.is_leaving = True
            self.write(frames.go_away(self.last_number, Code.NO_ERROR))
        self._end_if_unused()

    def _end_once_unused(self) -> None:
        if self.is_leaving and not self.calls:
            self.loop.call_soon(self._end_if_unused)

    def _end_if_unused(self) -> None:
        if not self.calls and not self.is_closed:
            self.lose("it was not used")
