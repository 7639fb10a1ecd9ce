"""The gRPC adapter alone: certificates, stock clients, and what it holds."""

from __future__ import annotations

import asyncio
import errno
import gc
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest

from streamlog.ports import CallInfo, RpcError, Stream
from streamlog.ports.grpc_adapter import connecting
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.tls import credentials
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials

from .networks import outcome

RELAY = "/test.Service/Relay"
ECHO = "/test.Service/Echo"


async def echo(request: bytes, info: CallInfo) -> bytes:
    return f"{info.identity}".encode()


@pytest.mark.parametrize("silent", [0, 1, None])
async def test_a_host_refuses_only_if_none_of_its_addresses_is_silent(
    silent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead process is recognized by the refusal: one that listens at an address of its host may be running."""

    async def addresses_of(host: str | None, port: int) -> list[Any]:
        return [(socket.AF_INET, 0, 0, "", (f"127.0.0.{number}", port)) for number in range(2)]

    async def connect(family: int, target: tuple[Any, ...], timeout_s: float) -> socket.socket:
        raise TimeoutError if target[0] == f"127.0.0.{silent}" else ConnectionRefusedError

    monkeypatch.setattr(connecting, "addresses_of", addresses_of)
    monkeypatch.setattr(connecting, "_connect", connect)
    with pytest.raises(ConnectionRefusedError if silent is None else TimeoutError):
        await connecting.connected_socket("n1", 1, 1.0)


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([errno.ECONNREFUSED, errno.ENETUNREACH], errno.ECONNREFUSED),
        ([errno.EADDRNOTAVAIL, errno.ECONNREFUSED], errno.ECONNREFUSED),
        ([errno.ENETUNREACH, errno.EAFNOSUPPORT], errno.ENETUNREACH),
        ([errno.ECONNREFUSED, errno.EHOSTUNREACH], errno.EHOSTUNREACH),
        ([errno.EHOSTUNREACH, errno.ECONNREFUSED], errno.EHOSTUNREACH),
        ([errno.EMFILE, errno.ECONNREFUSED], errno.EMFILE),
        ([errno.ECONNREFUSED, errno.ECONNREFUSED], errno.ECONNREFUSED),
    ],
)
async def test_the_failure_of_a_host_does_not_depend_on_the_order_of_its_addresses(
    failures: list[int], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with an IPv6 address, which this host cannot reach, is refused where its IPv4 address is."""

    async def addresses_of(host: str | None, port: int) -> list[Any]:
        return [(socket.AF_INET, 0, 0, "", (number, port)) for number in range(len(failures))]

    async def connect(family: int, target: tuple[Any, ...], timeout_s: float) -> socket.socket:
        raise OSError(failures[target[0]], "")

    monkeypatch.setattr(connecting, "addresses_of", addresses_of)
    monkeypatch.setattr(connecting, "_connect", connect)
    with pytest.raises(OSError, match=rf"Errno {expected}\b"):
        await connecting.connected_socket("n1", 1, 1.0)


def crash(error: Exception) -> None:
    raise error


class Certificates:
    """A CA of the test's own, and what it signed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                      "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test-ca", "-days", "2")  # fmt: skip
        self.ca = (directory / "ca.crt").read_bytes()

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._directory, check=True, capture_output=True)

    def issue(self, name: str) -> tuple[bytes, bytes]:
        """Private key and certificate."""
        (self._directory / "ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                      "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/O=streamlog/CN={name}")  # fmt: skip
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                      "-out", f"{name}.crt", "-days", "2", "-extfile", "ext")  # fmt: skip
        return (self._directory / f"{name}.key").read_bytes(), (self._directory / f"{name}.crt").read_bytes()


class Fixed(NamedTuple):
    """PemMaterial that never changes."""

    key: bytes
    chain: bytes
    roots: bytes

    def signature(self) -> None: ...

    def load(self) -> Fixed:
        return self


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")
def test_a_handler_gets_the_subject_of_a_verified_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server_key, client_key = certificates.issue("node-1"), certificates.issue("client-7")

    async def main() -> None:
        node = GrpcNetwork(on_crash=crash, tls=TlsCredentials(Fixed(*server_key, certificates.ca)))
        client = GrpcNetwork(on_crash=crash, tls=TlsCredentials(Fixed(*client_key, certificates.ca)))
        anonymous = grpc.ssl_channel_credentials(certificates.ca)
        try:
            server = await node.listen("127.0.0.1:0", unary={ECHO: echo}, streaming={})
            identity = await client.connect(server.address).unary(ECHO, b"", timeout_s=10)
            assert b"client-7" in identity
            async with grpc.aio.secure_channel(server.address, anonymous) as stranger:
                with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
                    await stranger.unary_unary(ECHO)(b"", timeout=10)  # type: ignore[arg-type]  # stubs without bytes
        finally:
            await client.close()
            await node.close()

    asyncio.run(main())


class Renewed:
    """PemMaterial that changes when a test says so."""

    def __init__(self, material: Fixed) -> None:
        self.material = material

    def signature(self) -> int:
        return id(self.material)

    def load(self) -> Fixed:
        return self.material


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")
def test_a_stream_outlives_the_renewal_of_its_certificate_and_ends_with_its_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "RELOAD_S", 0.01)
    certificates = Certificates(tmp_path)
    source = Renewed(Fixed(*certificates.issue("first"), certificates.ca))

    async def main() -> None:
        async def relay(stream: Stream, info: CallInfo) -> None:
            while (message := await stream.recv()) is not None:
                await stream.send(message + str(info.identity).encode())

        node = GrpcNetwork(on_crash=crash, tls=TlsCredentials(Fixed(*certificates.issue("node-1"), certificates.ca)))
        renewed = asyncio.Event()
        tls = TlsCredentials(source, lambda level, what: renewed.set())
        client = GrpcNetwork(on_crash=crash, tls=tls)
        server = await node.listen("127.0.0.1:0", unary={ECHO: echo}, streaming={RELAY: relay})
        channel = client.connect(server.address)
        try:
            async with channel.stream(RELAY) as stream:
                await stream.send(b"a")
                assert b"first" in (await stream.recv() or b"")
                source.material = Fixed(*certificates.issue("second"), certificates.ca)
                await asyncio.wait_for(renewed.wait(), 10)
                assert b"second" in await channel.unary(ECHO, b"", timeout_s=10)
                await stream.send(b"b")
                assert b"first" in (await stream.recv() or b"")
                await channel.close()
                assert (await outcome(stream.recv()))[0] == "CANCELLED"
        finally:
            await client.close()
            await node.close()

    asyncio.run(main())


class Logins:
    """A CallLogin: the token is a number."""

    def __init__(self) -> None:
        self.number = 1

    async def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.number}"),)


def test_a_renewed_login_is_shown_on_each_connection_that_has_calls() -> None:
    """Calls and streams carry what is valid when they begin; an idle connection is not called."""
    seen: list[tuple[str, str, str]] = []

    async def unary(request: bytes, info: CallInfo) -> bytes:
        seen.append((info.method, info.peer, info.metadata["authorization"]))
        return b""

    async def stream(stream: Stream, info: CallInfo) -> None:
        seen.append((info.method, info.peer, info.metadata["authorization"]))
        await stream.recv()

    async def story() -> None:
        server_side = GrpcNetwork(on_crash=crash)
        server = await server_side.listen("127.0.0.1:0", unary={ECHO: unary}, streaming={RELAY: stream})
        logins = Logins()
        client_side = GrpcNetwork(on_crash=crash, login=logins)
        busy, idle = client_side.connect(server.address), client_side.connect(server.address)
        await idle.unary(ECHO, b"", timeout_s=60)
        async with busy.stream(RELAY) as opened:
            await busy.unary(ECHO, b"", timeout_s=60)
            logins.number = 2
            await client_side.call_each(ECHO, 60)
            await opened.done_sending()
            assert await opened.recv() is None
        await client_side.close()
        await server_side.close()

    asyncio.run(story())
    of_idle, *of_busy = seen
    assert of_idle[2] == "Bearer 1"
    peer = of_busy[0][1]
    assert peer != of_idle[1]
    assert sorted(of_busy) == [(ECHO, peer, "Bearer 1"), (ECHO, peer, "Bearer 2"), (RELAY, peer, "Bearer 1")]


def test_a_stock_client_can_call_what_is_served_here() -> None:
    async def main() -> None:
        network = GrpcNetwork(on_crash=crash)
        server = await network.listen("127.0.0.1:0", unary={ECHO: echo}, streaming={})
        try:
            async with grpc.aio.insecure_channel(server.address) as channel:
                assert await channel.unary_unary(ECHO)(b"") == b"None"  # type: ignore[arg-type]  # stubs without bytes
        finally:
            await network.close()

    asyncio.run(main())


def test_a_stream_that_is_used_after_its_server_has_stopped_is_cancelled() -> None:
    """A handler may get its turn between the stop of the server and its own end: that is no defect of the node."""

    async def main() -> None:
        served: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        stopped = asyncio.Event()

        async def hold(stream: Stream, info: CallInfo) -> None:
            served.set_result(stream)
            await stopped.wait()

        network = GrpcNetwork(on_crash=crash)
        server = await network.listen("127.0.0.1:0", unary={}, streaming={ECHO: hold})
        try:
            async with grpc.aio.insecure_channel(server.address) as channel:
                call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(ECHO)()
                await call.write(b"")
                stream = await served
                await server.close()
                assert (await outcome(stream.recv()))[0] == "CANCELLED"
                assert (await outcome(stream.send(b"late")))[0] == "CANCELLED"
        finally:
            stopped.set()
            await network.close()

    asyncio.run(main())


@pytest.mark.parametrize("calls", ["a stream", "a call", "a call of a task that was cancelled before"])
def test_a_channel_that_is_closed_while_it_connects_ends_the_wait(calls: str) -> None:
    """Such as to a node that has stopped and whose address another one took, which the metadata then show."""

    async def main() -> tuple[str, str]:
        network = GrpcNetwork(on_crash=crash)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.setblocking(False)
            channel = network.connect(f"127.0.0.1:{silent.getsockname()[1]}")

            async def use() -> None:
                task = asyncio.current_task()
                assert task is not None
                if calls == "a call of a task that was cancelled before":
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(0)
                if calls != "a stream":
                    await channel.unary(ECHO, b"", timeout_s=600)
                async with channel.stream(RELAY):
                    pass

            using = asyncio.create_task(use())
            accepted, _ = await asyncio.get_running_loop().sock_accept(silent)
            with accepted:
                await network.close()
                async with asyncio.timeout(60):
                    return await outcome(using)

    assert asyncio.run(main()) == ("CANCELLED", "the channel was closed")


def test_a_call_without_time_for_another_attempt_says_why_there_is_no_connection() -> None:
    """A client repeats a call until its timeout, and the user sees the error of the last one."""

    async def main() -> list[tuple[str, str]]:
        network = GrpcNetwork(on_crash=crash, settings=GrpcSettings(backoff_s=(0.0, 0.0)))
        channel = network.connect("127.0.0.1:1")
        try:
            return [await outcome(channel.unary(ECHO, b"", timeout_s=timeout_s)) for timeout_s in (60, 0)]
        finally:
            await network.close()

    refused = ("UNAVAILABLE", "no connection to 127.0.0.1:1: connection refused")
    assert asyncio.run(main()) == [refused, refused]


def test_a_handler_that_takes_a_while_to_end_leaves_no_traceback() -> None:
    """gRPC prints one for each call whose handler is cut off by the end of the loop, as when a disk fails."""
    outcome = subprocess.run([sys.executable, "-c", ENDS_SLOWLY], capture_output=True, text=True, timeout=60)
    assert (outcome.returncode, outcome.stdout) == (0, "ended\n"), outcome.stderr
    assert "Traceback" not in outcome.stderr  # gRPC's core may log the end of the connection


ENDS_SLOWLY = """
import asyncio
from streamlog.ports.grpc_adapter.network import GrpcNetwork

async def main():
    begun = asyncio.Event()
    async def hold(stream, info):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)  # what a handler does to end: a marker to a coordinator, a row to the log
            print("ended")
    network = GrpcNetwork(on_crash=print)
    server = await network.listen("127.0.0.1:0", unary={}, streaming={"/a.B/C": hold})
    async with network.connect(server.address).stream("/a.B/C") as stream:
        await stream.send(b"")
        await begun.wait()
        await server.close()
    await network.close()

