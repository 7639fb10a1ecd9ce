"""Every refusal of a node has ErrorInfo, whichever part refuses: a walk through all methods for clients.

What gRPC refuses before a node sees it (a message above its limit) has none; docs/clients.md says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus

from streamlog.api.errors import from_rpc
from streamlog.controller.link import FORWARDED
from streamlog.errors import Status, UnsupportedVersionError
from streamlog.node.method_router import MethodRouter
from streamlog.node.served_methods import CLIENT_FILES, CLIENT_PREFIX, streaming_methods, unary_methods
from streamlog.ports import ANY_METHOD, CallInfo, Channel, RpcError
from streamlog.tls.identity import node_uri
from tests.services.world import Cluster, simulate

METHODS = [
    (f"/{service.full_name}/{method.name}", method)
    for file in CLIENT_FILES
    for service in file.services_by_name.values()
    for method in service.methods
]


def explained(error: RpcError) -> tuple[Status, str, bool]:
    """Status, reason, whether a retry is advised."""
    status = RpcStatus.FromString(error.details_bin)
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, status.message, status.code) == ("streamlog", error.message, error.status.value)
    return error.status, info.reason, any(detail.Is(RetryInfo.DESCRIPTOR) for detail in status.details)


def is_stream(method: MethodDescriptor) -> bool:
    return method.client_streaming or method.server_streaming


async def refusal(channel: Channel, name: str, method: MethodDescriptor, data: bytes) -> RpcError:
    try:
        if not is_stream(method):
            await channel.unary(name, data, timeout_s=10)
        else:
            async with channel.stream(name) as stream:
                await stream.send(data)
                while await stream.recv() is not None:
                    pass
    except RpcError as error:
        return error
    raise AssertionError(f"{name} takes {data[:9]!r}")


GARBAGE = b"\xff\xff\xff"


@pytest.mark.parametrize(
    ("data", "reason"), [(GARBAGE, "INVALID_REQUEST"), (bytes((4 << 20) - 1), "REQUEST_TOO_LARGE")], ids=["bad", "big"]
)
def test_what_no_method_accepts(data: bytes, reason: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        for name, method in METHODS:
            error = await cluster.world.host("client").spawn(refusal(cluster.channel(), name, method, data))
            status, found, again = explained(error)
            if name.startswith("/streamlog.v1.Batches/Produce"):  # its limit is that of gRPC, so it gets to be parsed
                assert found in (reason, "INVALID_REQUEST"), name
            else:
                assert found == reason, name
            assert status in (Status.INVALID_ARGUMENT, Status.RESOURCE_EXHAUSTED)
            assert not again

    simulate(story)


def router() -> MethodRouter:
    meter: Any = Unmetered()
    return MethodRouter(unary_methods(), streaming_methods(), meter)


class Unmetered:
    def unary(self, method: str, handler: Any) -> Any:
        return handler

    stream = unary


async def answer_of(made: MethodRouter, name: str) -> RpcError:
    """Of a call that has not been read yet."""
    info, unread = CallInfo(method=name, peer="client:1"), Unread()
    handlers: dict[str, Callable[[Any, CallInfo], Any]] = {**made.unary(), **made.streaming()}
    with pytest.raises(RpcError) as caught:
        await handlers.get(name, handlers[ANY_METHOD])(b"" if name in made.unary() else unread, info)
    return caught.value


class Unread:
    """A stream that no refusal reads."""


def test_a_node_that_starts_or_stops_says_so_for_every_method() -> None:
    async def walk() -> None:
        made = router()
        for name, _ in METHODS:
            error = await answer_of(made, name)
            assert explained(error) == (Status.UNAVAILABLE, "BROKER_NOT_AVAILABLE", True)
            assert from_rpc(error) is error  # the client library goes to another node, as if none listened

    asyncio.run(walk())


def test_a_caller_at_a_listener_for_clients_is_no_node() -> None:
    seen: list[CallInfo] = []

    async def served(request: Any, info: CallInfo) -> bytes:
        seen.append(info)
        return b""

    async def walk() -> None:
        made = router()
        made.connect_handlers({name: served for name, method in METHODS if not is_stream(method)}, {})
        name = "/streamlog.v1.Admin/DeleteTopics"
        call = CallInfo(method=name, peer="", names=(node_uri(1),), metadata={FORWARDED: "1", "other": "2"})
        await made.unary(for_nodes=False)[name](b"", call)
        await made.unary()[name](b"", call)

    asyncio.run(walk())
    of_client, of_node = seen
    assert (of_client.names, of_client.metadata) == ((), {"other": "2"})
    assert (of_node.names, of_node.metadata) == ((node_uri(1),), {FORWARDED: "1", "other": "2"})


def test_methods_are_taken_back_when_the_node_stops() -> None:
    async def served(request: Any, info: CallInfo) -> bytes:
        return b"served"

    async def walk() -> None:
        made = router()
        unary = {name: served for name, method in METHODS if not is_stream(method)}
        streams: Any = {name: served for name, method in METHODS if is_stream(method)}
        watch = "/grpc.health.v1.Health/Check"
        made.connect_handlers({**unary, watch: served}, streams)
        for name in unary:
            assert await made.unary()[name](b"", CallInfo(method=name, peer="")) == b"served"
        made.disconnect(CLIENT_PREFIX)
        for name, _ in METHODS:
            assert explained(await answer_of(made, name))[0] is Status.UNAVAILABLE
        assert await made.unary()[watch](b"", CallInfo(method=watch, peer="")) == b"served"

    asyncio.run(walk())


def test_an_unknown_method_is_unimplemented_and_says_what_there_is() -> None:
    async def walk() -> None:
        for name in unknown_names():
            error = await answer_of(router(), name)
            assert explained(error) == (Status.UNIMPLEMENTED, "UNSUPPORTED_VERSION", False)
            assert name.strip("/")[:100] in error.message
            assert len(error.details_bin) < 4 << 10
            assert isinstance(from_rpc(error), UnsupportedVersionError)

    asyncio.run(walk())


def unknown_names() -> Iterator[str]:
    for file in CLIENT_FILES:
        for service in file.services_by_name.values():
            yield f"/{service.full_name}/NoSuchMethod"
    yield "/streamlog.v2.Records/Publish"
    yield "/" + "x" * 8_000
