"""`streamlogctl console user`: who may log in to the web console. Works on its database, beside a running console."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from streamlog.cli.common.paths import GivenPath

if TYPE_CHECKING:
    from streamlog.console.access.users import Users

Command = TypeVar("Command", bound=Any)
ROLES: Final = ("viewer", "operator", "admin")


def _default_data() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "streamlog" / "console"


def data_options(command: Command) -> Command:
    """--data and --database."""
    data = click.option(
        "--data",
        metavar="DIR",
        type=GivenPath(file_okay=False, path_type=Path),
        default=_default_data,
        show_default="~/.local/share/streamlog/console",
        help="The directory of its history and users.",
    )
    database = click.option(
        "--database", metavar="URL", default="", help="Another database for history and users, as a URL of SQLAlchemy."
    )
    decorated: Command = data(database(command))
    return decorated


@contextmanager
def console_failures() -> Iterator[None]:
    """Missing packages, and errors of the console's databases, as messages."""
    try:
        from streamlog.console.access.database import AccessError
        from streamlog.console.collection.history_database import HistoryError
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    try:
        yield
    except (AccessError, HistoryError) as error:
        raise click.ClickException(str(error)) from None
    except ModuleNotFoundError as error:
        raise _missing(error) from None


def _missing(error: ModuleNotFoundError) -> click.ClickException:
    return click.ClickException(
        f"the console needs packages that are not installed ({error.name}): pip install 'streamlog[console]'."
    )


@contextmanager
def _users(data: Path, database: str) -> Iterator[Users]:
    with console_failures():
        from streamlog.console.access.database import opened
        from streamlog.console.access.users import Users

        try:
            engine = opened(data, database)
        except OSError as error:
            raise click.ClickException(f"{error.filename or data}: {error.strerror}.") from None
        try:
            yield Users(engine)
        finally:
            engine.dispose()


@click.group
def user() -> None:
    """Who may log in to the console, and as what.

    viewer: look; operator: also write records, create and alter topics, reset groups, move partitions; admin: all.
    Changes take effect at once, also in a running console: sessions of a changed user end.
    """


_ROLE: Final = click.option("--role", type=click.Choice(ROLES), required=True, help="What the user may do.")


@user.command("add")
@click.argument("name")
@_ROLE
@data_options
def add(name: str, role: str, data: Path, database: str) -> None:
    """Add a user. The password is asked for, or read as a line of standard input.

    \b
    Examples:
      streamlogctl console user add alice --role admin
      pass show console/alice | streamlogctl console user add alice --role admin
    """
    with _users(data, database) as users:
        from streamlog.console.access.roles import UserRole

        users.add(name, _password(), UserRole.of(role))
    click.echo(f"User {name} is added, as {role}.")


@user.command("list")
@data_options
def list_users(data: Path, database: str) -> None:
    """List the users and their roles.

    \b
    Example:
      streamlogctl console user list
    """
    with _users(data, database) as users:
        found = users.list()
    for one in found:
        click.echo(f"{one.name}\t{one.role.label}")
    if not found:
        click.echo("There are no users.", err=True)


@user.command("role")
@click.argument("name")
@click.argument("role", type=click.Choice(ROLES))
@data_options
def role(name: str, role: str, data: Path, database: str) -> None:
    """Give a user another role.

    \b
    Example:
      streamlogctl console user role alice operator
    """
    with _users(data, database) as users:
        from streamlog.console.access.roles import UserRole

        users.set_role(name, UserRole.of(role))
    click.echo(f"User {name} is {role}.")


@user.command("password")
@click.argument("name")
@data_options
def password(name: str, data: Path, database: str) -> None:
    """Give a user another password. It is asked for, or read as a line of standard input.

    \b
    Example:
      streamlogctl console user password alice
    """
    with _users(data, database) as users:
        users.set_password(name, _password())
    click.echo(f"The password of user {name} was changed.")


@user.command("delete")
@click.argument("name")
@data_options
def delete(name: str, data: Path, database: str) -> None:
    """Delete a user.

    \b
    Example:
      streamlogctl console user delete alice
    """
    with _users(data, database) as users:
        users.delete(name)
    click.echo(f"User {name} is deleted.")


def _password() -> str:
    """Never an argument: those are visible to other users of the machine."""
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline(1_026).rstrip("\r\n")
