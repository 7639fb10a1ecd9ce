"""`streamlogctl acl`: the access control lists, with the flags of kafka-acls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click
from msgspec import Struct

from streamlog.access.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from streamlog.cli.common.nouns import Noun
from streamlog.cli.common.output import Output, Row, output_option, say, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.security.effect import say_without_authorizer
from streamlog.client.admin.async_admin import AsyncAdmin

Command = TypeVar("Command", bound=Callable[..., object])

_COLUMNS: Final = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
_O: Final = AclOperation
_TOPIC: Final = AclResourceType.TOPIC
_GROUP: Final = AclResourceType.GROUP
_TRANSACTION: Final = AclResourceType.TRANSACTIONAL_ID
_CLUSTER: Final = AclResourceType.CLUSTER
_PATTERNS: Final = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED}
_Who = tuple[str | None, AclPermission | None, tuple[str, ...]]


@click.group(cls=Noun)
def acl() -> None:
    """Who may do what with topics, groups, transactional ids and the cluster (authorizer.class.name)."""


class _Given(Struct, frozen=True, kw_only=True):
    """What the options say."""

    resources: tuple[tuple[AclResourceType, str], ...]
    pattern: str | None
    allowed: tuple[str, ...]
    denied: tuple[str, ...]
    allow_hosts: tuple[str, ...]
    deny_hosts: tuple[str, ...]
    operations: tuple[AclOperation, ...]
    producer: bool
    consumer: bool
    idempotent: bool

    def acls(self) -> list[Acl]:
        """UsageError."""
        pattern = _PATTERNS.get(self.pattern or "literal")
        if pattern is None:
            raise click.UsageError(
                f"--resource-pattern-type {self.pattern} only selects entries: give literal or prefixed."
            )
        if not (self.allowed or self.denied):
            raise click.UsageError("Give a principal: --allow-principal User:NAME, or --deny-principal.")
        return list(
            dict.fromkeys(
                Acl(
                    resource_type=kind,
                    name=name,
                    pattern_type=PatternType.LITERAL if kind is _CLUSTER else pattern,
                    principal=principal,
                    operation=operation,
                    permission=permission,
                    host=host,
                )
                for kind, name, operation in self._rights()
                for principal, permission, hosts in self._who()
                for host in hosts or (WILDCARD,)
            )
        )

    def filters(self, principals: tuple[str, ...]) -> list[AclFilter]:
        """Of the entries to which all that is given applies. UsageError."""
        if principals and self._who():
            raise click.UsageError("--principal cannot be given with --allow-principal or --deny-principal.")
        match = self.pattern == "match"
        if match and not self.resources:
            raise click.UsageError("--resource-pattern-type match needs a resource, such as --topic NAME.")
        who: list[_Who] = [*self._who()]
        for one in () if who else principals or (None,):
            some: list[_Who] = [
                (one, AclPermission.ALLOW, self.allow_hosts),
                (one, AclPermission.DENY, self.deny_hosts),
            ]
            who += [of for of in some if of[2]] or [(one, None, ())]
        return [
            AclFilter(
                resource_type=kind,
                name=name,
                pattern_type=None if kind is _CLUSTER else _PATTERNS.get(self.pattern or "any"),
                match=match,
                principal=principal,
                operation=operation,
                permission=permission,
                host=host,
            )
            for kind, name, operation in self._selected()
            for principal, permission, hosts in who
            for host in hosts or (None,)
        ]

    def _who(self) -> list[tuple[str, AclPermission, tuple[str, ...]]]:
        """Principals, and their hosts. UsageError."""
        if self.idempotent and not self.producer:
            raise click.UsageError("--idempotent needs --producer.")
        if self.allowed or self.denied:
            for flag, hosts, of in (("allow", self.allow_hosts, self.allowed), ("deny", self.deny_hosts, self.denied)):
                if hosts and not of:
                    raise click.UsageError(f"--{flag}-host needs --{flag}-principal User:NAME.")
        return [
            *((one, AclPermission.ALLOW, self.allow_hosts) for one in self.allowed),
            *((one, AclPermission.DENY, self.deny_hosts) for one in self.denied),
        ]

    def _rights(self) -> Iterator[tuple[AclResourceType, str, AclOperation]]:
        if self.producer or self.consumer:
            yield from self._rights_of_clients()
            return
        if not self.resources:
            raise click.UsageError("Give a resource: --topic, --group, --transactional-id or --cluster.")
        for kind, name in self.resources:
            for operation in self.operations or (_O.ALL,):
                yield kind, name, operation

    def _selected(self) -> Iterator[tuple[AclResourceType | None, str | None, AclOperation | None]]:
        if self.producer or self.consumer:
            yield from self._rights_of_clients()
            return
        for kind, name in self.resources or ((None, None),):
            for operation in self.operations or (None,):
                yield kind, name, operation

    def _rights_of_clients(self) -> Iterator[tuple[AclResourceType, str, AclOperation]]:
        if self.operations:
            raise click.UsageError("--operation cannot be given with --producer or --consumer, which have their own.")
        names = {kind: [name for of, name in self.resources if of is kind] for kind in AclResourceType}
        if not names[_TOPIC]:
            raise click.UsageError("--producer and --consumer need a topic: --topic NAME.")
        if self.consumer and not names[_GROUP]:
            raise click.UsageError("--consumer needs a group: --group NAME.")
        for name in names[_TOPIC]:
            if self.producer:
                yield from ((_TOPIC, name, one) for one in (_O.WRITE, _O.DESCRIBE, _O.CREATE))
            if self.consumer:
                yield from ((_TOPIC, name, one) for one in (_O.READ, _O.DESCRIBE))
        if self.consumer:
            yield from ((_GROUP, name, _O.READ) for name in names[_GROUP])
        if self.producer:
            for name in names[_TRANSACTION]:
                yield from ((_TRANSACTION, name, one) for one in (_O.WRITE, _O.DESCRIBE))
            if self.idempotent:
                yield _CLUSTER, CLUSTER_NAME, _O.IDEMPOTENT_WRITE


def _resource_options(command: Command) -> Command:
    for option in (
        click.option("--topic", "topics", metavar="NAME", multiple=True, help="A topic; *: all. Can be repeated."),
        click.option(
            "--group", "groups", metavar="NAME", multiple=True, help="A consumer group; *: all. Can be repeated."
        ),
        click.option(
            "--transactional-id",
            "transactional_ids",
            metavar="ID",
            multiple=True,
            help="An id; *: all. Can be repeated.",
        ),
        click.option("--cluster", is_flag=True, help="The cluster itself: nodes, configs, users, ..."),
    ):
        command = option(command)
    return command


def _selecting_options(command: Command) -> Command:
    for option in (
        click.option(
            "--resource-pattern-type",
            "pattern",
            type=click.Choice(["literal", "prefixed", "match", "any"], case_sensitive=False),
            help="prefixed: all resources whose name begins with NAME; match: the entries that apply to NAME.",
        ),
        click.option(
            "--allow-principal",
            "allowed",
            metavar="User:NAME",
            multiple=True,
            help="An entry that allows this user; User:*: everyone.",
        ),
        click.option(
            "--deny-principal",
            "denied",
            metavar="User:NAME",
            multiple=True,
            help="An entry that denies this user; it precedes all that allow.",
        ),
        click.option(
            "--allow-host",
            "allow_hosts",
            metavar="IP",
            multiple=True,
            help="Allows from this address only.",
        ),
        click.option(
            "--deny-host",
            "deny_hosts",
            metavar="IP",
            multiple=True,
            help="Denies from this address only.",
        ),
        click.option(
            "--operation", "operations", metavar="NAME", multiple=True, help="Read, Write, ...; default: all of them."
        ),
        click.option("--producer", is_flag=True, help="Write, Describe and Create on the topics."),
        click.option("--consumer", is_flag=True, help="Read and Describe on the topics, Read on the group."),
        click.option("--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster, too."),
    ):
        command = option(command)
    return _resource_options(command)


def _given(options: dict[str, Any]) -> _Given:
    return _Given(
        resources=_resources(options),
        pattern=options["pattern"],
        allowed=options["allowed"],
        denied=options["denied"],
        allow_hosts=options["allow_hosts"],
        deny_hosts=options["deny_hosts"],
        operations=tuple(_operation(one) for one in options["operations"]),
        producer=options["producer"],
        consumer=options["consumer"],
        idempotent=options["idempotent"],
    )


def _resources(options: dict[str, Any]) -> tuple[tuple[AclResourceType, str], ...]:
    return (
        *((_TOPIC, name) for name in options["topics"]),
        *((_GROUP, name) for name in options["groups"]),
        *((_TRANSACTION, name) for name in options["transactional_ids"]),
        *([(_CLUSTER, CLUSTER_NAME)] if options["cluster"] else []),
    )


def _operation(text: str) -> AclOperation:
    """`IdempotentWrite`, `IDEMPOTENT_WRITE`, `idempotent-write`."""
    wanted = text.strip().replace("_", "").replace("-", "").upper()
    for operation in AclOperation:
        if operation.name.replace("_", "") == wanted:
            return operation
    known = ", ".join(operation.name for operation in AclOperation)
    raise click.BadParameter(f"{text!r}: must be one of {known}.", param_hint="--operation")


@acl.command
@_selecting_options
@cluster_options
def add(target: Target, **options: Any) -> None:
    """Add entries. A principal without an entry may do nothing; an entry that denies precedes all that allow.

    \b
    Examples:
      streamlogctl acl add --allow-principal User:alice --producer --topic orders
      streamlogctl acl add --allow-principal User:bob --consumer --topic orders --group billing
      streamlogctl acl add --allow-principal User:ops --operation Read --topic logs- --resource-pattern-type prefixed
    """
    entries = _given(options).acls()

    async def work(admin: AsyncAdmin) -> None:
        await admin.create_acls(entries)
        for entry in entries:
            say(f"Added: {entry}")
        await say_without_authorizer(admin)

    with_admin(target, work)


@acl.command
@_selecting_options
@click.option("--principal", "principals", metavar="User:NAME", multiple=True, help="All entries of this principal.")
@cluster_options
def remove(target: Target, principals: tuple[str, ...], **options: Any) -> None:
    """Remove the entries that 'acl add' makes with the same options; or, without --allow-principal and
    --deny-principal, all to which every option given applies, those that deny too.

    \b
    Examples:
      streamlogctl acl remove --allow-principal User:alice --producer --topic orders
      streamlogctl acl remove --principal User:alice
      streamlogctl acl remove --principal User:alice --topic orders
      streamlogctl acl remove --topic orders
    """
    given = _given(options)
    filters = given.filters(principals)
    if given.allowed or given.denied:
        filters = [_exactly(entry) for entry in given.acls()]
    elif not (principals or given.resources):
        raise click.UsageError("Give what to remove: a resource, such as --topic NAME, or --principal User:NAME.")

    async def work(admin: AsyncAdmin) -> None:
        removed = await admin.delete_acls(filters)
        for entry in removed:
            say(f"Removed: {entry}")
        if not removed:
            say("No entry matches; list them with: streamlogctl acl list")
        await say_without_authorizer(admin)

    with_admin(target, work)


@acl.command(name="list")
@_selecting_options
@click.option("--principal", "principals", metavar="User:NAME", multiple=True, help="Of this principal only.")
@output_option
@cluster_options
def list_acls(target: Target, output: Output, principals: tuple[str, ...], **options: Any) -> None:
    """List entries: all, or those to which every option given applies.

    \b
    Examples:
      streamlogctl acl list
      streamlogctl acl list --topic orders --resource-pattern-type match
      streamlogctl acl list --principal User:alice
    """
    filters = _given(options).filters(principals)

    async def work(admin: AsyncAdmin) -> dict[Acl, Row]:
        found = {entry: _row(entry) for wanted in filters for entry in await admin.describe_acls(wanted)}
        await say_without_authorizer(admin)
        return found

    show_rows(output, list(with_admin(target, work).values()), columns=_COLUMNS)


@acl.command
@_resource_options
@click.option("--principal", metavar="User:NAME", required=True, help="Whose right is tested.")
@click.option("--operation", metavar="NAME", required=True, help="Read, Write, Describe, ...")
@click.option("--host", metavar="IP", default="", help="From this address; default: 127.0.0.1.")
@cluster_options
def test(target: Target, principal: str, operation: str, host: str, **options: Any) -> None:
    """Show whether a principal may do something, and which entry decides. Exit code 1: it may not.

    \b
    Example:
      streamlogctl acl test --principal User:alice --operation Write --topic orders
    """
    wanted = _operation(operation)
    resources = _resources(options)
    if not resources:
        raise click.UsageError("Give a resource: --topic, --group, --transactional-id or --cluster.")
    refused = False
    for kind, name in resources:
        found = with_admin(
            target,
            lambda admin, kind=kind, name=name: admin.test_access(principal, wanted, kind, name, host=host),  # type: ignore[misc]
        )
        refused = refused or not found.allowed
        what = kind.name.lower().replace("_", " ")
        say(f"{principal} {wanted.name} {what} {name}: {'yes' if found.allowed else 'no'}, {found.reason}")
    if refused:
        raise SystemExit(1)


def _exactly(entry: Acl) -> AclFilter:
    return AclFilter(
        resource_type=entry.resource_type,
        name=entry.name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        operation=entry.operation,
        permission=entry.permission,
        host=entry.host,
    )


def _row(entry: Acl) -> Row:
    return {
        "resource": entry.resource_type.name.lower(),
        "name": entry.name,
        "pattern": entry.pattern_type.name.lower(),
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission": entry.permission.name,
    }
