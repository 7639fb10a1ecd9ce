"""Groups for operators: each coordinator serves its own.

The node that serves the client sends the same call to the coordinators, in parallel, and they respond for themselves. A
coordinator that cannot be reached has errors in its rows; the other rows are complete.
"""

from __future__ import annotations

import asyncio
from typing import Final

from streamlog.api.convert.admin import group_admin as convert
from streamlog.api.convert.view import localize, node
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call, Request, Response
from streamlog.config.settings.group_settings import GROUP_CONSUMER_ASSIGNORS
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.errors import GroupIdNotFoundError, InvalidRequestError, StreamlogError
from streamlog.groups.committing import DeleteGroup
from streamlog.groups.placement import OFFSETS_TOPIC
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.services.admin.visible_pages import Round, following_token, round_size, visible_rows
from streamlog.services.common.forwarding import Peers, is_forwarded, only, timeout_of
from streamlog.services.common.gather import call_each
from streamlog.services.common.paging import PAGE_BYTES, page_size

_METHOD: Final = "/streamlog.v1.Admin/"
GROUPS_PER_PAGE: Final = 1_000
_LISTING_BYTES: Final = 32  # of one group in a list, beside its name
_TOKEN_LENGTH_MAX: Final = 1_024
_AT_ONCE: Final = 64


