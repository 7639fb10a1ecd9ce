"""Methods with many responses: as server-sent events, or the first response alone.

    text/event-stream    an event a response, its data as JSON; at the end `event: end`, with Connect's `{"error": ...}`
                         if the call failed; a comment at least every KEEPALIVE_S
    application/json     the first response: of Subscribe a fetch from the offsets of the request, which waits for
                         records for heartbeatIntervalMs

Records.Subscribe has ids (`resume`), and its heartbeats are comments with an id.

The next response is taken from the node's loop once the previous one is written, and the connection takes no more than
its buffer: so a slow client leaves one response waiting here and one there. One that does not read is cut off
by the connection.

An error found before the first event is the response's HTTP status. But a browser's EventSource reconnects only after a
response of status 200: those that accept text/event-stream alone get an `end` event where a retry may help.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from streamlog.aio.timeouts import timeout
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import REQUEST_BYTES_MAX, parse
from streamlog.daemon.http.api.api_errors import ApiError, Headers
from streamlog.daemon.http.api.body import Disconnected, RequestBody
from streamlog.daemon.http.api.json_messages import JsonMessages, format_json
from streamlog.daemon.http.api.methods import ServedMethod
from streamlog.daemon.http.api.resume import END, ReadProgress, is_heartbeat
from streamlog.daemon.http.node_loop import NodeLoop
from streamlog.errors import RequestTimedOutError, StreamlogError
from streamlog.node import Node
from streamlog.node.in_process_calls import InProcessStream
from streamlog.ports import CallInfo, RpcError

KEEPALIVE_S: Final = 15.0
RETRY_MS: Final = 1_000
"""A browser waits so long before it reconnects."""

EVENT_BYTES: Final = 64 << 10
"""Default of Subscribe's response_bytes_max in events: small ones take the interpreter for short."""
EVENT_BYTES_MAX: Final = 1 << 20
FETCH_BYTES: Final = 1 << 20
FETCH_BYTES_MAX: Final = 4 << 20
EVENT_HEARTBEAT_MS: Final = 1_000
"""Also how long it may take until the first event has an id."""
FETCH_WAIT_MS: Final = 500
"""Kafka's fetch.max.wait.ms."""

KEEPALIVE: Final = b": keep-alive\n\n"

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class EventResponse:
    """A response of events, while it is sent."""

    def __init__(self, send: Send, headers: Headers, *, reconnects: bool) -> None:
        """`reconnects`: as an EventSource does."""
        self.reconnects = reconnects
        self._send = send
        self._headers = headers
        self.is_open = False

    async def write(self, data: bytes, *, is_last: bool = False) -> None:
        """Waits while the client does not read. Of one that has disconnected it is dropped."""
        if not self.is_open:
            self.is_open = True
            headers = [
                *self._headers,
                (b"content-type", b"text/event-stream"),
                (b"cache-control", b"no-store"),
                (b"x-content-type-options", b"nosniff"),
                (b"x-accel-buffering", b"no"),  # nginx sends each event at once
            ]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            data = b"retry: %d\n\n" % RETRY_MS + data
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})


class StreamCalls:
    """Used on the listener's loop."""

    def __init__(self, node: Node, node_loop: NodeLoop, messages: JsonMessages) -> None:
        self._node = node
        self._node_loop = node_loop
        self._json = messages

    async def first(self, request: bytes, info: CallInfo, timeout_s: float) -> bytes:
        """The first response; an empty one where the stream has none. ApiError."""
        try:
            async with timeout(timeout_s), self._opened(request, info) as stream:
                return await self._node_loop.run(stream.next, None) or b""
        except RpcError as error:
            raise ApiError(error) from None
        except TimeoutError:
            raise ApiError.of(
                RequestTimedOutError(f"{info.method.lstrip('/')} had no response within {timeout_s:g} s")
            ) from None

    async def events(
        self, request: bytes, info: CallInfo, events: Events, body: RequestBody, response: EventResponse
    ) -> None:
        """ApiError before the first event, Disconnected."""
        try:
            async with self._opened(request, info) as stream, _reading(self._node_loop, stream, body) as reader:
                while (message := await reader.next()) is not None:
                    await response.write(
                        KEEPALIVE
                        if message is reader.NOTHING
                        else await self._json.converted(len(message), partial(events.event, message))
                    )
            await response.write(end_event(None), is_last=True)
        except (RpcError, StreamlogError) as error:
            reason = ApiError(error) if isinstance(error, RpcError) else ApiError.of(error)
            if not response.is_open and not (response.reconnects and reason.is_retriable):
                raise reason from None
            await response.write(end_event(reason), is_last=True)

    @asynccontextmanager
    async def _opened(self, request: bytes, info: CallInfo) -> AsyncIterator[InProcessStream]:
        opened: list[InProcessStream] = []
        has_left = False  # both are used on the node's loop

        async def start() -> None:
            if not has_left:
                opened.append(self._node.in_process_calls.open_stream(request, info))

        def close() -> None:
            nonlocal has_left
            has_left = True
            for stream in opened:
                stream.close()

        try:
            await self._node_loop.run(start, None)
            yield opened[0]
        finally:
            # Where this is cancelled meanwhile, the stream may be open before that is known here, or would be later.
            self._node_loop.post(close)


