"""Addresses that open connections too fast: the kernel does not answer them until their debt is paid."""

from __future__ import annotations

import select
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter.accepting import connection_rate, syn_filter
from streamlog.ports.grpc_adapter.accepting.connection_rate import ALL, LOOK_S, ConnectionRateWatch
from streamlog.ports.grpc_adapter.accepting.listener import plain_address
from streamlog.ports.grpc_adapter.network import GrpcNetwork

ONE, OTHER = "127.0.0.2", "127.0.0.3"
IN_TIME_S = 60.0


class Limits:
    def __init__(self) -> None:
        self.total: float | None = None
        self.by_address: dict[str, float] = {}

    def of(self, address: str) -> float | None:
        return self.by_address.get(address)

    @property
    def active(self) -> bool:
        return self.total is not None or bool(self.by_address)


class Listening:
    """A server: a socket of this process, whose connections it accepts at once."""

    def __init__(self, stack: ExitStack, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._stack = stack
        self._socket = stack.enter_context(socket.socket(family))
        if family == socket.AF_INET6:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.bind((host, 0))
        self._socket.listen(100)
        self.port: int = self._socket.getsockname()[1]
        self._opened: Counter[str] | None = None

    @property
    def listening(self) -> Sequence[socket.socket]:
        return [self._socket]

    def take_opened(self) -> Counter[str]:
        opened, self._opened = self._opened, Counter()
        return opened or Counter()

    def stop_counting(self) -> None:
        self._opened = None

    def begin(self, address: str) -> socket.socket:
        made = self._stack.enter_context(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET))
        made.setblocking(False)
        made.bind((address, 0))
        made.connect_ex(("::1" if ":" in address else "127.0.0.1", self.port))
        return made

    def is_answered(self, made: socket.socket, within_s: float = 0.0) -> bool:
        waiting = select.poll()  # not select(): the process may have many files open
        waiting.register(made, select.POLLOUT)
        return bool(waiting.poll(within_s * 1000))

    def open(self, address: str, count: int = 1) -> list[socket.socket]:
        opened = []
        for _ in range(count):
            made = self.begin(address)
            assert self.is_answered(made, IN_TIME_S)
            accepted, peer = self._socket.accept()
            self._stack.enter_context(accepted)
            if self._opened is not None:
                self._opened[plain_address(peer[0])] += 1
            opened.append(made)
        return opened


class Rig:
    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.limits = Limits()
        self.servers: list[Listening] = []
        self.now = 100.0
        self.said: list[str] = []
        self.watch = ConnectionRateWatch(self.limits, lambda: self.servers, lambda: self.now, self.said.append)

    def listen(self, host: str = "127.0.0.1") -> Listening:
        self.servers.append(Listening(self.stack, host))
        return self.servers[-1]

    def look(self, after_s: float = LOOK_S) -> dict[str, float]:
        self.now += after_s
        self.watch.look()
        return self.watch.held


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(stack)


def test_an_address_beyond_its_rate_waits_until_its_debt_is_paid_and_others_do_not(rig: Rig) -> None:
    server = rig.listen()
    rig.limits.by_address = {ONE: 2.0, OTHER: 100.0}
    rig.look()
    (former, *_) = server.open(ONE, 10)
    server.open(OTHER, 10)
    assert rig.look() == {ONE: (10 - 2) / 2}
    waiting = server.begin(ONE)
    assert not server.is_answered(waiting)
    server.open(OTHER)
    assert former.send(b"x") == 1, "a connection that exists is not affected"
    assert rig.look(3.9).keys() == {ONE}
    assert not server.is_answered(waiting)
    assert rig.look(0.2) == {}
    assert server.is_answered(waiting, IN_TIME_S), "the caller's kernel tries it again"
    assert rig.watch.held_s == pytest.approx(4.1)
    (said,) = rig.said
    assert "10 connections from 127.0.0.2 were opened in 0.5 s, the limit is 2 a second" in said


def test_one_that_keeps_its_rate_never_waits(rig: Rig) -> None:
    server = rig.listen()
    rig.limits.by_address = {ONE: 4.0}
    rig.look()
    for _ in range(10):
        server.open(ONE, 2)
        assert rig.look() == {}
    server.open(ONE, 5)
    assert rig.look() == {ONE: 1 / 4}


def test_those_that_were_open_before_do_not_count_and_those_that_have_ended_do(rig: Rig) -> None:
    server = rig.listen()
    server.open(ONE, 5)
    rig.limits.by_address = {ONE: 1.0}
    assert rig.look() == {}
    for made in server.open(ONE, 3):
        made.close()
    assert rig.look() == {ONE: 2.0}


