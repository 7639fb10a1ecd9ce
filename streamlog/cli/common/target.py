"""The cluster that a command connects to, and its timeout: the options of all such commands.

The nodes are those of the first of these that is given: --bootstrap-server; --profile; STREAMLOG_BOOTSTRAP_SERVERS;
STREAMLOG_PROFILE; the current profile; 127.0.0.1:9092. The client's settings are those of --command-config, else the
profile's that is in use. A profile that is not named on the command line is not in use where nodes are given, so that
its credentials are not sent to another cluster.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource
from msgspec import Struct, field

from streamlog.cli.common.profiles import (
    PROFILE_ENVIRONMENT,
    Profile,
    parse_servers,
    profile_names,
    read_profiles,
    unknown_profile,
)
from streamlog.config.properties import parse_properties
from streamlog.config_providers import with_values
from streamlog.daemon.text_file import read_properties
from streamlog.errors import InvalidConfigError

DEFAULT_SERVER: Final = "127.0.0.1:9092"
ENVIRONMENT: Final = "STREAMLOG_BOOTSTRAP_SERVERS"
_REQUEST_TIMEOUT_MS: Final = 30_000
# Short, for users who wait at a terminal; a node takes about a second to start.
UNREACHABLE_MS: Final = 3_000

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., object])


class Target(Struct, frozen=True, kw_only=True):
    servers: tuple[str, ...]  # host:port, at least one
    request_timeout_ms: int
    from_file: Mapping[str, str] = field(default_factory=dict)  # of --command-config, or the profile's

    def __repr__(self) -> str:
        """Without the values of the file, which may be secrets."""
        return f"Target({self.servers}, from_file={sorted(self.from_file)})"

    @property
    def settings(self) -> dict[str, object]:
        """Settings for a client; the options override the file. Not its group.id: a command reads for a group, and
        commits, only where the group is its argument.
        """
        from_file = {name: value for name, value in self.from_file.items() if name != "group.id"}
        return {"client.id": "streamlogctl", **from_file, "bootstrap.servers": ",".join(self.servers)}


def cluster_options(command: Command) -> Command:
    """Adds the options; the command gets a Target as `target`."""

    @functools.wraps(command)
    def with_target(
        *arguments: object,
        servers: tuple[str, ...],
        profile: str | None,
        request_timeout_ms: int,
        command_config: str | None,
        **rest: object,
    ) -> object:
        target = chosen_target(
            click.get_current_context(), servers, profile, command_config, request_timeout_ms=request_timeout_ms
        )
        return command(*arguments, target=target, **rest)

    decorated: Any = with_target
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # the same command, as click's own decorators have it


def chosen_target(
    context: click.Context,
    servers: tuple[str, ...],
    profile_name: str | None,
    command_config: str | None,
    *,
    request_timeout_ms: int,
) -> Target:
    """Of the values of the options, and where they come from. ClickException."""
    nodes_from = context.get_parameter_source("servers")
    on_command_line = context.get_parameter_source("profile") is ParameterSource.COMMANDLINE
    profile = None
    # A group with a subcommand does not connect itself.
    if context.invoked_subcommand is None and (on_command_line or nodes_from is ParameterSource.DEFAULT):
        hint = "--profile" if on_command_line else PROFILE_ENVIRONMENT
        profile = _in_use(profile_name, hint)
    if profile is not None and nodes_from is not ParameterSource.COMMANDLINE:
        servers = profile.servers
    if command_config is not None:
        from_file = _read(command_config)
    elif profile is not None and profile.command_config is not None:
        from_file = _read_of_profile(profile, profile.command_config)
    else:
        from_file = {}
    return Target(servers=servers, request_timeout_ms=request_timeout_ms, from_file=from_file)


def _in_use(name: str | None, hint: str) -> Profile | None:
    """Of this name, or the current one; None: there is none."""
    profiles = read_profiles()
    wanted = profiles.current if name is None else name
    if wanted is None:
        return None
    found = profiles.by_name.get(wanted)
    if found is None:
        raise click.BadParameter(unknown_profile(wanted, profiles), param_hint=hint)
    return found


def addresses(text: str) -> tuple[str, ...]:
    """Parses `host:port,host:port`; empty: the default. ValueError."""
    return parse_servers(text) or (DEFAULT_SERVER,)


def _servers(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    try:
        return addresses(value)
    except ValueError as problem:
        raise click.BadParameter(f"{value!r}: {problem}.") from None


def _read(path: str) -> dict[str, str]:
    try:
        return _settings(path)
    except InvalidConfigError as error:
        raise click.BadParameter(f"{error.message}.", param_hint="--command-config") from None
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}.", param_hint="--command-config") from None


def _read_of_profile(profile: Profile, path: str) -> dict[str, str]:
    try:
        return _settings(path)
    except InvalidConfigError as error:
        raise click.ClickException(f"profile {profile.name}: {error.message}.") from None
    except OSError as error:
        raise click.ClickException(
            f"profile {profile.name}: its command_config {path} cannot be read: {error.strerror}: restore the file, or "
            "give another with --command-config."
        ) from None


def _settings(path: str) -> dict[str, str]:
    """InvalidConfigError, OSError."""
    file = read_properties(path)
    entries = parse_properties(file.text, file.name)
    return with_values({entry.key: entry.value for entry in entries}, path)


_OPTIONS: Final = (
    click.option(
        "--bootstrap-server",
        "--bootstrap-servers",
        "--broker-list",
        "servers",
        metavar="HOST:PORT,...",
        default=DEFAULT_SERVER,
        envvar=ENVIRONMENT,
        show_default=True,
        show_envvar=True,
        callback=_servers,
        help="Nodes to connect to; one that answers is enough.",
    ),
    click.option(
        "--profile",
        metavar="NAME",
        envvar=PROFILE_ENVIRONMENT,
        show_envvar=True,
        shell_complete=profile_names,
        help="The cluster of this profile; default: the current one of 'streamlogctl profile list'.",
    ),
    click.option(
        "--request-timeout-ms",
        type=click.IntRange(1),
        default=_REQUEST_TIMEOUT_MS,
        show_default=True,
        help="How long to wait for a response.",
    ),
    click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Settings of the client, as a properties file.",
    ),
)
