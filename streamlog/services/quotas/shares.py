"""How a limit is divided among the nodes, so that it holds for all of them together.

    each second, of each limit that is in use: how much of it this node used, and whether someone waited --> others
    share = (limit - used by nodes where no one waits) / nodes where someone waits, this one among them

So nodes where clients want more than they get have equal shares of what the others leave. A limit that comes into use
begins with an equal share of each active node: others may just begin, too. A node from which no report was received for
REPORT_MAX_S counts as using nothing; nodes that cannot reach each other divide nothing among them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from streamlog.access.quotas import QuotaHolder
from streamlog.api.convert import quota_use as convert
from streamlog.api.convert.quota_use import QuotaUse
from streamlog.api.pb import coordination_pb2 as pb
from streamlog.api.service import Call
from streamlog.errors import StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.ports import Clock
from streamlog.services.common.forwarding import Peers
from streamlog.services.quotas.limits import QuotaLimits
from streamlog.tls.callers import check_speaker

EXCHANGE_S: Final = 1.0
REPORT_MAX_S: Final = 3.0
SHARE_MIN: Final = 0.01
"""Of a limit: a node never gets nothing, whatever others say."""
_METHOD: Final = "/streamlog.internal.v1.Coordination/ReportQuotaUse"


def share_of(limit: float, others: Iterable[QuotaUse]) -> float:
    """Of one node, while it is in use there."""
    used = held_up = 0.0
    for one in others:
        if one.held_up:
            held_up += 1
        else:
            used += one.rate
    return max(limit * SHARE_MIN, (limit - used) / (1 + held_up))


class QuotaShares:
    """Of one node. `run` it beside the services."""

    def __init__(self, node_id: BrokerId, view: MetadataView, limits: QuotaLimits, peers: Peers, clock: Clock) -> None:
        self._node_id = node_id
        self._view = view
        self._limits = limits
        self._peers = peers
        self._clock = clock
        self._reports: dict[BrokerId, tuple[float, Mapping[tuple[str, QuotaHolder], QuotaUse]]] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(EXCHANGE_S)
            if self._limits.buckets:
                await self._exchange()

    async def receive(self, request: pb.ReportQuotaUseRequest, call: Call) -> pb.ReportQuotaUseResponse:
        """What another node uses. RpcError, InvalidRequestError."""
        node, uses = convert.reported(request)
        check_speaker(call.info, node)
        if node in self._view.image.brokers:
            self._reports[node] = self._clock.monotonic(), {(one.key, one.holder): one for one in uses}
        return pb.ReportQuotaUseResponse()

    async def _exchange(self) -> None:
        uses = self._limits.take_use()
        if uses:
            request = convert.report(self._node_id, uses)
            others = [one.broker_id for one in self._view.image.brokers.values() if not one.fenced]
            await asyncio.gather(*(self._send(node, request) for node in others if node != self._node_id))
        fresh_from = self._clock.monotonic() - REPORT_MAX_S
        self._reports = {node: one for node, one in self._reports.items() if one[0] >= fresh_from}
        reports = [uses for _, uses in self._reports.values()]
        self._limits.divide(lambda known, limit: share_of(limit, (uses[known] for uses in reports if known in uses)))

    async def _send(self, node: BrokerId, request: pb.ReportQuotaUseRequest) -> None:
        try:
            await self._peers.call(node, _METHOD, request, pb.ReportQuotaUseResponse, EXCHANGE_S)
        except StreamlogError:
            pass  # it counts as using nothing there, until it gets through