def test_all_together_have_a_limit(rig: Rig) -> None:
    server, other_server = rig.listen(), rig.listen()
    rig.limits.total = 3
    rig.look()
    server.open(ONE, 2)
    server.open(OTHER, 1)
    assert rig.look() == {}
    server.open(ONE, 4)
    other_server.open(OTHER, 5)
    assert rig.look(0.0) == {ALL: 3.0}
    waiting = server.begin(OTHER)
    assert not server.is_answered(waiting)
    rig.limits.total = None
    rig.look(0.0)
    assert rig.watch.held == {}
    assert server.is_answered(waiting, IN_TIME_S), "a limit that is removed no longer holds"


def test_a_listener_of_ipv6_and_many_addresses(rig: Rig) -> None:
    try:
        server = rig.listen("::")
        server.open("::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    many = [f"10.0.0.{number}" for number in range(30)] + [f"2001:db8::{number}" for number in range(1, 31)]
    syn_filter.refuse(server.listening, [*many, ONE])
    assert not server.is_answered(server.begin(ONE))
    server.open(OTHER)
    server.open("::1")
    syn_filter.refuse(server.listening, [*many, "::1"])
    assert not server.is_answered(server.begin("::1"))
    server.open(ONE)
    syn_filter.refuse(server.listening, [])
    server.open("::1")
    rig.limits.by_address = {ONE: 1.0}
    rig.look()
    server.open(ONE, 3)
    assert rig.look() == {ONE: 2.0}, "by its usual form"


def test_only_so_many_addresses_are_held_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syn_filter, "ADDRESSES_MAX", 2)
    server = rig.listen()
    addresses = [f"127.0.0.{number}" for number in range(2, 6)]
    rig.limits.by_address = dict.fromkeys(addresses, 1.0)
    rig.look()
    for number, address in enumerate(addresses):
        server.open(address, 3 + number)
    assert rig.look().keys() == set(addresses[2:])
    assert rig.look(4.5).keys() == {addresses[-1]}


def test_where_the_kernel_has_no_filters_it_is_said_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **how: object) -> None:
        raise OSError(92, "Protocol not available")

    monkeypatch.setattr(syn_filter, "refuse", refuse)
    server = rig.listen()
    rig.limits.by_address = {ONE: 1.0}
    rig.look()
    server.open(ONE, 5)
    rig.look()
    rig.look()
    (said,) = rig.said
    assert "are not enforced: the kernel refuses a socket filter" in said


def test_once_the_kernel_takes_the_filter_again_reports_continue(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **how: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    server = rig.listen()
    rig.limits.by_address = {ONE: 1.0}
    rig.look()
    server.open(ONE, 5)
    with monkeypatch.context() as changed:
        changed.setattr(syn_filter, "refuse", refuse)
        rig.look()
    rig.look()
    assert ["are not enforced" in rig.said[0], "further ones wait" in rig.said[1]] == [True, True]


def fail(error: Exception) -> None:
    raise error


async def echo(request: bytes, info: CallInfo) -> bytes:
    return request


async def test_a_server_counts_connections_while_there_is_a_limit() -> None:
    limits = Limits()
    network = GrpcNetwork(on_crash=fail)
    try:
        server = await network.listen("127.0.0.1:0", unary={"/p.S/M": echo}, streaming={})
        watch = ConnectionRateWatch(limits, lambda: [server], lambda: now, lambda _: None)
        now = 0.0
        limits.by_address = {"127.0.0.1": 1.0}
        watch.look()
        for _ in range(3):
            channel = network.connect(server.address)
            assert await channel.unary("/p.S/M", b"x", timeout_s=IN_TIME_S) == b"x"
            await channel.close()
        assert watch.counted == 0
        now = 0.5
        watch.look()
        assert watch.counted == 3
        assert watch.held == {"127.0.0.1": 2.0}
        limits.by_address = {}
        watch.look()
        channel = network.connect(server.address)
        assert await channel.unary("/p.S/M", b"x", timeout_s=IN_TIME_S) == b"x"
        assert server.take_opened() == {}
    finally:
        await network.close()


async def test_the_limits_of_a_network_hold_for_its_listeners_but_for_those_of_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_rate, "LOOK_S", 3_600)
    limits = Limits()
    limits.total = 1
    network = GrpcNetwork(on_crash=fail, without_rate=frozenset({"NODES"}))
    try:
        network.limit_connection_rates(limits, lambda: now)
        now = 0.0
        assert network.connection_rates is not None
        nodes = await network.listen("127.0.0.1:0", unary={"/p.S/M": echo}, streaming={}, listener="NODES")
        clients = await network.listen("127.0.0.1:0", unary={"/p.S/M": echo}, streaming={}, listener="CLIENTS")
        network.connection_rates.look()
        for server, counted in ((nodes, 0), (clients, 1)):
            channel = network.connect(server.address)
            await channel.unary("/p.S/M", b"x", timeout_s=IN_TIME_S)
            now += 1.0
            network.connection_rates.look()
            assert network.connection_rates.counted == counted
    finally:
        await network.close()
