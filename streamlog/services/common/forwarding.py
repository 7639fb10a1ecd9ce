"""Calls to other nodes on behalf of a client.

They carry a mark in their metadata. A node serves a marked call itself or refuses it, so calls are forwarded only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from streamlog.api.calls import too_large
from streamlog.api.errors import from_rpc
from streamlog.api.responses import parse_response
from streamlog.api.service import Call, Request, Response
from streamlog.controller.link import FORWARDED
from streamlog.errors import BrokerNotAvailableError, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.ports import Channel, Network, NotSentError, RpcError

T = TypeVar("T")

MARK: Final[Mapping[str, str]] = {FORWARDED: "1"}
TO_COORDINATOR: Final = "streamlog-to-coordinator"
"""Key in the metadata of a call whose caller reaches this node alone (over HTTP): a call for a coordinator is forwarded
to it, where a client by gRPC gets NOT_COORDINATOR.
"""
TIMEOUT_S: Final = 30.0
"""Of a call without a deadline. Kafka's request.timeout.ms."""


def is_forwarded(call: Call) -> bool:
    return FORWARDED in call.info.metadata


def wants_coordinator(call: Call) -> bool:
    return TO_COORDINATOR in call.info.metadata


def timeout_of(call: Call) -> float:
    """Seconds."""
    remaining = call.remaining_s()
    return TIMEOUT_S if remaining is None else remaining


def only(results: Sequence[T], node: BrokerId) -> T:
    """The result of a request for one. BrokerNotAvailableError where the node has returned none, or several."""
    if len(results) != 1:
        raise BrokerNotAvailableError(
            f"node {node} returned {len(results)} results of a request for one: it may not be a streamlog node",
            node=node,
        )
    return results[0]


class Peers:
    """Channels to the other nodes, one each, opened on first use. A node whose address changes gets a new one."""

    def __init__(self, view: MetadataView, network: Network) -> None:
        self._view = view
        self._network = network
        self._channels: dict[BrokerId, tuple[str, Channel]] = {}

    async def call(
        self, node: BrokerId, method: str, request: Request, response_type: type[Response], timeout_s: float
    ) -> Response:
        """The node's response, or its StreamlogError; BrokerNotAvailableError if it is not running, unreachable, or its
        response is not valid; RequestTooLargeError: a message exceeds socket.request.max.bytes of its receiver.
        """
        channel = await self.channel(node)
        try:
            data = await channel.unary(method, request.SerializeToString(), timeout_s=timeout_s, metadata=MARK)
        except RpcError as error:
            raise _as_streamlog_error(error, node, method) from None
        return parse_response(response_type, data, f"node {node}")

    async def channel(self, node: BrokerId) -> Channel:
        """BrokerNotAvailableError."""
        address = self._view.address_of(node)
        if address is None:
            raise BrokerNotAvailableError(f"node {node} is not running, or not registered", node=node)
        known = self._channels.get(node)
        if known is not None and known[0] == address:
            return known[1]
        channel = self._network.connect(address)
        self._channels[node] = (address, channel)
        if known is not None:
            await known[1].close()
        return channel

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for _, channel in channels.values():
            await channel.close()


def _as_streamlog_error(error: RpcError, node: BrokerId, method: str) -> StreamlogError:
    own = from_rpc(error)
    if isinstance(own, StreamlogError):
        return own
    refusal = too_large(error, method.removeprefix("/"), f"the node that asked node {node} for it")
    if refusal is not None:
        return refusal
    reason = error.message if isinstance(error, NotSentError) else error
    return BrokerNotAvailableError(f"node {node} did not respond: {reason}", node=node)
