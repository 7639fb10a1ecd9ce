"""No connection leaves a descriptor behind, however it ends, on either loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

import pytest
from cryptography import x509

from streamlog.ports import CallInfo, RpcError
from streamlog.ports.grpc_adapter.accepting.connections import ConnectionLimits
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials

from ..tls.certificates import Authority, credentials

METHOD = "/p.S/M"
IN_TIME_S = 60.0
OF_EACH = 25
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
with suppress(ImportError):
    import uvloop

    LOOPS.append(uvloop.new_event_loop)

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no /proc/self/fd")


def fail(error: Exception) -> None:
    raise error


async def echo(request: bytes, info: CallInfo) -> bytes:
    return request


def open_sockets() -> int:
    """Of this process. A loop opens other descriptors when it first needs them."""
    links = []
    for one in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing
            links.append(os.readlink(f"/proc/self/fd/{one}"))
    return sum(one.startswith("socket:") for one in links)


class Rig:
    def __init__(self) -> None:
        own, foreign = Authority(), Authority("another authority")
        node = own.issue("node", [x509.IPAddress(ip_address("127.0.0.1"))])
        self.trusted = credentials(own.issue("client"))
        self.stranger = credentials(foreign.issue("stranger").trusting(own.roots))
        self.distrusting = credentials(own.issue("client").trusting(foreign.roots))
        self._settings = GrpcSettings(connect_timeout_s=IN_TIME_S, handshake_s=IN_TIME_S, defers_silent=False)
        self.secure, self.plain = self.network(credentials(node)), self.network(None)

    def network(self, tls: TlsCredentials | None) -> GrpcNetwork:
        return GrpcNetwork(on_crash=fail, tls=tls, settings=self._settings)

    async def listen(self) -> None:
        serving = {METHOD: echo}
        self.at_tls = (await self.secure.listen("127.0.0.1:0", unary=serving, streaming={})).address
        self.at_plain = (await self.plain.listen("127.0.0.1:0", unary=serving, streaming={})).address

    async def call(self, tls: TlsCredentials | None, address: str, *, fails: bool = False) -> None:
        network = self.network(tls)
        try:
            await network.connect(address).unary(METHOD, b"x", timeout_s=IN_TIME_S)
            assert not fails
        except RpcError:
            assert fails
        finally:
            await network.close()

    async def cancelled(self, tls: TlsCredentials | None, address: str, turns: int) -> None:
        """So many turns of the loop after the connection began."""
        calling = asyncio.create_task(self.call(tls, address))
        for _ in range(turns):
            await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait([calling])

    async def close(self) -> None:
        await self.secure.close()
        await self.plain.close()


async def until(count: int) -> None:
    """A connection that ends may take a second to send what is left."""
    async with asyncio.timeout(IN_TIME_S):
        while open_sockets() > count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_that_end_in_every_way(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        rig = Rig()
        await rig.listen()
        before = open_sockets()
        for number in range(OF_EACH):
            async with asyncio.TaskGroup() as calls:
                for work in (
                    rig.call(None, rig.at_plain),
                    rig.call(rig.trusted, rig.at_tls),
                    rig.call(rig.stranger, rig.at_tls, fails=True),
                    rig.call(rig.distrusting, rig.at_tls, fails=True),
                    rig.call(None, rig.at_tls, fails=True),
                    rig.call(rig.trusted, rig.at_plain, fails=True),
                    rig.cancelled(None, rig.at_plain, number),
                    rig.cancelled(rig.trusted, rig.at_tls, number),
                ):
                    calls.create_task(work)
        await until(before)
        for network in (rig.secure, rig.plain):
            (open_,) = network.open_connections()
            assert (open_.count, open_.silent_count) == (0, 0)
        await rig.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_beyond_a_limit_and_those_that_a_server_ends(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        own = Authority()
        node = own.issue("node", [x509.IPAddress(ip_address("127.0.0.1"))])
        limits = ConnectionLimits(total=100, per_address=3)
        settings = GrpcSettings(defers_silent=False, connections=limits, handshake_s=IN_TIME_S)
        before = open_sockets()
        for tls in (None, credentials(node)):
            network = GrpcNetwork(on_crash=fail, tls=tls, settings=settings)
            server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
            callers = [await asyncio.to_thread(connected, server.port) for _ in range(40)]
            async with asyncio.timeout(IN_TIME_S):
                while server.connections.closed_per_address < 37:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert server.connections.count == 3
            await network.close()
            assert server.connections.count == 0
            for one in callers:
                one.close()
            await until(before)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=IN_TIME_S)
