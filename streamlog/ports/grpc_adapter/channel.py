"""The calling side of one address: a connection, made on first use and again after it has ended.

    first call --> connect --> settings have come --> calls
                      |
                      +--> failed: later calls fail at once, for backoff_s

With TLS, later calls get another connection once the certificates were renewed; the old one ends with its last call. A
peer from which nothing comes is asked by a ping, and given up without an answer, unless it still takes what was written
before (`send_progress`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, Protocol

from streamlog.aio.timeouts import timeout, timeout_at
from streamlog.errors import Status
from streamlog.ports.forks import forked_error
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.call import Http2Call
from streamlog.ports.grpc_adapter.client_connection import (
    CHANNEL_CLOSED,
    ClientConnection,
    ClientStream,
)
from streamlog.ports.grpc_adapter.connecting import connected_socket
from streamlog.ports.grpc_adapter.frames import Code
from streamlog.ports.grpc_adapter.metadata import TIMEOUT, Pairs, request_fields, timeout_text
from streamlog.ports.grpc_adapter.send_progress import SendProgress
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
from streamlog.ports.grpc_adapter.tls.handshakes import closed_at_once, failed_handshake
from streamlog.ports.network import HandshakeError, NoListenerError, NotSentError, RpcError

_ENDED: Final = (ConnectionError, EOFError)


class CallLogin(Protocol):
    async def metadata(self) -> Pairs:
        """Of a call that begins now. RpcError where the caller cannot log in."""
        ...


class ConnectionEvents(Protocol):
    """What happens to connections, on the event loop; for logs."""

    def connected(self, address: str) -> None: ...

    def failed(self, address: str, reason: str) -> None:
        """An attempt to connect. `reason` names the address too."""
        ...

    def lost(self, address: str, reason: str) -> None:
        """It was open, and this end has not closed it."""
        ...


class GrpcChannel:
    def __init__(
        self,
        address: str,
        settings: GrpcSettings,
        tls: TlsCredentials | None,
        metadata: Pairs = (),
        login: CallLogin | None = None,
        events: ConnectionEvents | None = None,
    ) -> None:
        """`metadata`: of all calls, besides their own; `login`: more of it, where it changes."""
        self.closed = False
        self._address = address
        self._host, _, self._port = address.rpartition(":")
        self._settings = settings
        self._tls = tls
        self._metadata = metadata
        self._login = login
        self._events = events
        self._current: ClientConnection | None = None
        self._retired: set[ClientConnection] = set()
        self._connecting: asyncio.Task[ClientConnection] | None = None
        self._watching: set[asyncio.Task[None]] = set()
        self._failure: NotSentError | None = None  # of the last attempt to connect
        self._failures = 0  # in a row
        self._retry_at = 0.0
        self._is_forked = False

    def forked(self) -> None:
        """This is a child of the process that has its connection."""
        self._is_forked, self._current = True, None

    async def unary(
        self,
        method: str,
        request: bytes,
        *,
        timeout_s: float,
        metadata: Mapping[str, str] | None = None,
    ) -> bytes:
        call: Http2Call | None = None
        try:
            async with timeout(timeout_s):
                fields = await self._fields(method, metadata, timeout_s)
                connection = await self._connection()
                call = await connection.open(fields, request)
                message = await _only_message(call)
        except TimeoutError:
            if call is None and self._failure is not None:  # no time for another attempt to connect: the reason stands
                raise _again(self._failure) from None
            raise RpcError(Status.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        finally:
            if call is not None:
                call.reset(Code.CANCEL, None)  # unless it has ended
                call.drop()
        if (failure := call.failure()) is not None:
            raise failure
        if message is None:
            raise RpcError(Status.INTERNAL, "the response has no message")
        return message

    @asynccontextmanager
    async def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AsyncIterator[ClientStream]:
        fields = await self._fields(method, metadata, None)
        call = await (await self._connection()).open(fields)
        try:
            yield ClientStream(call)
        finally:
            call.reset(Code.CANCEL, RpcError(Status.CANCELLED, "the call was left"))
            call.drop()

    async def _fields(self, method: str, metadata: Mapping[str, str] | None, timeout_s: float | None) -> Pairs:
        more = self._metadata
        if timeout_s is not None:
            more = (*more, (TIMEOUT, timeout_text(timeout_s)))
        if self._login is not None:
            more = (*more, *await self._login.metadata())
        if metadata:
            more = (*more, *((name.lower(), value) for name, value in metadata.items()))
        return request_fields(method, "http" if self._tls is None else "https", self._address, more)

    async def _connection(self) -> ClientConnection:
        """For a call that begins now."""
        current = self._current
        if current is not None and (self._is_outdated(current) or current.is_leaving):
            self._retire(current)
        if current is not None and not current.is_leaving:
            return current
        if self._is_forked:
            raise forked_error()
        if self.closed:
            raise NotSentError(Status.UNAVAILABLE, CHANNEL_CLOSED)
        if self._connecting is None:
            loop = asyncio.get_running_loop()
            if self._failure is not None and loop.time() < self._retry_at:
                raise _again(self._failure)
            self._connecting = loop.create_task(self._connect())
            self._connecting.add_done_callback(self._on_connected)
        cancellations = _cancellations()
        try:
            return await asyncio.shield(self._connecting)
        except NotSentError as error:  # many calls may wait for it
            raise _again(error) from None
        except asyncio.CancelledError:
            if self._has_cancelled_the_wait(cancellations):
                raise RpcError(Status.CANCELLED, CHANNEL_CLOSED) from None
            raise

    def _has_cancelled_the_wait(self, cancellations: int) -> bool:
        """`close` has, and not the caller: its task has as many cancellations as before."""
        return self.closed and _cancellations() == cancellations

    def _is_outdated(self, connection: ClientConnection) -> bool:
        return self._tls is not None and connection.tls_version != self._tls.version

    def _retire(self, connection: ClientConnection) -> None:
        self._retired = {one for one in self._retired if not one.is_closed}
        self._retired.add(connection)
        connection.retire()

    def _on_connected(self, task: asyncio.Task[ClientConnection]) -> None:
        self._connecting = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._failures, self._failure = 0, None
            if self.closed:  # in this turn of the loop
                task.result().end(Code.NO_ERROR, CHANNEL_CLOSED)
                return
            self._current = task.result()
            watching = asyncio.get_running_loop().create_task(self._watch(self._current))
            self._watching.add(watching)
            watching.add_done_callback(self._watching.discard)
            if self._events is not None:
                self._current.on_lost_by_peer = partial(self._events.lost, self._address)
                self._events.connected(self._address)
        elif isinstance(error, NotSentError):
            first, longest = self._settings.backoff_s
            self._failure = _again(error)
            self._retry_at = asyncio.get_running_loop().time() + min(longest, first * 2.0 ** min(self._failures, 30))
            self._failures += 1
            if self._events is not None and not self.closed:
                self._events.failed(self._address, error.message)

    async def _connect(self) -> ClientConnection:
        """NotSentError."""
        tls, settings = self._tls, self._settings
        version = 0 if tls is None else tls.version
        connection = ClientConnection(message_bytes_max=settings.message_bytes_max, tls_version=version)
        loop = asyncio.get_running_loop()
        end, host = loop.time() + settings.connect_timeout_s, self._host.strip("[]")
        made: socket.socket | None = None
        try:
            made = await connected_socket(host, int(self._port), settings.connect_timeout_s)
            async with timeout_at(end):
                await loop.create_connection(
                    lambda: connection,
                    sock=made,
                    ssl=None if tls is None else tls.client_context,
                    server_hostname=None if tls is None else host,
                )
                await connection.begun
        except BaseException as error:
            connection.give_up_connecting()
            if made is not None and not connection.is_open:  # else its transport closes it
                made.close()
            if (failure := self._failure_of(error, connection, is_connected=made is not None)) is None:
                raise
            raise failure from None
        return connection

    def _failure_of(
        self, error: BaseException, connection: ClientConnection, *, is_connected: bool
    ) -> NotSentError | None:
        """None: it has another reason than the node or the way to it."""
        if isinstance(error, TimeoutError):
            return self._no_connection("it does not answer")
        if isinstance(error, ssl.SSLError):
            return failed_handshake(self._address, error)
        if is_connected and isinstance(error, _ENDED):  # ConnectionEndedError among them
            return closed_at_once(self._address, expects_tls=connection.has_heard_tls)
        if isinstance(error, (OSError, ValueError, OverflowError)):
            return self._no_connection(_reason(error), is_refused=isinstance(error, ConnectionRefusedError))
        return None

    def _no_connection(self, reason: str, *, is_refused: bool = False) -> NotSentError:
        kind = NoListenerError if is_refused else NotSentError
        return kind(Status.UNAVAILABLE, f"no connection to {self._address}: {reason}")

    async def _watch(self, connection: ClientConnection) -> None:
        """Until it has ended."""
        loop, settings = asyncio.get_running_loop(), self._settings
        used_at = loop.time()
        while not connection.is_closed:
            connection.heard = False
            await asyncio.sleep(min(settings.keepalive_s, settings.idle_s))
            if connection.calls:
                used_at = loop.time()
            elif loop.time() - used_at >= settings.idle_s:
                connection.end(Code.NO_ERROR, "idle")
            if not connection.heard and not connection.is_closed:
                await self._ping(connection)

    async def _ping(self, connection: ClientConnection) -> None:
        """Ends it where no answer comes, and the node takes nothing of what was written before either."""
        progress = SendProgress(connection.transport)
        connection.write(frames.PING_OF_OURS)
        while True:
            await asyncio.sleep(self._settings.keepalive_timeout_s)
            if connection.heard or connection.is_closed:
                return
            if not progress.has_advanced():
                connection.lose("the node does not answer")
                return

    async def call_each(self, method: str, timeout_s: float) -> None:
        """Call a method with an empty request on each connection that has calls. Its failures are left to these."""
        if self._login is None:
            return
        for connection in [self._current, *self._retired]:
            if connection is None or connection.is_closed or not connection.calls:
                continue
            with suppress(RpcError, TimeoutError):
                async with timeout(timeout_s):
                    fields = await self._fields(method, None, timeout_s)
                    call = await connection.open(fields, b"")
                    try:
                        await _only_message(call)
                    finally:
                        call.reset(Code.CANCEL, None)
                        call.drop()

    async def close(self) -> None:
        """Cancels calls in progress."""
        self.closed = True
        for task in list(self._watching):
            task.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        for connection in [self._current, *self._retired]:
            if connection is not None and not connection.is_closed:
                for call in list(connection.calls.values()):
                    call.reset(Code.CANCEL, RpcError(Status.CANCELLED, CHANNEL_CLOSED))
                connection.end(Code.NO_ERROR, CHANNEL_CLOSED)


async def _only_message(call: Http2Call) -> bytes | None:
    """The first message, once the call has ended."""
    message = await call.next()
    if message is not None:
        while await call.next() is not None:
            pass
    return message


def _cancellations() -> int:
    """How often the current task has been cancelled; it may have gone on."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _again(error: NotSentError) -> NotSentError:
    """As a new exception: one that is raised more than once collects frames."""
    if isinstance(error, HandshakeError):
        return HandshakeError(error.status, error.message, is_refused_here=error.is_refused_here)
    return type(error)(error.status, error.message)


def _reason(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return "the name is not known"
    text = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return text[:1].lower() + text[1:]
