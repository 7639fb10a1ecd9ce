"""FetchRange, as the node calls it that repairs a log: whatever the other node answers, only this call fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.api.errors import to_rpc
from streamlog.api.pb import replication_pb2 as pb
from streamlog.broker.repair.range_fetch import RangeFetch
from streamlog.errors import BrokerNotAvailableError, CorruptMessageError, Status, StorageError
from streamlog.model import BrokerId, Offset, PartitionId, TopicId, TopicPartition
from streamlog.ports import RpcError
from tests.controller.scripted_network import ScriptedNetwork

VIEW: Any = SimpleNamespace(address_of=lambda node: "a:1")


async def fetched(answer: bytes | RpcError) -> list[bytes]:
    def respond(method: str, request: bytes) -> bytes:
        if isinstance(answer, RpcError):
            raise answer
        return answer

    network = ScriptedNetwork(a=respond)
    at = TopicPartition("t", PartitionId(0))
    ranges = RangeFetch(VIEW, network).batches(BrokerId(2), TopicId(bytes(16)), at, Offset(0), Offset(9))
    try:
        return [one async for one in ranges]
    finally:
        assert network.closed == ["a:1"]


@pytest.mark.parametrize(
    "answer", [b"\x07", b"\x0a\xff\xff\xff\xff\x0f", RpcError(Status.INTERNAL, "of another program")]
)
async def test_what_is_no_answer_is_a_node_that_is_not_available(answer: bytes | RpcError) -> None:
    with pytest.raises(BrokerNotAvailableError, match="node 2 did not"):
        await fetched(answer)


async def test_a_failed_disk_of_that_node_is_not_taken_for_one_of_this_node() -> None:
    """The repair would end, and no other replica be asked."""
    with pytest.raises(BrokerNotAvailableError, match=r"node 2 did not respond: .*offline"):
        await fetched(to_rpc(StorageError("log directory /data is offline")))


async def test_what_are_no_batches_is_corrupt() -> None:
    with pytest.raises(CorruptMessageError):
        await fetched(pb.FetchRangeResponse(batches=bytes(100)).SerializeToString())


async def test_an_empty_answer_ends_the_range() -> None:
    assert await fetched(b"") == []
