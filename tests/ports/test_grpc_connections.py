"""Connections beyond the bounds are closed: those that say nothing first, then the newest; calls go on."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter import connections as connections_module
from streamlog.ports.grpc_adapter.connections import (
    SKIPPED_MAX,
    ConnectionLimits,
    ConnectionWatch,
    ServerConnection,
    connections_of,
    surplus,
)
from streamlog.ports.grpc_adapter.descriptors import tcp_socket_count
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings

METHOD = "/p.S/M"


def connections(**silent_by_address: list[bool]) -> tuple[list[ServerConnection], dict[tuple[str, int], int]]:
    """The older ones first."""
    made: list[ServerConnection] = []
    seen: dict[tuple[str, int], int] = {}
    for address, silent in silent_by_address.items():
        for port, is_silent in enumerate(silent):
            made.append(ServerConnection(len(made), address, port, is_silent))
            seen[address, port] = port
    return made, seen


def closed(limits: ConnectionLimits, **silent_by_address: list[bool]) -> list[tuple[str, int]]:
    found = surplus(*connections(**silent_by_address), limits)
    return sorted((one.address, one.port) for one in (*found.per_address, *found.total))


def test_what_is_within_the_bounds_stays() -> None:
    assert closed(ConnectionLimits(total=4, per_address=2), a=[True, True], b=[True, False]) == []


def test_of_one_address_the_silent_ones_go_then_the_newest() -> None:
    limits = ConnectionLimits(total=100, per_address=2)
    assert closed(limits, a=[True, False, False, True], b=[False]) == [("a", 0), ("a", 3)]
    assert closed(limits, a=[False, False, False, False]) == [("a", 2), ("a", 3)]


def test_in_all_whoever_has_most_gives() -> None:
    limits = ConnectionLimits(total=6, per_address=100)
    assert closed(limits, a=[True] * 9, b=[False] * 2) == [("a", port) for port in range(4, 9)]


def test_each_is_counted_by_the_limit_that_it_exceeds() -> None:
    found = surplus(*connections(a=[True] * 5, b=[False] * 2), ConnectionLimits(total=4, per_address=3))
    assert ([one.address for one in found.per_address], len(found.total)) == (["a", "a"], 1)


def fail(error: Exception) -> None:
    raise error


async def echo(request: bytes, info: CallInfo) -> bytes:
    return request + b"!"


@contextmanager
def connected(address: str, count: int) -> Iterator[list[socket.socket]]:
    host, _, port = address.rpartition(":")
    with ExitStack() as held:
        yield [held.enter_context(socket.create_connection((host, int(port)), timeout=10)) for _ in range(count)]


async def test_a_server_closes_what_is_too_many_and_serves_the_others() -> None:
    limits = ConnectionLimits(total=6, per_address=6)
    network = GrpcNetwork(on_crash=fail, settings=GrpcSettings(defers_silent=False))
    server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
    port = int(server.address.rpartition(":")[2])
    channel = network.connect(server.address)
    assert await channel.unary(METHOD, b"a", timeout_s=10) == b"a!"
    reports: list[str] = []
    watch = ConnectionWatch(port, limits, reports.append)
    with connected(server.address, 30) as sockets:
        while len(list(connections_of(port))) < 31:  # noqa: ASYNC110  until gRPC has accepted them
            await asyncio.sleep(0.01)
        assert watch.scan() == 25
        assert (watch.count, watch.silent_count, watch.ended_silent) == (6, 5, 0)
        ended = 0
        for one in sockets:
            one.settimeout(0.2)
            try:
                while one.recv(1024):
                    pass
                ended += 1
            except TimeoutError:
                pass
        assert ended == 25
        assert (watch.count, watch.closed_per_address, watch.closed_total) == (6, 25, 0)
        assert await channel.unary(METHOD, b"b", timeout_s=10) == b"b!"
        assert watch.scan() == 0
        assert (watch.silent_count, watch.ended_silent) == (5, 25)
    await network.close()


async def test_a_connection_that_says_nothing_is_closed() -> None:
    network = GrpcNetwork(on_crash=fail, settings=GrpcSettings(handshake_s=0.3, defers_silent=False))
    server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
    with connected(server.address, 1) as [one]:
        one.setblocking(False)
        async with asyncio.timeout(10):
            while await asyncio.get_running_loop().sock_recv(one, 1024):
                pass
    await network.close()


@pytest.mark.parametrize(
    ("descriptors", "sockets", "round_"),
    [
        (6, 99, ["look"] * SKIPPED_MAX + ["scan"]),
        (7, 99, ["look", "scan"]),
        (0, 0, ["look", "scan"]),
        (7, 6, ["look"] * SKIPPED_MAX + ["scan"]),
        (7, 0, ["look", "scan"]),
    ],
    ids=["no more than a limit", "more", "unknown", "many files, few sockets", "many files, sockets unknown"],
)
async def test_descriptors_are_listed_rarely_while_no_limit_can_be_exceeded(
    descriptors: int, sockets: int, round_: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def look() -> int:
        steps.append("look")
        return descriptors

    def scan() -> int:
        steps.append("scan")
        return 0

    monkeypatch.setattr(connections_module, "INTERVAL_S", 0.001)
    monkeypatch.setattr(connections_module, "descriptor_count", look)
    monkeypatch.setattr(connections_module, "tcp_socket_count", lambda: sockets)
    watch = ConnectionWatch(1, ConnectionLimits(total=20, per_address=6), steps.append)
    monkeypatch.setattr(watch, "scan", scan)
    running = asyncio.ensure_future(watch.run())
    while steps.count("scan") < 3:  # noqa: ASYNC110  by the run of the watch alone
        await asyncio.sleep(0.001)
    running.cancel()
    assert steps[: 3 * len(round_)] == 3 * round_


def test_no_connection_is_missing_in_the_count_of_sockets() -> None:
    """Both ends of each are here. Not an exact figure: other programs have connections too."""
    if not os.path.exists("/proc/self/net/sockstat"):
        pytest.skip("no /proc/net/sockstat")
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(40):
            stack.enter_context(socket.create_connection(server.getsockname()))
        assert tcp_socket_count() >= 1 + 80
