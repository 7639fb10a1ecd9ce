"""The API over HTTP of nodes in the test's process, and a client of it."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from streamlog.config.addresses import Address
from streamlog.daemon.http.api.front import ApiSettings
from streamlog.daemon.http.listener import HttpListener, open_socket
from streamlog.metrics import Family
from streamlog.node import Node
from streamlog.pytest_plugin.cluster import InProcessCluster

SETTINGS = ApiSettings(origins=(), hosts=(), calls_max=16, body_bytes_max=4 << 20, needs_login=False)
TIMEOUT_S = 120


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """Of an error: its ErrorInfo's."""
        return next(one["debug"]["reason"] for one in self.json["details"] if one["type"] == "google.rpc.ErrorInfo")


class Client(NamedTuple):
    port: int

    def send(self, http_method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request(http_method, path, body, dict(headers))
            return read(connection)
        finally:
            connection.close()

    def post(self, method: str, request: Any, **headers: str) -> Response:
        """`method`: such as `Records/Publish`. Underscores in the names of headers stand for hyphens."""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send("POST", f"/streamlog.v1.{method}", {"content-type": "application/json", **named}, body)

    def call(self, method: str, request: Any, **headers: str) -> Any:
        response = self.post(method, request, **headers)
        assert response.status == 200, response
        return response.json


def read(connection: http.client.HTTPConnection) -> Response:
    response = connection.getresponse()
    return Response(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


def text(value: str) -> str:
    """Bytes in JSON."""
    return base64.b64encode(value.encode()).decode()


def node_of(cluster: InProcessCluster, node_id: int) -> Node:
    node = cluster._node(node_id)._node
    assert node is not None
    return node


@contextmanager
def served(cluster: InProcessCluster, node_id: int = 1, settings: ApiSettings = SETTINGS) -> Iterator[Client]:
    async def collect() -> list[Family]:
        return []

    one = open_socket(Address("127.0.0.1", 0))

    async def start() -> HttpListener:
        listener = HttpListener(node_of(cluster, node_id), collect, [one], settings)
        listener.start()
        return listener

    port = one.getsockname()[1]
    listener = asyncio.run_coroutine_threadsafe(start(), cluster._loop).result()
    try:
        yield Client(port)
    finally:
        asyncio.run_coroutine_threadsafe(listener.stop(), cluster._loop).result()
