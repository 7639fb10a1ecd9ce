"""The HTTP pages of a node: what they answer, what they refuse, what they cost."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import uvicorn
from uvicorn.server import ServerState

from streamlog.config.addresses import Address
from streamlog.daemon.http import connection
from streamlog.daemon.http import listener as listening
from streamlog.daemon.http.exposition import render
from streamlog.daemon.http.listener import HttpListener, open_socket
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.metrics import Family, Histogram
from streamlog.metrics.families import counter, gauge, histogram, info, single
from tests.daemon.http.fake_node import FakeNode, nothing


class Page(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


Get = Callable[..., Page]


def ask(port: int, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> Page:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return Page(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def served(test: Callable[[Get], None], collect: Callable[[], Awaitable[list[Family]]], node: object = None) -> None:
    served_at(lambda port: test(partial(ask, port)), collect, node)


def served_at(test: Callable[[int], None], collect: Callable[[], Awaitable[list[Family]]], node: object = None) -> None:
    """`test` gets the port, and runs in a thread beside the loop of the node."""

    async def main() -> None:
        one = open_socket(Address("127.0.0.1", 0))
        port = one.getsockname()[1]
        listener = HttpListener(node or FakeNode(), collect, [one])  # type: ignore[arg-type]  # what pages ask of it
        listener.start()
        try:
            await asyncio.to_thread(test, port)
        finally:
            await listener.stop()

    asyncio.run(main())


def test_pages() -> None:
    def test(get: Get) -> None:
        assert get("/healthz")[::2] == (200, b"ok\n")
        assert get("/readyz")[::2] == (200, b"ready\n")
        assert json.loads(get("/version").body)["node_id"] == 7
        assert b"process_cpu_seconds_total" in get("/metrics").body
        missing = get("/../etc/passwd")
        assert (missing.status, b"/metrics" in missing.body) == (404, True)
        refused = get("/metrics", "POST")
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
        assert get("/metrics", "HEAD")[::2] == (200, b"")

    served(test, nothing)


def test_a_node_that_does_not_serve_is_not_ready() -> None:
    class Starting(FakeNode):
        is_ready = False

    def test(get: Get) -> None:
        assert get("/readyz").status == 503
        assert get("/healthz").status == 200

    served(test, nothing, Starting())


def test_a_loop_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "COLLECT_TIMEOUT_S", 0.05)

    async def stuck() -> list[Family]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    def test(get: Get) -> None:
        page = get("/metrics")
        assert (page.status, page.body) == (503, b"the node's event loop has not responded within 0.05 s\n")

    served(test, stuck)


def test_many_scrapes_cost_the_node_one_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "CACHE_S", 3600.0)
    collected = []

    async def collect() -> list[Family]:
        collected.append(1)
        return [gauge("streamlog_x", "X.", single(len(collected)))]

    def test(get: Get) -> None:
        assert {b"streamlog_x 1.0" in get("/metrics").body for _ in range(5)} == {True}

    served(test, collect)
    assert len(collected) == 1


def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_S", 0.05)

    async def main() -> None:
        one = open_socket(Address("127.0.0.1", 0))
        listener = HttpListener(FakeNode(), nothing, [one])  # type: ignore[arg-type]
        listener.start()
        try:
            with socket.create_connection(one.getsockname(), timeout=30) as silent:
                assert await asyncio.to_thread(silent.recv, 1) == b""
            with socket.create_connection(one.getsockname(), timeout=30) as slow:
                slow.sendall(b"GET /metrics HTTP/1.1\r\nx-")
                assert await asyncio.to_thread(slow.recv, 1) == b""
        finally:
            await listener.stop()

    asyncio.run(main())


def test_a_next_request_has_as_long_as_the_first_however_slowly_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_S", 0.5)

    def test(port: int) -> bytes:
        used = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        used.request("GET", "/version")
        assert used.getresponse().read()
        assert used.sock is not None, "the node keeps it open"
        try:
            used.sock.sendall(b"GET /version HTTP/1.1\r\nx-")
            return used.sock.recv(1)
        except ConnectionError:
            return b""
        finally:
            used.close()

    async def main() -> None:
        one = open_socket(Address("127.0.0.1", 0))
        listener = HttpListener(FakeNode(), nothing, [one])  # type: ignore[arg-type]
        listener.start()
        try:
            assert await asyncio.to_thread(test, one.getsockname()[1]) == b""
        finally:
            await listener.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    "requests", [b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 3, b"GET /metrics HTTP/1.0\r\n\r\n"]
)
def test_a_response_that_is_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch, requests: bytes) -> None:
    monkeypatch.setattr(connection, "IDLE_S", 0.05)
    monkeypatch.setattr(connection, "SEND_S", 0.05)
    monkeypatch.setattr(listening, "CONNECTIONS_MAX", 2)

    async def collect() -> list[Family]:
        return [gauge("streamlog_x", "x" * (16 << 20), single(1))]

    def test(port: int) -> None:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.settimeout(30)
            client.connect(("127.0.0.1", port))
            client.sendall(requests)
            assert client.recv(12) == b"HTTP/1.1 200"
            deadline = time.monotonic() + 30
            while ask(port, "/version").status == 503:  # two connections are open
                assert time.monotonic() < deadline

    served_at(test, collect)


class UnreadTransport(asyncio.Transport):
    """Its client reads nothing: it is never empty, so that it does not close."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 5)})
        self.is_closed = False
        self.aborted = asyncio.Event()

    def write(self, data: object) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.aborted.set()


