"""`streamlogctl quota`: limits of users, client ids and addresses (kafka-configs --entity-type users, clients, ips)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click
from msgspec import Struct

from streamlog.access.addresses import address_of
from streamlog.access.quotas import DEFAULT, QuotaEntity, QuotaFilter, QuotaMatch, check_limit
from streamlog.cli.common.nouns import Command, Noun
from streamlog.cli.common.output import Output, Row, output_option, say, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.errors import InvalidRequestError

_COLUMNS: Final = ("user", "client_id", "ip", "key", "value")
_HEADINGS: Final = {"client_id": "client id", "ip": "address"}
_SHOWN_DEFAULT: Final = "<default>"


@click.group(cls=Noun)
def quota() -> None:
    """Limits of users, client ids and addresses; a client beyond its limit is slowed down."""


class _Given(Struct, frozen=True):
    """What the options say."""

    user: str | None
    user_default: bool
    client_id: str | None
    client_id_default: bool
    ip: str | None
    ip_default: bool

    def entity(self) -> QuotaEntity:
        """UsageError."""
        entity = QuotaEntity(
            user=_part("--user", self.user, default=self.user_default),
            client_id=_part("--client-id", self.client_id, default=self.client_id_default),
            ip=self._address(),
        )
        if entity == QuotaEntity():
            raise click.UsageError("Give whose limit it is: --user or --user-default, --client-id, or both; or --ip.")
        if entity.ip is not None and entity != QuotaEntity(ip=entity.ip):
            raise click.UsageError("--ip cannot be given together with --user or --client-id.")
        return entity

    def filter(self) -> QuotaFilter:
        """UsageError."""
        user = _part("--user", self.user, default=self.user_default)
        client_id = _part("--client-id", self.client_id, default=self.client_id_default)
        return QuotaFilter(
            user=None if user is None else QuotaMatch(user),
            client_id=None if client_id is None else QuotaMatch(client_id),
            ip=_exactly(self._address()),
        )

    def _address(self) -> str | None:
        """UsageError."""
        given = _part("--ip", self.ip, default=self.ip_default)
        if given is None or given == DEFAULT:
            return given
        found = address_of(given)
        if found is None:
            raise click.UsageError(f"--ip {given}: give an IP address, such as 10.0.0.7 or 2001:db8::7.")
        return found


def _part(option: str, name: str | None, *, default: bool) -> str | None:
    """UsageError."""
    if name is not None and default:
        raise click.UsageError(f"{option} and {option}-default cannot be given together.")
    if name == "":
        raise click.UsageError(f"{option} needs a name; for all without limits of their own give {option}-default.")
    return DEFAULT if default else name


def _entity_options(command: Command) -> Command:
    for option in (
        click.option("--ip-default", is_flag=True, help="Each address without a limit of its own."),
        click.option("--ip", metavar="ADDRESS", help="Connections from this IP address."),
        click.option("--client-id-default", is_flag=True, help="Each client id without a limit of its own."),
        click.option("--client-id", metavar="ID", help="The clients with this client.id; with --user: of this user."),
        click.option("--user-default", is_flag=True, help="Each user without a limit of its own."),
        click.option("--user", metavar="NAME", help="A user: alice for the principal User:alice."),
    ):
        command = option(command)
    return command


@quota.command(name="set")
@_entity_options
@click.argument("limits", metavar="KEY=VALUE...", nargs=-1, required=True)
@cluster_options
def set_quota(target: Target, limits: tuple[str, ...], **options: str | bool | None) -> None:
    """Set limits. They apply within a second, to open connections and streams too.

    \b
      producer_byte_rate         bytes of requests to write records, a second
      consumer_byte_rate         bytes of responses with records, a second
      controller_mutation_rate   partitions created and deleted, a second
      request_percentage         percent of the time of each node's event loop
      connection_creation_rate   with --ip: connections from the address to each node, a second

    The limit of a user and a client id precedes that of the user, which precedes that of the client id; names precede
    defaults.

    \b
    Examples:
      streamlogctl quota set --user alice producer_byte_rate=1000000 consumer_byte_rate=2000000
      streamlogctl quota set --user alice --client-id reports consumer_byte_rate=500000
      streamlogctl quota set --user-default producer_byte_rate=10000000
      streamlogctl quota set --ip-default connection_creation_rate=20
    """
    entity = _given(options).entity()
    wanted = dict(_limit(one, entity) for one in limits)
    with_admin(target, lambda admin: admin.alter_client_quotas({entity: wanted}))
    for key, value in wanted.items():
        say(f"Set: {entity}: {key}={value:g}" if value % 1 else f"Set: {entity}: {key}={int(value)}")


@quota.command
@_entity_options
@output_option
@cluster_options
def describe(target: Target, output: Output, **options: str | bool | None) -> None:
    """List limits: all, or those of a user, client id or address.

    \b
    Examples:
      streamlogctl quota describe
      streamlogctl quota describe --user alice
    """
    wanted = _given(options).filter()
    found = with_admin(target, lambda admin: admin.describe_client_quotas(wanted))
    rows = [_row(entity, key, value) for entity, limits in found.items() for key, value in limits.items()]
    show_rows(output, rows, columns=_COLUMNS, headings=_HEADINGS)


@quota.command
@_entity_options
@click.argument("keys", metavar="[KEY...]", nargs=-1)
@cluster_options
def delete(target: Target, keys: tuple[str, ...], **options: str | bool | None) -> None:
    """Delete limits of a user, client id or address: all of them, or those named.

    \b
    Examples:
      streamlogctl quota delete --user alice producer_byte_rate
      streamlogctl quota delete --user-default
    """
    entity = _given(options).entity()
    user, client_id, ip = map(_exactly, entity.parts())
    wanted = QuotaFilter(user=user, client_id=client_id, ip=ip, strict=True)
    before = with_admin(target, lambda admin: admin.describe_client_quotas(wanted)).get(entity, {})
    removed: Mapping[str, float | None] = dict.fromkeys(keys or before)
    if removed:
        with_admin(target, lambda admin: admin.alter_client_quotas({entity: removed}))
    deleted = [key for key in removed if key in before]
    for key in deleted:
        say(f"Deleted: {entity}: {key}")
    if not deleted:
        say("There is no such limit; list them with: streamlogctl quota describe")


def _exactly(part: str | None) -> QuotaMatch | None:
    return None if part is None else QuotaMatch(part)


def _given(options: Mapping[str, str | bool | None]) -> _Given:
    user, client_id, ip = options["user"], options["client_id"], options["ip"]
    return _Given(
        user if isinstance(user, str) else None,
        options["user_default"] is True,
        client_id if isinstance(client_id, str) else None,
        options["client_id_default"] is True,
        ip if isinstance(ip, str) else None,
        options["ip_default"] is True,
    )


def _limit(text: str, entity: QuotaEntity) -> tuple[str, float]:
    """UsageError."""
    key, _, value = text.partition("=")
    try:
        number: float | None = float(value)
    except ValueError:
        number = None
    try:
        check_limit(entity, key, number)
    except InvalidRequestError as error:
        raise click.UsageError(f"{error.message}.") from None
    if number is None:
        raise click.UsageError(f"{text!r}: give {key}=NUMBER.")
    return key, number


def _row(entity: QuotaEntity, key: str, value: float) -> Row:
    shown = {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip}
    names = {kind: "-" if name is None else name or _SHOWN_DEFAULT for kind, name in shown.items()}
    return {**names, "key": key, "value": int(value) if value == int(value) else value}
