"""`streamlogctl config`: the configs of topics and nodes, their sources, and changes while the cluster runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import click

from streamlog.cli.common.failures import end_with
from streamlog.cli.common.nouns import Noun, key_values, matching_topics
from streamlog.cli.common.output import Cell, Output, Row, output_option, say, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import (
    AlteredConfig,
    ConfigAlteration,
    ConfigChange,
    ConfigDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from streamlog.config import Operation
from streamlog.errors import InvalidConfigError
from streamlog.model import INT32_MAX
from streamlog.monitor.cluster_state import MIN_INSYNC_REPLICAS, effective_min_isr

Command = TypeVar("Command", bound=Callable[..., object])

_COLUMNS: Final = ("of", "name", "value", "source")
_LONG_COLUMNS: Final = ("of", "name", "value", "source", "default", "changes", "says")
# Dynamic configs: those described without --all.
_SET: Final = (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_ALL_BROKERS)
_ENTITIES: Final = ("topics", "brokers")


@click.group(cls=Noun)
def config() -> None:
    """Show and change configs of topics and nodes."""


def _resource_options(command: Command) -> Command:
    options = (
        click.option(
            "--topic",
            "topics",
            metavar="TOPIC",
            multiple=True,
            help="Of this topic, or those that a regular expression matches; can be repeated.",
        ),
        click.option(
            "--broker",
            "brokers",
            type=click.IntRange(0, INT32_MAX),
            multiple=True,
            help="Of this node; can be repeated.",
        ),
        click.option("--broker-defaults", "--all-brokers", "all_brokers", is_flag=True, help="Of all nodes."),
        click.option(
            "--entity-type",
            type=click.Choice(_ENTITIES),
            help="As in kafka-configs; with --entity-name or --entity-default.",
        ),
        click.option("--entity-name", "entity_names", metavar="NAME", multiple=True, help="With --entity-type."),
        click.option("--entity-default", is_flag=True, help="With --entity-type brokers: all nodes."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _resources(
    topics: Sequence[str],
    brokers: Sequence[int],
    entity_type: str | None,
    entity_names: Sequence[str],
    *,
    all_brokers: bool,
    entity_default: bool,
) -> list[ConfigResource]:
    found = [ConfigResource.topic(name) for name in topics]
    found += [ConfigResource.broker(node_id) for node_id in brokers]
    if entity_default and entity_type != "brokers":
        raise click.UsageError("--entity-default needs --entity-type brokers: topics have the defaults of the nodes.")
    if all_brokers or entity_default:
        found.append(ConfigResource.all_brokers())
    if entity_names and entity_type is None:
        raise click.UsageError("--entity-name needs --entity-type topics or --entity-type brokers.")
    kind = ResourceType.BROKER if entity_type == "brokers" else ResourceType.TOPIC
    found += [ConfigResource(kind, name) for name in entity_names]
    if not found:
        raise click.UsageError("Give a resource: --topic TOPIC, --broker ID or --all-brokers.")
    return list(dict.fromkeys(found))


@config.command
@_resource_options
@click.option("--all", "everything", is_flag=True, help="All configs, not only dynamic ones.")
@click.option("--name", "names", metavar="CONFIG", multiple=True, help="Only this config; can be repeated.")
@click.option("--long", "with_docs", is_flag=True, help="With default, range and what the config does.")
@output_option
@cluster_options
def describe(
    target: Target,
    output: Output,
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    entity_type: str | None,
    entity_names: tuple[str, ...],
    names: tuple[str, ...],
    *,
    all_brokers: bool,
    entity_default: bool,
    everything: bool,
    with_docs: bool,
) -> None:
    """Show configs and the source of each value.

    \b
    Examples:
      streamlogctl config describe --topic orders
      streamlogctl config describe --topic orders --all --long
      streamlogctl config describe --broker 1 --name log.retention.ms
    """
    wanted = _resources(
        topics, brokers, entity_type, entity_names, all_brokers=all_brokers, entity_default=entity_default
    )
    found, minima = with_admin(target, lambda admin: _described(admin, wanted, names))
    rows = [
        _row(one, entry, minima)
        for one in found
        for entry in one.entries
        if everything or names or entry.source in _SET
    ]
    show_rows(output, rows, columns=_LONG_COLUMNS if with_docs else _COLUMNS)
    end_with((_title(one.resource), one.error or _unknown(one, names)) for one in found)


def _unknown(one: ConfigDescription, names: Sequence[str]) -> InvalidConfigError | None:
    """Where a name that was given is not among the settings that the node returned for it."""
    if not one.resource.name:
        return None  # of the defaults of all nodes, only those that are set are returned
    known = {entry.name for entry in one.entries}
    missing = next((name for name in names if name not in known), None)
    owners = "topics" if one.resource.type is ResourceType.TOPIC else "nodes"
    return None if missing is None else InvalidConfigError(f"{missing!r} is not a setting of {owners}", field="names")


async def _matched(admin: AsyncAdmin, resources: Sequence[ConfigResource]) -> list[ConfigResource]:
    """With the topics that a regular expression matches in its place."""
    found: list[ConfigResource] = []
    for one in resources:
        if one.type is ResourceType.TOPIC:
            found += [ConfigResource.topic(name) for name in await matching_topics(admin, [one.name])]
        else:
            found.append(one)
    return list(dict.fromkeys(found))


async def _described(
    admin: AsyncAdmin, wanted: Sequence[ConfigResource], names: Sequence[str]
) -> tuple[Sequence[ConfigDescription], Mapping[str, int]]:
    """With min.insync.replicas of the topics where it is not set: it depends on their replicas then."""
    found = await admin.describe_configs(await _matched(admin, wanted), names=names)
    unset = [
        one.resource.name
        for one in found
        if one.resource.type is ResourceType.TOPIC
        and any(entry.name == MIN_INSYNC_REPLICAS and entry.value is None for entry in one.entries)
    ]
    topics = await admin.describe_topics(unset) if unset else ()
    return found, {one.name: effective_min_isr(None, one.replication_factor) for one in topics if one.error is None}


def _row(description: ConfigDescription, entry: ConfigEntry, minima: Mapping[str, int]) -> Row:
    value: Cell = "[hidden]" if entry.sensitive else entry.value
    if entry.name == MIN_INSYNC_REPLICAS and entry.value is None:
        value = minima.get(description.resource.name)
    says = f"{entry.documentation} ({entry.type}{entry.valid_values and ', ' + entry.valid_values})"
    return {
        "of": _title(description.resource),
        "name": entry.name,
        "value": value,
        "source": entry.source.value,
        "default": entry.default_value,
        "changes": "at start" if entry.read_only else "while running",
        "says": says,
    }


def _title(resource: ConfigResource) -> str:
    if resource.type is ResourceType.TOPIC:
        return f"topic {resource.name}"
    return f"broker {resource.name}" if resource.name else "all brokers"


@config.command
@_resource_options
@click.option(
    "--add-config", "added", metavar="NAME=VALUE,...", multiple=True, help="Set configs; a list in brackets: [a,b]."
)
@click.option(
    "--set", "assigned", metavar="NAME=VALUE", multiple=True, help="Set one config; the value may contain commas."
)
@click.option(
    "--delete-config", "deleted", metavar="NAME,...", multiple=True, help="Remove the value: the default applies."
)
@click.option("--append", "appended", metavar="NAME=ITEM,...", multiple=True, help="Add items to a list.")
@click.option("--subtract", "subtracted", metavar="NAME=ITEM,...", multiple=True, help="Remove items from a list.")
@click.option("--validate-only", is_flag=True, help="Check everything, change nothing.")
@cluster_options
def alter(
    target: Target,
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    entity_type: str | None,
    entity_names: tuple[str, ...],
    added: tuple[str, ...],
    assigned: tuple[str, ...],
    deleted: tuple[str, ...],
    appended: tuple[str, ...],
    subtracted: tuple[str, ...],
    *,
    all_brokers: bool,
    entity_default: bool,
    validate_only: bool,
) -> None:
    """Change configs while the cluster runs. All changes of one topic or node are made, or none.

    \b
    Examples:
      streamlogctl config alter --topic orders --set retention.ms=3600000
      streamlogctl config alter --topic orders --append cleanup.policy=compact
      streamlogctl config alter --all-brokers --add-config log.retention.hours=24,log.segment.bytes=1048576
      streamlogctl config alter --broker 1 --delete-config log.retention.hours
    """
    wanted = _resources(
        topics, brokers, entity_type, entity_names, all_brokers=all_brokers, entity_default=entity_default
    )
    assignments = [one for text in added for one in _split(text)] + list(assigned)
    changes = [ConfigChange(name=name, value=value) for name, value in key_values(assignments, "--set").items()]
    changes += [_delete(name) for text in deleted for name in text.split(",")]
    for texts, operation in ((appended, Operation.APPEND), (subtracted, Operation.SUBTRACT)):
        for name, value in key_values(texts, f"--{operation.name.lower()}").items():
            changes.append(ConfigChange(name=name, operation=operation, value=value))
    if not changes:
        raise click.UsageError("Give a change: --set, --delete-config, --append or --subtract.")

    async def work(admin: AsyncAdmin) -> Sequence[AlteredConfig]:
        resources = await _matched(admin, wanted)
        alterations = [ConfigAlteration(resource=resource, changes=changes) for resource in resources]
        return await admin.alter_configs(alterations, validate_only=validate_only)

    results = with_admin(target, work)
    for result in results:
        if result.error is None:
            done = "can be altered" if validate_only else "altered"
            say(f"Configs of {_title(result.resource)} {done}.")
    end_with((_title(result.resource), result.error) for result in results)


def _delete(name: str) -> ConfigChange:
    return ConfigChange(name=name.strip(), operation=Operation.DELETE)


def _split(text: str) -> list[str]:
    """Parses Kafka's `a=1,b=[x,y]`: separated by commas outside of brackets; the brackets are removed."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [_unbracketed(part) for part in parts if part]


def _unbracketed(part: str) -> str:
    name, equals, value = part.partition("=")
    return f"{name}{equals}{value[1:-1]}" if value.startswith("[") and value.endswith("]") else part
