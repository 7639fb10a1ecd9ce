"""gRPC's interoperability tests: the client of grpc-go against a server of ours, our channel against its server.

Left out is what the network port does not carry: metadata of responses, compression that the server chooses, and
credentials of clouds.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamlog.errors import Status
from streamlog.ports import RpcError, Server
from streamlog.ports.grpc_adapter.channel import GrpcChannel
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings

from .go_programs import INTEROP_CLIENT, INTEROP_SERVER, built
from .interop_service import SERVICE, STREAMING, UNARY, made, parsed

CASES = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
]
SIZES = [31_415, 9, 2_653, 58_979]
pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200)]


def fail(error: Exception) -> None:
    raise error


@pytest.fixture
async def network() -> AsyncIterator[GrpcNetwork]:
    made = GrpcNetwork(on_crash=fail, settings=GrpcSettings(connect_timeout_s=60))
    yield made
    await made.close()


async def served(network: GrpcNetwork) -> Server:
    return await network.listen("127.0.0.1:0", unary=UNARY, streaming=STREAMING)


@pytest.mark.parametrize("case", CASES)
async def test_the_client_of_go(network: GrpcNetwork, case: str) -> None:
    program = await asyncio.to_thread(built, INTEROP_CLIENT)
    server = await served(network)
    host, _, port = server.address.rpartition(":")
    process = await asyncio.create_subprocess_exec(
        program,
        f"--server_host={host}",
        f"--server_port={port}",
        f"--test_case={case}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


@pytest.fixture
async def channel(network: GrpcNetwork) -> AsyncIterator[GrpcChannel]:
    """To a server of grpc-go."""
    program: Path = await asyncio.to_thread(built, INTEROP_SERVER)
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    process = await asyncio.create_subprocess_exec(program, f"--port={port}")
    try:
        made = network.connect(f"127.0.0.1:{port}")
        async with asyncio.timeout(60):
            while True:
                try:
                    await made.unary(SERVICE + "EmptyCall", b"", timeout_s=60)
                except RpcError:
                    await asyncio.sleep(0.05)
                else:
                    break
        yield made
    finally:
        process.kill()
        await process.wait()


async def test_the_server_of_go(channel: GrpcChannel) -> None:
    request = made("SimpleRequest", response_size=314_159, payload={"body": bytes(271_828)})
    answer = parsed("SimpleResponse", await channel.unary(SERVICE + "UnaryCall", request, timeout_s=60))
    assert len(answer.payload.body) == 314_159

    async with channel.stream(SERVICE + "StreamingInputCall") as stream:
        for size in SIZES:
            await stream.send(made("StreamingInputCallRequest", payload={"body": bytes(size)}))
        await stream.done_sending()
        total = await stream.recv()
        assert total is not None
        assert parsed("StreamingInputCallResponse", total).aggregated_payload_size == sum(SIZES)
        assert await stream.recv() is None

    async with channel.stream(SERVICE + "FullDuplexCall") as stream:
        for size in SIZES:
            await stream.send(made("StreamingOutputCallRequest", response_parameters=[{"size": size}]))
            part = await stream.recv()
            assert part is not None
            assert len(parsed("StreamingOutputCallResponse", part).payload.body) == size
        await stream.done_sending()
        assert await stream.recv() is None

    async with channel.stream(SERVICE + "FullDuplexCall") as stream:  # is left in the middle
        await stream.send(made("StreamingOutputCallRequest", response_parameters=[{"size": 5}] * 100))
        assert await stream.recv() is not None

    special = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
    refused = made("SimpleRequest", response_status={"code": Status.UNKNOWN.value, "message": special})
    with pytest.raises(RpcError) as caught:
        await channel.unary(SERVICE + "UnaryCall", refused, timeout_s=60)
    assert (caught.value.status, caught.value.message) == (Status.UNKNOWN, special)
    for unknown in (SERVICE + "UnimplementedCall", "/grpc.testing.UnimplementedService/UnimplementedCall"):
        with pytest.raises(RpcError) as caught:
            await channel.unary(unknown, b"", timeout_s=60)
        assert caught.value.status is Status.UNIMPLEMENTED
