"""Nodes whose answers to other nodes are false for a while (FAULTS "Hostile peers"): as if another program had their
address, or something between them changed what they send.

What arrives is no message, has a status that no node sends, or has nothing in it where something is required. The call
itself may have been carried out. Nothing that could be believed is made up: who may speak as the controller or a leader
decides what the cluster does, and only TLS shows who it is.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from streamlog.errors import Status
from streamlog.ports import Channel, Network, RpcError, Server, Stream
from streamlog.ports.network import StreamHandler, UnaryHandler

NO_MESSAGES: Final = (b"\x07", b"\x0c", b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 40)
"""Not protobuf: an unknown wire type, the end of a group, fields that are cut off."""
STATUSES: Final = (
    Status.INTERNAL,
    Status.UNKNOWN,
    Status.UNIMPLEMENTED,
    Status.RESOURCE_EXHAUSTED,
    Status.PERMISSION_DENIED,
    Status.UNAUTHENTICATED,
    Status.DATA_LOSS,
)
"""Without details: of other programs."""
NEVER_EMPTY: Final = frozenset({"AllocateProducerIds", "AlterPartition", "CreateInternalTopic", "FetchRange"})
"""Calls whose answers have something in them."""
FALSE: Final = 0.6
"""Share of the answers."""


class FalseAnswers:
    """Who gives them, and until when."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until: dict[str, float] = {}  # by address
        self.given = 0

    def begin(self, address: str, lasts: float) -> None:
        self._until[address] = max(self._until.get(address, 0.0), self._now() + lasts)

    def end(self) -> None:
        self._until.clear()

    def come_from(self, address: str) -> bool:
        return self._now() < self._until.get(address, 0.0)


class FalseNetwork:
    """A node's network: the answers that arrive may be false."""

    def __init__(self, network: Network, answers: FalseAnswers, rng: random.Random) -> None:
        self._network = network
        self._answers = answers
        self._rng = rng

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
        return _FalseChannel(self._network.connect(address), address, self._answers, self._rng)


class _FalseChannel:
    def __init__(self, channel: Channel, address: str, answers: FalseAnswers, rng: random.Random) -> None:
        self._channel = channel
        self._address = address
        self._answers = answers
        self._rng = rng

    async def unary(
        self, method: str, request: bytes, *, timeout_s: float, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        false = self.is_false()
        if false and self._rng.random() < 0.5:
            return self.answer(method)
        answer = await self._channel.unary(method, request, timeout_s=timeout_s, metadata=metadata)
        return self.answer(method) if false else answer

    @asynccontextmanager
    async def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AsyncIterator[Stream]:
        async with self._channel.stream(method, metadata=metadata) as stream:
            yield _FalseStream(stream, self, method)

    async def close(self) -> None:
        await self._channel.close()

    def is_false(self) -> bool:
        return self._answers.come_from(self._address) and self._rng.random() < FALSE

    def answer(self, method: str) -> bytes:
        self._answers.given += 1
        if method.rpartition("/")[2] in NEVER_EMPTY and self._rng.random() < 0.3:
            return b""
        if self._rng.random() < 0.5:
            raise RpcError(self._rng.choice(STATUSES), "of another program")
        return self._rng.choice(NO_MESSAGES)


class _FalseStream:
    def __init__(self, stream: Stream, channel: _FalseChannel, method: str) -> None:
        self._stream = stream
        self._channel = channel
        self._method = method

    async def send(self, message: bytes) -> None:
        await self._stream.send(message)

    async def recv(self) -> bytes | None:
        message = await self._stream.recv()
        return self._channel.answer(self._method) if self._channel.is_false() else message

    async def done_sending(self) -> None:
        await self._stream.done_sending()
