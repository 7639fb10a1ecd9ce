"""How many connections the console accepts, and when it gives one up. The clock is the test's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("starlette", reason="streamlog[console] is not installed")

from uvicorn import Config
from uvicorn.server import ServerState

from streamlog.console import connections
from streamlog.console.access.gate import PAGES_MAX, WEBSOCKETS_MAX
from streamlog.console.connections import HEAD_BYTES_MAX, REQUEST_S, bounded_protocol

HEAD = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


class Task:
    def add_done_callback(self, _: object) -> None: ...


class Timer:
    def __init__(self, at_s: float, work: Callable[[], None]) -> None:
        self.at_s, self.work, self.cancelled = at_s, work, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Timers fire when the test says so; requests are started, and never answered."""

    def __init__(self) -> None:
        self.now_s, self.timers, self.requests = 0.0, list[Timer](), 0

    def call_later(self, delay_s: float, work: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now_s + delay_s, work))
        return self.timers[-1]

    def create_task(self, coroutine: Any, **_: Any) -> Task:
        coroutine.close()
        self.requests += 1
        return Task()

    def after(self, passed_s: float) -> None:
        self.now_s += passed_s
        due = [one for one in self.timers if one.at_s <= self.now_s]
        self.timers = [one for one in self.timers if one not in due]
        for one in due:
            if not one.cancelled:
                one.work()


class Transport:
    def __init__(self, address: str) -> None:
        self.address, self.written, self.closed = address, b"", False

    def get_extra_info(self, name: str) -> Any:
        return {"peername": (self.address, 5), "sockname": ("127.0.0.1", 80)}.get(name)

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Server:
    """Limits: 5 connections, 3 from one address."""

    def __init__(self, proxies: str = "") -> None:
        protocol = bounded_protocol(proxies, 5, 3)
        self.config = Config(_no_app, http=protocol, lifespan="off", h11_max_incomplete_event_size=HEAD_BYTES_MAX)
        self.config.load()
        self.protocol, self.state, self.loop = protocol, ServerState(), Loop()

    def connect(self, address: str = "10.0.0.1") -> tuple[Any, Transport]:
        made = self.protocol(self.config, self.state, {}, _loop=self.loop)  # type: ignore[arg-type]
        transport = Transport(address)
        made.connection_made(transport)  # type: ignore[arg-type]
        return made, transport


async def _no_app(scope: Any, receive: Any, send: Any) -> None: ...


@pytest.fixture
def server() -> Server:
    return Server()


def test_one_address_has_a_part_of_the_connections_and_all_have_the_rest(server: Server) -> None:
    first = [server.connect() for _ in range(3)]
    assert not any(transport.closed for _, transport in first)
    _, refused = server.connect()
    assert refused.closed
    assert refused.written.startswith(b"HTTP/1.1 503 ")
    assert refused.written.endswith(b"close some pages.\n")
    assert not server.connect("10.0.0.2")[1].closed, "another address has its own"
    assert server.connect("10.0.0.3")[1].closed, "all together"


def test_a_closed_connection_is_not_counted(server: Server) -> None:
    made = [server.connect()[0] for _ in range(3)]
    for one in made:
        one.connection_lost(None)
    assert not any(server.connect()[1].closed for _ in range(3))


def test_an_ipv6_address_is_counted_with_its_site(server: Server) -> None:
    assert not any(server.connect(f"2001:db8::{number}")[1].closed for number in range(1, 4))
    assert server.connect("2001:db8::ffff")[1].closed
    assert not server.connect("2001:db8:0:1::1")[1].closed


def test_a_proxy_is_many_users() -> None:
    server = Server("10.0.0.0/24")
    assert not any(server.connect()[1].closed for _ in range(5))
    assert server.connect()[1].closed, "the limit of all holds for a proxy too"


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD, HEAD + b"abc"], ids=["nothing", "head", "no body", "body"])
def test_a_request_that_is_not_complete_in_time_is_given_up(server: Server, sent: bytes) -> None:
    made, transport = server.connect()
    if sent:
        made.data_received(sent)
    server.loop.after(REQUEST_S - 1)
    assert not transport.closed
    server.loop.after(1)
    assert transport.closed


def test_a_byte_now_and_then_gains_no_time(server: Server) -> None:
    made, transport = server.connect()
    for byte in b"GET / HTTP/1.1\r\nx":
        made.data_received(bytes([byte]))
        server.loop.after(REQUEST_S / 16)
    assert transport.closed


def test_a_complete_request_may_take_as_long_as_it_takes(server: Server) -> None:
    made, transport = server.connect()
    made.data_received(HEAD + b"abcd")
    server.loop.after(10 * REQUEST_S)
    assert server.loop.requests == 1
    assert not transport.closed


def test_a_head_without_an_end_is_refused(server: Server) -> None:
    made, transport = server.connect()
    made.data_received(b"GET / HTTP/1.1\r\nX: " + b"x" * (HEAD_BYTES_MAX + 1))
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    assert transport.closed


def test_a_session_may_have_all_its_pages_open() -> None:
    assert PAGES_MAX < WEBSOCKETS_MAX < connections.ADDRESS_MAX < connections.CONNECTIONS_MAX < 1024
