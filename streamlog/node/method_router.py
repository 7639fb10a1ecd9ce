"""Routes the calls of the node's listeners, which know every method before its handler exists.

A node listens before it knows its cluster (other nodes ask it for the cluster's id, `cluster_formation`); most services
are made later. Until their handlers are connected, and once the node stops, calls end with UNAVAILABLE
(BROKER_NOT_AVAILABLE), and the caller tries another node. Unknown methods are UNIMPLEMENTED (UNSUPPORTED_VERSION).

Over TLS the methods between nodes are served to nodes only (`streamlog.tls.callers`), and only at the listener for
nodes where that is one of its own. At the others a node's certificate is one like any other: they may trust the
authorities of clients, which must not make nodes. With an authorizer the methods for clients are behind a gate
(`services.access.gate`), and behind that those for records behind quotas (`services.quotas.gate`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping

from msgspec.structs import replace

from streamlog.api.errors import NOT_SERVING, to_rpc
from streamlog.api.service import Service, stream_handlers, unary_handlers
from streamlog.controller.link import FORWARDED
from streamlog.errors import (
    BrokerNotAvailableError,
    ClusterAuthorizationError,
    InvariantError,
    Status,
    UnsupportedVersionError,
)
from streamlog.node.metrics.calls import CallMeter
from streamlog.node.request_spans import RequestSpans
from streamlog.ports import ANY_METHOD, CallInfo, RpcError, Stream, StreamHandler, UnaryHandler
from streamlog.services.access.gate import MethodGate
from streamlog.services.audit.trail import AuditTrail
from streamlog.services.quotas.gate import QuotaGate
from streamlog.tls.callers import INTERNAL_PREFIX, check_node, client_listener_refusal


class MethodRouter:
    """Gets the methods' names when it is made, their handlers by `connect`."""

    def __init__(
        self,
        unary: Iterable[str],
        streaming: Iterable[str],
        meter: CallMeter,
        gate: MethodGate | None = None,
        spans: RequestSpans | None = None,
        audit: AuditTrail | None = None,
        quotas: QuotaGate | None = None,
    ) -> None:
        """`unary`, `streaming`: full names of the methods. `meter` counts their calls. `gate`: of a node with an
        authorizer. `spans`: of a node that is traced. `audit`: of one with an audit log. `quotas`: None: no limits.
        """
        self._meter = meter
        self._gate = gate
        self._spans = spans
        self._audit = audit
        self._quotas = quotas
        self._unary: dict[str, UnaryHandler] = dict.fromkeys(unary, _unavailable)
        self._streaming: dict[str, StreamHandler] = dict.fromkeys(streaming, _unavailable_stream)

    def unary(self, *, for_nodes: bool = True) -> Mapping[str, UnaryHandler]:
        """For `Network.listen`; `for_nodes`: nodes connect to this listener."""
        found = {name: self._meter.unary(name, self._traced_unary(name, for_nodes=for_nodes)) for name in self._unary}
        return found if for_nodes else {name: _without_node(handler) for name, handler in found.items()}

    def streaming(self, *, for_nodes: bool = True) -> Mapping[str, StreamHandler]:
        """As `unary`."""
        known = {
            name: self._meter.stream(name, self._traced_stream(name, for_nodes=for_nodes)) for name in self._streaming
        }
        if not for_nodes:
            known = {name: _stream_without_node(handler) for name, handler in known.items()}
        return {**known, ANY_METHOD: _unknown}

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

    def disconnect(self, prefix: str) -> None:
        """New calls of these methods are refused; those that have begun go on."""
        self._unary.update({name: _unavailable for name in self._unary if name.startswith(prefix)})
        self._streaming.update({name: _unavailable_stream for name in self._streaming if name.startswith(prefix)})

    def unserved(self) -> list[str]:
        """Methods without a handler, sorted."""
        idle = [name for name, handler in self._unary.items() if handler is _unavailable]
        return sorted(idle + [name for name, handler in self._streaming.items() if handler is _unavailable_stream])

    def _traced_unary(self, name: str, *, for_nodes: bool) -> UnaryHandler:
        handler = self._route_unary(name, for_nodes=for_nodes)
        if self._audit is not None:
            handler = self._audit.unary(name, handler)
        return handler if self._spans is None else self._spans.traced(name, handler)

    def _traced_stream(self, name: str, *, for_nodes: bool) -> StreamHandler:
        handler = self._route_stream(name, for_nodes=for_nodes)
        if self._audit is not None:
            handler = self._audit.stream(name, handler)
        return handler if self._spans is None else self._spans.traced(name, handler)

    # The handler is looked up for each call, since it may change; nothing is awaited in between.

    def _route_unary(self, name: str, *, for_nodes: bool) -> UnaryHandler:
        handlers = self._unary

        def handle(request: bytes, info: CallInfo) -> Awaitable[bytes]:
            return handlers[name](request, info)

        async def handle_node(request: bytes, info: CallInfo) -> bytes:
            _check_node(info)
            return await handlers[name](request, info)

        if name.startswith(INTERNAL_PREFIX):
            return handle_node if for_nodes else _refused_to_clients
        counted = handle if self._quotas is None else self._quotas.unary(name, handle, for_nodes=for_nodes)
        return counted if self._gate is None else self._gate.unary(name, counted)

    def _route_stream(self, name: str, *, for_nodes: bool) -> StreamHandler:
        handlers = self._streaming

        def handle(stream: Stream, info: CallInfo) -> Awaitable[None]:
            return handlers[name](stream, info)

        async def handle_node(stream: Stream, info: CallInfo) -> None:
            _check_node(info)
            await handlers[name](stream, info)

        if name.startswith(INTERNAL_PREFIX):
            return handle_node if for_nodes else _stream_refused_to_clients
        counted = handle if self._quotas is None else self._quotas.stream(name, handle, for_nodes=for_nodes)
        return counted if self._gate is None else self._gate.stream(name, counted)


