"""The same network in two worlds, for the conformance suite: simulated, and grpc.aio on loopback."""

from __future__ import annotations

import asyncio
import functools
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

import pytest

from streamlog.ports import Network, RpcError, system
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.sim import Order, Process, SimLoop, run
from streamlog.sim.wires.fabric import Fabric
from streamlog.sim.wires.network import SimNetwork

SIM_SEEDS: Final = 6
MESSAGE_BYTES_MAX: Final = 1 << 20
SETTINGS: Final = GrpcSettings(
    message_bytes_max=MESSAGE_BYTES_MAX,
    keepalive_s=0.3,
    server_keepalive_s=0.6,
    keepalive_timeout_s=0.3,
    connect_timeout_s=0.5,
)


class Net(Protocol):
    client: Network
    server: Network
    bind: str  # an address of the server's host with port 0
    closed_address: str  # without a server
    crashes: list[Exception]

    async def through_link(self, address: str) -> str:
        """Another address of the same server, on whose way `block`, `heal` and `reset` act."""
        ...

    def block(self) -> None: ...

    def heal(self) -> None: ...

    def reset(self) -> None: ...


class SimulatedNet:
    bind = "server:0"
    closed_address = "server:1"

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.fabric = Fabric(loop, random.Random(seed))
        self.crashes: list[Exception] = []
        self.process = Process("client")
        self.server_process = Process("server")
        self.client: Network = SimNetwork(self.fabric, self.process, "client", message_bytes_max=MESSAGE_BYTES_MAX)
        self.server: Network = SimNetwork(
            self.fabric,
            self.server_process,
            "server",
            on_crash=self.crashes.append,
            message_bytes_max=MESSAGE_BYTES_MAX,
        )

    async def through_link(self, address: str) -> str:
        return address

    def block(self) -> None:
        self.fabric.block("client", "server")
        self.fabric.block("server", "client")

    def heal(self) -> None:
        self.fabric.heal()

    def reset(self) -> None:
        self.fabric.reset("client", "server")


class Link:
    """A TCP proxy that can hold what it carries, or cut its connections."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._open = asyncio.Event()
        self._open.set()
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, far_writer]
        for source, target in ((reader, far_writer), (far_reader, writer)):
            pump = asyncio.create_task(self._pump(source, target))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                await self._open.wait()
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass
        await self._open.wait()
        target.close()

    def block(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self._open.set()

    def reset(self) -> None:
        for writer in self._writers:
            raw: socket.socket | None = writer.get_extra_info("socket")
            if raw is not None and not writer.is_closing():
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.heal()
        self.reset()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


class GrpcNet:
    bind = "127.0.0.1:0"
    closed_address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.crashes: list[Exception] = []
        self.client: Network = GrpcNetwork(on_crash=self.crashes.append, settings=SETTINGS)
        self.server: Network = GrpcNetwork(on_crash=self.crashes.append, settings=SETTINGS)
        self._links: list[Link] = []

    async def through_link(self, address: str) -> str:
        self._links.append(Link(address))
        return await self._links[-1].start()

    def block(self) -> None:
        for link in self._links:
            link.block()

    def heal(self) -> None:
        for link in self._links:
            link.heal()

    def reset(self) -> None:
        for link in self._links:
            link.reset()

    async def close(self) -> None:
        for link in self._links:
            await link.close()
        for network in (self.client, self.server):
            assert isinstance(network, GrpcNetwork)
            await network.close()


Case = Callable[[Net], Coroutine[Any, Any, None]]


def run_simulated(case: Case, seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        net = SimulatedNet(loop, seed)
        await loop.create_task(case(net), context=net.process.context())
        net.server_process.kill()  # handlers of calls that the case has just left may not know yet

    run(main, seed=seed, order=Order.SHUFFLE if seed % 2 else Order.FIFO, until_s=600, jitter_s=(-1e-3, 1e-3))


def run_on_grpc(case: Case) -> None:
    async def main() -> None:
        net = GrpcNet()
        try:
            async with asyncio.timeout(60):
                await case(net)
        finally:
            await net.close()

    system.run(main())


def on_both(case: Case) -> Callable[[str], None]:
    """Make tests of a case: one a seed in simulation, one over grpc.aio."""

    @pytest.mark.parametrize("world", [*(f"sim-{seed}" for seed in range(SIM_SEEDS)), "grpc"])
    @functools.wraps(case, assigned=("__module__", "__name__", "__qualname__", "__doc__"), updated=())
    def test(world: str) -> None:
        if world == "grpc":
            run_on_grpc(case)
        else:
            run_simulated(case, int(world.removeprefix("sim-")))

    del test.__wrapped__  # pytest would take the case's argument for a fixture
    return test


async def eventually(condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    """Poll for a condition."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  conditions of several kinds, in two kinds of time
            await asyncio.sleep(0.005)


async def outcome(call: Awaitable[object]) -> tuple[str, str]:
    """Name of the status, and the message; ("OK", "") if there was no error."""
    try:
        await call
    except RpcError as error:
        return error.status.name, error.message
    return "OK", ""
