"""gRPC's own client against a server of ours: compression, and messages of any size through windows of any size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from streamlog.ports import CallInfo, Stream
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.server import GrpcServer
from streamlog.ports.grpc_adapter.settings import GrpcSettings

from ..networks import eventually

MESSAGE_BYTES_MAX = 2 << 20
U, S = "/p.S/Unary", "/p.S/Stream"


def fail(error: Exception) -> None:
    raise error


async def echo(request: bytes, info: CallInfo) -> bytes:
    return request


async def double(stream: Stream, info: CallInfo) -> None:
    while (message := await stream.recv()) is not None:
        await stream.send(message)
        await stream.send(message)


@pytest.fixture
async def server() -> AsyncIterator[GrpcServer]:
    network = GrpcNetwork(on_crash=fail, settings=GrpcSettings(message_bytes_max=MESSAGE_BYTES_MAX))
    made = await network.listen("127.0.0.1:0", unary={U: echo}, streaming={S: double})
    yield made
    await eventually(lambda: made.inflow.bytes_held == made.inflow.calls == 0)
    await network.close()


def dialled(server: GrpcServer, compression: Any = None, **options: int) -> grpc.aio.Channel:
    given = [("grpc.max_receive_message_length", -1), *((f"grpc.{name}", value) for name, value in options.items())]
    return grpc.aio.insecure_channel(server.address, options=given, compression=compression)


async def unary(channel: grpc.aio.Channel, request: bytes) -> bytes:
    call: Any = channel.unary_unary(U)
    answer: bytes = await call(request, timeout=120)
    return answer


async def doubled(channel: grpc.aio.Channel, messages: list[bytes]) -> list[bytes]:
    async def sent() -> AsyncIterator[bytes]:
        for one in messages:
            yield one

    call: Any = channel.stream_stream(S)
    return [message async for message in call(sent(), timeout=120)]


def text(size: int) -> bytes:
    return (b"a line of some length %d\n" % size * (size // 20 + 1))[:size]


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_requests(server: GrpcServer, compression: Any) -> None:
    async with dialled(server, compression) as channel:
        for size in (0, 1, 10_000, MESSAGE_BYTES_MAX):
            assert await unary(channel, text(size)) == text(size)
        sizes = [50_000, 0, 3, 200_000]
        expected = [text(size) for size in sizes for _ in range(2)]
        assert await doubled(channel, [text(size) for size in sizes]) == expected
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unary(channel, bytes(MESSAGE_BYTES_MAX + 1))  # two kilobytes as they are sent
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "Received message larger than max" in str(refused.value.details())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"http2.bdp_probe": 0, "http2.lookahead_bytes": 1_024},
        {"http2.max_frame_size": 16_777_215, "http2.lookahead_bytes": 8 << 20},
        {"http2.hpack_table_size.decoder": 0},
    ],
)
async def test_messages_of_all_sizes(server: GrpcServer, options: dict[str, int]) -> None:
    async with dialled(server, **options) as channel:
        for size in (0, 1, 16_379, 16_384, 65_530, 65_535, 262_144, MESSAGE_BYTES_MAX):
            assert await unary(channel, text(size)) == text(size)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unary(channel, bytes(MESSAGE_BYTES_MAX + 1))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"({MESSAGE_BYTES_MAX + 1} vs. {MESSAGE_BYTES_MAX})" in str(refused.value.details())
        messages = [text(size) for size in (300_000, 0, 5, 100_000)]
        expected = [message for message in messages for _ in range(2)]
        streams = [doubled(channel, messages) for _ in range(20)]
        assert await asyncio.gather(*streams) == [expected] * 20


async def test_many_calls_at_a_time(server: GrpcServer) -> None:
    async with dialled(server) as channel:
        answers = await asyncio.gather(*(unary(channel, text(number * 100)) for number in range(300)))
        assert answers == [text(number * 100) for number in range(300)]
