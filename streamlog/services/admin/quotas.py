"""Client quotas: changes by the active controller, descriptions from this node's image."""

from __future__ import annotations

from itertools import islice
from typing import Final

from streamlog.api.convert.admin import quotas as convert
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call
from streamlog.metadata.view import MetadataView
from streamlog.services.admin.controller_commands import ControllerDispatch
from streamlog.services.common.paging import entry_token, parse_entry_token

PAGE_ENTITIES: Final = 1_000


class QuotaCommands:
    def __init__(self, dispatch: ControllerDispatch, view: MetadataView) -> None:
        self._decide = dispatch.decide
        self._view = view

    async def alter(self, request: pb.AlterClientQuotasRequest, call: Call) -> pb.AlterClientQuotasResponse:
        command = convert.alter_client_quotas(request)
        response = pb.AlterClientQuotasResponse()
        return await self._decide(
            "AlterClientQuotas", command, request, pb.AlterClientQuotasResponse, lambda _: response, call
        )

    async def describe(self, request: pb.DescribeClientQuotasRequest, call: Call) -> pb.DescribeClientQuotasResponse:
        wanted = convert.quota_filter(request)
        first = parse_entry_token(request.page_token, pb.ClientQuotaEntity)
        start = None if first is None else convert.quota_entity(first)
        matching = (item for item in self._view.image.quotas.items(start) if wanted.matches(item[0]))
        page = list(islice(matching, PAGE_ENTITIES + 1))
        following = [convert.entity_message(entity) for entity, _ in page[PAGE_ENTITIES:]]
        return pb.DescribeClientQuotasResponse(
            quotas=[convert.limits_message(entity, dict(limits.items())) for entity, limits in page[:PAGE_ENTITIES]],
            next_page_token=entry_token(following[0]) if following else "",
        )
