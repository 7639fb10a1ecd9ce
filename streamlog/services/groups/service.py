"""The Groups service: coordinators, membership, offsets.

Only the coordinator serves a group; other nodes name it in their error. Programs without a client library use
Records.Consume instead.
"""

from __future__ import annotations

import asyncio
from typing import Final

from streamlog.api.convert import groups as convert
from streamlog.api.convert.fields import distinct, each
from streamlog.api.convert.view import node
from streamlog.api.errors import to_message
from streamlog.api.pb import groups_pb2 as pb
from streamlog.api.service import Call, Method, duplex, unary
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.errors import CoordinatorNotAvailableError, StreamlogError
from streamlog.groups import committing
from streamlog.groups.placement import OFFSETS_TOPIC
from streamlog.metadata.view import MetadataView
from streamlog.services.batches.partition_leader import within
from streamlog.services.common.collaborators import ControllerAccess, InternalTopics
from streamlog.services.common.latest_metadata import APPLY_WAIT_MS, apply_if_unknown
from streamlog.services.groups.membership import Memberships

GROUPS_PER_REQUEST_MAX: Final = 1_000


class GroupsService:
    def __init__(
        self,
        coordinator: GroupCoordinator,
        view: MetadataView,
        link: ControllerAccess,
        internal_topics: InternalTopics,
    ) -> None:
        self._coordinator = coordinator
        self._view = view
        self._link = link
        self._internal_topics = internal_topics
        self._memberships = Memberships(coordinator, view)

    async def find_coordinator(self, request: pb.FindCoordinatorRequest, call: Call) -> pb.FindCoordinatorResponse:
        """The first call creates `__consumer_offsets`."""
        names = each(
            request.groups,
            "groups",
            lambda name: convert.group_id(name, ""),
            count_min=1,
            count_max=GROUPS_PER_REQUEST_MAX,
        )
        distinct(names, "groups")
        if self._view.image.topic_named(OFFSETS_TOPIC) is None:
            await self._internal_topics.create_internal_topic(OFFSETS_TOPIC)
            await self._until_known(call)
        response = pb.FindCoordinatorResponse()
        for name in names:
            self._add_coordinator(response.coordinators.add(group=name))
        return response

    async def _until_known(self, call: Call) -> None:
        """This node may apply the new topic a moment later; if it takes too long, the rows have errors."""
        try:
            async with asyncio.timeout(within(APPLY_WAIT_MS, call)):
                await self._view.wait_until(lambda image: image.topic_named(OFFSETS_TOPIC) is not None)
        except TimeoutError:
            return

    def _add_coordinator(self, row: pb.CoordinatorOf) -> None:
        try:
            leader = self._coordinator.coordinator_of(row.group)
            broker = self._view.image.brokers.get(leader)
            if broker is None:
                raise CoordinatorNotAvailableError(
                    f"node {leader}, the coordinator of group {row.group!r}, is not registered: retry later"
                )
            row.node.CopyFrom(node(broker))
        except StreamlogError as error:
            row.error.CopyFrom(to_message(error))

    async def commit_offsets(self, request: pb.CommitOffsetsRequest, call: Call) -> pb.CommitOffsetsResponse:
        command = convert.commit_request(request)
        await apply_if_unknown((one.partition for one in command.offsets), self._view, self._link, call)
        errors = await self._coordinator.decide(
            command.group, lambda group, context: committing.commit(command, group, context)
        )
        return convert.committed(command, errors)

    async def fetch_offsets(self, request: pb.FetchOffsetsRequest, call: Call) -> pb.FetchOffsetsResponse:
        group, member, partitions = convert.fetch_request(request)
        found = await self._coordinator.fetch_offsets(group, member, partitions, require_stable=request.require_stable)
        return convert.fetched(found)

    def methods(self) -> list[Method]:
        memberships = self._memberships
        return [
            unary("FindCoordinator", pb.FindCoordinatorRequest, pb.FindCoordinatorResponse, self.find_coordinator),
            unary("GroupHeartbeat", pb.GroupHeartbeatRequest, pb.GroupHeartbeatResponse, memberships.heartbeat),
            duplex("GroupMembership", pb.GroupMembershipRequest, pb.GroupMembershipResponse, memberships.stream),
            unary("CommitOffsets", pb.CommitOffsetsRequest, pb.CommitOffsetsResponse, self.commit_offsets),
            unary("FetchOffsets", pb.FetchOffsetsRequest, pb.FetchOffsetsResponse, self.fetch_offsets),
        ]
