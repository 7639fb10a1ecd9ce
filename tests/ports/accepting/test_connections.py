"""Connections beyond the limits are closed: those that say nothing first, then the newest; calls go on."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.accepting.connections import REPORT_S, ConnectionLimits, OpenConnections
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings

METHOD = "/p.S/M"
IN_TIME_S = 60.0


class One:
    def __init__(self, address: str) -> None:
        self.address = address
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


class Rig:
    def __init__(self, total: int = 1_000, per_address: int = 1_000) -> None:
        self.now = 0.0
        self.said: list[str] = []
        limits = ConnectionLimits(total=total, per_address=per_address)
        self.open = OpenConnections(9092, limits, self.said.append, lambda: self.now)

    def connect(self, address: str, *, silent: bool = True) -> One:
        made = One(address)
        self.open.add(made)
        if not silent:
            self.open.has_spoken(made)
        return made


def test_what_is_within_the_limits_stays() -> None:
    rig = Rig(total=4, per_address=2)
    made = [rig.connect("a"), rig.connect("a"), rig.connect("b"), rig.connect("b", silent=False)]
    assert not any(one.is_aborted for one in made)
    assert (rig.open.count, rig.open.silent_count, rig.said) == (4, 3, [])


def test_of_one_address_the_oldest_silent_one_goes_else_the_newest() -> None:
    rig = Rig(per_address=2)
    other, speaks = rig.connect("b"), rig.connect("a", silent=False)
    first, second = rig.connect("a"), rig.connect("a")
    assert [one.is_aborted for one in (other, speaks, first, second)] == [False, False, True, False]
    rig.open.has_spoken(second)
    third = rig.connect("a")
    assert [one.is_aborted for one in (speaks, second, third)] == [False, False, True]
    assert (rig.open.count, rig.open.closed_per_address, rig.open.closed_total) == (3, 2, 0)


def test_in_all_whoever_has_most_gives() -> None:
    rig = Rig(total=6)
    many = [rig.connect("a") for _ in range(4)]
    few = [rig.connect("b", silent=False) for _ in range(3)]
    assert [one.is_aborted for one in many] == [True, False, False, False]
    assert not any(one.is_aborted for one in few)
    assert rig.connect("b").is_aborted, "it would have most, and this is the only one of it that is silent"
    assert (rig.open.count, rig.open.closed_per_address, rig.open.closed_total) == (6, 0, 2)


def test_the_one_that_has_most_is_known_while_connections_come_and_go() -> None:
    rig = Rig(total=8)
    kept: dict[str, list[One]] = {"a": [], "b": [], "c": []}
    for address in "aaabbc":
        kept[address].append(rig.connect(address, silent=False))
    for address in "aab":
        rig.open.remove(kept[address].pop())
    for address in "bbbcc":  # a has 1, b 4, c 3
        kept[address].append(rig.connect(address, silent=False))
    newest = kept["b"][-1]
    rig.connect("d", silent=False)
    assert newest.is_aborted
    assert rig.open.closed_total == 1
    for of_one in kept.values():
        for one in of_one:
            rig.open.remove(one)
    assert (rig.open.count, rig.open.silent_count) == (1, 0)


def test_what_ends_is_counted_once() -> None:
    rig = Rig()
    silent, speaks = rig.connect("a"), rig.connect("a")
    for _ in range(2):
        rig.open.has_spoken(speaks)
    for _ in range(2):
        rig.open.remove(silent)
        rig.open.remove(speaks)
        rig.open.has_spoken(silent)
    assert (rig.open.count, rig.open.silent_count, rig.open.ended_silent) == (0, 0, 1)


def test_a_report_a_minute() -> None:
    rig = Rig(total=100, per_address=1)
    rig.connect("a")
    for _ in range(5):
        rig.connect("a")
    rig.now += REPORT_S
    rig.connect("a")
    first, second = rig.said
    assert first.startswith("2 connections to port 9092: 1 were closed, silent ones and the newest first")
    assert "100 (max.connections) and 1 from one address (max.connections.per.ip)" in first
    assert second.startswith("2 connections to port 9092: 5 were closed")


def test_those_that_are_opened_are_counted_on_request() -> None:
    rig = Rig()
    rig.connect("a")
    assert rig.open.take_opened() == Counter()
    rig.connect("a"), rig.connect("a"), rig.connect("b")
    assert rig.open.take_opened() == {"a": 2, "b": 1}
    rig.open.stop_counting()
    rig.connect("a")
    assert rig.open.take_opened() == Counter()


def fail(error: Exception) -> None:
    raise error


async def echo(request: bytes, info: CallInfo) -> bytes:
    return request + b"!"


Make = Callable[[GrpcSettings], GrpcNetwork]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    networks: list[GrpcNetwork] = []
    said: list[str] = []

    def made(settings: GrpcSettings) -> GrpcNetwork:
        networks.append(GrpcNetwork(on_crash=fail, on_connections=said.append, settings=settings))
        return networks[-1]

    yield made
    for network in networks:
        await network.close()


@contextmanager
def connected(address: str, count: int) -> Iterator[list[socket.socket]]:
    host, _, port = address.rpartition(":")
    with ExitStack() as held:
        yield [held.enter_context(socket.create_connection((host, int(port)), timeout=IN_TIME_S)) for _ in range(count)]


async def until_closed(one: socket.socket) -> None:
    one.setblocking(False)
    async with asyncio.timeout(IN_TIME_S):
        try:
            while await asyncio.get_running_loop().sock_recv(one, 1024):
                pass
        except ConnectionError:
            pass


async def test_a_server_closes_what_is_too_many_and_serves_the_others(make: Make) -> None:
    network = make(
        GrpcSettings(
            defers_silent=False, connections=ConnectionLimits(total=100, per_address=6), connect_timeout_s=IN_TIME_S
        )
    )
    server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
    channel = network.connect(server.address)
    assert await channel.unary(METHOD, b"a", timeout_s=IN_TIME_S) == b"a!"
    with connected(server.address, 30) as sockets:
        for one in sockets[:25]:  # they are accepted in order, and the oldest silent one goes
            await until_closed(one)
        open_ = server.connections
        assert (open_.count, open_.silent_count, open_.ended_silent) == (6, 5, 25)
        assert (open_.closed_per_address, open_.closed_total) == (25, 0)
        assert await channel.unary(METHOD, b"b", timeout_s=IN_TIME_S) == b"b!"
        assert network.open_connections() == [open_]
    assert not server._beginning


async def test_callers_that_are_served_are_kept_and_the_newest_waits(make: Make) -> None:
    network = make(GrpcSettings(connections=ConnectionLimits(total=2, per_address=2), connect_timeout_s=IN_TIME_S))
    server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
    channels = [network.connect(server.address) for _ in range(2)]
    for channel in channels:
        await channel.unary(METHOD, b"", timeout_s=IN_TIME_S)
    with connected(server.address, 1) as [surplus]:
        surplus.sendall(frames.PREFACE)
        await until_closed(surplus)
    for channel in channels:
        assert await channel.unary(METHOD, b"c", timeout_s=IN_TIME_S) == b"c!"


async def test_a_connection_that_says_nothing_is_closed(make: Make) -> None:
    network = make(GrpcSettings(handshake_s=0.3, defers_silent=False))
    server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
    with connected(server.address, 1) as [one]:
        await until_closed(one)
    assert server.connections.ended_silent == 1


@pytest.mark.parametrize(
    "sent",
    [frames.PREFACE[:10], frames.PREFACE, frames.PREFACE + frames.settings({}), frames.PREFACE + frames.SETTINGS_ACK],
    ids=["half a preface", "no settings", "no acknowledgement", "an acknowledgement first"],
)
async def test_one_that_does_not_complete_the_handshake_is_closed(make: Make, sent: bytes) -> None:
    network = make(GrpcSettings(handshake_s=0.3))
    server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
    with connected(server.address, 1) as [one]:
        one.sendall(sent)
        await until_closed(one)
    assert (server.connections.count, server.connections.ended_silent) == (0, 0)


async def test_one_that_has_acknowledged_the_settings_stays(make: Make) -> None:
    network = make(GrpcSettings(handshake_s=0.3))
    server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
    with connected(server.address, 2) as [stays, goes]:
        stays.sendall(frames.PREFACE + frames.settings({}) + frames.SETTINGS_ACK)
        goes.sendall(frames.PREFACE)
        await until_closed(goes)  # it is the later one
        stays.setblocking(False)
        stays.sendall(frames.frame(frames.PING, 0, 0, b"12345678"))
        pong, got = frames.frame(frames.PING, frames.ACK, 0, b"12345678"), b""
        async with asyncio.timeout(IN_TIME_S):
            while pong not in got:
                got += await asyncio.get_running_loop().sock_recv(stays, 1024)
