"""Calls of the node's own methods without gRPC, for another front of the same process (`daemon.http.api`).

    front --method, request's bytes, CallInfo--> the router's handlers --> response's bytes, or RpcError

The handlers are those of the listener: metrics, spans, audit and gate are around them. `CallInfo` says who calls, as it
does there; a front never puts a node's certificate into it, so a call has the rights of its own caller. Methods between
nodes are not served here. Clients of a front may reach this node alone: calls for a group's coordinator are forwarded.

A call is ended by its caller (the task is cancelled, or the stream is closed), or by `close`, when the node stops.
A stream holds one response that its caller has not taken yet; until then its handler waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from streamlog.errors import Status, StreamlogError
from streamlog.node.method_router import MethodRouter
from streamlog.node.served_methods import CLIENT_PREFIX
from streamlog.ports import CallInfo, RpcError
from streamlog.ports.network import CRASHED
from streamlog.services.common.forwarding import TO_COORDINATOR

T = TypeVar("T")

STOPPED: Final = "the node stops: call another node; whether the call was carried out is unknown"
STREAM_STOPPED: Final = "the node stops: continue at another node"
STREAM_ENDED: Final = "the stream was ended; open it again"
ENDS_S: Final = 2.0
"""How long `close` waits for handlers that it has cancelled."""


class InProcessCalls:
    """Used on the node's loop."""

    def __init__(self, router: MethodRouter, on_crash: Callable[[Exception], None], listener: str = "") -> None:
        """`on_crash`: as that of the network adapters. `listener`: whose addresses callers get."""
        unary, streams = router.unary(), router.streaming()
        self._unary = {name: handler for name, handler in unary.items() if name.startswith(CLIENT_PREFIX)}
        self._streams = {name: handler for name, handler in streams.items() if name.startswith(CLIENT_PREFIX)}
        self._on_crash = on_crash
        self._listener = listener
        self._unary_tasks: dict[asyncio.Task[Any], None] = {}
        self._stream_tasks: dict[asyncio.Task[Any], None] = {}
        self._closed = asyncio.Event()

    async def unary(self, request: bytes, info: CallInfo) -> bytes:
        """RpcError."""
        handler = self._unary[info.method]
        info = replace(info, metadata={**info.metadata, TO_COORDINATOR: "1"}, listener=self._listener)
        return await self._run(lambda: handler(request, info), self._unary_tasks, STOPPED)

    def open_stream(self, request: bytes, info: CallInfo) -> InProcessStream:
        """A call with one request; `InProcessStream.close` ends it."""
        stream = InProcessStream()
        info = replace(info, listener=self._listener)
        stream.task = asyncio.create_task(self._serve(stream, request, info))  # sim: cancelled by the stream or `close`
        return stream

    async def close(self, grace_s: float) -> None:
        """Ends the streams, gives other calls this time, and then ends them too."""
        self._closed.set()
        for task in self._stream_tasks:
            task.cancel()
        if self._unary_tasks:
            await asyncio.wait(self._unary_tasks, timeout=grace_s)
        for task in self._unary_tasks:
            task.cancel()
        running = [*self._unary_tasks, *self._stream_tasks]
        if running:
            await asyncio.wait(running, timeout=ENDS_S)

    async def _serve(self, stream: InProcessStream, request: bytes, info: CallInfo) -> None:
        handler, info = self._streams[info.method], replace(info, listener=self._listener)
        ended: RpcError | None = RpcError(Status.UNAVAILABLE, STREAM_ENDED)
        try:
            await self._run(lambda: handler(_ServingEnd(stream, request), info), self._stream_tasks, STREAM_STOPPED)
            ended = None
        except RpcError as error:
            ended = error
        finally:  # whatever ends the handler: a reader that waits for its next response would wait for ever
            stream.end(ended)

    async def _run(self, work: Callable[[], Awaitable[T]], tasks: dict[asyncio.Task[Any], None], stopped: str) -> T:
        """RpcError."""
        if self._closed.is_set():
            raise RpcError(Status.UNAVAILABLE, STREAM_STOPPED)
        task = asyncio.current_task()
        assert task is not None
        tasks[task] = None
        try:
            return await work()
        except RpcError:
            raise
        except asyncio.CancelledError:
            if not self._closed.is_set():
                raise
            task.uncancel()
            raise RpcError(Status.UNAVAILABLE, stopped) from None
        except StreamlogError as error:
            raise RpcError.of(error) from None
        except Exception as error:  # noqa: BLE001  passed to the owner
            self._on_crash(error)
            raise RpcError(Status.UNKNOWN, CRASHED) from None
        finally:
            del tasks[task]


class InProcessStream:
    """The calling end of a call with one request and many responses."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None  # of the handler
        self._message: bytes | None = None
        self._is_ended = False
        self._error: RpcError | None = None
        self._filled = asyncio.Event()  # with a message, or ended
        self._taken = asyncio.Event()

    async def next(self) -> bytes | None:
        """None after the last response. RpcError where the call failed."""
        await self._filled.wait()
        message, self._message = self._message, None
        if message is not None:
            if not self._is_ended:
                self._filled.clear()
            self._taken.set()
            return message
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """End the call, unless it has ended."""
        if self.task is not None:
            self.task.cancel()

    async def put(self, message: bytes) -> None:
        """Of the handler: waits until the previous message is taken."""
        while self._message is not None:
            self._taken.clear()
            await self._taken.wait()
        self._message = message
        self._filled.set()

    def end(self, error: RpcError | None) -> None:
        """Of the handler: after the messages that were put."""
        self._is_ended, self._error = True, error
        self._filled.set()


class _ServingEnd:
    """The ports.Stream of the handler."""

    def __init__(self, stream: InProcessStream, request: bytes) -> None:
        self._stream = stream
        self._request: bytes | None = request

    async def send(self, message: bytes) -> None:
        await self._stream.put(message)

    async def recv(self) -> bytes | None:
        request, self._request = self._request, None
        return request

    async def done_sending(self) -> None:
        """The serving side ends the stream by returning."""
