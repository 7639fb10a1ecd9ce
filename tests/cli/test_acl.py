"""`streamlogctl acl`: which entries the options select."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Final

import pytest
from click.testing import CliRunner, Result

from streamlog.access.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from streamlog.cli.security import acl as commands
from streamlog.cli.security import user as users
from streamlog.errors import ClusterAuthorizationError
from tests.cli.served import USAGE

_O: Final = AclOperation


def entry(
    principal: str,
    operation: AclOperation,
    name: str = "orders",
    kind: AclResourceType = AclResourceType.TOPIC,
    *,
    host: str = "*",
    deny: bool = False,
    prefixed: bool = False,
) -> Acl:
    return Acl(
        resource_type=kind,
        name=name,
        pattern_type=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal=f"User:{principal}",
        operation=operation,
        permission=AclPermission.DENY if deny else AclPermission.ALLOW,
        host=host,
    )


READ: Final = entry("alice", _O.READ)
WRITE: Final = entry("alice", _O.WRITE)
DENIED: Final = entry("alice", _O.WRITE, host="10.0.0.1", deny=True)
ELSEWHERE: Final = entry("alice", _O.WRITE, "bills")
PREFIXED: Final = entry("alice", _O.WRITE, "ord", prefixed=True)
OTHER: Final = entry("bob", _O.WRITE)
HOST: Final = entry("bob", _O.READ, host="10.0.0.1")
CLUSTER: Final = entry("bob", _O.IDEMPOTENT_WRITE, CLUSTER_NAME, AclResourceType.CLUSTER)
ALL: Final = (READ, WRITE, DENIED, ELSEWHERE, PREFIXED, OTHER, HOST, CLUSTER)


class Entries:
    def __init__(self) -> None:
        self.left = list(ALL)
        self.authorizer = "StandardAuthorizer"

    async def describe_node(self) -> SimpleNamespace:
        return SimpleNamespace(node_id=1)

    async def describe_configs(self, _resources: object, *, names: list[str]) -> list[SimpleNamespace]:
        assert names == ["authorizer.class.name"]
        if not self.authorizer:
            raise ClusterAuthorizationError("User:x may not DESCRIBE_CONFIGS cluster")
        return [SimpleNamespace(error=None, entries=[SimpleNamespace(value=self.authorizer)])]

    async def create_acls(self, entries: list[Acl]) -> None:
        self.left += entries

    async def create_user(self, _name: str, _password: str | None) -> str:
        return "secret"

    async def describe_acls(self, wanted: AclFilter) -> tuple[Acl, ...]:
        return tuple(one for one in self.left if wanted.matches(one))

    async def delete_acls(self, filters: list[AclFilter]) -> tuple[Acl, ...]:
        removed = tuple(one for one in self.left if any(wanted.matches(one) for wanted in filters))
        self.left = [one for one in self.left if one not in removed]
        return removed


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Entries:
    entries = Entries()

    async def done(work: Callable[[Entries], Awaitable[object]]) -> object:
        return await work(entries)

    for module in (commands, users):
        monkeypatch.setattr(module, "with_admin", lambda _target, work: asyncio.run(done(work)))
    return entries


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands.acl, arguments)


@pytest.mark.parametrize(
    ("options", "selected"),
    [
        ("--principal User:alice --topic orders", {READ, WRITE, DENIED}),
        ("--principal User:alice", {READ, WRITE, DENIED, ELSEWHERE, PREFIXED}),
        ("--topic orders --operation Write", {WRITE, DENIED, OTHER}),
        ("--topic orders --operation Write --operation Read --principal User:bob", {OTHER, HOST}),
        ("--topic orders --allow-host 10.0.0.1", {HOST}),
        ("--topic orders --deny-host 10.0.0.1", {DENIED}),
        ("--topic orders --producer", {WRITE, DENIED, OTHER}),
        ("--topic orders --producer --idempotent --resource-pattern-type literal", {WRITE, DENIED, OTHER, CLUSTER}),
        ("--topic orders --resource-pattern-type match --principal User:alice", {READ, WRITE, DENIED, PREFIXED}),
        ("--principal User:alice --resource-pattern-type prefixed", {PREFIXED}),
        ("--cluster", {CLUSTER}),
    ],
)
def test_every_option_narrows_what_is_listed_and_removed(entries: Entries, options: str, selected: set[Acl]) -> None:
    listed = run("list", "-o", "json", *options.split())
    assert listed.exit_code == 0, listed.output
    assert listed.stdout.count('"principal"') == len(selected)
    removed = run("remove", *options.split())
    assert removed.exit_code == 0, removed.output
    assert set(entries.left) == set(ALL) - selected


def test_entries_that_add_makes_are_removed_one_by_one(entries: Entries) -> None:
    assert run("remove", "--allow-principal", "User:alice", "--operation", "Write", "--topic", "orders").exit_code == 0
    assert set(entries.left) == set(ALL) - {WRITE}


def test_all_entries_that_allow_a_principal_are_listed(entries: Entries) -> None:
    listed = run("list", "-o", "json", "--allow-principal", "User:alice", "--topic", "orders")
    assert listed.stdout.count('"principal"') == len({READ, WRITE})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "Give what to remove"),
        ("--resource-pattern-type literal", "Give what to remove"),
        ("--operation Write", "Give what to remove"),
        ("--allow-host 10.0.0.1", "Give what to remove"),
        ("--topic orders --idempotent", "--idempotent needs --producer"),
        ("--topic orders --principal User:bob --allow-principal User:alice", "--principal cannot be given with"),
        ("--topic orders --allow-principal User:alice --deny-host 10.0.0.1", "--deny-host needs --deny-principal"),
        ("--principal User:bob --resource-pattern-type match", "needs a resource"),
    ],
)
def test_what_is_not_precise_removes_nothing(entries: Entries, options: str, said: str) -> None:
    done = run("remove", *options.split())
    assert done.exit_code == USAGE
    assert said in done.output
    assert entries.left == list(ALL)


@pytest.mark.parametrize("authorizer", ["none", "StandardAuthorizer", ""])  # the last: its name cannot be read
def test_entries_and_users_that_have_no_effect_yet(entries: Entries, authorizer: str) -> None:
    entries.authorizer = authorizer
    done = [
        run("add", "--topic", "t", "--deny-principal", "User:*", "--operation", "All"),
        run("list"),
        run("remove", "--topic", "t"),
        CliRunner().invoke(users.user, ["create", "x"]),
    ]
    assert [one.exit_code for one in done] == [0] * 4
    assert [("no authorizer" in one.stderr) for one in done] == [authorizer == "none"] * 4
    assert not any("authorizer" in one.stdout for one in done)