class GroupQueries:
    def __init__(
        self, node_id: BrokerId, coordinator: GroupCoordinator, view: MetadataView, configs: NodeConfigs, peers: Peers
    ) -> None:
        self._me = node_id
        self._coordinator = coordinator
        self._view = view
        self._configs = configs
        self._peers = peers

    # -- lists

    async def list_groups(self, request: pb.ListGroupsRequest, call: Call) -> pb.ListGroupsResponse:
        """The page token is the last name of the previous page, which its caller has seen (`visible_pages`)."""
        if len(request.page_token) > _TOKEN_LENGTH_MAX:
            raise InvalidRequestError(
                "page_token is invalid: pass next_page_token of the previous response unchanged, or leave it empty",
                field="page_token",
            )
        states, size = convert.states(request), page_size(request.page_size, default=GROUPS_PER_PAGE)
        guard, errors = call.info.guard, dict[int, pb.NodeError]()

        async def list_behind(start: str) -> Round[pb.GroupListing]:
            count = round_size(size, guard)
            wanted = pb.ListGroupsRequest(states=request.states, page_token=start, page_size=count)
            answers = [] if is_forwarded(call) else await self._lists_of_others(wanted, call)
            errors.update({error.node_id: error for answer in answers for error in answer.errors})
            own, own_end = await self._own_listings(start, count, states)
            listings = [*own, *(listing for answer in answers for listing in answer.groups)]
            # Beyond the end of a node's page, its groups are unknown.
            ends = [own_end, *(answer.next_page_token for answer in answers)]
            known_end = min((end for end in ends if end), default=None)
            rows = [
                listing
                for listing in sorted(listings, key=lambda listing: listing.group)
                if listing.group > start
                and (known_end is None or listing.group <= known_end)
                and (guard is None or guard.may_list("GROUP", listing.group))
            ]
            return Round(rows=rows, known_end=known_end)

        found = await visible_rows(list_behind, request.page_token, size, is_guarded=guard is not None)
        response = pb.ListGroupsResponse(groups=_page(found.rows, size), errors=errors.values())
        response.next_page_token = following_token(
            found, len(response.groups), lambda listing: listing.group, is_guarded=guard is not None
        )
        return response

    async def _lists_of_others(self, request: pb.ListGroupsRequest, call: Call) -> list[pb.ListGroupsResponse]:
        brokers = self._view.image.brokers.values()
        others = [broker.broker_id for broker in brokers if not broker.fenced and broker.broker_id != self._me]
        return await call_each(others, lambda other: self._ask_for_list(other, request, call), at_once=_AT_ONCE)

    async def _own_listings(
        self, start: str, count: int, states: frozenset[pb.GroupState.ValueType]
    ) -> tuple[list[pb.GroupListing], str]:
        """More than `count` of those behind `start`, and the name up to which they are all; or all, and no name."""
        found: list[pb.GroupListing] = []
        at_once = GROUPS_PER_PAGE if states else min(count + 1, GROUPS_PER_PAGE)  # few may have these states
        while True:
            some = self._coordinator.own_groups(start, at_once)
            listings = [convert.listing(group, self._me) for group in some]
            found += [listing for listing in listings if not states or listing.state in states]
            if not some:
                return found, ""
            start = some[-1].group_id
            if len(found) > count:
                return found, start
            await asyncio.sleep(0)

    async def _ask_for_list(self, other: BrokerId, request: pb.ListGroupsRequest, call: Call) -> pb.ListGroupsResponse:
        try:
            return await self._peers.call(
                other, _METHOD + "ListGroups", request, pb.ListGroupsResponse, timeout_of(call)
            )
        except StreamlogError as error:
            return pb.ListGroupsResponse(errors=[pb.NodeError(node_id=other, error=to_message(error))])

    # -- of single groups

    async def describe_groups(self, request: pb.DescribeGroupsRequest, call: Call) -> pb.DescribeGroupsResponse:
        used = 0

        async def sized(group: str) -> pb.GroupDescription:
            nonlocal used
            if used > PAGE_BYTES:  # it is refused below: the others need not be described
                return pb.GroupDescription(group=group)
            found = await one(group)
            used += found.ByteSize()
            return found

        async def one(group: str) -> pb.GroupDescription:
            try:
                if self._is_own(group, call):
                    return await self._own_description(group, call)
                asked, coordinator = pb.DescribeGroupsRequest(groups=[group]), self._coordinator.coordinator_of(group)
                response = await self._ask(coordinator, "DescribeGroups", asked, pb.DescribeGroupsResponse, call)
                found = only(response.groups, coordinator)
                if found.HasField("coordinator"):
                    localize(found.coordinator, self._view.image, call.info.listener)
                return found
            except StreamlogError as error:
                return convert.not_described(group, error)

        response = pb.DescribeGroupsResponse(
            groups=await call_each(convert.groups(request.groups), sized, at_once=_AT_ONCE)
        )
        if used > PAGE_BYTES and len(response.groups) > 1:
            raise InvalidRequestError(
                f"the descriptions of {len(response.groups)} groups exceed {PAGE_BYTES} bytes: request fewer at a time",
                field="groups",
                limit=PAGE_BYTES,
            )
        return response

    async def _own_description(self, name: str, call: Call) -> pb.GroupDescription:
        group = await self._coordinator.describe(name)
        if group is None:
            raise GroupIdNotFoundError(f"group {name!r} does not exist", group=name)
        topics = self._view.image.topics
        wanted = sorted({p.topic_id for mine in (*group.targets.values(), group.owners) for p in mine})
        names = {topic_id: topics[topic_id].name for topic_id in wanted if topic_id in topics}
        found = convert.description(group, self._configs.node[GROUP_CONSUMER_ASSIGNORS][0], names)
        found.coordinator.CopyFrom(node(self._view.image.brokers[self._me], call.info.listener))
        return found

    async def delete_groups(self, request: pb.DeleteGroupsRequest, call: Call) -> pb.DeleteGroupsResponse:
        async def one(group: str) -> pb.DeleteGroupResult:
            try:
                if self._is_own(group, call):
                    await self._coordinator.delete_group(DeleteGroup(group=group))
                    return pb.DeleteGroupResult(group=group)
                asked, coordinator = pb.DeleteGroupsRequest(groups=[group]), self._coordinator.coordinator_of(group)
                response = await self._ask(coordinator, "DeleteGroups", asked, pb.DeleteGroupsResponse, call)
                return only(response.results, coordinator)
            except StreamlogError as error:
                return convert.not_deleted(group, error)

        return pb.DeleteGroupsResponse(results=await call_each(convert.groups(request.groups), one, at_once=_AT_ONCE))

    async def delete_offsets(self, request: pb.DeleteGroupOffsetsRequest, call: Call) -> pb.DeleteGroupOffsetsResponse:
        command = convert.delete_offsets(request)
        if not self._is_own(command.group, call):
            coordinator = self._coordinator.coordinator_of(command.group)
            return await self._ask(coordinator, "DeleteGroupOffsets", request, pb.DeleteGroupOffsetsResponse, call)
        errors = await self._coordinator.delete_offsets(command)
        return convert.deleted_offsets(command, errors)

    # -- routing

    def _is_own(self, group: str, call: Call) -> bool:
        """Serve it here, even if this node is not the coordinator any more: a forwarded call is not forwarded again.
        GroupIdNotFoundError: without their topic there are no groups.
        """
        if self._view.image.topic_named(OFFSETS_TOPIC) is None:
            raise GroupIdNotFoundError(f"group {group!r} does not exist", group=group)
        return is_forwarded(call) or self._coordinator.coordinator_of(group) == self._me

    async def _ask(
        self, coordinator: BrokerId, method: str, request: Request, response_type: type[Response], call: Call
    ) -> Response:
        return await self._peers.call(coordinator, _METHOD + method, request, response_type, timeout_of(call))


def _page(listings: list[pb.GroupListing], size: int) -> list[pb.GroupListing]:
    used = 0
    for index, listing in enumerate(listings[:size]):
        used += len(listing.group.encode()) + _LISTING_BYTES
        if used > PAGE_BYTES and index:
            return listings[:index]
    return listings[:size]
