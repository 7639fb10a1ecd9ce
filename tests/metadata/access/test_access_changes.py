"""Decisions on access control lists and users; that they survive a snapshot."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from streamlog.access.acl import AclFilter, AclOperation, AclResourceType, PatternType
from streamlog.access.passwords import NO_PASSWORD
from streamlog.errors import (
    DuplicateResourceError,
    FeatureUpdateFailedError,
    InvalidRequestError,
    ResourceNotFoundError,
)
from streamlog.metadata.access import acl_changes
from streamlog.metadata.access.acl_changes import CreateAcls, DeleteAcls
from streamlog.metadata.access.user_changes import AlterUser, CreateUser, DeleteUser
from streamlog.metadata.controller import decide
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot
from streamlog.metadata.records import MetadataVersion
from tests.metadata.examples import ACL
from tests.metadata.rig import Rig

LITERAL = replace(ACL, pattern_type=PatternType.LITERAL)


def test_entries_are_added_once_and_removed_by_filter() -> None:
    rig = Rig()
    rig.do(CreateAcls(acls=(ACL, LITERAL, ACL)))
    before = rig.image
    rig.do(CreateAcls(acls=(ACL,)))
    assert list(rig.image.acls) == sorted([ACL, LITERAL])
    assert rig.image.acls is before.acls, "nothing has changed"
    assert rig.do(DeleteAcls(filters=(AclFilter(principal="User:other"),))) == ()
    assert rig.do(DeleteAcls(filters=(AclFilter(pattern_type=PatternType.LITERAL),))) == (LITERAL,)
    assert rig.do(DeleteAcls(filters=(AclFilter(name="topic", match=True),))) == (ACL,)
    assert len(rig.image.acls) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "alice"},
        {"principal": "User:"},
        {"principal": "Group:a"},
        {"name": ""},
        {"name": "x" * 250},
        {"host": ""},
        {"operation": AclOperation.CLUSTER_ACTION},
        {"resource_type": AclResourceType.CLUSTER},
        {"resource_type": AclResourceType.GROUP, "operation": AclOperation.WRITE},
    ],
    ids=str,
)
def test_entries_that_could_never_apply_are_refused(change: dict[str, object]) -> None:
    rig = Rig()
    with pytest.raises(InvalidRequestError):
        rig.do(CreateAcls(acls=(LITERAL, replace(LITERAL, **change))))
    assert len(rig.image.acls) == 0


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "ACLS_MAX", 2)
    rig = Rig()
    rig.do(CreateAcls(acls=(ACL, LITERAL)))
    with pytest.raises(InvalidRequestError, match="would have 3"):
        rig.do(CreateAcls(acls=(replace(ACL, name="other"),)))


def test_users() -> None:
    rig, other = Rig(), replace(NO_PASSWORD, salt=b"0" * 16)
    rig.do(CreateUser(name="alice", password=NO_PASSWORD))
    with pytest.raises(DuplicateResourceError, match="user rotate alice"):
        rig.do(CreateUser(name="alice", password=other))
    rig.do(AlterUser(name="alice", password=other))
    assert dict(rig.image.users.items()) == {"alice": other}
    rig.do(DeleteUser(name="alice"))
    for command in (DeleteUser(name="alice"), AlterUser(name="alice", password=other)):
        with pytest.raises(ResourceNotFoundError, match="user list"):
            rig.do(command)
    with pytest.raises(InvalidRequestError):
        rig.do(CreateUser(name="a b", password=other))


def test_a_cluster_of_an_earlier_level_gets_neither() -> None:
    rig = Rig()
    old = replace(rig.image, metadata_version=MetadataVersion(2))
    for command in (CreateAcls(acls=(ACL,)), CreateUser(name="alice", password=NO_PASSWORD)):
        with pytest.raises(FeatureUpdateFailedError, match="cluster upgrade"):
            decide(command, old, rig.context)


def test_a_snapshot_has_both() -> None:
    rig = Rig()
    rig.do(CreateAcls(acls=(ACL, LITERAL)))
    rig.do(CreateUser(name="alice", password=NO_PASSWORD))
    found = decode_snapshot(encode_snapshot(rig.image))
    assert list(found.acls) == list(rig.image.acls)
    assert dict(found.users.items()) == {"alice": NO_PASSWORD}
    assert list(encode_snapshot(found)) == list(encode_snapshot(rig.image))
