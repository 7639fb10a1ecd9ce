"""Calls that this node makes of another one for a client.

They carry a mark, and whoever gets a marked call answers for itself or refuses: calls never go round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.api.errors import from_rpc
from streamlog.api.service import Call, Request, Response
from streamlog.controller.link import FORWARDED
from streamlog.errors import BrokerNotAvailableError, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.ports import Channel, Network, RpcError

MARK: Final[Mapping[str, str]] = {FORWARDED: "1"}
TIMEOUT_S: Final = 30.0
"""Of a call whose caller waits for ever. Kafka's request.timeout.ms."""


def is_forwarded(call: Call) -> bool:
    return FORWARDED in call.info.metadata


def timeout_of(call: Call) -> float:
    """Seconds."""
    remaining = call.remaining_s()
    return TIMEOUT_S if remaining is None else remaining


class Peers:
    """Channels to the other nodes, one each, made when first needed. A node that moves gets another one."""

    def __init__(self, view: MetadataView, network: Network) -> None:
        self._view = view
        self._network = network
        self._channels: dict[BrokerId, tuple[str, Channel]] = {}

    async def call(
        self, node: BrokerId, method: str, request: Request, response_type: type[Response], timeout_s: float
    ) -> Response:
        """The node's answer, or its StreamlogError; BrokerNotAvailableError where it is not alive or does not
        answer.
        """
        channel = await self.channel(node)
        try:
            data = await channel.unary(method, request.SerializeToString(), timeout_s=timeout_s, metadata=MARK)
        except RpcError as error:
            raise _told(error, node) from None
        return response_type.FromString(data)

    async def channel(self, node: BrokerId) -> Channel:
        """BrokerNotAvailableError."""
        address = self._view.address_of(node)
        if address is None:
            raise BrokerNotAvailableError(f"node {node} is not alive, or not registered", node=node)
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


def _told(error: RpcError, node: BrokerId) -> StreamlogError:
    own = from_rpc(error)
    if isinstance(own, StreamlogError):
        return own
    return BrokerNotAvailableError(f"node {node} did not answer: {error}", node=node)
