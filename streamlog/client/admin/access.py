"""The access control lists and users of the admin client. Passwords are hashed here: nodes get their hashes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamlog.access.acl import Acl, AclFilter, AclOperation, AclResourceType
from streamlog.access.acl_rules import AccessDecision
from streamlog.access.passwords import generated, salted
from streamlog.api.calls import unary
from streamlog.api.convert.admin import access as convert
from streamlog.api.pb import admin_pb2 as pb
from streamlog.client.admin.paging import next_token
from streamlog.client.connection.any_node import AnyNode
from streamlog.ports import Workers

_ADMIN: Final = "streamlog.v1.Admin"
_CREATE_ACLS: Final = unary(f"{_ADMIN}/CreateAcls", pb.CreateAclsResponse)
_DELETE_ACLS: Final = unary(f"{_ADMIN}/DeleteAcls", pb.DeleteAclsResponse)
_DESCRIBE_ACLS: Final = unary(f"{_ADMIN}/DescribeAcls", pb.DescribeAclsResponse)
_TEST_ACCESS: Final = unary(f"{_ADMIN}/TestAccess", pb.TestAccessResponse)
_CREATE_USER: Final = unary(f"{_ADMIN}/CreateUser", pb.CreateUserResponse)
_ALTER_USER: Final = unary(f"{_ADMIN}/AlterUser", pb.AlterUserResponse)
_DELETE_USER: Final = unary(f"{_ADMIN}/DeleteUser", pb.DeleteUserResponse)
_LIST_USERS: Final = unary(f"{_ADMIN}/ListUsers", pb.ListUsersResponse)
_ALL: Final = AclFilter()


class AccessAdmin:
    """Who may do what: of AsyncAdmin, whose `start` sets the attributes."""

    _nodes: AnyNode
    _workers: Workers

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """All or none; those that exist are no error."""
        await self._nodes.ask(_CREATE_ACLS, pb.CreateAclsRequest(acls=convert.acl_messages(acls)))

    async def delete_acls(self, filters: Iterable[AclFilter]) -> tuple[Acl, ...]:
        """Removes the entries that match one of the filters, and returns them."""
        request = pb.DeleteAclsRequest(filters=[convert.filter_message(one) for one in filters])
        response = await self._nodes.ask(_DELETE_ACLS, request)
        return tuple(convert.acl_of(acl) for acl in response.acls)

    async def describe_acls(self, wanted: AclFilter = _ALL) -> tuple[Acl, ...]:
        found: list[Acl] = []
        token = ""
        while True:
            request = pb.DescribeAclsRequest(filter=convert.filter_message(wanted), page_token=token)
            response = await self._nodes.ask(_DESCRIBE_ACLS, request)
            found += [convert.acl_of(acl) for acl in response.acls]
            token = next_token(response, token)
            if not token:
                return tuple(found)

    async def test_access(
        self, principal: str, operation: AclOperation, kind: AclResourceType, name: str, *, host: str = ""
    ) -> AccessDecision:
        """Whether it may, and which entry decides. `host`: an IP address; empty: 127.0.0.1."""
        request = pb.TestAccessRequest(
            principal=principal,
            host=host,
            operation=pb.AclOperation.ValueType(operation),
            resource_type=pb.AclResourceType.ValueType(kind),
            resource_name=name,
        )
        response = await self._nodes.ask(_TEST_ACCESS, request)
        acl = convert.acl_of(response.acl) if response.HasField("acl") else None
        return AccessDecision(response.allowed, acl, response.reason)

    async def create_user(self, name: str, password: str | None = None) -> str:
        """Returns the password; None: a random one."""
        chosen = generated() if password is None else password
        hashed = convert.password_message(await self._workers.run(salted, chosen))
        await self._nodes.ask(_CREATE_USER, pb.CreateUserRequest(name=name, password=hashed))
        return chosen

    async def rotate_user(self, name: str, password: str | None = None) -> str:
        """Another password; the earlier one ends. Returns it; None: a random one."""
        chosen = generated() if password is None else password
        hashed = convert.password_message(await self._workers.run(salted, chosen))
        await self._nodes.ask(_ALTER_USER, pb.AlterUserRequest(name=name, password=hashed))
        return chosen

    async def delete_user(self, name: str) -> None:
        """Its streams end."""
        await self._nodes.ask(_DELETE_USER, pb.DeleteUserRequest(name=name))

    async def list_users(self) -> tuple[str, ...]:
        response = await self._nodes.ask(_LIST_USERS, pb.ListUsersRequest())
        return tuple(response.names)
