"""`streamlogctl partition elect`: preferred leaders, and unclean elections with a preview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from streamlog.cli.common.failures import end_with
from streamlog.cli.common.nouns import is_expression, matching_topics, no_such_partition, topic_partition
from streamlog.cli.common.output import Output, Row, output_option, say, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import Election, ElectionCandidate, ElectionType
from streamlog.errors import ElectionNotNeededError
from streamlog.model import INT32_MAX, PartitionId, TopicPartition

_ELECTED_COLUMNS: Final = ("partition", "leader", "outcome")
_CANDIDATE_COLUMNS: Final = (
    "partition",
    "replica",
    "state",
    "in_sync_last",
    "last_epoch",
    "log_end",
    "lost_records",
    "would_lead",
)
_UNKNOWN: Final = dict.fromkeys(("last_epoch", "log_end", "lost_records"), "unknown")


@click.command
@click.argument("partitions", metavar="[TOPIC-PARTITION]...", nargs=-1)
@click.option(
    "--topic", metavar="TOPIC", help="All partitions of this topic, or of those that a regular expression matches."
)
@click.option("--partition", "index", type=click.IntRange(0, INT32_MAX), help="With --topic: only this partition.")
@click.option("--all-topic-partitions", "--all", "everything", is_flag=True, help="All partitions that need it.")
@click.option(
    "--election-type",
    type=click.Choice([one.value for one in ElectionType]),
    default=ElectionType.PREFERRED.value,
    show_default=True,
    help="preferred: the first replica. unclean: where there is no leader, of the replicas on active nodes the "
    "one whose log has the highest leader epoch and, within it, the most records; records may be lost.",
)
@click.option("--dry-run", is_flag=True, help="With unclean: only show how many records each choice would lose.")
@output_option
@cluster_options
def elect(
    target: Target,
    output: Output,
    partitions: tuple[str, ...],
    topic: str | None,
    index: int | None,
    *,
    everything: bool,
    election_type: str,
    dry_run: bool,
) -> None:
    """Elect leaders: by default, the preferred replicas.

    \b
    Examples:
      streamlogctl partition elect --all
      streamlogctl partition elect orders-0 orders-1
      streamlogctl partition elect --topic 'orders-.*'
      streamlogctl partition elect orders-0 --election-type unclean --dry-run
      streamlogctl partition elect orders-0 --election-type unclean
    """
    named = [topic_partition(text) for text in partitions]
    if topic is None and index is not None:
        raise click.UsageError("--partition needs --topic.")
    if everything == (bool(named) or topic is not None):
        raise click.UsageError("Give partitions, such as orders-0, a --topic, or --all.")
    kind = ElectionType(election_type)
    if dry_run and kind is not ElectionType.UNCLEAN:
        raise click.UsageError("--dry-run needs --election-type unclean.")

    async def work(admin: AsyncAdmin) -> tuple[Election, ...]:
        chosen = None if everything else list(dict.fromkeys([*named, *await _of_topic(admin, topic, index)]))
        if dry_run:
            return await admin.preview_unclean_election(chosen)
        return await admin.elect_leaders(chosen, kind=kind)

    found = with_admin(target, work)
    if dry_run:
        _show_preview(output, found)
        return
    rows = [_elected_row(one) for one in found]
    if rows or output is Output.JSON:
        show_rows(output, rows, columns=_ELECTED_COLUMNS)
    else:
        say("No partition needs an election.")
    end_with(("", one.error) for one in found if not isinstance(one.error, ElectionNotNeededError))


def _show_preview(output: Output, found: Sequence[Election]) -> None:
    rows = [_candidate_row(one, candidate) for one in found for candidate in one.candidates]
    if output is not Output.JSON:
        rows = [{**row, **_UNKNOWN} if row["log_end"] is None else row for row in rows]
    if rows or output is Output.JSON:
        show_rows(output, rows, columns=_CANDIDATE_COLUMNS)
    else:
        click.echo("Every partition has a leader, or no active replica.")
    down = sorted({row.node_id for one in found for row in one.candidates if row.log_end is None})
    if down:
        click.echo(
            f"Nodes {', '.join(map(str, down))} have not answered: the ends of their logs are unknown. Start them "
            "first, if possible.",
            err=True,
        )
    end_with((str(one.at), one.error) for one in found if not isinstance(one.error, ElectionNotNeededError))


def _candidate_row(one: Election, candidate: ElectionCandidate) -> Row:
    return {
        "partition": str(one.at),
        "replica": candidate.node_id,
        "state": candidate.state,
        "in_sync_last": candidate.known,
        "last_epoch": candidate.last_epoch,
        "log_end": candidate.log_end,
        "lost_records": candidate.lost_records,
        "would_lead": candidate.would_lead,
    }


def _elected_row(one: Election) -> Row:
    outcome = "elected" if one.error is None else "failed"
    if isinstance(one.error, ElectionNotNeededError):
        outcome = "leads already"
    return {"partition": str(one.at), "leader": one.leader, "outcome": outcome}


async def _of_topic(admin: AsyncAdmin, topic: str | None, index: int | None) -> list[TopicPartition]:
    """Of the topic, or of those that a regular expression matches: all partitions, or this one. Errors as
    `matching_topics`.
    """
    if topic is None:
        return []
    if index is not None and not is_expression(topic):
        return [TopicPartition(topic, PartitionId(index))]
    found = []
    topics = await matching_topics(admin, [topic])
    for one in await admin.describe_topics(topics):
        if one.error is not None:
            raise one.error
        found += [
            TopicPartition(one.name, at.partition) for at in one.partitions if index is None or at.partition == index
        ]
    if not found:
        raise no_such_partition(topics, str(index))
    return found
