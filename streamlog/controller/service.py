"""streamlog.internal.v1.Controller: the methods that nodes call at the active controller. Served by every voter.

A voter that is not the active controller answers NOT_CONTROLLER, and names the active one if it knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.api.convert import controller as convert
from streamlog.api.pb import controller_pb2 as pb
from streamlog.api.service import Call, Service, unary
from streamlog.controller.active import ActiveController
from streamlog.controller.link import FORWARDED
from streamlog.errors import InvalidRequestError, NotControllerError
from streamlog.metadata.cluster import AllocateProducerIds
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId
from streamlog.ports import CallInfo, Clock, UnaryHandler
from streamlog.tls.callers import check_speaker

FORWARD_BYTES_MAX: Final = (1 << 20) + 1024
"""A client's request may have 1 MiB (api.service.REQUEST_BYTES_MAX)."""


class ControllerService:
    """`admin`: this node's handlers of the streamlog.v1.Admin methods that may be forwarded here, by full name."""

    def __init__(self, active: ActiveController, view: MetadataView, admin: Mapping[str, UnaryHandler]) -> None:
        self._active = active
        self._view = view
        self._admin = admin

    def service(self, clock: Clock) -> Service:
        return Service(
            pb.DESCRIPTOR.services_by_name["Controller"],
            clock,
            [
                unary("Register", pb.RegisterRequest, pb.RegisterResponse, self._register),
                unary("Heartbeat", pb.HeartbeatRequest, pb.HeartbeatResponse, self._heartbeat),
                unary("AlterPartition", pb.AlterPartitionRequest, pb.AlterPartitionResponse, self._alter_partition),
                unary(
                    "ReportOfflineReplicas",
                    pb.ReportOfflineReplicasRequest,
                    pb.ReportOfflineReplicasResponse,
                    self._report_offline_replicas,
                ),
                unary(
                    "ResignLeadership",
                    pb.ResignLeadershipRequest,
                    pb.ResignLeadershipResponse,
                    self._resign_leadership,
                ),
                unary(
                    "AllocateProducerIds",
                    pb.AllocateProducerIdsRequest,
                    pb.AllocateProducerIdsResponse,
                    self._allocate_producer_ids,
                ),
                unary(
                    "CreateInternalTopic",
                    pb.CreateInternalTopicRequest,
                    pb.CreateInternalTopicResponse,
                    self._create_internal_topic,
                ),
                unary("Suspect", pb.SuspectRequest, pb.SuspectResponse, self._suspect),
                unary("ReadIndex", pb.ReadIndexRequest, pb.ReadIndexResponse, self._read_index),
                unary(
                    "Forward",
                    pb.ForwardRequest,
                    pb.ForwardResponse,
                    self._forward,
                    request_bytes_max=FORWARD_BYTES_MAX,
                ),
            ],
        )

    async def _register(self, request: pb.RegisterRequest, call: Call) -> pb.RegisterResponse:
        check_speaker(call.info, request.node_id)
        done = await self._active.register(convert.register(request))
        return pb.RegisterResponse(broker_epoch=done.broker_epoch, session_timeout_ms=done.session_timeout_ms)

    async def _heartbeat(self, request: pb.HeartbeatRequest, call: Call) -> pb.HeartbeatResponse:
        check_speaker(call.info, request.node_id)
        return convert.to_heartbeat_response(await self._active.heartbeat(convert.heartbeat(request)))

    async def _alter_partition(self, request: pb.AlterPartitionRequest, call: Call) -> pb.AlterPartitionResponse:
        check_speaker(call.info, request.node_id)
        results = await self._active.submit(convert.alter_partition(request))
        return convert.to_isr_results(results, self._view.image)

    async def _report_offline_replicas(
        self, request: pb.ReportOfflineReplicasRequest, call: Call
    ) -> pb.ReportOfflineReplicasResponse:
        check_speaker(call.info, request.node_id)
        await self._active.submit(convert.offline_replicas(request))
        return pb.ReportOfflineReplicasResponse()

    async def _resign_leadership(self, request: pb.ResignLeadershipRequest, call: Call) -> pb.ResignLeadershipResponse:
        check_speaker(call.info, request.node_id)
        await self._active.submit(convert.resign_leadership(request))
        return pb.ResignLeadershipResponse()

    async def _allocate_producer_ids(
        self, request: pb.AllocateProducerIdsRequest, call: Call
    ) -> pb.AllocateProducerIdsResponse:
        check_speaker(call.info, request.node_id)
        command = AllocateProducerIds(
            broker_id=BrokerId(request.node_id), broker_epoch=BrokerEpoch(request.broker_epoch)
        )
        return convert.to_producer_ids(await self._active.submit(command))

    async def _create_internal_topic(
        self, request: pb.CreateInternalTopicRequest, call: Call
    ) -> pb.CreateInternalTopicResponse:
        return pb.CreateInternalTopicResponse(topic_id=await self._active.create_internal_topic(request.name))

    async def _suspect(self, request: pb.SuspectRequest, call: Call) -> pb.SuspectResponse:
        await self._active.suspect(BrokerId(request.node_id), BrokerEpoch(request.broker_epoch))
        return pb.SuspectResponse()

    async def _read_index(self, request: pb.ReadIndexRequest, call: Call) -> pb.ReadIndexResponse:
        return pb.ReadIndexResponse(applied_index=await self._active.read_index())

    async def _forward(self, request: pb.ForwardRequest, call: Call) -> pb.ForwardResponse:
        handler = self._admin.get(request.method)
        if handler is None:
            raise InvalidRequestError(f"{request.method} cannot be forwarded", field="method")
        if not self._active.is_active:
            raise NotControllerError(
                "this node is not the active controller",
                leader=self._view.controller,
                address=self._view.controller_address,
            )
        info = call.info
        forwarded = CallInfo(
            method=request.method,
            peer=info.peer,
            metadata={**info.metadata, FORWARDED: "1"},
            identity=info.identity,
            names=info.names,
            deadline=info.deadline,
        )
        response = await handler(request.request, forwarded)
        return pb.ForwardResponse(applied_index=self._view.image.index, response=response)
