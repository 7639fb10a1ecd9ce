"""The API's requests, from their headers to their responses. Runs on the listener's loop.

    POST /streamlog.v1.Records/Publish      any method with one response, as application/json or application/proto
    POST /streamlog.v1.Records/Subscribe    a method with many responses: the first one; with Accept: text/event-stream
    GET  ...Subscribe?message={...}         server-sent events (`streams`)
    OPTIONS                                 called by browsers before requests of other origins
    GET /openapi.json, /docs                all methods and messages, for programs and for people

Checked in this order, and nothing of a later step is done before: host and origin, the method, a place among the calls
in progress, credentials, the content's type, the body's size, the body. Then the node's loop gets the call.

Errors are Connect's JSON. A call ends when its client disconnects, as by gRPC.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

from msgspec import Struct

from streamlog.config import Config
from streamlog.config.addresses import Address
from streamlog.config.settings import http_settings, node_settings
from streamlog.config.settings.security_settings import AUTHORIZER_CLASS_NAME
from streamlog.daemon.http.api.api_errors import ApiError, Headers
from streamlog.daemon.http.api.body import Disconnected, Receive, RequestBody, check_encoding
from streamlog.daemon.http.api.docs_page import POLICY, docs_page
from streamlog.daemon.http.api.json_messages import JsonMessages
from streamlog.daemon.http.api.methods import ONLY_GRPC, SERVED_METHODS, ServedMethod
from streamlog.daemon.http.api.openapi import openapi_text
from streamlog.daemon.http.api.origins import Origins
from streamlog.daemon.http.api.resume import END
from streamlog.daemon.http.api.streams import EventResponse, StreamCalls, fetch_request, opened_events
from streamlog.daemon.http.node_loop import NodeLoop
from streamlog.errors import (
    InvalidRequestError,
    RequestTimedOutError,
    RequestTooLargeError,
    SaslAuthenticationError,
    Status,
    ThrottledError,
    UnsupportedVersionError,
)
from streamlog.node import Node
from streamlog.ports import CallInfo, RpcError
from streamlog.ports.network import CRASHED

T = TypeVar("T")

CALL_S: Final = 60.0
"""A call without Connect-Timeout-Ms ends after this time."""
CALL_S_MAX: Final = 600.0
RESPONSE_BYTES_MAX: Final = 8 << 20
"""Of a response before it is converted."""

JSON: Final = b"application/json"
PROTO: Final = b"application/proto"
DOCS: Final = "/docs"
OPENAPI: Final = "/openapi.json"
EVENTS: Final = b"text/event-stream"
PASSED_ON: Final = (b"authorization", b"client-id", b"traceparent", b"tracestate")
"""Headers that become metadata of the call."""
CLOSE: Final = (b"connection", b"close")

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ApiSettings(Struct, frozen=True):
    origins: tuple[str, ...]
    hosts: tuple[str, ...]  # names of this node
    calls_max: int
    streams_max: int
    body_bytes_max: int
    needs_login: bool

    @classmethod
    def of(cls, config: Config) -> ApiSettings:
        advertised = config[node_settings.ADVERTISED_LISTENERS] or config[node_settings.LISTENERS]
        names = [one.address.host for one in advertised]
        names += [one.address.host for one in config[node_settings.HTTP_LISTENERS]]
        return cls(
            origins=config[http_settings.HTTP_API_ALLOWED_ORIGINS],
            hosts=tuple(names),
            calls_max=config[http_settings.HTTP_API_MAX_CALLS],
            streams_max=config[http_settings.HTTP_API_MAX_STREAMS],
            body_bytes_max=config[node_settings.SOCKET_REQUEST_MAX_BYTES],
            needs_login=config[AUTHORIZER_CLASS_NAME] != "none",
        )


class ApiFront:
    def __init__(self, node: Node, node_loop: NodeLoop, settings: ApiSettings) -> None:
        self._node = node
        self._node_loop = node_loop
        self._settings = settings
        self._origins = Origins(settings.origins, settings.hosts)
        self._json = JsonMessages()
        self._streams = StreamCalls(node, node_loop, self._json)
        self._call_places = _Places("calls", http_settings.HTTP_API_MAX_CALLS.name, settings.calls_max)
        self._stream_places = _Places("streams", http_settings.HTTP_API_MAX_STREAMS.name, settings.streams_max)

    pages: Final = (DOCS, OPENAPI, "/streamlog.v1.SERVICE/METHOD")
    """For people who look for them."""

    def serves(self, path: str) -> bool:
        """Whether this path is the API's, and not another page of the listener."""
        return "." in path or path == DOCS

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])  # of duplicates the last
        body = RequestBody(headers, receive)
        browser: Headers = ()
        try:
            try:
                if scope["method"] == "OPTIONS":
                    browser = self._origins.preflight(headers, scope["scheme"], b"POST, GET")
                    await _send(send, 204, browser, b"")
                    return
                browser = self._origins.check(headers, scope["scheme"])
                await self._reported(self._serve(scope, headers, browser, body, send))
            except ApiError as error:
                await body.skip()
                last = () if body.is_read else (CLOSE,)
                response = (*browser, *error.headers, *last, (b"content-type", JSON))
                await _send(send, error.http_status, response, error.body(), is_head=scope["method"] == "HEAD")
        except Disconnected:
            pass  # what is sent now is dropped

    async def _reported(self, work: Awaitable[None]) -> None:
        """An unexpected error is the node's, as one of a handler is; the caller gets no part of it. ApiError."""
        try:
            await work
        except (ApiError, Disconnected):
            raise
        except Exception as error:  # noqa: BLE001  passed to the owner
            self._node_loop.post(partial(self._node.call_failed, error))
            raise ApiError(RpcError(Status.UNKNOWN, CRASHED)) from None

    async def _serve(
        self, scope: Scope, headers: Mapping[bytes, bytes], browser: Headers, body: RequestBody, send: Send
    ) -> None:
        """ApiError, Disconnected."""
        if scope["path"] in (DOCS, OPENAPI):
            await self._serve_docs(scope, browser, send)
            return
        method = _method(scope["path"])
        _check_http_method(method, scope["method"])
        if method.is_stream and (scope["method"] == "GET" or EVENTS in headers.get(b"accept", b"").lower()):
            with self._stream_places.taken():
                await self._serve_events(method, scope, headers, browser, body, send)
            return
        with self._call_places.taken():
            self._check_login(headers)
            codec = _codec(headers)
            timeout_s = _timeout_s(headers)
            request = await self._request(method, codec, headers, body)
            info = _info(method, scope, headers, timeout_s)
            response = await _until_disconnect(self._call(method, request, info, timeout_s), body)
            text = response if codec == PROTO else await self._json.formatted(method.response_type, response)
        await _send(send, 200, (*browser, (b"content-type", codec)), text)

    async def _serve_docs(self, scope: Scope, browser: Headers, send: Send) -> None:
        """ApiError. Made when it is first requested."""
        if scope["method"] not in ("GET", "HEAD"):
            raise ApiError.of(
                InvalidRequestError(f"{scope['method']} is not allowed here: use GET", field="method"),
                405,
                [(b"allow", b"GET, HEAD, OPTIONS")],
            )
        headers: Headers = ((b"content-type", JSON),)
        if scope["path"] == DOCS:
            page = await asyncio.to_thread(docs_page)
            headers = ((b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", POLICY))
        else:
            page = await asyncio.to_thread(openapi_text)
        await _send(send, 200, (*browser, *headers), page, is_head=scope["method"] == "HEAD")

    async def _serve_events(
        self,
        method: ServedMethod,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        browser: Headers,
        body: RequestBody,
        send: Send,
    ) -> None:
        """ApiError, Disconnected."""
        self._check_login(headers)
        last_event_id = headers.get(b"last-event-id", b"").decode("latin-1")
        if last_event_id == END:
            await _send(send, 204, browser, b"")
            return
        if scope["method"] == "GET":
            request = await self._parsed(method, JSON, _message_of(scope["query_string"]))
        else:
            request = await self._request(method, _codec(headers), headers, body)
        try:
            events, request = opened_events(method, request, last_event_id)
        except (InvalidRequestError, RequestTooLargeError) as error:
            raise ApiError.of(error) from None
        response = EventResponse(send, browser, reconnects=headers.get(b"accept", b"").strip().lower() == EVENTS)
        await self._streams.events(request, _info(method, scope, headers, None), events, body, response)

    async def _request(
        self, method: ServedMethod, codec: bytes, headers: Mapping[bytes, bytes], body: RequestBody
    ) -> bytes:
        """ApiError, Disconnected."""
        check_encoding(headers)
        data = await body.read(self._settings.body_bytes_max)
        return await self._parsed(method, codec, data)

    async def _parsed(self, method: ServedMethod, codec: bytes, data: bytes) -> bytes:
        """ApiError."""
        if codec == PROTO:
            return data
        try:
            return await self._json.parsed(method.request_type, data)
        except RequestTooLargeError as error:
            raise ApiError.of(error, 413) from None
        except InvalidRequestError as error:
            raise ApiError.of(error) from None

    async def _call(self, method: ServedMethod, request: bytes, info: CallInfo, timeout_s: float) -> bytes:
        """ApiError."""
        try:
            if method.is_stream:
                return await self._streams.first(fetch_request(method, request), info, timeout_s)
            response = await self._node_loop.run(lambda: self._node.in_process_calls.unary(request, info), timeout_s)
        except RpcError as error:
            raise ApiError(error) from None
        except (InvalidRequestError, RequestTooLargeError) as error:
            raise ApiError.of(error) from None
        except TimeoutError:
            raise ApiError.of(
                RequestTimedOutError(
                    f"{info.method.lstrip('/')} got no response within {timeout_s:g} s; it may have been carried out"
                )
            ) from None
        if len(response) > RESPONSE_BYTES_MAX:
            raise ApiError.of(
                RequestTooLargeError(
                    f"the response has {len(response):,} bytes; over HTTP at most {RESPONSE_BYTES_MAX:,} are sent: "
                    "request less at once",
                    limit=RESPONSE_BYTES_MAX,
                )
            )
        return response

    def _check_login(self, headers: Mapping[bytes, bytes]) -> None:
        """ApiError. Who it is, and what it may do, is decided on the node's loop."""
        if self._settings.needs_login and not headers.get(b"authorization"):
            raise ApiError.of(
                SaslAuthenticationError(
                    "this cluster has access control: send Authorization: Basic (user and password) or Bearer (token)"
                ),
            )


class _Places:
    """Of calls or streams in progress."""

    def __init__(self, what: str, setting: str, limit: int) -> None:
        self._what = what
        self._setting = setting
        self._limit = limit
        self._count = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """ApiError where there is none."""
        if self._count >= self._limit:
            raise ApiError.of(
                ThrottledError(
                    f"{self._count} {self._what} over HTTP are in progress on this node, its limit ({self._setting}): "
                    "try again, or call another node",
                    limit=self._limit,
                ),
                headers=[(b"retry-after", b"1")],
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


def _check_http_method(method: ServedMethod, given: str) -> None:
    """ApiError."""
    allowed = ("POST", "GET") if method.is_stream else ("POST",)
    if given not in allowed:
        raise ApiError.of(
            InvalidRequestError(f"{given} is not allowed here: use {' or '.join(allowed)}", field="method"),
            405,
            [(b"allow", ", ".join((*allowed, "OPTIONS")).encode())],
        )


def _message_of(query: bytes) -> bytes:
    """The request in a URL: `?message=JSON`, in Connect's form with `connect=v1&encoding=json`. ApiError."""
    try:
        given = parse_qs(query.decode(), keep_blank_values=True, strict_parsing=bool(query), max_num_fields=8)
    except ValueError:
        given = {}
    known = {"message", "encoding", "connect"}
    if given.keys() <= known and len(given.get("message", ())) == 1 and given.get("encoding", ["json"]) == ["json"]:
        return given["message"][0].encode("utf-8", "replace")
    raise ApiError.of(
        InvalidRequestError(
            "the URL needs the request as JSON in its parameter message, and no other parameter: "
            '?message={"subscriptions":[{"topic":"orders"}]}, percent-encoded',
            field="message",
        )
    )


def _method(path: str) -> ServedMethod:
    """ApiError."""
    found = SERVED_METHODS.get(path)
    if found is not None:
        return found
    name = path.lstrip("/")[:253]
    if path in ONLY_GRPC:
        raise ApiError.of(
            UnsupportedVersionError(f"{name} takes many requests, which needs gRPC over HTTP/2", field="method"),
            status=Status.UNIMPLEMENTED,
        )
    raise ApiError.of(
        UnsupportedVersionError(f"there is no method {name}; {OPENAPI} lists them", field="method"),
        404,
        status=Status.UNIMPLEMENTED,
    )


def _codec(headers: Mapping[bytes, bytes]) -> bytes:
    """ApiError."""
    version = headers.get(b"connect-protocol-version", b"1")
    if version != b"1":
        raise ApiError.of(InvalidRequestError("Connect-Protocol-Version must be 1", field="connect-protocol-version"))
    given, _, parameters = headers.get(b"content-type", b"").lower().partition(b";")
    charset = parameters.replace(b" ", b"").replace(b'"', b"")
    if given.strip() in (JSON, PROTO) and charset in (b"", b"charset=utf-8"):
        return given.strip()
    raise ApiError.of(
        InvalidRequestError(
            "Content-Type must be application/json (in UTF-8) or application/proto", field="content-type"
        ),
        415,
        [(b"accept-post", b"application/json, application/proto")],
    )


def _timeout_s(headers: Mapping[bytes, bytes]) -> float:
    """ApiError."""
    given = headers.get(b"connect-timeout-ms")
    if given is None:
        return CALL_S
    if not given.isdigit() or len(given) > 10:
        raise ApiError.of(
            InvalidRequestError("Connect-Timeout-Ms must be a number of at most 10 digits", field="connect-timeout-ms"),
        )
    return min(int(given) / 1000, CALL_S_MAX)


def _info(method: ServedMethod, scope: Scope, headers: Mapping[bytes, bytes], timeout_s: float | None) -> CallInfo:
    """Of a caller without a certificate."""
    host, port = scope["client"] or ("", 0)
    return CallInfo(
        method=method.path,
        peer=str(Address(host, port)),
        metadata={name.decode(): headers[name].decode("latin-1") for name in PASSED_ON if name in headers},
        deadline=None if timeout_s is None else time.monotonic() + timeout_s,
    )


async def _until_disconnect(call: Awaitable[T], body: RequestBody) -> T:
    """Disconnected, if the client does so first; the call is cancelled then."""
    calling = asyncio.ensure_future(call)
    watching = asyncio.ensure_future(body.wait_for_disconnect())
    try:
        await asyncio.wait([calling, watching], return_when=asyncio.FIRST_COMPLETED)
        if not calling.done():
            raise Disconnected
        return calling.result()
    finally:
        calling.cancel()
        watching.cancel()


async def _send(send: Send, status: int, headers: Headers, body: bytes, *, is_head: bool = False) -> None:
    every = [
        *headers,
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": every})
    await send({"type": "http.response.body", "body": b"" if is_head else body})