def opened(app: Callable[..., Awaitable[None]]) -> tuple[connection.Connection, UnreadTransport]:
    config = uvicorn.Config(app, http=connection.Connection, lifespan="off", log_config=None)
    made, transport = connection.Connection(config=config, server_state=ServerState(), app_state={}), UnreadTransport()
    made.connection_made(transport)
    return made, transport


async def unanswered(scope: object, receive: Callable[[], Awaitable[dict[str, object]]], send: object) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.parametrize(
    "sent", [b"", b"x\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\ntransfer-encoding: chunked\r\n\r\nx\r\n"]
)
async def test_what_is_left_when_it_is_closed_is_dropped(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """However little it is: after an idle time, and of a request that is invalid in its head or in its body."""
    monkeypatch.setattr(connection, "IDLE_S", 0)
    monkeypatch.setattr(connection, "SEND_S", 0)
    made, transport = opened(unanswered)
    if sent:
        made.data_received(sent)
    made.pause_writing()
    made.resume_writing()
    await asyncio.wait_for(transport.aborted.wait(), 30)
    assert transport.is_closed
    made.connection_lost(None)


async def test_a_client_that_reads_slowly_has_the_time_again() -> None:
    made, _ = opened(unanswered)
    made.pause_writing()
    first = made._sending
    made.resume_writing()
    made.pause_writing()
    assert first is not None
    assert first.cancelled()
    assert made._sending is not None
    made.connection_lost(None)
    assert made._sending is None, "a timer keeps the connection"


def test_connections_are_bounded_those_without_a_request_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_S", 600.0)
    monkeypatch.setattr(connection, "UNSERVED_MAX", 1)
    monkeypatch.setattr(listening, "CONNECTIONS_MAX", 2)

    def test(port: int) -> None:
        silent = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(4)]
        try:
            assert silent[-1].recv(1) == b""
        except ConnectionError:
            pass
        silent[0].sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert silent[0].recv(12) == b"HTTP/1.1 503"
        for one in silent:
            one.close()

    async def main() -> None:
        one = open_socket(Address("127.0.0.1", 0))
        listener = HttpListener(FakeNode(), nothing, [one])  # type: ignore[arg-type]
        listener.start()
        try:
            await asyncio.to_thread(test, one.getsockname()[1])
        finally:
            await listener.stop()

    asyncio.run(main())


def test_the_listener_loads_no_reloader_of_programs() -> None:
    """It is a part of uvicorn's extras, which the console has, and 0.8 MB of each node."""
    pytest.importorskip("watchfiles", reason="watchfiles is not installed")
    code = (
        "import sys, streamlog.daemon.http.listener\n"
        "assert 'uvicorn' in sys.modules and not [one for one in sys.modules if one.startswith('watchfiles')]\n"
        "import watchfiles"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def families() -> Iterator[Family]:
    seconds = Histogram((0.1, 1))
    seconds.observe(0.5)
    yield counter("streamlog_a_total", "A.", [(('x\n"\\',), 3)], ("label",))
    yield gauge("streamlog_b_bytes", "B.", single(2**60))
    yield histogram("streamlog_c_seconds", "C.", [(("m",), seconds)], ("method",))
    yield info("streamlog_build_info", "D.", {"version": "1"})


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_what_prometheus_reads(accept: str) -> None:
    body, content_type = render(families(), accept)
    text = body.decode()
    assert content_type.startswith("application/openmetrics-text" if accept else "text/plain")
    assert 'streamlog_a_total{label="x\\n\\"\\\\"} 3.0\n' in text
    assert f"streamlog_b_bytes {float(2**60)}\n" in text
    assert 'streamlog_c_seconds_bucket{le="1.0",method="m"} 1.0\n' in text
    assert 'streamlog_c_seconds_bucket{le="+Inf",method="m"} 1.0\n' in text
    assert 'streamlog_build_info{version="1"} 1.0\n' in text


@pytest.mark.parametrize("version", ["abc", "1.x", "", "1.0.0.\x80", "1" * 5_000])
@pytest.mark.parametrize("kind", ["application/openmetrics-text", "text/plain"])
def test_a_scraper_that_accepts_no_version_there_is(kind: str, version: str) -> None:
    body, _ = render(families(), f"{kind};version={version}")
    assert b"streamlog_b_bytes" in body


@pytest.mark.process
def test_a_node_serves_them_at_http_listeners(tmp_path: Path) -> None:
    """And goes on without where the address cannot be had."""
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.create(1, 0, {})
    (node,) = cluster.nodes
    port = int(node.http.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        cluster.start(node)
        wait_for(node.log, "ready at")
        assert "cannot serve metrics" in node.log.read_text()
        assert not cluster.stop([node], 30)
    node.log.write_text("")
    cluster.start(node)
    try:
        wait_for(node.log, "ready at")
        assert ask(port, "/readyz").status == 200
        page = ask(port, "/metrics").body
        assert b'streamlog_log_dir_online{log_dir="' in page
        if shutil.which("promtool") is not None:
            checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
            assert checked.returncode == 0, checked.stderr
    finally:
        cluster.stop([node], 30)


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < deadline, log.read_text()
