"""A network whose nodes are functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from streamlog.errors import Status
from streamlog.ports import Channel, RpcError, Server, Stream, StreamHandler, UnaryHandler

Answer = Callable[[str, bytes], bytes]
"""What a node says to a method's request; raises RpcError."""

GONE = RpcError(Status.UNAVAILABLE, "gone")


class ScriptedChannel:
    def __init__(self, network: ScriptedNetwork, address: str) -> None:
        self._network = network
        self._address = address

    async def unary(
        self, method: str, request: bytes, *, timeout_s: float, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        self._network.asked.append((self._address, method.rpartition("/")[2]))
        return self._network.nodes[self._address](method, request)

    def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Stream]:
        raise NotImplementedError

    async def close(self) -> None:
        self._network.closed.append(self._address)


class ScriptedNetwork:
    """Nodes are functions. What is asked is kept."""

    def __init__(self, **nodes: Answer) -> None:
        self.nodes = {f"{name}:1": answer for name, answer in nodes.items()}
        self.asked: list[tuple[str, str]] = []
        self.closed: list[str] = []

    def connect(self, address: str) -> Channel:
        return ScriptedChannel(self, address)

    async def listen(
        self,
        address: str,
        *,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
        listener: str = "",
    ) -> Server:
        raise NotImplementedError


def gone(method: str, request: bytes) -> bytes:
    raise GONE
