"""Lists of access control entries and quotas, while entries are added and removed between two pages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.access.acl import Acl, AclOperation, AclResourceType
from streamlog.access.quotas import PRODUCER_BYTE_RATE, QuotaEntity
from streamlog.api.pb import admin_pb2 as pb
from streamlog.errors import InvalidRequestError
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import (
    AclRecord,
    ClientQuotaRecord,
    MetadataRecord,
    MetadataVersionRecord,
    RemoveAclRecord,
)
from streamlog.metadata.view import MetadataView
from streamlog.model import RaftIndex
from streamlog.services.admin import access, quotas

CALL: Any = None
"""Not looked at."""


class Setup:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(access, "PAGE_ENTRIES", 2)
        monkeypatch.setattr(quotas, "PAGE_ENTITIES", 2)
        self.view = MetadataView()
        self.index = 0
        dispatch: Any = SimpleNamespace(decide=None)
        unused: Any = None
        self.acls = access.AccessCommands(dispatch, self.view, unused)
        self.quotas = quotas.QuotaCommands(dispatch, self.view)
        self.apply(MetadataVersionRecord(level=METADATA_VERSION_MAX))

    def apply(self, *records: MetadataRecord) -> None:
        self.index += 1
        self.view.machine.apply(RaftIndex(self.index), encode_batch(records))

    async def acl_page(self, token: str, principal: str = "") -> tuple[list[str], str]:
        request = pb.DescribeAclsRequest(filter=pb.AclEntry(principal=principal), page_token=token)
        found = await self.acls.describe_acls(request, CALL)
        return [one.resource_name for one in found.acls], found.next_page_token

    async def quota_page(self, token: str) -> tuple[list[str], str]:
        found = await self.quotas.describe(pb.DescribeClientQuotasRequest(page_token=token), CALL)
        return [one.entity.user or "(client id)" for one in found.quotas], found.next_page_token


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(monkeypatch)


def acl(name: str, principal: str = "User:alice") -> Acl:
    return Acl(resource_type=AclResourceType.TOPIC, name=name, principal=principal, operation=AclOperation.READ)


def quota(user: str, value: float | None = 1.0) -> ClientQuotaRecord:
    return ClientQuotaRecord(entity=QuotaEntity(user=user), key=PRODUCER_BYTE_RATE, value=value)


async def test_an_access_control_entry_is_listed_though_others_are_removed(setup: Setup) -> None:
    setup.apply(*(AclRecord(acl=acl(name)) for name in "abcde"), AclRecord(acl=acl("a0", "User:bob")))
    first, token = await setup.acl_page("", "User:alice")
    setup.apply(RemoveAclRecord(acl=acl("a")), RemoveAclRecord(acl=acl("c")))
    second, last = await setup.acl_page(token, "User:alice")
    assert (first, second, last) == (["a", "b"], ["d", "e"], "")


async def test_quotas_are_listed_though_others_are_removed(setup: Setup) -> None:
    by_client = ClientQuotaRecord(entity=QuotaEntity(client_id="x"), key=PRODUCER_BYTE_RATE, value=1.0)
    setup.apply(by_client, *(quota(user) for user in "abcd"))
    first, token = await setup.quota_page("")
    setup.apply(quota("a", None), quota("b", None))
    second, last = await setup.quota_page(token)
    assert (first, second, last) == (["(client id)", "a"], ["c", "d"], "")


@pytest.mark.parametrize("token", ["2", "é", "////", "_w=="])
async def test_a_token_that_no_node_made(setup: Setup, token: str) -> None:
    for page in (setup.acl_page, setup.quota_page):
        with pytest.raises(InvalidRequestError, match="page_token is invalid"):
            await page(token)
