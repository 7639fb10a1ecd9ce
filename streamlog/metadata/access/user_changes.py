"""Users with passwords are created, get other passwords, and are deleted. Their entries in the access control lists are
not: a user that is created again has them again, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from streamlog.access.passwords import SaltedPassword, check_user
from streamlog.errors import DuplicateResourceError, InvalidRequestError, ResourceNotFoundError
from streamlog.metadata.access.acl_changes import require_access_level
from streamlog.metadata.decision import ControllerContext, MetadataDecision
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.records import RemoveUserRecord, UserRecord

USERS_MAX: Final = 10_000


class CreateUser(Struct, frozen=True, kw_only=True):
    name: str
    password: SaltedPassword


class AlterUser(Struct, frozen=True, kw_only=True):
    """Another password. The earlier one ends with it."""

    name: str
    password: SaltedPassword


class DeleteUser(Struct, frozen=True, kw_only=True):
    name: str


def create_user(command: CreateUser, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    """InvalidRequestError, FeatureUpdateFailedError, DuplicateResourceError."""
    require_access_level(image)
    check_user(command.name, command.password)
    if command.name in image.users:
        raise DuplicateResourceError(
            f"user {command.name} exists; give it another password with: streamlogctl user rotate {command.name}",
            field="name",
        )
    if len(image.users) >= USERS_MAX:
        raise InvalidRequestError(
            f"the cluster has {USERS_MAX} users, the maximum: delete one first", field="name", limit=USERS_MAX
        )
    return MetadataDecision(response=None, records=(UserRecord(name=command.name, password=command.password),))


def alter_user(command: AlterUser, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    """InvalidRequestError, ResourceNotFoundError."""
    check_user(command.name, command.password)
    _require(command.name, image)
    return MetadataDecision(response=None, records=(UserRecord(name=command.name, password=command.password),))


def delete_user(command: DeleteUser, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    """ResourceNotFoundError."""
    _require(command.name, image)
    return MetadataDecision(response=None, records=(RemoveUserRecord(name=command.name),))


def _require(name: str, image: MetadataImage) -> None:
    if name not in image.users:
        raise ResourceNotFoundError(
            f"there is no user {name[:128]!r}; list the users with: streamlogctl user list", field="name"
        )
