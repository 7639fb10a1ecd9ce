"""The serving side of the network port over grpc.aio: handlers of opaque bytes, by full method name."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import grpc
import grpc.aio

from streamlog.errors import Status, StreamlogError, clear_tracebacks
from streamlog.ports.grpc_adapter.connections import ConnectionWatch
from streamlog.ports.grpc_adapter.credentials import TlsCredentials
from streamlog.ports.grpc_adapter.deferred_accept import defer_accept
from streamlog.ports.grpc_adapter.handshake_watch import HandshakeWatch
from streamlog.ports.grpc_adapter.settings import DETAILS_KEY, TO_GRPC, GrpcSettings
from streamlog.ports.grpc_adapter.stream import Context, ServerStream
from streamlog.ports.network import ANY_METHOD, CRASHED, CallInfo, RpcError, StreamHandler, UnaryHandler

ABORT_TIMEOUT_S: Final = 10.0
"""A status waits so long for earlier messages that the client has not read; then the call is reset (CANCELLED)."""

HEADER_BYTES_MAX: Final = 16 << 10
"""Of a call's metadata, as HTTP/2 counts it: gRPC's own limit, which is 16 MiB until a client has acknowledged its
settings. Clients of gRPC acknowledge them before their first call.
"""
CALLERS_MAX: Final = 20_000
"""Peers that are counted between two looks at how fast connections are opened."""
FIELD_BYTES: Final = 32
"""Counted for each field besides its name and value (RFC 9113, 6.5.2)."""

HANDLERS_END_S: Final = 2.0
"""How long `close` waits for handlers that end. gRPC prints a traceback for each that the end of the loop cancels."""


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
        """OSError if the address cannot be bound. `report`: gets messages about connections that were closed."""
        self.closed = False
        self._callers: dict[str, None] | None = None  # since the last `take_callers`; None: they are not counted
        self._handshakes_taken = 0
        self.handshakes = None if tls is None else HandshakeWatch(report)
        self._handlers = handlers
        self._server = grpc.aio.server(options=settings.server())
        self._server.add_generic_rpc_handlers((handlers,))
        try:
            if tls is None or self.handshakes is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, tls.server(self.handshakes.begins))
                self.handshakes.port = port
                handlers.on_peer = self.handshakes.has_called
        except RuntimeError as error:
            raise _bind_error(address) from error
        self.port = port
        self.address = f"{address.rpartition(':')[0]}:{port}"
        if settings.defers_silent:
            defer_accept(port)
        limits = settings.connections
        self.connections = None if limits is None else ConnectionWatch(port, limits, report)
        self._watching: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._server.start()
        loop = asyncio.get_running_loop()
        self._watching = [
            loop.create_task(watch.run()) for watch in (self.connections, self.handshakes) if watch is not None
        ]

    def take_callers(self) -> list[str]:
        """Peers that have made calls since the last time, as host:port; they are counted from the first time on."""
        callers, self._callers = self._callers, {}
        self._handlers.on_peer = self._has_called
        return list(callers or ())

    def take_handshakes(self) -> int:
        """How many TLS handshakes have begun since the last time."""
        before, self._handshakes_taken = self._handshakes_taken, 0 if self.handshakes is None else self.handshakes.begun
        return self._handshakes_taken - before

    def count_no_callers(self) -> None:
        """Until the next `take_callers`: calls pay nothing."""
        self._callers = None
        self._handlers.on_peer = None if self.handshakes is None else self.handshakes.has_called

    def _has_called(self, peer: str) -> None:
        callers = self._callers  # looked at once: the thread that counts may take it meanwhile
        if callers is not None and len(callers) < CALLERS_MAX:
            callers[peer] = None
        if self.handshakes is not None:
            self.handshakes.has_called(peer)

    async def close(self, *, grace_s: float = 0.0) -> None:
        self.closed = True
        for task in self._watching:
            task.cancel()
        await self._server.stop(grace_s or None)
        await self._handlers.wait_until_ended(HANDLERS_END_S)


class Handlers(grpc.GenericRpcHandler):
    """Without a handler of ANY_METHOD gRPC answers UNIMPLEMENTED for unknown methods. `verified`: the server is
    over TLS; where it requests certificates, clients have presented one. `listener`: the server's name.
    """

    def __init__(
        self,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
        on_crash: Callable[[Exception], None],
        *,
        verified: bool,
        listener: str = "",
    ) -> None:
        self._on_crash = on_crash
        self._verified = verified
        self._listener = listener
        self.on_peer: Callable[[str], None] | None = None  # called with the caller's address for each call
        self._running: set[asyncio.Task[Any]] = set()
        self._methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
        for name, one in unary.items():
            self._methods[name] = grpc.unary_unary_rpc_method_handler(self._unary(name, one))
        self._refusing: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(
            self._refuse_metadata
        )
        self._any = streaming.get(ANY_METHOD)
        for name, many in streaming.items():
            self._methods[name] = grpc.stream_stream_rpc_method_handler(self._streaming(name, many))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        if _header_bytes(handler_call_details.invocation_metadata or ()) > HEADER_BYTES_MAX:
            return self._refusing
        known = self._methods.get(handler_call_details.method)
        if known is None and self._any is not None:
            return grpc.stream_stream_rpc_method_handler(self._streaming(handler_call_details.method, self._any))
        return known

    async def wait_until_ended(self, timeout_s: float) -> None:
        """Until the calls' handlers have ended, which gRPC cancels when its server stops."""
        running = self._running - {asyncio.current_task()}
        if running:
            await asyncio.wait(running, timeout=timeout_s)
        await asyncio.sleep(0)  # gRPC's own tasks wait for theirs

    # The stubs know only grpc's synchronous handlers, hence Any.

    def _unary(self, name: str, handler: UnaryHandler) -> Any:
        async def serve(request: bytes, context: Context) -> Any:
            return await self._serve_call(handler(request, self._info(name, context)), context)

        return serve

    def _streaming(self, name: str, handler: StreamHandler) -> Any:
        async def serve(_: object, context: Context) -> None:
            await self._serve_call(handler(ServerStream(context), self._info(name, context)), context)

        return serve

    async def _refuse_metadata(self, _: object, context: Context) -> None:
        await self._serve_call(_too_much_metadata(), context)

    async def _serve_call(self, work: Awaitable[Any], context: Context) -> Any:
        task = asyncio.current_task()
        assert task is not None, "gRPC makes one for each call"
        self._running.add(task)
        try:
            return await self._answer(work, context)
        finally:
            self._running.discard(task)

    async def _answer(self, work: Awaitable[Any], context: Context) -> Any:
        try:
            return await work
        except RpcError as error:
            refusal = error
            clear_tracebacks(error)
        except StreamlogError as error:
            refusal = RpcError.of(error)
            clear_tracebacks(error)
        except asyncio.CancelledError as error:
            clear_tracebacks(error)
            raise
        except Exception as error:  # noqa: BLE001  passed to the owner
            refusal = RpcError(Status.UNKNOWN, CRASHED)
            self._on_crash(error)
        trailer = ((DETAILS_KEY, refusal.details_bin),) if refusal.details_bin else ()
        try:
            async with asyncio.timeout(ABORT_TIMEOUT_S):
                await context.abort(TO_GRPC[refusal.status], refusal.message, trailer)
        except grpc.aio.AbortError as error:  # gRPC keeps it with the call, and raises it again after the handler
            error.__traceback__ = None
        except TimeoutError:  # the client does not read earlier messages: gRPC resets the unreferenced call
            pass
        return None

    def _info(self, name: str, context: Context) -> CallInfo:
        left_s: float | None = context.time_remaining()
        certificate = context.auth_context() if self._verified else None
        peer = unquote(context.peer().partition(":")[2])
        if self.on_peer is not None:
            self.on_peer(peer)
        return CallInfo(
            method=name,
            listener=self._listener,
            peer=peer,
            metadata={key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)},
            identity=None if certificate is None else _subject(certificate),
            names=() if certificate is None else _texts(certificate.get("x509_subject_alternative_name", ())),
            certificate=None if certificate is None else next(iter(certificate.get("x509_pem_cert", ())), None),
            deadline=None if left_s is None else time.monotonic() + left_s,
            transport=_Transport(),
        )


