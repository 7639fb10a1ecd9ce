"""The span of a call: how it ends, and which calls have none."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.errors import Status
from streamlog.node.request_spans import RequestSpans
from streamlog.ports import CallInfo, RpcError, UnaryHandler
from streamlog.tls.callers import INTERNAL_PREFIX
from tests.support.node_spans import RecordedSpan, SpanStore

METHOD = "/streamlog.v1.Batches/Fetch"
SENDER = f"00-{'a' * 32}-{'b' * 16}-01"


def info(method: str = METHOD, **metadata: str) -> CallInfo:
    return CallInfo(method=method, peer="127.0.0.1:1", metadata=metadata, identity="CN=meter")


async def answers(request: bytes, info: CallInfo) -> bytes:
    assert isinstance(info.span, RecordedSpan)
    return request


async def refuses(request: bytes, info: CallInfo) -> bytes:
    raise RpcError(Status.NOT_FOUND, "no such topic")


async def crashes(request: bytes, info: CallInfo) -> bytes:
    raise KeyError("bug")


async def waits(request: bytes, info: CallInfo) -> bytes:
    asyncio.current_task().cancel()  # type: ignore[union-attr]
    await asyncio.Event().wait()
    return b""


@pytest.mark.parametrize(
    ("handler", "raised", "status", "error"),
    [
        (answers, None, 0, ""),
        (refuses, RpcError, 5, "NOT_FOUND"),
        (crashes, KeyError, 13, "INTERNAL"),
        (waits, asyncio.CancelledError, 1, "CANCELLED"),
    ],
)
def test_a_call_has_a_span_whatever_its_end(handler, raised, status, error) -> None:  # type: ignore[no-untyped-def]
    async def main() -> None:
        store = SpanStore(lambda: 0.0)
        traced = RequestSpans(store.of(1)).traced(METHOD, handler)
        call = asyncio.ensure_future(traced(b"x", info(traceparent=SENDER)))
        await asyncio.wait([call])
        if raised is None:
            assert call.result() == b"x"
        else:
            with pytest.raises(raised):
                call.result()
        (span,) = store.spans
        assert (span.name, span.parent, span.ended, span.error) == (METHOD[1:], SENDER, 1, error)
        assert span.attributes == {
            "rpc.system": "grpc",
            "rpc.service": "streamlog.v1.Batches",
            "rpc.method": "Fetch",
            "rpc.grpc.status_code": status,
            "network.peer.address": "127.0.0.1:1",
            "tls.client.subject": "CN=meter",
        }

    asyncio.run(main())


async def call(handler: UnaryHandler, info: CallInfo) -> bytes:
    return await handler(b"x", info)


async def passes(request: bytes, info: CallInfo) -> bytes:
    assert info.span is None
    return request


@pytest.mark.parametrize("method", ["/streamlog.v1.Batches/ProduceStream", f"{INTERNAL_PREFIX}Quorum/Vote"])
def test_streams_of_batches_and_calls_between_nodes_start_no_trace(method: str) -> None:
    store = SpanStore(lambda: 0.0, ratio=1.0)
    traced = RequestSpans(store.of(1)).traced(method, passes)
    assert asyncio.run(call(traced, info(method))) == b"x"
    assert store.spans == []
    assert asyncio.run(call(RequestSpans(store.of(1)).traced(METHOD, answers), info())) == b"x"
    assert len(store.spans) == 1


def test_a_call_that_is_not_sampled_has_none() -> None:
    store = SpanStore(lambda: 0.0, ratio=1.0)
    traced = RequestSpans(store.of(1)).traced(METHOD, passes)
    assert asyncio.run(call(traced, info(traceparent=SENDER[:-1] + "0"))) == b"x"
    assert store.spans == []
