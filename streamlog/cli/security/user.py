"""`streamlogctl user`: users that log in with a password (security.protocol=SASL_SSL)."""

from __future__ import annotations

from typing import Final, TextIO

import click

from streamlog.cli.common.nouns import Noun
from streamlog.cli.common.output import Output, output_option, say, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.security.effect import say_without_authorizer
from streamlog.client.admin.async_admin import AsyncAdmin

_COLUMNS: Final = ("user", "principal")
_password_option = click.option(
    "--password-file",
    type=click.File(encoding="utf-8"),
    help="Read the password from the first line of this file (-: standard input); a random one without it.",
)


@click.group(cls=Noun)
def user() -> None:
    """Users that log in with a password, over TLS."""


@user.command
@_password_option
@click.argument("name")
@cluster_options
def create(target: Target, name: str, password_file: TextIO | None) -> None:
    """Create a user, and print its password, which is not shown again.

    \b
    Example:
      streamlogctl user create alice
    """
    given = _read(password_file)

    async def work(admin: AsyncAdmin) -> str:
        password = await admin.create_user(name, given)
        await say_without_authorizer(admin)
        return password

    password = with_admin(target, work)
    _show(name, password if given is None else None, "created")


@user.command
@_password_option
@click.argument("name")
@cluster_options
def rotate(target: Target, name: str, password_file: TextIO | None) -> None:
    """Give a user another password. The earlier one ends, and streams that were opened with it.

    \b
    Example:
      streamlogctl user rotate alice
    """
    given = _read(password_file)
    password = with_admin(target, lambda admin: admin.rotate_user(name, given))
    _show(name, password if given is None else None, "has another password")


@user.command
@click.argument("name")
@cluster_options
def delete(target: Target, name: str) -> None:
    """Delete a user. Its streams end; its access control list entries stay.

    \b
    Example:
      streamlogctl user delete alice
    """
    with_admin(target, lambda admin: admin.delete_user(name))
    say(f"User {name} is deleted; remove its entries with: streamlogctl acl remove --principal User:{name}")


@user.command(name="list")
@output_option
@cluster_options
def list_users(target: Target, output: Output) -> None:
    """List the users.

    \b
    Example:
      streamlogctl user list
    """
    names = with_admin(target, lambda admin: admin.list_users())
    show_rows(output, [{"user": name, "principal": f"User:{name}"} for name in names], columns=_COLUMNS)


def _read(file: TextIO | None) -> str | None:
    """UsageError."""
    try:
        return None if file is None else file.readline().rstrip("\r\n")
    except UnicodeDecodeError:
        raise click.BadParameter("the file is not UTF-8 text.", param_hint="--password-file") from None


def _show(name: str, password: str | None, done: str) -> None:
    """The password alone goes to standard output."""
    say(f"User {name} {done}.", err=True)
    if password is not None:
        say("Its password, which is not shown again:", err=True)
        say(password)