asyncio.run(main())
"""


def test_a_server_that_nobody_holds_goes_on_until_the_network_is_closed() -> None:
    async def main() -> None:
        network = GrpcNetwork(on_crash=crash)
        address = (await network.listen("127.0.0.1:0", unary={ECHO: echo}, streaming={})).address
        gc.collect()
        channel = network.connect(address)
        assert await channel.unary(ECHO, b"", timeout_s=10) == b"None"
        await network.close()
        with pytest.raises(RpcError):
            await channel.unary(ECHO, b"", timeout_s=1)

    asyncio.run(main())


@pytest.mark.parametrize("address", ["203.0.113.1:0", "127.0.0.1:1:1", "no-such-host.invalid:1"])
def test_an_address_that_cannot_be_had_is_an_os_error(address: str) -> None:
    async def main() -> None:
        network = GrpcNetwork(on_crash=crash)
        try:
            await network.listen(address, unary={}, streaming={})
        finally:
            await network.close()

    with pytest.raises(OSError):  # noqa: PT011  which one is the system's affair
        asyncio.run(main())


def test_programs_can_be_started_while_calls_run() -> None:
    """With a function that runs between fork and exec, as PySpark starts its Java: of the children of a busy process
    every fourth crashed in gRPC's own handlers of forks. In a process of its own, which has nothing else of gRPC.
    """
    outcome = subprocess.run([sys.executable, "-c", STARTS_PROGRAMS], capture_output=True, text=True, timeout=60)
    assert (outcome.returncode, outcome.stdout) == (0, "{0: 60}\n"), outcome.stderr


STARTS_PROGRAMS = """
import asyncio, subprocess, sys
from collections import Counter
from streamlog.ports.grpc_adapter.network import GrpcNetwork

async def echo(request, info):
    return request

def start():
    return subprocess.run([sys.executable, "-S", "-c", ""], preexec_fn=int).returncode

async def main():
    network = GrpcNetwork(on_crash=print)
    channel = network.connect((await network.listen("127.0.0.1:0", unary={"/a.B/C": echo}, streaming={})).address)
    async def call():
        while True:
            await channel.unary("/a.B/C", b"", timeout_s=10)
    calling = asyncio.ensure_future(call())
    codes = Counter([await asyncio.to_thread(start) for _ in range(60)])
    calling.cancel()
    await network.close()
    print(dict(codes))

asyncio.run(main())
"""
