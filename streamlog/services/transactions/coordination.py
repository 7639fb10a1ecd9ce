"""streamlog.internal.v1.Coordination: calls between nodes for transactions and quotas."""

from __future__ import annotations

from streamlog.api.convert import transactions as convert
from streamlog.api.pb import coordination_pb2 as pb
from streamlog.api.service import Call, Method, unary
from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.services.quotas.shares import QuotaShares
from streamlog.services.transactions.markers import LocalMarkers


class CoordinationService:
    def __init__(self, coordinator: TransactionCoordinator, markers: LocalMarkers, quotas: QuotaShares) -> None:
        self._coordinator = coordinator
        self._markers = markers
        self._quotas = quotas

    async def add_partitions(self, request: pb.AddPartitionsRequest, call: Call) -> pb.AddPartitionsResponse:
        await self._coordinator.add_partitions(convert.add_request(request))
        return pb.AddPartitionsResponse()

    async def write_markers(self, request: pb.WriteMarkersRequest, call: Call) -> pb.WriteMarkersResponse:
        return convert.markers_written(await self._markers.write(convert.markers(request)))

    async def take_back(self, request: pb.TakeBackRequest, call: Call) -> pb.TakeBackResponse:
        return pb.TakeBackResponse(used=self._markers.take_back(convert.grant(request)))

    def methods(self) -> list[Method]:
        return [
            unary("AddPartitions", pb.AddPartitionsRequest, pb.AddPartitionsResponse, self.add_partitions),
            unary("WriteMarkers", pb.WriteMarkersRequest, pb.WriteMarkersResponse, self.write_markers),
            unary("TakeBack", pb.TakeBackRequest, pb.TakeBackResponse, self.take_back),
            unary("ReportQuotaUse", pb.ReportQuotaUseRequest, pb.ReportQuotaUseResponse, self._quotas.receive),
        ]
