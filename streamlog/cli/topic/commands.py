"""`streamlogctl topic`: create, list, describe, alter, delete; trim is beside the deletion of records."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

from streamlog.cli.common.failures import FAILED, complain, end_with
from streamlog.cli.common.nouns import (
    Noun,
    all_names,
    key_values,
    matching_topics,
    new_topics_argument,
    node_ids,
    topics_argument,
)
from streamlog.cli.common.output import Output, Row, output_option, say, show_json, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.records.delete import trim
from streamlog.cli.topic.text import description_json, description_lines, show_description_tables
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import (
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    CreatedTopic,
    DeletedTopic,
    NewTopic,
    TopicDescription,
    TopicGrowth,
)
from streamlog.config import Operation
from streamlog.errors import StreamlogError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from streamlog.monitor import min_insync_replicas

_LIST_COLUMNS: Final = ("topic", "partitions", "replication_factor")


@click.group(cls=Noun)
def topic() -> None:
    """Create, list, describe, alter, trim and delete topics."""


@topic.command
@new_topics_argument
@click.option("--partitions", type=int, help="Number of partitions; default: the cluster's num.partitions.")
@click.option(
    "--replication-factor",
    type=int,
    help="Replicas of each partition; default: the cluster's default.replication.factor.",
)
@click.option(
    "--config", "configs", metavar="NAME=VALUE", multiple=True, help="A config of the topic; can be repeated."
)
@click.option(
    "--replica-assignment",
    metavar="1:2,2:3,...",
    help="The nodes of each partition, the preferred leader first; instead of numbers.",
)
@click.option("--if-not-exists", is_flag=True, help="No error if the topic exists.")
@click.option("--validate-only", is_flag=True, help="Check everything, create nothing.")
@output_option
@cluster_options
def create(
    target: Target,
    output: Output,
    names: tuple[str, ...],
    flag_names: tuple[str, ...],
    *,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    replica_assignment: str | None,
    if_not_exists: bool,
    validate_only: bool,
) -> None:
    """Create topics. Each one is created as a whole or not at all.

    \b
    Examples:
      streamlogctl topic create orders --partitions 3 --replication-factor 3
      streamlogctl topic create --topic clicks --config retention.ms=3600000
      streamlogctl topic create pinned --replica-assignment 1:2:3,2:3:1
    """
    settings = key_values(configs, "--config")
    wanted = [
        NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            assignments=_assignments(replica_assignment),
            configs=settings,
        )
        for name in all_names(names, flag_names)
    ]

    async def work(admin: AsyncAdmin) -> tuple[CreatedTopic, ...]:
        return await admin.create_topics(wanted, validate_only=validate_only)

    results = with_admin(target, work)
    for result in results:
        if result.warning:
            say(f"Warning: {result.warning}", err=True)
    made = [result for result in results if result.error is None]
    if output is Output.JSON:
        show_json([_created_json(result) for result in made])
    else:
        for result in made:
            say(f"Topic {result.name} can be created." if validate_only else f"Created topic {result.name}.")
    end_with(
        ("", result.error)
        for result in results
        if not (if_not_exists and isinstance(result.error, TopicAlreadyExistsError))
    )


@topic.command(name="list")
@click.option("--include-internal", is_flag=True, help="Also internal topics.")
@output_option
@cluster_options
def list_(target: Target, output: Output, *, include_internal: bool) -> None:
    """List the topics by name; in a pipe, names only.

    \b
    Examples:
      streamlogctl topic list
      streamlogctl topic list --output json | jq -r '.[].topic'
    """
    found = with_admin(target, lambda admin: admin.list_topics(include_internal=include_internal))
    if output is Output.TEXT:
        for one in found:
            say(one.name)
        return
    rows: list[Row] = [
        {
            "topic": one.name,
            "topic_id": one.topic_id.hex(),
            "partitions": one.partition_count,
            "replication_factor": one.replication_factor,
            "internal": one.internal,
        }
        for one in found
    ]
    show_rows(output, rows, columns=_LIST_COLUMNS)


@topic.command
@topics_argument
@click.option("--under-replicated-partitions", is_flag=True, help="Only partitions with a replica out of sync.")
@click.option("--under-min-isr-partitions", is_flag=True, help="Only partitions that refuse acks=all: ISR too small.")
@click.option("--at-min-isr-partitions", is_flag=True, help="Only partitions with an ISR of min.insync.replicas.")
@click.option("--unavailable-partitions", is_flag=True, help="Only partitions without a leader.")
@click.option(
    "--topics-with-overrides", is_flag=True, help="Only topics with configs of their own, without partitions."
)
@output_option
@cluster_options
def describe(
    target: Target,
    output: Output,
    names: tuple[str, ...],
    flag_names: tuple[str, ...],
    *,
    under_replicated_partitions: bool,
    under_min_isr_partitions: bool,
    at_min_isr_partitions: bool,
    unavailable_partitions: bool,
    topics_with_overrides: bool,
) -> None:
    """Describe topics: partitions, leaders, replicas, configs. Without a name: all except internal ones; with an
    option for partitions with a problem, these too.

    \b
    Examples:
      streamlogctl topic describe orders
      streamlogctl topic describe --topic 'orders.*'
      streamlogctl topic describe --under-replicated-partitions
      streamlogctl topic describe orders | grep 'Leader: none'
    """
    wanted = all_names(names, flag_names, required=False)
    wants_minima = under_min_isr_partitions or at_min_isr_partitions
    partial = under_replicated_partitions or unavailable_partitions or wants_minima

    async def work(admin: AsyncAdmin) -> tuple[Sequence[TopicDescription], Mapping[str, int]]:
        names = await matching_topics(admin, wanted)
        if partial and not wanted:
            names = [one.name for one in await admin.list_topics(include_internal=True)]
        described = await admin.describe_topics(names)
        good = [one for one in described if one.error is None]
        return described, await min_insync_replicas(admin, good) if wants_minima else {}

    found, minima = with_admin(target, work)
    shown = [one for one in found if one.error is None and (one.configs or not topics_with_overrides)]
    kept = [
        (
            one,
            [
                at
                for at in one.partitions
                if not topics_with_overrides
                and (not under_replicated_partitions or len(at.isr) < len(at.replicas))
                and (not under_min_isr_partitions or len(at.isr) < minima.get(one.name, 1))
                and (not at_min_isr_partitions or len(at.isr) == minima.get(one.name, 1) < len(at.replicas))
                and (not unavailable_partitions or at.leader is None)
            ],
        )
        for one in shown
    ]
    match output:
        case Output.JSON:
            show_json([description_json(one, partitions) for one, partitions in kept])
        case Output.TEXT:
            for one, partitions in kept:
                for line in description_lines(one, partitions, heading=not partial):
                    say(line)
        case Output.TABLE:
            show_description_tables([(one, at) for one, at in kept if at or not partial])
    end_with(("", one.error) for one in found)


@topic.command
@topics_argument
@click.option("--partitions", type=int, help="The new total number of partitions; more than now.")
@click.option("--replica-assignment", metavar="1:2,2:3,...", help="The nodes of each new partition.")
@click.option("--config", "configs", metavar="NAME=VALUE", multiple=True, help="Set a config; can be repeated.")
@click.option(
    "--delete-config", "deleted", metavar="NAME", multiple=True, help="Remove the value: the default applies."
)
@cluster_options
def alter(
    target: Target,
    names: tuple[str, ...],
    flag_names: tuple[str, ...],
    *,
    partitions: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
) -> None:
    """Increase partitions, or change configs, of topics in use.

    \b
    Examples:
      streamlogctl topic alter orders --partitions 6
      streamlogctl topic alter orders --config retention.ms=3600000 --delete-config segment.bytes
    """
    wanted = all_names(names, flag_names)
    changes = [ConfigChange(name=name, value=value) for name, value in key_values(configs, "--config").items()]
    changes += [ConfigChange(name=name, operation=Operation.DELETE) for name in deleted]
    if partitions is None and not changes:
        raise click.UsageError("Give a change: --partitions, --config or --delete-config.")
    if partitions is None and replica_assignment is not None:
        raise click.UsageError("--replica-assignment is for new partitions: give their total with --partitions.")
    assignments = _assignments(replica_assignment)

    async def work(admin: AsyncAdmin) -> Sequence[tuple[str, StreamlogError | None]]:
        """Configs first: they can be changed back, partitions cannot be removed."""
        named = await matching_topics(admin, wanted)
        outcomes: dict[str, StreamlogError | None] = dict.fromkeys(named)
        if changes:
            alterations = [ConfigAlteration(resource=ConfigResource.topic(name), changes=changes) for name in named]
            for altered in await admin.alter_configs(alterations):
                outcomes[altered.resource.name] = altered.error
        going_on = [name for name, error in outcomes.items() if error is None]
        if partitions is not None and going_on:
            growths = [
                TopicGrowth(topic=name, partition_count=partitions, assignments=assignments) for name in going_on
            ]
            for grown in await admin.create_partitions(growths):
                outcomes[grown.topic] = grown.error
        return list(outcomes.items())

    outcomes = with_admin(target, work)
    for name, error in outcomes:
        if error is None:
            say(f"Altered topic {name}.")
    end_with(("", error) for _, error in outcomes)


@topic.command
@topics_argument
@click.option("--if-exists", is_flag=True, help="No error if the topic does not exist, or no topic matches.")
@cluster_options
def delete(target: Target, names: tuple[str, ...], flag_names: tuple[str, ...], *, if_exists: bool) -> None:
    """Delete topics with all their records. This cannot be undone.

    \b
    Examples:
      streamlogctl topic delete orders
      streamlogctl topic delete --topic orders --topic clicks --if-exists
    """
    wanted = all_names(names, flag_names)
    failures = 0

    async def work(admin: AsyncAdmin) -> Sequence[DeletedTopic]:
        found: dict[str, None] = {}
        for name in wanted:
            try:
                found |= dict.fromkeys(await matching_topics(admin, [name]))
            except UnknownTopicOrPartitionError:
                if not if_exists:
                    raise
        return await admin.delete_topics(list(found)) if found else ()

    for result in with_admin(target, work):
        if result.error is None:
            say(f"Deleted topic {result.name}.")
        elif not (if_exists and isinstance(result.error, UnknownTopicOrPartitionError)):
            complain(result.error)
            failures += 1
    if failures:
        sys.exit(FAILED)


topic.add_command(trim)


def _assignments(text: str | None) -> list[tuple[int, ...]]:
    """Parses `1:2,2:3`: partitions separated by commas, nodes by colons."""
    if text is None:
        return []
    return [node_ids(part.replace(":", ","), "--replica-assignment") for part in text.split(",")]


def _created_json(result: CreatedTopic) -> dict[str, str | int]:
    return {
        "topic": result.name,
        "topic_id": result.topic_id.hex(),
        "partitions": result.partition_count,
        "replication_factor": result.replication_factor,
    }