def _header_bytes(metadata: Iterable[tuple[str, str | bytes]]) -> int:
    return sum(len(name) + len(value) + FIELD_BYTES for name, value in metadata)


async def _too_much_metadata() -> None:
    text = f"the call's metadata is larger than {HEADER_BYTES_MAX} bytes: send less, for instance a shorter token"
    raise RpcError(Status.RESOURCE_EXHAUSTED, text)


class _Transport:
    """The CallTransport of one call, in the task of its handler, which also sends the response."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task = asyncio.current_task()

    def on_release(self, work: Callable[[], object], /) -> None:
        # Not the context's own callbacks, which form a reference cycle with it.
        if self._task is not None:
            self._task.add_done_callback(lambda _: work())

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _subject(certificate: Mapping[str, Iterable[bytes]]) -> str:
    """In RFC 2253 form, else the common name; gRPC has verified the certificate. Empty: there is none."""
    for key in ("x509_subject", "x509_common_name"):
        for value in _texts(certificate.get(key, ())):
            return value
    return ""


def _texts(values: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(value.decode("utf-8", "replace") for value in values)


def _bind_error(address: str) -> OSError:
    """The error number, which gRPC does not report: found by binding the address again."""
    host, _, port = address.rpartition(":")
    try:
        family, _, _, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
            probe.listen(1)
    except OSError as error:
        return error
    return OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), address)
