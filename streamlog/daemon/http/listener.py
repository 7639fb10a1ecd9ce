"""The HTTP listener of a node: /metrics, /healthz, /readyz, /version.

    GET /metrics   everything, for Prometheus
    GET /healthz   200 while the node's event loop responds within a second, else 503: restart it
    GET /readyz    200 while the node serves clients (with a warning if it has lost its vote on the metadata), else 503:
                   send it no requests
    GET /version   release, node id, cluster id
    /streamlog.v1.SERVICE/METHOD    with http.api.enable: the API of clients (`api`)

Limits: CONNECTIONS_MAX connections at a time over HTTP and as many over HTTPS, and those of the API's calls (the next
UNSERVED_MAX get 503, further ones are closed), IDLE_S for an idle connection, SEND_S for one that
does not read, REQUEST_BYTES_MAX for a request's headers; of handshakes: `connection`. Bodies are read by the API alone.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from streamlog.config.addresses import Address
from streamlog.daemon.http.absent import absent
from streamlog.daemon.http.connection import IDLE_S, Connection, Handshakes, secure_protocol
from streamlog.daemon.http.exposition import render
from streamlog.daemon.http.node_loop import NodeLoop
from streamlog.metrics import Family
from streamlog.node import Node
from streamlog.release import RELEASE

if TYPE_CHECKING:  # imported where it is enabled
    from streamlog.daemon.http.api.front import ApiFront, ApiSettings

with absent("watchfiles"):  # uvicorn imports it where it is installed, to reload programs that change: 0.8 MB
    import uvicorn

CONNECTIONS_MAX: Final = 64
REQUEST_BYTES_MAX: Final = 16 << 10
COLLECT_TIMEOUT_S: Final = 10.0
"""A scrape waits for the node's event loop for so long."""
LOOP_TIMEOUT_S: Final = 1.0
CACHE_S: Final = 1.0
"""A collection is reused for further scrapes for so long."""
STOP_S: Final = 5.0

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
LOST_VOTE: Final = (
    b"ready\n"
    b"warning: this voter lost its metadata directory and has no vote until it is restored "
    b"(streamlogctl cluster restore-voter)\n"
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Response = tuple[int, str, bytes]  # status, content type, body
Collect = Callable[[], Awaitable[list[Family]]]


def open_socket(address: Address) -> socket.socket:
    """OSError if the address cannot be bound."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server((address.host, address.port), family=family, backlog=CONNECTIONS_MAX)


class HttpListener:
    """Made on the node's loop; its thread runs from `start` to `stop`."""

    def __init__(
        self,
        node: Node,
        collect: Collect,
        sockets: Sequence[socket.socket],
        api: ApiSettings | None = None,
        secure: Sequence[socket.socket] = (),
        handshakes: Handshakes | None = None,
    ) -> None:
        """`collect` is called on the loop on which this is made. `api`: None: the API is not served. `secure`: over
        TLS, by `handshakes`.
        """
        loop = NodeLoop(asyncio.get_running_loop())
        self._routes = HttpRoutes(node, collect, loop, None if api is None else _made_front(node, loop, api))
        self._servers = [(self._server(Connection, api), list(sockets))] if sockets else []
        if secure and handshakes is not None:
            self._servers.append((self._server(secure_protocol(handshakes), api), list(secure)))
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def _server(self, protocol: type[Connection], api: ApiSettings | None) -> uvicorn.Server:
        config = uvicorn.Config(
            self._routes,
            http=protocol,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX + (0 if api is None else api.calls_max + api.streams_max),
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=REQUEST_BYTES_MAX,
        )
        return uvicorn.Server(config)

    def _run(self) -> None:
        async def serve() -> None:
            await asyncio.gather(*(server.serve(sockets) for server, sockets in self._servers))

        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(serve())

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Stops the thread; gives up after STOP_S, since the process ends anyway."""
        for server, _ in self._servers:
            server.should_exit = True
        await asyncio.to_thread(self._thread.join, STOP_S)
        for _, sockets in self._servers:
            for one in sockets:
                one.close()


def _made_front(node: Node, loop: NodeLoop, settings: ApiSettings) -> ApiFront:
    from streamlog.daemon.http.api.front import ApiFront

    return ApiFront(node, loop, settings)


class HttpRoutes:
    """The routes, as an ASGI application. Runs on the listener's loop."""

    def __init__(self, node: Node, collect: Collect, node_loop: NodeLoop, api: ApiFront | None) -> None:
        self._node = node
        self._api = api
        self._collect = collect
        self._node_loop = node_loop
        self._families: list[Family] = []
        self._collected_s = -CACHE_S
        self._collecting: asyncio.Lock | None = None  # made on the loop that uses it
        self._routes: dict[str, Callable[[str], Awaitable[Response]]] = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/version": self._version,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self._api is not None and self._api.serves(scope["path"]):
            await self._api.respond(scope, receive, send)
            return
        status, content_type, body = await self._respond(scope)
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _respond(self, scope: Scope) -> Response:
        route = self._routes.get(scope["path"])
        if route is None:
            pages = [*self._routes, *(() if self._api is None else self._api.pages)]
            return 404, TEXT, f"no such page; these exist: {', '.join(pages)}\n".encode()
        if scope["method"] not in ("GET", "HEAD"):
            return 405, TEXT, b"only GET and HEAD are allowed\n"
        accept = b",".join(value for name, value in scope["headers"] if name == b"accept")
        return await route(accept.decode("latin-1"))

    async def _metrics(self, accept: str) -> Response:
        try:
            families = await self._fresh_families()
        except TimeoutError:
            return 503, TEXT, f"the node's event loop has not responded within {COLLECT_TIMEOUT_S:g} s\n".encode()
        page, content_type = render(families, accept)
        return 200, content_type, page

    async def _fresh_families(self) -> list[Family]:
        if self._collecting is None:
            self._collecting = asyncio.Lock()
        async with self._collecting:
            if time.monotonic() - self._collected_s >= CACHE_S:
                self._families = await self._node_loop.run(self._collect, COLLECT_TIMEOUT_S)
                self._collected_s = time.monotonic()
            return self._families

    async def _healthz(self, _: str) -> Response:
        async def nothing() -> None:
            return

        try:
            await self._node_loop.run(nothing, LOOP_TIMEOUT_S)
        except TimeoutError:
            return 503, TEXT, f"the node's event loop has not responded within {LOOP_TIMEOUT_S:g} s\n".encode()
        return 200, TEXT, b"ok\n"

    async def _readyz(self, _: str) -> Response:
        if self._node.is_ready:
            return 200, TEXT, LOST_VOTE if self._node.has_lost_vote else b"ready\n"
        return 503, TEXT, b"the node is starting or stopping\n"

    async def _version(self, _: str) -> Response:
        document = {"version": RELEASE, "node_id": self._node.node_id, "cluster_id": self._node.cluster_id}
        return 200, JSON, json.dumps(document).encode() + b"\n"
