"""What the cases of the network port's conformance share: handlers, and calls to them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from streamlog.ports import CallInfo, Channel, Server, Stream, StreamHandler, UnaryHandler

from .networks import Net

M: Final = "/test.Service/Method"


async def serve(
    net: Net, *, unary: UnaryHandler | None = None, streaming: StreamHandler | None = None, address: str = ""
) -> Server:
    ones: Mapping[str, UnaryHandler] = {} if unary is None else {M: unary}
    manies: Mapping[str, StreamHandler] = {} if streaming is None else {M: streaming}
    return await net.server.listen(address or net.bind, unary=ones, streaming=manies)


async def echo(request: bytes, info: CallInfo) -> bytes:
    return request + b"!"


async def double(stream: Stream, info: CallInfo) -> None:
    while (message := await stream.recv()) is not None:
        await stream.send(message * 2)


class Blocker:
    """A handler that waits without end and records its outcome."""

    def __init__(self) -> None:
        self.begun = self.cancelled = 0
        self.open = asyncio.Event()

    async def wait(self) -> None:
        self.begun += 1
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def unary(self, request: bytes, info: CallInfo) -> bytes:
        await self.wait()
        return b"late"

    async def streaming(self, stream: Stream, info: CallInfo) -> None:
        await self.wait()


async def first_answer(channel: Channel, method: str) -> bytes | None:
    """Of a stream that is refused at once, the error may be there when it is entered."""
    async with channel.stream(method) as stream:
        return await stream.recv()


async def call(channel: Channel, request: bytes = b"", timeout_s: float = 10.0) -> bytes:
    return await channel.unary(M, request, timeout_s=timeout_s)
