"""What a node uses of limits: streamlog/internal/v1/coordination.proto to values and back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from streamlog.access.quotas import CLIENT_ID_LENGTH_MAX, USER_LENGTH_MAX, VALUE_MAX, QuotaHolder
from streamlog.api.convert.fields import each, text
from streamlog.api.pb import coordination_pb2 as pb
from streamlog.errors import InvalidRequestError
from streamlog.model import INT32_MAX, BrokerId

USES_MAX: Final = 500
_KEY_LENGTH_MAX: Final = 100


class QuotaUse(NamedTuple):
    """Of one limit, on one node, since it reported it last."""

    key: str
    holder: QuotaHolder
    rate: float  # of units a second
    held_up: bool  # someone waited


def report(node_id: BrokerId, uses: Iterable[QuotaUse]) -> pb.ReportQuotaUseRequest:
    """The largest of them: USES_MAX."""
    largest = sorted(uses, key=lambda one: (one.held_up, one.rate), reverse=True)[:USES_MAX]
    return pb.ReportQuotaUseRequest(
        node_id=node_id,
        uses=[
            pb.QuotaUse(
                key=one.key,
                user=one.holder.user,
                client_id=one.holder.client_id,
                rate=one.rate,
                held_up=one.held_up,
            )
            for one in largest
        ],
    )


def reported(message: pb.ReportQuotaUseRequest) -> tuple[BrokerId, tuple[QuotaUse, ...]]:
    """InvalidRequestError."""
    if not 0 <= message.node_id <= INT32_MAX:
        raise InvalidRequestError(f"node_id {message.node_id} is not a node's id", field="node_id")
    return BrokerId(message.node_id), each(message.uses, "uses", _use, count_min=0, count_max=USES_MAX)


def _use(message: pb.QuotaUse) -> QuotaUse:
    if not (math.isfinite(message.rate) and 0 <= message.rate <= VALUE_MAX):
        raise InvalidRequestError(f"rate {message.rate} is not a rate", field="rate")
    user = text(message.user, "user", length_max=USER_LENGTH_MAX)
    client_id = text(message.client_id, "client_id", length_max=CLIENT_ID_LENGTH_MAX)
    holder = QuotaHolder(
        user if message.HasField("user") else None, client_id if message.HasField("client_id") else None
    )
    return QuotaUse(text(message.key, "key", length_max=_KEY_LENGTH_MAX), holder, message.rate, message.held_up)