def _refusal(info: CallInfo) -> RpcError:
    """Of a method without a handler: nothing of the call was carried out."""
    message = "the node is starting or stopping: try another node"
    return to_rpc(BrokerNotAvailableError(message, **{NOT_SERVING: "starting or stopping"}))


async def _unavailable(request: bytes, info: CallInfo) -> bytes:
    raise _refusal(info)


async def _unavailable_stream(stream: Stream, info: CallInfo) -> None:
    raise _refusal(info)


async def _unknown(stream: Stream, info: CallInfo) -> None:
    error = UnsupportedVersionError(
        f"unknown method {info.method.lstrip('/')}: this node runs another release, or the name is wrong; "
        "streamlog.v1.Cluster/Describe lists the node's features, gRPC reflection its methods",
        field="method",
    )
    raise to_rpc(error, Status.UNIMPLEMENTED)


async def _refused_to_clients(request: bytes, info: CallInfo) -> bytes:
    raise to_rpc(ClusterAuthorizationError(client_listener_refusal(info).message))


async def _stream_refused_to_clients(stream: Stream, info: CallInfo) -> None:
    raise to_rpc(ClusterAuthorizationError(client_listener_refusal(info).message))


def _of_client(info: CallInfo) -> CallInfo:
    """Without what only a node may say."""
    if info.names or FORWARDED in info.metadata:
        metadata = {key: value for key, value in info.metadata.items() if key != FORWARDED}
        return replace(info, names=(), metadata=metadata)
    return info


def _without_node(handler: UnaryHandler) -> UnaryHandler:
    def handle(request: bytes, info: CallInfo) -> Awaitable[bytes]:
        return handler(request, _of_client(info))

    return handle


def _stream_without_node(handler: StreamHandler) -> StreamHandler:
    def handle(stream: Stream, info: CallInfo) -> Awaitable[None]:
        return handler(stream, _of_client(info))

    return handle


def _check_node(info: CallInfo) -> None:
    """RpcError."""
    try:
        check_node(info)
    except RpcError as error:
        raise to_rpc(ClusterAuthorizationError(error.message)) from None
