"""Entries of the access control lists are added and removed, each request as a whole."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from streamlog.access.acl import Acl, AclFilter, check_acl
from streamlog.errors import FeatureUpdateFailedError, InvalidRequestError
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext, MetadataDecision
from streamlog.metadata.features import ACCESS
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.records import AclRecord, RemoveAclRecord

ACLS_MAX: Final = 20_000
CHANGES_MAX: Final = BATCH_RECORDS


class CreateAcls(Struct, frozen=True, kw_only=True):
    acls: tuple[Acl, ...]


class DeleteAcls(Struct, frozen=True, kw_only=True):
    filters: tuple[AclFilter, ...]  # an entry that matches one of them is removed


def create_acls(command: CreateAcls, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    """InvalidRequestError, FeatureUpdateFailedError. Entries that exist are no error."""
    require_access_level(image)
    for acl in command.acls:
        check_acl(acl)
    new = [acl for acl in dict.fromkeys(command.acls) if acl not in image.acls]
    _check_count(len(new))
    if len(image.acls) + len(new) > ACLS_MAX:
        raise InvalidRequestError(
            f"the cluster would have {len(image.acls) + len(new)} access control list entries, at most {ACLS_MAX} are "
            "allowed: use prefixed entries, or remove some",
            field="acls",
            limit=ACLS_MAX,
        )
    return MetadataDecision(response=None, records=tuple(AclRecord(acl=acl) for acl in new))


def delete_acls(
    command: DeleteAcls, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[tuple[Acl, ...]]:
    """Returns the removed entries."""
    matching = tuple(acl for acl in image.acls if any(one.matches(acl) for one in command.filters))
    _check_count(len(matching))
    return MetadataDecision(response=matching, records=tuple(RemoveAclRecord(acl=acl) for acl in matching))


def require_access_level(image: MetadataImage) -> None:
    """FeatureUpdateFailedError while a node of an older release may be in the cluster."""
    if image.metadata_version < ACCESS:
        raise FeatureUpdateFailedError(
            f"access control lists and users need metadata.version {ACCESS}, the cluster is at "
            f"{image.metadata_version}: upgrade all nodes, then run streamlogctl cluster upgrade",
            field="metadata.version",
            limit=ACCESS,
        )


def _check_count(count: int) -> None:
    if count > CHANGES_MAX:
        raise InvalidRequestError(
            f"the request changes {count} entries, at most {CHANGES_MAX} are allowed: split it, or narrow its filter",
            field="acls",
            limit=CHANGES_MAX,
        )
