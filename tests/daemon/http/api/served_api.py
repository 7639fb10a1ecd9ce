"""The API over HTTP of nodes in the test's process, and a client of it."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from streamlog.config.addresses import Address
from streamlog.daemon.http.api.front import ApiSettings
from streamlog.daemon.http.listener import HttpListener, open_socket
from streamlog.metrics import Family
from streamlog.node import Node
from streamlog.pytest_plugin.cluster import InProcessCluster

SETTINGS = ApiSettings(origins=(), hosts=(), calls_max=16, streams_max=8, body_bytes_max=4 << 20, needs_login=False)
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


class Deadline:
    """Of something that a test waits for. A wait without one would end with the whole run of tests."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._at = time.monotonic() + TIMEOUT_S

    def check(self, last: object) -> None:
        """`last`: what has come meanwhile."""
        assert time.monotonic() < self._at, f"waited {TIMEOUT_S} s for {self._what}; the last was {last}"


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


class Event(NamedTuple):
    """A server-sent event, or a comment (then `name` is empty)."""

    name: str  # `message` where none is given
    id: str
    data: Any


class EventReader:
    """As a browser reads them: `last_event_id` is what it would send to resume. For TIMEOUT_S at most: while there are
    heartbeats, no read of the socket times out.
    """

    def __init__(self, client: Client, path: str, headers: Mapping[str, str], body: bytes | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=TIMEOUT_S)
        self._connection.request("GET" if body is None else "POST", path, body, dict(headers))
        self.response = self._connection.getresponse()
        self.last_event_id = ""
        self._deadline = Deadline(f"the events of {path}")

    def __enter__(self) -> EventReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Event]:
        """Until the response ends."""
        fields: dict[str, str] = {}
        for line in self.response:
            name, _, value = line.decode().rstrip("\n").partition(":")
            if line != b"\n":
                fields[name] = value.removeprefix(" ")
                continue
            self.last_event_id = fields.get("id", self.last_event_id)
            data = json.loads(fields["data"]) if "data" in fields else None
            event = Event("" if data is None else fields.get("event", "message"), self.last_event_id, data)
            self._deadline.check(event)
            yield event
            fields = {}


def subscribe_path(request: Any) -> str:
    return f"/streamlog.v1.Records/Subscribe?message={quote(json.dumps(request))}"


def values(events: Iterable[Event]) -> Iterator[tuple[int, str, str]]:
    """Partition, offset and value of each record."""
    for event in events:
        for partition in (event.data or {}).get("partitions", ()):
            for record in partition["records"]:
                yield partition["partition"], record["offset"], base64.b64decode(record["value"]).decode()


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
    listener = asyncio.run_coroutine_threadsafe(start(), cluster._loop).result(TIMEOUT_S)
    try:
        yield Client(port)
    finally:
        asyncio.run_coroutine_threadsafe(listener.stop(), cluster._loop).result(TIMEOUT_S)
