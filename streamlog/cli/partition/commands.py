"""`streamlogctl partition`: elect leaders, move replicas, compare and repair replicas."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Final

import click

from streamlog.cli.common.failures import FAILED, complain, end_with
from streamlog.cli.common.nouns import (
    Noun,
    all_names,
    is_expression,
    matching_topics,
    no_such_partition,
    node_ids,
    topic_partition,
)
from streamlog.cli.common.output import Output, Row, output_option, say, show_json, show_rows
from streamlog.cli.common.progress import counting
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.partition.log_dir import move_log_dir
from streamlog.cli.partition.rebalance import Found, look, moved, plan_json, planned
from streamlog.cli.partition.throttle import set_throttle, throttle_option
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import (
    DamagedRange,
    Election,
    ElectionCandidate,
    ElectionType,
    PartitionDigests,
    PartitionRepairs,
    Reassignment,
    ReplicaDigest,
    ReplicaRepair,
)
from streamlog.daemon.text_file import read_text
from streamlog.errors import ElectionNotNeededError, InvalidConfigError, StreamlogError
from streamlog.model import PartitionId, TopicPartition

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
_MOVE_COLUMNS: Final = ("partition", "replicas", "adding", "removing", "isr")
_DIGEST_COLUMNS: Final = ("partition", "node", "state", "offsets", "batches", "log_end", "digest")
_REPAIR_COLUMNS: Final = ("partition", "node", "offsets", "outcome", "from", "file", "position", "reason")
_PLAN_BYTES_MAX: Final = 64 << 20
# For one partition: its replicas are read from disk.
_DIGEST_TIMEOUT_S: Final = 3_600.0


@click.group(cls=Noun)
def partition() -> None:
    """Elect leaders, move replicas, compare and repair replicas."""


partition.add_command(move_log_dir)


@partition.command
@click.argument("partitions", metavar="[TOPIC-PARTITION]...", nargs=-1)
@click.option(
    "--topic", metavar="TOPIC", help="All partitions of this topic, or of those that a regular expression matches."
)
@click.option("--partition", "index", type=click.IntRange(0), help="With --topic: only this partition.")
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


@partition.command
@click.argument("partitions", metavar="[TOPIC-PARTITION]...", nargs=-1)
@click.option("--replicas", metavar="1,2,3", help="The new replicas, the preferred leader first.")
@click.option(
    "--reassignment-json-file",
    "file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help='As Kafka\'s tool: {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}.',
)
@click.option("--generate", is_flag=True, help="Only print a plan that spreads TOPIC... evenly over --brokers.")
@click.option("--brokers", metavar="1,2,3", help="With --generate: the nodes; default: all active ones.")
@click.option(
    "--topics-to-move-json-file",
    "topics_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help='With --generate, as Kafka\'s tool: {"topics": [{"topic": "orders"}]}.',
)
@throttle_option
@click.option("--list", "listing", is_flag=True, help="Only list the reassignments in progress.")
@click.option("--cancel", is_flag=True, help="Cancel the reassignments of these partitions.")
@click.option("--wait", is_flag=True, help="Wait until the replicas have moved.")
@output_option
@cluster_options
def reassign(
    target: Target,
    output: Output,
    partitions: tuple[str, ...],
    *,
    replicas: str | None,
    file: str | None,
    generate: bool,
    brokers: str | None,
    topics_file: str | None,
    throttle: int | None,
    listing: bool,
    cancel: bool,
    wait: bool,
) -> None:
    """Move replicas to other nodes. Copying continues in the background.

    --generate prints the present and the proposed assignment as JSON; save the latter in a file, and carry it out with
    --reassignment-json-file. 'streamlogctl cluster rebalance' does this for all topics.

    \b
    Examples:
      streamlogctl partition reassign orders-0 --replicas 1,2,4 --wait
      streamlogctl partition reassign --generate orders --brokers 1,2,4
      streamlogctl partition reassign --reassignment-json-file moves.json --throttle 10000000 --wait
      streamlogctl partition reassign --list
      streamlogctl partition reassign orders-0 --cancel
    """
    if not generate and (brokers is not None or topics_file is not None):
        raise click.UsageError("--brokers and --topics-to-move-json-file need --generate.")
    if generate:
        if replicas is not None or file is not None or cancel or listing or wait or throttle is not None:
            raise click.UsageError("--generate only prints a plan: give topics, --brokers and no other option.")
        _generate(target, output, _topics_to_move(partitions, topics_file), brokers)
        return
    named = [topic_partition(text) for text in partitions]
    if listing:
        _show_moves(target, output, named)
        return
    wanted = _from_file(file, cancel=cancel) if file is not None else _from_options(named, replicas, cancel=cancel)
    if cancel and throttle is not None:
        raise click.UsageError("--throttle is for moves that begin, not for --cancel.")
    if throttle is not None:
        restore = with_admin(target, lambda admin: set_throttle(admin, throttle))
    results = with_admin(target, lambda admin: admin.alter_partition_reassignments(wanted))
    for result in results:
        if result.error is None:
            say(f"{'Cancelled the move of' if cancel else 'Moving'} {result.at}.")
    end_with((str(result.at), result.error) for result in results)
    if wait and not cancel:
        with_admin(target, lambda admin: moved(admin, [one.at for one in wanted]))
        say("All replicas have moved.")
        if throttle is not None:
            with_admin(target, lambda admin: restore(admin))


def _from_options(named: Sequence[TopicPartition], replicas: str | None, *, cancel: bool) -> list[Reassignment]:
    if not named or (replicas is None) != cancel:
        raise click.UsageError("Give partitions, such as orders-0, and --replicas 1,2,3 or --cancel.")
    target = None if replicas is None else node_ids(replicas, "--replicas")
    return [Reassignment(at=at, replicas=target) for at in dict.fromkeys(named)]


def _from_file(path: str, *, cancel: bool) -> list[Reassignment]:
    try:
        document = json.loads(read_text(path, bytes_max=_PLAN_BYTES_MAX))
        return [
            Reassignment(
                at=TopicPartition(str(one["topic"]), PartitionId(int(one["partition"]))),
                replicas=None if cancel else [int(node) for node in one["replicas"]],
            )
            for one in document["partitions"]
        ]
    except InvalidConfigError as error:
        raise click.UsageError(f"{error.message}.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise click.UsageError(
            f"{path} is not a list of reassignments ({type(problem).__name__}: {problem}): it must look like "
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}.'
        ) from None


def _show_moves(target: Target, output: Output, named: Sequence[TopicPartition]) -> None:
    found = with_admin(target, lambda admin: admin.list_partition_reassignments(named))
    rows: list[Row] = [
        {
            "partition": f"{one.topic}-{one.partition.partition}",
            "replicas": one.partition.replicas,
            "adding": one.partition.adding,
            "removing": one.partition.removing,
            "isr": one.partition.isr,
        }
        for one in found
    ]
    if rows or output is Output.JSON:
        show_rows(output, rows, columns=_MOVE_COLUMNS)
    else:
        say("There are no reassignments in progress.")


def _topics_to_move(names: Sequence[str], file: str | None) -> list[str]:
    """UsageError."""
    found = all_names(names, (), required=False)
    if file is not None:
        try:
            document = json.loads(read_text(file, bytes_max=_PLAN_BYTES_MAX))
            found += [str(one["topic"]) for one in document["topics"]]
        except InvalidConfigError as error:
            raise click.UsageError(f"{error.message}.") from None
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise click.UsageError(
                f"{file} is not a list of topics ({type(problem).__name__}: {problem}): it must look like "
                '{"topics": [{"topic": "orders"}]}.'
            ) from None
    if not found:
        raise click.UsageError("Give topics, such as orders, or --topics-to-move-json-file FILE.")
    return list(dict.fromkeys(found))


def _generate(target: Target, output: Output, topics: Sequence[str], brokers: str | None) -> None:
    chosen = None if brokers is None else node_ids(brokers, "--brokers")

    async def work(admin: AsyncAdmin) -> tuple[Found, list[str]]:
        named = await matching_topics(admin, topics)
        for one in await admin.describe_topics(named):
            if one.error is not None:
                raise one.error
        return await look(admin, chosen), named

    found, named = with_admin(target, work)
    movable = sorted(at for at in found.current if at.topic in named)
    after = {one.at: one.after for one in planned(found, movable)}
    current = plan_json([(at, found.current[at]) for at in movable])
    proposed = plan_json([(at, after.get(at, found.current[at])) for at in movable])
    if output is Output.JSON:
        show_json({"current": current, "proposed": proposed})
        return
    say("Current partition replica assignment")
    say(json.dumps(current))
    say()
    say("Proposed partition reassignment configuration")
    say(json.dumps(proposed))


@partition.command
@click.argument("names", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "--topic", "flag_names", metavar="TOPIC", multiple=True, help="As TOPIC; can be repeated; or a regular expression."
)
@click.option("--partition", "index", type=click.IntRange(0), help="Only this partition of each topic.")
@output_option
@cluster_options
def verify(
    target: Target, output: Output, names: tuple[str, ...], flag_names: tuple[str, ...], *, index: int | None
) -> None:
    """Compare the replicas of partitions byte for byte, by SHA-256 of what each node reads from its disk.

    Without a topic: all topics except internal ones. Compared is the committed range that all replicas have.
    Compacted replicas may differ in bytes and have the same latest records.

    \b
    Examples:
      streamlogctl partition verify
      streamlogctl partition verify orders --partition 0

    \b
    Exit code: 0 all replicas are identical, 1 some differ or could not be read, 2 wrong usage.
    """
    wanted = all_names(names, flag_names, required=False)
    found, failures = with_admin(target, lambda admin: _digests(admin, wanted, index))
    if output is Output.JSON:
        show_json([_digests_json(one) for one in found])
    else:
        rows = [_digest_row(one, replica) for one in found for replica in one.replicas]
        show_rows(output, rows, columns=_DIGEST_COLUMNS)
    for about, error in failures:
        complain(error, about)
    differing = [str(one.at) for one in found if not one.identical]
    if differing:
        say(
            f"Error: the replicas of {', '.join(differing)} are not identical: 'streamlogctl partition repair' "
            "finds and repairs corrupt data on disks; if it finds none, move the replica that differs to another node "
            "with 'streamlogctl partition reassign'.",
            err=True,
        )
    elif found and not failures and output is not Output.JSON:
        say(f"All replicas of {len(found)} partitions are identical.", err=output is Output.TEXT)
    if differing or failures:
        sys.exit(FAILED)


async def _digests(
    admin: AsyncAdmin, names: Sequence[str], index: int | None
) -> tuple[list[PartitionDigests], list[tuple[str, StreamlogError]]]:
    topics = await admin.describe_topics(await matching_topics(admin, names))
    failures = [(topic.name, topic.error) for topic in topics if topic.error is not None]
    partitions = [
        (topic.name, at.partition)
        for topic in topics
        for at in topic.partitions
        if index is None or at.partition == index
    ]
    if index is not None and topics and not partitions and not failures:
        raise no_such_partition([topic.name for topic in topics], str(index))
    found = []
    with counting("comparing replicas", len(partitions), "partitions") as advance:
        for done, (topic_name, at) in enumerate(partitions):
            try:
                found.append(await admin.digest_replicas(topic_name, at, timeout_s=_DIGEST_TIMEOUT_S))
            except StreamlogError as error:
                failures.append((f"{topic_name}-{at}", error))
            advance(done + 1)
    return found, failures


def _state(one: PartitionDigests, replica: ReplicaDigest) -> str:
    if replica.error is not None:
        return "failed"
    if one.identical:
        return "ok"
    first = next((other for other in one.replicas if other.error is None), replica)
    return "ok" if (replica.digest, replica.epochs) == (first.digest, first.epochs) else "differs"


def _digest_row(one: PartitionDigests, replica: ReplicaDigest) -> Row:
    read = replica.error is None
    return {
        "partition": str(one.at),
        "node": replica.node_id,
        "state": _state(one, replica),
        "offsets": f"{one.start_offset}..{one.end_offset}",
        "batches": replica.batch_count,
        "log_end": replica.log_end,
        "digest": replica.digest.hex()[:16] if read else str(replica.error),
    }


def _digests_json(one: PartitionDigests) -> Row:
    return {
        "topic": one.at.topic,
        "partition": one.at.partition,
        "identical": one.identical,
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        "replicas": [
            {
                "node": replica.node_id,
                "digest": replica.digest.hex(),
                "batch_count": replica.batch_count,
                "log_start": replica.log_start,
                "high_watermark": replica.high_watermark,
                "log_end": replica.log_end,
                "epochs": [
                    {"leader_epoch": epoch.leader_epoch, "start_offset": epoch.start_offset} for epoch in replica.epochs
                ],
                "error": None if replica.error is None else replica.error.message,
            }
            for replica in one.replicas
        ],
    }


@partition.command
@click.argument("partitions", metavar="TOPIC-PARTITION...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only show corrupt ranges.")
@output_option
@cluster_options
def repair(target: Target, output: Output, partitions: tuple[str, ...], *, dry_run: bool) -> None:
    """Read all replicas of partitions from disk, and repair corrupt ranges from another in-sync replica.

    Nodes repair automatically what they find when they read it, or when they scrub their logs
    (log.scrub.interval.ms); this command does it now. With --dry-run, findings are only shown; the node repairs
    them a moment later.

    \b
    Examples:
      streamlogctl partition repair orders-0
      streamlogctl partition repair orders-0 orders-1 --dry-run

    \b
    Exit code: 0 all replicas are intact now, 1 some are not, or could not be read, 2 wrong usage.
    """
    named = [topic_partition(text) for text in dict.fromkeys(partitions)]
    found = with_admin(target, lambda admin: _repairs(admin, named, dry_run=dry_run))
    rows = [
        _repair_row(one.at, replica, damage, dry_run=dry_run)
        for one in found
        for replica in one.replicas
        for damage in replica.damages
    ]
    failures = [
        (f"{one.at}, node {replica.node_id}", replica.error)
        for one in found
        for replica in one.replicas
        if replica.error is not None
    ]
    if rows or output is Output.JSON:
        show_rows(output, rows, columns=_REPAIR_COLUMNS)
    elif not failures:
        say(f"The replicas of {', '.join(str(one.at) for one in found)} are intact.")
    for about, error in failures:
        complain(error, about)
    if failures or any(row["outcome"] != "repaired" for row in rows):
        sys.exit(FAILED)


async def _repairs(admin: AsyncAdmin, partitions: Sequence[TopicPartition], *, dry_run: bool) -> list[PartitionRepairs]:
    found = []
    with counting("reading replicas", len(partitions), "partitions") as advance:
        for done, at in enumerate(partitions):
            found.append(
                await admin.repair_replicas(at.topic, at.partition, dry_run=dry_run, timeout_s=_DIGEST_TIMEOUT_S)
            )
            advance(done + 1)
    return found


def _repair_row(at: TopicPartition, replica: ReplicaRepair, damage: DamagedRange, *, dry_run: bool) -> Row:
    outcome = "damaged" if dry_run else "not repaired"
    return {
        "partition": str(at),
        "node": replica.node_id,
        "offsets": f"{damage.begin_offset}..{damage.end_offset}",
        "outcome": outcome if damage.repaired_from is None else "repaired",
        "from": "" if damage.repaired_from is None else damage.repaired_from,
        "file": damage.path,
        "position": damage.position,
        "reason": damage.failure or damage.reason,
    }
