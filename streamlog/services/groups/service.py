"""The Groups service: coordinators, membership, offsets.

Only the coordinator serves a group; other nodes name it in their error. Commits and look-ups of offsets by callers that
reach one node alone are forwarded to it (`forwarding.TO_COORDINATOR`), after this node has admitted them. Programs
without a client library use Records.Consume instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from streamlog.aio.timeouts import timeout
from streamlog.api.convert import groups as convert
from streamlog.api.convert.fields import distinct, each
from streamlog.api.convert.view import node
from streamlog.api.errors import to_message
from streamlog.api.pb import groups_pb2 as pb
from streamlog.api.service import Call, Method, Request, Response, duplex, unary
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.errors import CoordinatorNotAvailableError, InvariantError, StreamlogError
from streamlog.groups import committing
from streamlog.groups.placement import OFFSETS_TOPIC
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.services.batches.partition_leader import within
from streamlog.services.common.collaborators import ControllerAccess, InternalTopics
from streamlog.services.common.forwarding import Peers, timeout_of, wants_coordinator
from streamlog.services.common.latest_metadata import APPLY_WAIT_MS, apply_if_unknown
from streamlog.services.groups.membership import Memberships

GROUPS_PER_REQUEST_MAX: Final = 1_000
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, None)
_COMMIT: Final = "/streamlog.v1.Groups/CommitOffsets"
_FETCH: Final = "/streamlog.v1.Groups/FetchOffsets"


class GroupsService:
    def __init__(
        self,
        node_id: BrokerId,
        coordinator: GroupCoordinator,
        view: MetadataView,
        link: ControllerAccess,
        internal_topics: InternalTopics,
        peers: Peers,
    ) -> None:
        self._node_id = node_id
        self._peers = peers
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
        await self._create_offsets_topic(call)
        response = pb.FindCoordinatorResponse()
        for name in names:
            self._add_coordinator(response.coordinators.add(group=name), call.info.listener)
        return response

    async def _create_offsets_topic(self, call: Call) -> None:
        """This node may apply the new topic a moment later; if it takes too long, coordinators are unknown."""
        if self._view.image.topic_named(OFFSETS_TOPIC) is not None:
            return
        await self._internal_topics.create_internal_topic(OFFSETS_TOPIC)
        try:
            async with timeout(within(APPLY_WAIT_MS, call)):
                await self._view.wait_until(lambda image: image.topic_named(OFFSETS_TOPIC) is not None)
        except TimeoutError:
            return

    def _add_coordinator(self, row: pb.CoordinatorOf, listener: str) -> None:
        try:
            leader = self._coordinator.coordinator_of(row.group)
            broker = self._view.image.brokers.get(leader)
            if broker is None:
                raise CoordinatorNotAvailableError(
                    f"node {leader}, the coordinator of group {row.group!r}, is not registered: retry later"
                )
            if broker.listener(listener) is None:
                raise CoordinatorNotAvailableError(
                    f"node {leader}, the coordinator of group {row.group!r}, has no listener {listener}, by which this "
                    "call came: give all nodes listeners of the same names"
                )
            row.node.CopyFrom(node(broker, listener))
        except StreamlogError as error:
            row.error.CopyFrom(to_message(error))

    async def commit_offsets(self, request: pb.CommitOffsetsRequest, call: Call) -> pb.CommitOffsetsResponse:
        command = convert.commit_request(request)

        async def commit() -> pb.CommitOffsetsResponse:
            await apply_if_unknown((one.partition for one in command.offsets), self._view, self._link, call)
            errors = await self._coordinator.decide(
                command.group, lambda group, context: committing.commit(command, group, context)
            )
            return convert.committed(command, errors)

        return await self._by_coordinator(command.group, _COMMIT, request, pb.CommitOffsetsResponse, call, commit)

    async def fetch_offsets(self, request: pb.FetchOffsetsRequest, call: Call) -> pb.FetchOffsetsResponse:
        group, member, partitions = convert.fetch_request(request)

        async def fetch() -> pb.FetchOffsetsResponse:
            found = await self._coordinator.fetch_offsets(
                group, member, partitions, require_stable=request.require_stable
            )
            return convert.fetched(found)

        return await self._by_coordinator(group, _FETCH, request, pb.FetchOffsetsResponse, call, fetch)

    async def _by_coordinator(
        self,
        group: str,
        method: str,
        request: Request,
        response_type: type[Response],
        call: Call,
        work: Callable[[], Awaitable[Response]],
    ) -> Response:
        """By this node, unless the caller wants it forwarded; then again while the coordinator changes, which does no
        harm to a commit of the same offsets.
        """
        if not wants_coordinator(call):
            return await work()
        await self._create_offsets_topic(call)
        for pause_s in _PAUSES_S:
            try:
                coordinator = self._coordinator.coordinator_of(group)
                if coordinator == self._node_id:
                    return await work()
                return await self._peers.call(coordinator, method, request, response_type, timeout_of(call))
            except StreamlogError as error:
                if not error.retriable or pause_s is None or timeout_of(call) < pause_s:
                    raise
                await asyncio.sleep(pause_s)
        raise InvariantError("the last attempt returns or raises")

    def methods(self) -> list[Method]:
        memberships = self._memberships
        return [
            unary("FindCoordinator", pb.FindCoordinatorRequest, pb.FindCoordinatorResponse, self.find_coordinator),
            unary("GroupHeartbeat", pb.GroupHeartbeatRequest, pb.GroupHeartbeatResponse, memberships.heartbeat),
            duplex("GroupMembership", pb.GroupMembershipRequest, pb.GroupMembershipResponse, memberships.stream),
            unary("CommitOffsets", pb.CommitOffsetsRequest, pb.CommitOffsetsResponse, self.commit_offsets),
            unary("FetchOffsets", pb.FetchOffsetsRequest, pb.FetchOffsetsResponse, self.fetch_offsets),
        ]
