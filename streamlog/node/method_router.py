"""Routes the calls of the node's one listener, which knows every method before its handler exists.

A node listens before it knows its cluster (other nodes ask it for the cluster's id, `cluster_formation`); most services
are made later. Until their handlers are connected, and once the node has stopped, calls end with UNAVAILABLE, and the
caller tries another node.

Over TLS the methods between nodes are served to nodes only (`streamlog.tls.callers`). With an authorizer the methods
for clients are behind a gate (`services.access.gate`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping

from streamlog.api.service import Service, stream_handlers, unary_handlers
from streamlog.errors import InvariantError, Status
from streamlog.node.metrics.calls import CallMeter
from streamlog.ports import CallInfo, RpcError, Stream, StreamHandler, UnaryHandler
from streamlog.services.access.gate import MethodGate
from streamlog.tls.callers import INTERNAL_PREFIX, check_node


class MethodRouter:
    """Gets the methods' names when it is made, their handlers by `connect`."""

    def __init__(
        self, unary: Iterable[str], streaming: Iterable[str], meter: CallMeter, gate: MethodGate | None = None
    ) -> None:
        """`unary`, `streaming`: full names of the methods. `meter` counts their calls. `gate`: of a node with an
        authorizer.
        """
        self._meter = meter
        self._gate = gate
        self._unary: dict[str, UnaryHandler] = dict.fromkeys(unary, _unavailable)
        self._streaming: dict[str, StreamHandler] = dict.fromkeys(streaming, _unavailable_stream)

    def unary(self) -> Mapping[str, UnaryHandler]:
        """For `Network.listen`."""
        return {name: self._meter.unary(name, self._route_unary(name)) for name in self._unary}

    def streaming(self) -> Mapping[str, StreamHandler]:
        return {name: self._meter.stream(name, self._route_stream(name)) for name in self._streaming}

    def connect(self, services: Iterable[Service]) -> None:
        """Serve these from now on. InvariantError for a method that is not among the names."""
        served = list(services)
        self.connect_handlers(unary_handlers(served), stream_handlers(served))

    def connect_handlers(self, unary: Mapping[str, UnaryHandler], streaming: Mapping[str, StreamHandler]) -> None:
        missing = sorted((unary.keys() - self._unary.keys()) | (streaming.keys() - self._streaming.keys()))
        if missing:
            raise InvariantError(f"served, and not in served_methods: {', '.join(missing)}")
        self._unary.update(unary)
        self._streaming.update(streaming)

    def unserved(self) -> list[str]:
        """Methods without a handler, sorted."""
        idle = [name for name, handler in self._unary.items() if handler is _unavailable]
        return sorted(idle + [name for name, handler in self._streaming.items() if handler is _unavailable_stream])

    # The handler is looked up for each call, since it may change; nothing is awaited in between.

    def _route_unary(self, name: str) -> UnaryHandler:
        handlers = self._unary

        def handle(request: bytes, info: CallInfo) -> Awaitable[bytes]:
            return handlers[name](request, info)

        async def handle_node(request: bytes, info: CallInfo) -> bytes:
            check_node(info)
            return await handlers[name](request, info)

        if name.startswith(INTERNAL_PREFIX):
            return handle_node
        return handle if self._gate is None else self._gate.unary(name, handle)

    def _route_stream(self, name: str) -> StreamHandler:
        handlers = self._streaming

        def handle(stream: Stream, info: CallInfo) -> Awaitable[None]:
            return handlers[name](stream, info)

        async def handle_node(stream: Stream, info: CallInfo) -> None:
            check_node(info)
            await handlers[name](stream, info)

        if name.startswith(INTERNAL_PREFIX):
            return handle_node
        return handle if self._gate is None else self._gate.stream(name, handle)


async def _unavailable(request: bytes, info: CallInfo) -> bytes:
    raise RpcError(Status.UNAVAILABLE, "the node is starting or stopping: try another node")


async def _unavailable_stream(stream: Stream, info: CallInfo) -> None:
    raise RpcError(Status.UNAVAILABLE, "the node is starting or stopping: try another node")
