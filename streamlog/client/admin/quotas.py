"""The client quotas of the admin client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.access.quotas import QuotaEntity, QuotaFilter
from streamlog.api.calls import unary
from streamlog.api.convert.admin import quotas as convert
from streamlog.api.pb import admin_pb2 as pb
from streamlog.client.admin.paging import next_token
from streamlog.client.connection.any_node import AnyNode

_ADMIN: Final = "streamlog.v1.Admin"
_ALTER: Final = unary(f"{_ADMIN}/AlterClientQuotas", pb.AlterClientQuotasResponse)
_DESCRIBE: Final = unary(f"{_ADMIN}/DescribeClientQuotas", pb.DescribeClientQuotasResponse)
_ALL: Final = QuotaFilter()


class QuotaAdmin:
    """How much clients may write and read: of AsyncAdmin, whose `start` sets the attributes."""

    _nodes: AnyNode

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """All or none. For each entity its limits by key; None: removed."""
        request = pb.AlterClientQuotasRequest(alterations=convert.alterations(changes), validate_only=validate_only)
        await self._nodes.ask(_ALTER, request)

    async def describe_client_quotas(self, wanted: QuotaFilter = _ALL) -> dict[QuotaEntity, dict[str, float]]:
        """The limits of the entities that match, by key."""
        found: dict[QuotaEntity, dict[str, float]] = {}
        token = ""
        while True:
            request = pb.DescribeClientQuotasRequest(
                user=convert.match_message(wanted.user),
                client_id=convert.match_message(wanted.client_id),
                ip=convert.match_message(wanted.ip),
                strict=wanted.strict,
                page_token=token,
            )
            response = await self._nodes.ask(_DESCRIBE, request)
            found.update(convert.limits_of(one) for one in response.quotas)
            token = next_token(response, token)
            if not token:
                return found
