"""`streamlogctl broker-logger`: what a node logs about itself, changed while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import click

from streamlog.cli.common.nouns import Noun, key_values
from streamlog.cli.common.output import Output, Row, output_option, say, show_rows
from streamlog.cli.common.session import with_node
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.values import BrokerLogger, LoggerLevel
from streamlog.model import INT32_MAX

Command = TypeVar("Command", bound=Callable[..., object])

_COLUMNS: Final = ("logger", "level", "set")
_LEVELS: Final = ", ".join(level.value for level in LoggerLevel)


@click.group(name="broker-logger", cls=Noun)
def broker_logger() -> None:
    """Show and change what a node logs about itself. A restart of the node resets it."""


def _node_option(command: Command) -> Command:
    return click.option(
        "--broker", "--entity-name", "node_id", type=click.IntRange(0, INT32_MAX), required=True, help="The node."
    )(command)


@broker_logger.command
@_node_option
@click.option("--logger", "names", metavar="LOGGER", multiple=True, help="Only this logger; can be repeated.")
@output_option
@cluster_options
def describe(target: Target, output: Output, node_id: int, names: tuple[str, ...]) -> None:
    """Show the loggers of a node and their levels.

    \b
    Example:
      streamlogctl broker-logger describe --broker 1
    """
    found = with_node(target, node_id, lambda admin: admin.describe_broker_loggers(node_id))
    unknown = [name for name in names if name not in {one.name for one in found}]
    if unknown:
        raise click.UsageError(f"Node {node_id} has no logger {unknown[0]}; list them without --logger.")
    show_rows(output, _rows([one for one in found if not names or one.name in names]), columns=_COLUMNS)


def _rows(loggers: Sequence[BrokerLogger]) -> list[Row]:
    return [
        {"logger": one.name, "level": one.level.value if one.level else "unknown", "set": one.is_set} for one in loggers
    ]


@broker_logger.command
@_node_option
@click.option("--set", "--add-config", "assigned", metavar="LOGGER=LEVEL,...", multiple=True, help="Set levels.")
@cluster_options
def alter(target: Target, node_id: int, assigned: tuple[str, ...]) -> None:
    """Set levels: DEBUG, INFO, WARN or ERROR. A logger without a level has that of the one above it.

    \b
    Examples:
      streamlogctl broker-logger alter --broker 1 --set streamlog.raft=WARN
      streamlogctl broker-logger alter --broker 1 --set streamlog.requests=DEBUG
    """
    texts = [part for text in assigned for part in text.split(",")]
    if not texts:
        raise click.UsageError("Give a level: --set LOGGER=LEVEL.")
    changes = {name: _level(text) for name, text in key_values(texts, "--set").items()}
    _change(target, node_id, changes)


def _level(text: str) -> LoggerLevel:
    try:
        return LoggerLevel(text.strip().upper())
    except ValueError:
        raise click.BadParameter(f"{text!r}: must be one of {_LEVELS}.", param_hint="--set") from None


@broker_logger.command
@_node_option
@click.argument("names", metavar="[LOGGER]...", nargs=-1)
@click.option("--delete-config", "flag_names", metavar="LOGGER,...", multiple=True, help="As LOGGER.")
@cluster_options
def reset(target: Target, node_id: int, names: tuple[str, ...], flag_names: tuple[str, ...]) -> None:
    """Remove the levels of these loggers, or of all: they get that of the logger above them.

    \b
    Examples:
      streamlogctl broker-logger reset --broker 1 streamlog.raft
      streamlogctl broker-logger reset --broker 1
    """
    given = [*names, *(part for text in flag_names for part in text.split(","))]
    if not given:
        found = with_node(target, node_id, lambda admin: admin.describe_broker_loggers(node_id))
        given = [one.name for one in found if one.is_set]
    if not given:
        say(f"No logger of node {node_id} has a level of its own.")
        return
    _change(target, node_id, dict.fromkeys(given))


def _change(target: Target, node_id: int, changes: dict[str, LoggerLevel] | dict[str, None]) -> None:
    found = with_node(target, node_id, lambda admin: admin.alter_broker_loggers(node_id, changes))
    for one in found:
        if one.name in changes:
            say(f"Logger {one.name} of node {node_id} logs {one.level.value if one.level else 'unknown'} and above.")
