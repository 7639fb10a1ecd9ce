"""Listening sockets: what they are bound to, and what happens while the process may open no more files."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import textwrap
from collections.abc import Sequence

import pytest

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter.accepting import listener
from streamlog.ports.grpc_adapter.accepting.listener import Acceptor, bind, peer_text, plain_address
from streamlog.ports.grpc_adapter.network import GrpcNetwork

METHOD = "/p.S/M"
IN_TIME_S = 60.0


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def fail(error: Exception) -> None:
    raise error


async def peer(request: bytes, info: CallInfo) -> bytes:
    return info.peer.encode()


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
@needs_ipv6
async def test_a_wildcard_address_takes_both_versions_of_ip(host: str) -> None:
    network = GrpcNetwork(on_crash=fail)
    try:
        server = await network.listen(f"{host}:0", unary={METHOD: peer}, streaming={})
        assert server.address == f"{host}:{server.port}"
        for address, seen in (("127.0.0.1", b"127.0.0.1:"), ("[::1]", b"[::1]:")):
            found = await network.connect(f"{address}:{server.port}").unary(METHOD, b"", timeout_s=IN_TIME_S)
            assert found.startswith(seen)
    finally:
        await network.close()


async def test_a_wildcard_address_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    (bound,) = await bind("0.0.0.0:0")
    with bound:
        assert bound.family == socket.AF_INET


async def test_a_name_with_two_addresses_has_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port that the first gets may be in use at the second: then both get another."""
    targets = [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET, ("127.0.0.2", 0))]
    with_one_more = [*targets, (socket.AF_INET, ("192.0.2.1", 0))]  # not of this machine
    resolve(monkeypatch, with_one_more)
    bound = await bind("node.example:0")
    try:
        assert [one.getsockname()[0] for one in bound] == ["127.0.0.1", "127.0.0.2"]
        assert len({one.getsockname()[1] for one in bound}) == 1
    finally:
        for one in bound:
            one.close()
    resolve(monkeypatch, with_one_more[2:])
    with pytest.raises(OSError, match="Cannot assign") as refused:
        await bind("node.example:0")
    assert refused.value.errno == errno.EADDRNOTAVAIL


async def test_a_port_that_is_in_use_at_another_address_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET, ("127.0.0.2", 0))])
    bind_one, tried = listener._bind_one, []

    def refusing_first(family: int, target: tuple[str, int]) -> socket.socket:
        tried.append(target[0])
        if tried == ["127.0.0.1", "127.0.0.2"]:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        return bind_one(family, target)

    monkeypatch.setattr(listener, "_bind_one", refusing_first)
    for one in await bind("node.example:0"):
        one.close()
    assert tried == ["127.0.0.1", "127.0.0.2"] * 2


def resolve(monkeypatch: pytest.MonkeyPatch, targets: Sequence[tuple[int, tuple[str, int]]]) -> None:
    async def found(*_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(family, socket.SOCK_STREAM, 6, "", target) for family, target in targets for _ in range(2)]

    monkeypatch.setattr(listener, "addresses_of", found)


async def test_localhost_is_served_at_each_of_its_addresses() -> None:
    network = GrpcNetwork(on_crash=fail)
    try:
        server = await network.listen("localhost:0", unary={METHOD: peer}, streaming={})
        hosts = {one.getsockname()[0] for one in server.listening}
        assert "127.0.0.1" in hosts or "::1" in hosts
        for host in hosts:
            address = peer_text(host, server.port)
            assert await network.connect(address).unary(METHOD, b"", timeout_s=IN_TIME_S)
    finally:
        await network.close()


async def test_an_address_in_use() -> None:
    network = GrpcNetwork(on_crash=fail)
    try:
        server = await network.listen("127.0.0.1:0", unary={METHOD: peer}, streaming={})
        for host in ("127.0.0.1", "0.0.0.0", "localhost"):
            with pytest.raises(OSError, match="in use") as refused:
                await network.listen(f"{host}:{server.port}", unary={METHOD: peer}, streaming={})
            assert refused.value.errno == errno.EADDRINUSE
        assert network.open_connections() == [server.connections]
    finally:
        await network.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1", "127.0.0.1:65536"])
async def test_what_is_not_an_address(address: str) -> None:
    with pytest.raises(OSError, match=f"not an address, host:port: {address}"):
        await bind(address)


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example"])
async def test_what_is_not_a_host_name(host: str) -> None:
    with pytest.raises(OSError, match="not a host name"):
        await bind(f"{host}:0")


def test_addresses_of_peers_are_written_in_their_usual_form() -> None:
    assert plain_address("::ffff:10.0.0.7") == "10.0.0.7"
    assert plain_address("fe80::1%eth0") == "fe80::1"
    assert [peer_text("10.0.0.7", 1), peer_text("::1", 1)] == ["10.0.0.7:1", "[::1]:1"]


async def test_an_acceptor_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sockets = await bind("127.0.0.1:0")
    one = Acceptor(sockets, lambda made, address, port: made.close(), lambda _: None)
    one.close()
    one.close()
    assert [made.fileno() for made in sockets] == [-1]


WITHOUT_DESCRIPTORS = textwrap.dedent(
    """
    import asyncio, os, resource, socket, sys

    from streamlog.ports import system
    from streamlog.ports.grpc_adapter.network import GrpcNetwork
    from streamlog.ports.grpc_adapter.settings import GrpcSettings

    async def echo(request, info):
        return request

    def fail(error):
        raise error

    async def main():
        said = asyncio.Queue()
        node = GrpcNetwork(on_crash=fail, on_connections=said.put_nowait, settings=GrpcSettings(defers_silent=False))
        server = await node.listen("127.0.0.1:0", unary={"/p.S/M": echo}, streaming={})
        channel = node.connect(server.address)
        assert await channel.unary("/p.S/M", b"a", timeout_s=60) == b"a"
        callers = [socket.socket() for _ in range(3)]
        limit = max(map(int, os.listdir("/proc/self/fd"))) + 20
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for one in callers:
            one.connect(("127.0.0.1", server.port))  # the kernel completes it
        print(await said.get())
        for _ in range(3):  # it has not stopped serving those that it has
            assert await channel.unary("/p.S/M", b"b", timeout_s=60) == b"b"
        for one in held:
            os.close(one)
        later = node.connect(server.address)
        assert await later.unary("/p.S/M", b"c", timeout_s=60) == b"c"
        assert server.connections.count == 5 and said.empty()
        await node.close()

    system.run(main()) if sys.argv[1] == "uvloop" else asyncio.run(main())
    """
)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_without_descriptors_connections_wait_and_calls_go_on(loop: str) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, loop], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "are not accepted for now: Too many open files; raise the limit of open files" in run.stdout
    assert "Traceback" not in run.stderr
