"""Access control lists and users: changes by the active controller, lists from this node's image."""

from __future__ import annotations

from itertools import islice
from typing import Final, Protocol

from streamlog.access.acl import AclOperation, AclResourceType
from streamlog.access.acl_rules import AccessDecision
from streamlog.api.convert.admin import access as convert
from streamlog.api.convert.fields import text
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call
from streamlog.metadata.access.user_changes import AlterUser, CreateUser, DeleteUser
from streamlog.metadata.view import MetadataView
from streamlog.services.admin.controller_commands import ControllerDispatch
from streamlog.services.common.paging import entry_token, parse_entry_token

PAGE_ENTRIES: Final = 1_000
_LOOPBACK: Final = "127.0.0.1"
_TEXT_MAX: Final = 1_024


class AccessTest(Protocol):
    """What this node would decide, and why."""

    @property
    def enabled(self) -> bool:
        """False: everyone may do everything."""
        ...

    def explain(
        self, principal: str, host: str, operation: AclOperation, kind: AclResourceType, name: str
    ) -> AccessDecision: ...


class AccessCommands:
    def __init__(self, dispatch: ControllerDispatch, view: MetadataView, access: AccessTest) -> None:
        self._decide = dispatch.decide
        self._view = view
        self._access = access

    async def create_acls(self, request: pb.CreateAclsRequest, call: Call) -> pb.CreateAclsResponse:
        command = convert.create_acls(request)
        response = pb.CreateAclsResponse()
        return await self._decide("CreateAcls", command, request, pb.CreateAclsResponse, lambda _: response, call)

    async def delete_acls(self, request: pb.DeleteAclsRequest, call: Call) -> pb.DeleteAclsResponse:
        command = convert.delete_acls(request)
        return await self._decide(
            "DeleteAcls",
            command,
            request,
            pb.DeleteAclsResponse,
            lambda removed: pb.DeleteAclsResponse(acls=convert.acl_messages(removed)),
            call,
        )

    async def describe_acls(self, request: pb.DescribeAclsRequest, call: Call) -> pb.DescribeAclsResponse:
        wanted = convert.acl_filter(request.filter)
        first = parse_entry_token(request.page_token, pb.AclEntry)
        start = None if first is None else convert.acl_of(first)
        matching = (acl for acl, _ in self._view.image.acls.items(start) if wanted.matches(acl))
        acls = convert.acl_messages(islice(matching, PAGE_ENTRIES + 1))
        following = acls[PAGE_ENTRIES:]
        return pb.DescribeAclsResponse(
            acls=acls[:PAGE_ENTRIES], next_page_token=entry_token(following[0]) if following else ""
        )

    async def test_access(self, request: pb.TestAccessRequest, call: Call) -> pb.TestAccessResponse:
        decision = self._access.explain(
            text(request.principal, "principal", length_max=_TEXT_MAX),
            text(request.host, "host", length_max=_TEXT_MAX) or _LOOPBACK,
            convert.operation(request.operation),
            convert.resource_type(request.resource_type),
            text(request.resource_name, "resource_name", length_max=_TEXT_MAX),
        )
        response = pb.TestAccessResponse(allowed=decision.allowed, reason=decision.reason)
        if decision.acl is not None:
            response.acl.CopyFrom(convert.acl_message(decision.acl))
        return response

    async def create_user(self, request: pb.CreateUserRequest, call: Call) -> pb.CreateUserResponse:
        command = CreateUser(name=request.name, password=convert.password_of(request.password))
        response = pb.CreateUserResponse()
        return await self._decide("CreateUser", command, request, pb.CreateUserResponse, lambda _: response, call)

    async def alter_user(self, request: pb.AlterUserRequest, call: Call) -> pb.AlterUserResponse:
        command = AlterUser(name=request.name, password=convert.password_of(request.password))
        response = pb.AlterUserResponse()
        return await self._decide("AlterUser", command, request, pb.AlterUserResponse, lambda _: response, call)

    async def delete_user(self, request: pb.DeleteUserRequest, call: Call) -> pb.DeleteUserResponse:
        response = pb.DeleteUserResponse()
        command = DeleteUser(name=request.name)
        return await self._decide("DeleteUser", command, request, pb.DeleteUserResponse, lambda _: response, call)

    async def list_users(self, request: pb.ListUsersRequest, call: Call) -> pb.ListUsersResponse:
        return pb.ListUsersResponse(names=list(self._view.image.users))
