"""Unary calls of a traced client carry the context that is current where they are made, in the metadata `traceparent`.

    await consumer.commit(...), admin.create_topics(...), producer.commit_transaction() ...
        --in a span of the program--> call with its context --> the node's request span is a child

Background work (metadata, heartbeats, back-off) is made with no context: `detached`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import get_current_span

from streamlog.client.tracing.contexts import traceparent
from streamlog.ports import Channel, Network, Server, Stream, StreamHandler, UnaryHandler
from streamlog.ports.trace_context import TRACEPARENT


@contextmanager
def detached() -> Iterator[None]:
    """Tasks that are made here, and run in the background, belong to no span of the program."""
    token = contexts.attach(Context())
    try:
        yield
    finally:
        contexts.detach(token)


def with_current(metadata: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Unchanged without a current span, or where it has a context already."""
    context = get_current_span().get_span_context()
    if not context.is_valid or (metadata is not None and TRACEPARENT in metadata):
        return metadata
    return {**(metadata or {}), TRACEPARENT: traceparent(context)}


class TracedNetwork:
    """A Network. Streams last longer than what made them, and carry no context."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def connect(self, address: str) -> Channel:
        return _TracedChannel(self._network.connect(address))

    async def listen(
        self,
        address: str,
        *,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
        listener: str = "",
    ) -> Server:
        return await self._network.listen(address, unary=unary, streaming=streaming, listener=listener)


class _TracedChannel:
    """A Channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def unary(
        self, method: str, request: bytes, *, timeout_s: float, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        return await self._channel.unary(method, request, timeout_s=timeout_s, metadata=with_current(metadata))

    def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Stream]:
        return self._channel.stream(method, metadata=metadata)

    async def close(self) -> None:
        await self._channel.close()
