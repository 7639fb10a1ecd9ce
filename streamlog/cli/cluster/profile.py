"""`streamlogctl profile`: named clusters (`streamlog.cli.common.profiles` is their file)."""

from __future__ import annotations

import os
from typing import Final

import click
from msgspec.structs import replace

from streamlog.cli.common.nouns import Noun
from streamlog.cli.common.output import Output, Row, output_option, say, show_facts, show_rows
from streamlog.cli.common.profiles import (
    PROFILE_ENVIRONMENT,
    Profile,
    Profiles,
    change_profiles,
    name_problem,
    parse_servers,
    profile_names,
    read_profiles,
    unknown_profile,
)
from streamlog.cli.common.target import DEFAULT_SERVER, ENVIRONMENT

_COLUMNS: Final = ("name", "current", "bootstrap_servers", "command_config")


@click.group(cls=Noun)
def profile() -> None:
    """Named clusters, to connect to by name.

    A command connects to the nodes of --bootstrap-server, of --profile, of STREAMLOG_BOOTSTRAP_SERVERS, of the profile
    STREAMLOG_PROFILE, or of the current profile: the first of these that is given. With a profile's nodes it uses the
    profile's settings, unless --command-config is given.

    \b
    Examples:
      streamlogctl profile create prod --bootstrap-server node1:9092,node2:9092 --command-config prod.properties
      streamlogctl profile create local --bootstrap-server 127.0.0.1:9092
      streamlogctl profile use local
      streamlogctl topic list --profile prod
    """


def _servers(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    try:
        servers = parse_servers(value)
    except ValueError as problem:
        raise click.BadParameter(f"{value!r}: {problem}.") from None
    if not servers:
        raise click.BadParameter("must name a node, as HOST:PORT.")
    return servers


def _name(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if problem := name_problem(value):
        raise click.BadParameter(f"{problem}.")
    return value


_name_argument = click.argument("name", metavar="NAME", shell_complete=profile_names)


@profile.command
@click.argument("name", metavar="NAME", callback=_name)
@click.option(
    "--bootstrap-server",
    "--bootstrap-servers",
    "--broker-list",
    "servers",
    metavar="HOST:PORT,...",
    required=True,
    callback=_servers,
    help="Nodes to connect to; one that answers is enough.",
)
@click.option(
    "--command-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Settings of the client, as a properties file. The profile has its path, and none of its settings.",
)
def create(name: str, servers: tuple[str, ...], command_config: str | None) -> None:
    """Create a profile: a name for these nodes and the client's settings. 'streamlogctl profile use NAME' makes it the
    current one.

    \b
    Examples:
      streamlogctl profile create local --bootstrap-server 127.0.0.1:9092
      streamlogctl profile create prod --bootstrap-server node1:9092,node2:9092 --command-config prod.properties
    """
    path = None if command_config is None else _path(command_config)

    def add(profiles: Profiles) -> Profiles:
        if name in profiles.by_name:
            raise click.ClickException(
                f"Profile {name} exists: choose another name, or delete it first with 'streamlogctl profile delete "
                f"{name}'."
            )
        added = Profile(name=name, servers=servers, command_config=path)
        return replace(profiles, by_name={**profiles.by_name, name: added})

    change_profiles(add)
    say(f"Created profile {name}.")
    say(f"Use it with --profile {name}, or for all commands: streamlogctl profile use {name}", err=True)


def _path(command_config: str) -> str:
    """As it is found from any directory, and later."""
    path = os.path.abspath(command_config)
    if not os.path.isfile(path):
        raise click.BadParameter(
            f"{command_config} is not a regular file: save its settings in one, since the profile has only its path.",
            param_hint="--command-config",
        )
    try:
        path.encode()
    except UnicodeEncodeError:
        raise click.BadParameter(
            f"{command_config}: the path is not UTF-8: give the file another name.", param_hint="--command-config"
        ) from None
    return path


@profile.command(name="list")
@output_option
def list_(output: Output) -> None:
    """List the profiles.

    \b
    Examples:
      streamlogctl profile list
      streamlogctl profile list --output json | jq -r '.[] | select(.current).name'
    """
    profiles = read_profiles()
    show_rows(output, [_row(one, profiles) for one in profiles.by_name.values()], columns=_COLUMNS)
    if not profiles.by_name:
        say(
            "There are no profiles; create one with: streamlogctl profile create NAME --bootstrap-server HOST:PORT",
            err=True,
        )


@profile.command
@_name_argument
def use(name: str) -> None:
    """Make a profile the current one, which commands connect to unless another cluster is given.

    \b
    Example:
      streamlogctl profile use prod
    """

    def choose(profiles: Profiles) -> Profiles:
        _found(name, profiles)
        return replace(profiles, current=name)

    change_profiles(choose)
    say(f"The current profile is {name}.")
    if os.environ.get(PROFILE_ENVIRONMENT) != name:
        _note_precedence_of(PROFILE_ENVIRONMENT)
    _note_precedence_of(ENVIRONMENT)


@profile.command
@click.argument("name", metavar="[NAME]", required=False, shell_complete=profile_names)
@output_option
def show(name: str | None, output: Output) -> None:
    """Show a profile; without NAME that of STREAMLOG_PROFILE, or else the current one.

    \b
    Examples:
      streamlogctl profile show
      streamlogctl profile show prod --output json
    """
    profiles = read_profiles()
    wanted = name or os.environ.get(PROFILE_ENVIRONMENT) or profiles.current
    if wanted is None:
        raise click.ClickException(
            "There is no current profile: choose one with 'streamlogctl profile use NAME', or give its name; list them "
            "with 'streamlogctl profile list'."
        )
    show_facts(output, _row(_found(wanted, profiles), profiles))
    if name is None:
        _note_precedence_of(ENVIRONMENT)


@profile.command
@_name_argument
def delete(name: str) -> None:
    """Delete a profile. The file of its --command-config stays.

    \b
    Example:
      streamlogctl profile delete old
    """
    was_current = False

    def remove(profiles: Profiles) -> Profiles:
        nonlocal was_current
        _found(name, profiles)
        was_current = profiles.current == name
        return Profiles(
            current=None if was_current else profiles.current,
            by_name={other: one for other, one in profiles.by_name.items() if other != name},
        )

    change_profiles(remove)
    say(f"Deleted profile {name}.")
    if was_current:
        say(
            f"It was the current one: commands now connect to {DEFAULT_SERVER} unless another cluster is given; "
            "choose a profile with: streamlogctl profile use NAME",
            err=True,
        )


def _found(name: str, profiles: Profiles) -> Profile:
    found = profiles.by_name.get(name)
    if found is None:
        problem = unknown_profile(name, profiles)
        raise click.ClickException(problem[0].upper() + problem[1:])
    return found


def _row(one: Profile, profiles: Profiles) -> Row:
    return {
        "name": one.name,
        "current": one.name == profiles.current,
        "bootstrap_servers": one.servers,
        "command_config": one.command_config,
    }


def _note_precedence_of(variable: str) -> None:
    """Over the profile that was chosen or shown, where the variable is set."""
    if value := os.environ.get(variable):
        say(f"Note: {variable}={value} takes precedence in this shell; unset it to use the profile.", err=True)
