"""A network port on which what others answer is changed on its way, as by a program at their addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from streamlog.ports import Channel, Network, Server, Stream
from streamlog.ports.network import StreamHandler, UnaryHandler


class AnswerChange(Protocol):
    """Of one address."""

    async def unary(self, method: str, call: Callable[[], Awaitable[bytes]]) -> bytes:
        """What arrives instead; `call` makes the call, which may be left out. RpcError."""
        ...

    def message(self, method: str, message: bytes) -> bytes:
        """What arrives instead of a message of a stream. RpcError."""
        ...


class ChangedNetwork:
    def __init__(self, network: Network, change_of: Callable[[str], AnswerChange]) -> None:
        """`change_of`: by the address that is called."""
        self._network = network
        self._change_of = change_of

    async def listen(
        self,
        address: str,
        *,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
        listener: str = "",
    ) -> Server:
        return await self._network.listen(address, unary=unary, streaming=streaming, listener=listener)

    def connect(self, address: str) -> Channel:
        return _ChangedChannel(self._network.connect(address), self._change_of(address))


class _ChangedChannel:
    def __init__(self, channel: Channel, change: AnswerChange) -> None:
        self._channel = channel
        self._change = change

    async def unary(
        self, method: str, request: bytes, *, timeout_s: float, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        async def call() -> bytes:
            return await self._channel.unary(method, request, timeout_s=timeout_s, metadata=metadata)

        return await self._change.unary(method, call)

    @asynccontextmanager
    async def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AsyncIterator[Stream]:
        async with self._channel.stream(method, metadata=metadata) as stream:
            yield _ChangedStream(stream, method, self._change)

    async def close(self) -> None:
        await self._channel.close()


class _ChangedStream:
    def __init__(self, stream: Stream, method: str, change: AnswerChange) -> None:
        self._stream = stream
        self._method = method
        self._change = change

    async def send(self, message: bytes) -> None:
        await self._stream.send(message)

    async def recv(self) -> bytes | None:
        message = await self._stream.recv()
        return None if message is None else self._change.message(self._method, message)

    async def done_sending(self) -> None:
        await self._stream.done_sending()
