"""Client quotas: streamlog/v1/admin.proto to the controller's command, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.access.quotas import (
    CLIENT_ID_LENGTH_MAX,
    IP_LENGTH_MAX,
    USER_LENGTH_MAX,
    QuotaEntity,
    QuotaFilter,
    QuotaMatch,
    check_entity,
    check_limit,
)
from streamlog.api.convert.fields import each, inside, text
from streamlog.api.pb import admin_pb2 as pb
from streamlog.errors import InvalidRequestError
from streamlog.metadata.access.quota_changes import AlterClientQuotas, QuotaChange

ALTERATIONS_MAX: Final = 100
CHANGES_MAX: Final = 10
_KEY_LENGTH_MAX: Final = 100


def alter_client_quotas(message: pb.AlterClientQuotasRequest) -> AlterClientQuotas:
    """InvalidRequestError."""
    altered = each(message.alterations, "alterations", _alteration, count_min=1, count_max=ALTERATIONS_MAX)
    changes = tuple(change for changes in altered for change in changes)
    return AlterClientQuotas(changes=changes, validate_only=message.validate_only)


def _alteration(message: pb.ClientQuotaAlteration) -> tuple[QuotaChange, ...]:
    entity = checked_entity(message.entity)

    def change(one: pb.ClientQuotaChange) -> QuotaChange:
        key = text(one.key, "key", length_max=_KEY_LENGTH_MAX)
        value = one.value if one.HasField("value") else None
        check_limit(entity, key, value)
        return QuotaChange(entity=entity, key=key, value=value)

    return each(message.changes, "changes", change, count_min=1, count_max=CHANGES_MAX)


def checked_entity(message: pb.ClientQuotaEntity) -> QuotaEntity:
    """InvalidRequestError."""
    with inside("entity"):
        text(message.user, "user", length_max=USER_LENGTH_MAX)
        text(message.client_id, "client_id", length_max=CLIENT_ID_LENGTH_MAX)
        text(message.ip, "ip", length_max=IP_LENGTH_MAX)
        entity = quota_entity(message)
        check_entity(entity)
        return entity


def quota_entity(message: pb.ClientQuotaEntity) -> QuotaEntity:
    """Unchecked."""
    return QuotaEntity(
        user=message.user if message.HasField("user") else None,
        client_id=message.client_id if message.HasField("client_id") else None,
        ip=message.ip if message.HasField("ip") else None,
    )


def quota_filter(message: pb.DescribeClientQuotasRequest) -> QuotaFilter:
    """InvalidRequestError."""
    return QuotaFilter(
        user=_match(message.user, "user", USER_LENGTH_MAX) if message.HasField("user") else None,
        client_id=_match(message.client_id, "client_id", CLIENT_ID_LENGTH_MAX)
        if message.HasField("client_id")
        else None,
        ip=_match(message.ip, "ip", IP_LENGTH_MAX) if message.HasField("ip") else None,
        strict=message.strict,
    )


def _match(message: pb.ClientQuotaMatch, field: str, length_max: int) -> QuotaMatch:
    return QuotaMatch(text(message.name, field, length_max=length_max) if message.HasField("name") else None)


def entity_message(entity: QuotaEntity) -> pb.ClientQuotaEntity:
    return pb.ClientQuotaEntity(user=entity.user, client_id=entity.client_id, ip=entity.ip)


def alterations(changes: Mapping[QuotaEntity, Mapping[str, float | None]]) -> list[pb.ClientQuotaAlteration]:
    return [
        pb.ClientQuotaAlteration(
            entity=entity_message(entity),
            changes=[pb.ClientQuotaChange(key=key, value=value) for key, value in limits.items()],
        )
        for entity, limits in changes.items()
    ]


def match_message(match: QuotaMatch | None) -> pb.ClientQuotaMatch | None:
    return None if match is None else pb.ClientQuotaMatch(name=match.name)


def limits_message(entity: QuotaEntity, limits: Mapping[str, float]) -> pb.ClientQuotas:
    values = [pb.ClientQuotaValue(key=key, value=value) for key, value in sorted(limits.items())]
    return pb.ClientQuotas(entity=entity_message(entity), values=values)


def limits_of(message: pb.ClientQuotas) -> tuple[QuotaEntity, dict[str, float]]:
    """InvalidRequestError for an entity that a newer release made."""
    entity = quota_entity(message.entity)
    if all(part is None for part in entity.parts()):
        raise InvalidRequestError("quotas of an entity that this release does not know", field="entity")
    return entity, {one.key: one.value for one in message.values}
