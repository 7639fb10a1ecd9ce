"""Committed records of another node's replica, for a repair (streamlog.internal.v1.Replication/FetchRange)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from streamlog.api.errors import from_rpc
from streamlog.api.pb import replication_pb2 as pb
from streamlog.api.responses import parse_response
from streamlog.broker.replica_wire import TOPIC_ID_SIZE
from streamlog.errors import BrokerNotAvailableError, InvalidRequestError, StorageError, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, Offset, PartitionId, TopicId, TopicPartition
from streamlog.ports import Network, NotSentError, RpcError
from streamlog.records import scan_headers

METHOD: Final = "/streamlog.internal.v1.Replication/FetchRange"
BYTES_MAX: Final = 1 << 20
TIMEOUT_S: Final = 10.0


class RangeFetch:
    """`log_repairs.RangeSource` over the network."""

    def __init__(self, view: MetadataView, network: Network) -> None:
        self._view = view
        self._network = network

    async def batches(
        self, node: BrokerId, topic_id: TopicId, at: TopicPartition, begin: Offset, end: Offset
    ) -> AsyncIterator[bytes]:
        """Whole batches of [begin, end), in pieces. BrokerNotAvailableError, CorruptMessageError, the node's errors."""
        address = self._view.address_of(node)
        if address is None:
            raise BrokerNotAvailableError(f"node {node} is fenced or not registered", node=node)
        channel = self._network.connect(address)
        try:
            while begin < end:
                request = pb.FetchRangeRequest(
                    topic_id=topic_id, partition=at.partition, start_offset=begin, end_offset=end, max_bytes=BYTES_MAX
                )
                try:
                    answer = await channel.unary(METHOD, request.SerializeToString(), timeout_s=TIMEOUT_S, metadata={})
                except RpcError as error:
                    raise _error_of(error, node) from None
                data = parse_response(pb.FetchRangeResponse, answer, f"node {node}").batches
                if not data:
                    return
                yield data
                following = begin
                for _, header in scan_headers(data, 0, len(data)):
                    following = header.next_offset
                if following <= begin:
                    return
                begin = following
        finally:
            await channel.close()


def _error_of(error: RpcError, node: BrokerId) -> StreamlogError:
    """A StorageError is of that node's disk: here it would be taken for one of this node's."""
    own = from_rpc(error)
    if isinstance(own, StreamlogError) and not isinstance(own, StorageError):
        return own
    reason = error.message if isinstance(error, NotSentError) else own
    return BrokerNotAvailableError(f"node {node} did not respond: {reason}", node=node)


def decode_request(message: pb.FetchRangeRequest) -> tuple[TopicId, PartitionId, Offset, Offset, int]:
    """InvalidRequestError."""
    if len(message.topic_id) != TOPIC_ID_SIZE:
        raise InvalidRequestError(f"a topic id has {TOPIC_ID_SIZE} bytes", field="topic_id", limit=TOPIC_ID_SIZE)
    if not message.start_offset < message.end_offset < 2**63:
        raise InvalidRequestError("the range is empty or invalid", field="end_offset")
    return (
        TopicId(message.topic_id),
        PartitionId(message.partition),
        Offset(message.start_offset),
        Offset(message.end_offset),
        min(message.max_bytes or BYTES_MAX, BYTES_MAX),
    )