class _Reader:
    """The responses of a stream, as long as the client is connected."""

    NOTHING: Final = b"no response for KEEPALIVE_S"

    def __init__(self, node_loop: NodeLoop, stream: InProcessStream, body: RequestBody) -> None:
        self._node_loop = node_loop
        self._stream = stream
        self._watching = asyncio.ensure_future(body.wait_for_disconnect())
        self._next: asyncio.Future[bytes | None] | None = None

    async def next(self) -> bytes | None:
        """NOTHING where there is none for KEEPALIVE_S; None after the last one. RpcError, Disconnected."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._node_loop.run(self._stream.next, None))
        either: list[asyncio.Future[Any]] = [self._next, self._watching]
        await asyncio.wait(either, timeout=KEEPALIVE_S, return_when=asyncio.FIRST_COMPLETED)
        if self._watching.done():
            raise Disconnected
        if not self._next.done():
            return self.NOTHING
        following, self._next = self._next, None
        return following.result()

    def close(self) -> None:
        self._watching.cancel()
        if self._next is not None:
            self._next.cancel()


@asynccontextmanager
async def _reading(node_loop: NodeLoop, stream: InProcessStream, body: RequestBody) -> AsyncIterator[_Reader]:
    reader = _Reader(node_loop, stream, body)
    try:
        yield reader
    finally:
        reader.close()


class Events:
    """The responses of a method as events. Without ids: a reader starts again from the request."""

    def __init__(self, method: ServedMethod) -> None:
        self._method = method

    def event(self, data: bytes) -> bytes:
        """StreamlogError."""
        return b"data: %b\n\n" % format_json(self._method.response_type.FromString(data))


class SubscribeEvents(Events):
    def __init__(self, method: ServedMethod, progress: ReadProgress) -> None:
        super().__init__(method)
        self._progress = progress

    def event(self, data: bytes) -> bytes:
        response = pb.SubscribeResponse.FromString(data)
        event_id = self._progress.note(response).encode()
        if is_heartbeat(response):
            return b": heartbeat\nid: %b\n\n" % event_id
        return b"id: %b\ndata: %b\n\n" % (event_id, format_json(response))


def end_event(error: ApiError | None) -> bytes:
    if error is None:
        return b"event: end\nid: %b\ndata: {}\n\n" % END.encode()
    document = json.dumps({"error": error.document()}, ensure_ascii=False)
    return b"event: end\ndata: %b\n\n" % document.encode()


def opened_events(method: ServedMethod, request: bytes, last_event_id: str) -> tuple[Events, bytes]:
    """And the request with this front's defaults and bounds, which continues after that event. InvalidRequestError,
    RequestTooLargeError.
    """
    if not is_subscribe(method):
        return Events(method), request
    message = parse(pb.SubscribeRequest, request, REQUEST_BYTES_MAX)
    progress = ReadProgress(last_event_id)
    progress.resume(message)
    _bound(message, EVENT_BYTES, EVENT_BYTES_MAX, EVENT_HEARTBEAT_MS)
    return SubscribeEvents(method, progress), message.SerializeToString()


def fetch_request(method: ServedMethod, request: bytes) -> bytes:
    """With this front's defaults and bounds. InvalidRequestError, RequestTooLargeError."""
    if not is_subscribe(method):
        return request
    message = parse(pb.SubscribeRequest, request, REQUEST_BYTES_MAX)
    _bound(message, FETCH_BYTES, FETCH_BYTES_MAX, FETCH_WAIT_MS)
    return message.SerializeToString()


def is_subscribe(method: ServedMethod) -> bool:
    return method.request_type.DESCRIPTOR.full_name == pb.SubscribeRequest.DESCRIPTOR.full_name


def _bound(message: pb.SubscribeRequest, default: int, high: int, heartbeat_ms: int) -> None:
    """Negative numbers stay, and are refused by the node."""
    message.response_bytes_max = min(message.response_bytes_max or default, high)
    message.receive_bytes_max = min(message.receive_bytes_max or FETCH_BYTES_MAX, FETCH_BYTES_MAX)
    message.heartbeat_interval_ms = message.heartbeat_interval_ms or heartbeat_ms
