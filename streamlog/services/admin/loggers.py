"""DescribeBrokerLoggers, AlterBrokerLoggers: answered by the node that is named, whichever node is called."""

from __future__ import annotations

from typing import Final

from streamlog.api.convert.admin import loggers as convert
from streamlog.api.convert.admin.placement import node_id
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.ports.log_levels import LogLevels
from streamlog.services.common.forwarding import Peers, is_forwarded, timeout_of

_DESCRIBE: Final = "/streamlog.v1.Admin/DescribeBrokerLoggers"
_ALTER: Final = "/streamlog.v1.Admin/AlterBrokerLoggers"


class LoggerCommands:
    def __init__(self, me: BrokerId, view: MetadataView, levels: LogLevels, peers: Peers) -> None:
        self._me = me
        self._view = view
        self._levels = levels
        self._peers = peers

    async def describe(self, request: pb.DescribeBrokerLoggersRequest, call: Call) -> pb.DescribeBrokerLoggersResponse:
        node = node_id(request.node_id)
        if self._is_other(node, call):
            return await self._peers.call(node, _DESCRIBE, request, pb.DescribeBrokerLoggersResponse, timeout_of(call))
        return pb.DescribeBrokerLoggersResponse(loggers=convert.described(self._levels.loggers()))

    async def alter(self, request: pb.AlterBrokerLoggersRequest, call: Call) -> pb.AlterBrokerLoggersResponse:
        node, changes = node_id(request.node_id), convert.alterations(request)
        if self._is_other(node, call):
            return await self._peers.call(node, _ALTER, request, pb.AlterBrokerLoggersResponse, timeout_of(call))
        self._levels.alter(changes)
        return pb.AlterBrokerLoggersResponse(loggers=convert.described(self._levels.loggers()))

    def _is_other(self, node: BrokerId, call: Call) -> bool:
        """BrokerIdNotRegisteredError."""
        if node == self._me or is_forwarded(call):
            return False
        self._view.image.require_broker(node)
        return True
