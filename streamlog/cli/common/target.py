"""The cluster that a command connects to, and its timeout: the options of all such commands."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
from msgspec import Struct, field

from streamlog.config.addresses import parse_address
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
    from_file: Mapping[str, str] = field(default_factory=dict)  # of --command-config

    def __repr__(self) -> str:
        """Without the values of the file, which may be secrets."""
        return f"Target({self.servers}, from_file={sorted(self.from_file)})"

    @property
    def settings(self) -> dict[str, object]:
        """Settings for a client; the options override the file."""
        return {"client.id": "streamlogctl", **self.from_file, "bootstrap.servers": ",".join(self.servers)}


def cluster_options(command: Command) -> Command:
    """Adds the options; the command gets a Target as `target`."""

    @functools.wraps(command)
    def with_target(
        *arguments: object,
        servers: tuple[str, ...],
        request_timeout_ms: int,
        command_config: str | None,
        **rest: object,
    ) -> object:
        from_file = {} if command_config is None else _read(command_config)
        target = Target(servers=servers, request_timeout_ms=request_timeout_ms, from_file=from_file)
        return command(*arguments, target=target, **rest)

    decorated: Any = with_target
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # the same command, as click's own decorators have it


def addresses(text: str) -> tuple[str, ...]:
    """Parses `host:port,host:port`; empty: the default. ValueError."""
    return tuple(str(parse_address(one.strip())) for one in text.split(",") if one.strip()) or (DEFAULT_SERVER,)


def _servers(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    try:
        return addresses(value)
    except ValueError as problem:
        raise click.BadParameter(f"{value!r}: {problem}.") from None


def _read(path: str) -> dict[str, str]:
    try:
        file = read_properties(path)
        entries = parse_properties(file.text, file.name)
        return with_values({entry.key: entry.value for entry in entries}, path)
    except InvalidConfigError as error:
        raise click.BadParameter(f"{error.message}.", param_hint="--command-config") from None
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}.", param_hint="--command-config") from None


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
