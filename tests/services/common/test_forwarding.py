"""Calls to other nodes on behalf of a client: what comes back is not trusted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.api.pb import admin_pb2 as pb
from streamlog.errors import BrokerNotAvailableError, RequestTooLargeError, Status
from streamlog.model import BrokerId
from streamlog.ports import RpcError
from streamlog.services.common.forwarding import Peers


class Node:
    """And the network to it: answers everything with the same bytes, or error."""

    def __init__(self, answer: bytes | RpcError) -> None:
        self.answer = answer

    def connect(self, address: str) -> Node:
        return self

    async def unary(self, method: str, request: bytes, **given: object) -> bytes:
        if isinstance(self.answer, RpcError):
            raise self.answer
        return self.answer


async def call(answer: bytes | RpcError) -> pb.DescribeLogDirsResponse:
    view: Any = SimpleNamespace(address_of=lambda node: "n2:9092")
    network: Any = Node(answer)
    request = pb.DescribeLogDirsRequest()
    return await Peers(view, network).call(BrokerId(2), "/x/Y", request, pb.DescribeLogDirsResponse, 1)


async def test_a_response_is_parsed() -> None:
    response = pb.DescribeLogDirsResponse(nodes=[pb.NodeLogDirs(node_id=2)])
    assert await call(response.SerializeToString()) == response


@pytest.mark.parametrize("answer", [b"\xff", b"\x0a\x05ab"])
async def test_garbage_is_the_node_that_is_not_available(answer: bytes) -> None:
    with pytest.raises(BrokerNotAvailableError, match=r"node 2 did not answer with a valid .*DescribeLogDirs"):
        await call(answer)


async def test_a_response_that_is_too_large_for_this_node_is_no_node_that_is_not_available() -> None:
    error = RpcError(Status.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max (5000000 vs. 4194304)")
    with pytest.raises(RequestTooLargeError) as refused:
        await call(error)
    assert refused.value.message == (
        "x/Y: the response has 5,000,000 bytes, and the node that asked node 2 for it accepts 4,194,304; "
        "request less at once"
    )
    assert not refused.value.retriable
