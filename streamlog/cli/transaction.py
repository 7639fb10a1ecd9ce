"""`streamlogctl transaction`: list, describe, find-hanging, abort."""

from __future__ import annotations

from typing import Final

import click

from streamlog.cli.common.failures import end_with
from streamlog.cli.common.nouns import Noun, existing_topics, topic_partition
from streamlog.cli.common.output import Output, Row, output_option, say, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.transaction_values import OpenTransactions, TransactionState
from streamlog.model import INT64_MAX

_LIST_COLUMNS: Final = ("transactional_id", "coordinator", "producer_id", "state")
_COLUMNS: Final = (
    "transactional_id",
    "coordinator",
    "state",
    "producer_id",
    "producer_epoch",
    "timeout_ms",
    "started_ms",
    "partitions",
)
_OPEN_COLUMNS: Final = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "first_offset",
    "since_ms",
    "transactional_id",
    "hanging",
)


@click.group(cls=Noun)
def transaction() -> None:
    """List, describe and abort transactions, and find those that hang."""


@transaction.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(
        [one.value for one in TransactionState if one is not TransactionState.UNKNOWN], case_sensitive=False
    ),
    multiple=True,
    help="Only those in this state; can be repeated.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=click.IntRange(0, INT64_MAX),
    multiple=True,
    help="Only of this one; can be repeated.",
)
@output_option
@cluster_options
def list_(target: Target, output: Output, states: tuple[str, ...], producer_ids: tuple[int, ...]) -> None:
    """List transactional ids and their states.

    \b
    Example:
      streamlogctl transaction list --state ongoing
    """
    wanted = [TransactionState(state) for state in states]
    found = with_admin(target, lambda admin: admin.list_transactions(states=wanted, producer_ids=producer_ids))
    rows: list[Row] = [
        {
            "transactional_id": one.transactional_id,
            "coordinator": one.coordinator,
            "producer_id": one.producer_id,
            "state": one.state.value,
        }
        for one in found.transactions
    ]
    show_rows(output, rows, columns=_LIST_COLUMNS)
    end_with((f"node {node}", error) for node, error in found.errors.items())


@transaction.command
@click.argument("names", metavar="TRANSACTIONAL-ID...", nargs=-1, required=True)
@output_option
@cluster_options
def describe(target: Target, output: Output, names: tuple[str, ...]) -> None:
    """Describe transactions: state, start, partitions.

    \b
    Example:
      streamlogctl transaction describe billing-1
    """
    found = with_admin(target, lambda admin: admin.describe_transactions(names))
    rows: list[Row] = [
        {
            "transactional_id": one.transactional_id,
            "coordinator": one.coordinator,
            "state": one.state.value,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "timeout_ms": one.timeout_ms,
            "started_ms": one.started_ms,
            "partitions": ",".join(str(partition) for partition in one.partitions),
        }
        for one in found
        if one.error is None
    ]
    show_rows(output, rows, columns=_COLUMNS)
    end_with((one.transactional_id, one.error) for one in found if one.error is not None)


@transaction.command("find-hanging")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    help="Only in this topic, or those that a regular expression matches; can be repeated.",
)
@click.option(
    "--open-for-ms", type=click.IntRange(0, INT64_MAX), help="Minimum age. Default: the longest allowed timeout."
)
@click.option("--all", "all_open", is_flag=True, help="Also transactions that their coordinators will end.")
@output_option
@cluster_options
def find_hanging(
    target: Target, output: Output, topics: tuple[str, ...], open_for_ms: int | None, all_open: bool
) -> None:
    """Find open transactions that hold back last stable offsets and that no coordinator will end.

    \b
    Examples:
      streamlogctl transaction find-hanging
      streamlogctl transaction find-hanging --topic orders --open-for-ms 60000 --all
    """

    async def work(admin: AsyncAdmin) -> OpenTransactions:
        named = await existing_topics(admin, topics)
        return await admin.find_hanging_transactions(named, open_for_ms=open_for_ms, all_open=all_open)

    found = with_admin(target, work)
    rows: list[Row] = [
        {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "first_offset": one.first_offset,
            "since_ms": one.since_ms,
            "transactional_id": one.transactional_id,
            "hanging": one.hanging,
        }
        for one in found.transactions
    ]
    show_rows(output, rows, columns=_OPEN_COLUMNS)
    end_with(("no leader" if node < 0 else f"node {node}", error) for node, error in found.errors.items())


@transaction.command
@click.argument("name", metavar="[TRANSACTIONAL-ID]", required=False)
@click.option(
    "--partition", "at", metavar="TOPIC-PARTITION", help="The partition of a hanging transaction; with --producer-id."
)
@click.option(
    "--producer-id", type=click.IntRange(0, INT64_MAX), help="The producer of a hanging transaction; with --partition."
)
@cluster_options
def abort(target: Target, name: str | None, at: str | None, producer_id: int | None) -> None:
    """Abort an id's open transaction, and fence its producer; or a hanging transaction in a partition.

    \b
    Examples:
      streamlogctl transaction abort billing-1
      streamlogctl transaction abort --partition orders-0 --producer-id 5
    """
    if (name is None) == (at is None) or (at is None) != (producer_id is None):
        raise click.UsageError("Give a TRANSACTIONAL-ID; or, for a hanging transaction, --partition and --producer-id.")
    if name is not None:
        transactional_id = name
        with_admin(target, lambda admin: admin.abort_transaction(transactional_id))
        say(f"Aborted the transaction of {name}.")
    elif at is not None and producer_id is not None:
        partition, producer = topic_partition(at), producer_id
        with_admin(target, lambda admin: admin.abort_hanging_transaction(partition, producer))
        say(f"Aborted the transaction of producer {producer} in {partition}.")
