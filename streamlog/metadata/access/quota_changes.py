"""Limits of users, client ids and addresses are set and removed, each request as a whole."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from streamlog.access.quotas import QuotaEntity, check_entity, check_limit
from streamlog.errors import FeatureUpdateFailedError, InvalidRequestError
from streamlog.metadata.decision import ControllerContext, MetadataDecision
from streamlog.metadata.features import ADDRESS_QUOTAS, QUOTAS
from streamlog.metadata.image.image import NO_LIMITS, MetadataImage
from streamlog.metadata.records import ClientQuotaRecord

ENTITIES_MAX: Final = 10_000


class QuotaChange(Struct, frozen=True, kw_only=True):
    entity: QuotaEntity
    key: str
    value: float | None  # None: removed


class AlterClientQuotas(Struct, frozen=True, kw_only=True):
    changes: tuple[QuotaChange, ...]
    validate_only: bool = False


def alter_client_quotas(
    command: AlterClientQuotas, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[None]:
    """InvalidRequestError, FeatureUpdateFailedError. To remove a limit that is not set is no error."""
    of_address = any(change.entity.ip is not None for change in command.changes)
    needed, what = (ADDRESS_QUOTAS, "quotas of addresses") if of_address else (QUOTAS, "quotas")
    if image.metadata_version < needed:
        raise FeatureUpdateFailedError(
            f"{what} need metadata.version {needed}, the cluster is at {image.metadata_version}: upgrade all nodes, "
            "then run streamlogctl cluster upgrade",
            field="metadata.version",
            limit=needed,
        )
    records = []
    seen: set[tuple[QuotaEntity, str]] = set()
    for change in command.changes:
        check_entity(change.entity)
        check_limit(change.entity, change.key, change.value)
        if (change.entity, change.key) in seen:
            raise InvalidRequestError(
                f"{change.key} of {change.entity} is changed twice in one request", field="changes"
            )
        seen.add((change.entity, change.key))
        if image.quotas.get(change.entity, NO_LIMITS).get(change.key) != change.value:
            records.append(ClientQuotaRecord(entity=change.entity, key=change.key, value=change.value))
    new = {change.entity for change in command.changes if change.value is not None} - set(image.quotas)
    if len(image.quotas) + len(new) > ENTITIES_MAX:
        raise InvalidRequestError(
            f"the cluster would have quotas of {len(image.quotas) + len(new)} users, client ids and addresses, at most "
            f"{ENTITIES_MAX} are allowed: use the defaults, or remove some",
            field="entity",
            limit=ENTITIES_MAX,
        )
    return MetadataDecision(response=None, records=() if command.validate_only else tuple(records))
