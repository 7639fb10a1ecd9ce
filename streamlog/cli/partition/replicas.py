"""`streamlogctl partition verify` and `repair`: compare the replicas of partitions, and repair damaged ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from streamlog.cli.common.failures import FAILED, complain
from streamlog.cli.common.nouns import all_names, matching_topics, no_such_partition, topic_partition
from streamlog.cli.common.output import Output, Row, output_option, say, show_json, show_rows
from streamlog.cli.common.progress import counting
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import (
    DamagedRange,
    PartitionDigests,
    PartitionRepairs,
    ReplicaDigest,
    ReplicaRepair,
    TopicDescription,
)
from streamlog.errors import StreamlogError, UnknownTopicOrPartitionError
from streamlog.model import INT32_MAX, TopicPartition

_DIGEST_COLUMNS: Final = ("partition", "node", "state", "offsets", "batches", "log_end", "digest")
_REPAIR_COLUMNS: Final = ("partition", "node", "offsets", "outcome", "from", "file", "position", "reason")
# For one partition: its replicas are read from disk.
_DIGEST_TIMEOUT_S: Final = 3_600.0


@click.command
@click.argument("names", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "--topic", "flag_names", metavar="TOPIC", multiple=True, help="As TOPIC; can be repeated; or a regular expression."
)
@click.option("--partition", "index", type=click.IntRange(0, INT32_MAX), help="Only this partition of each topic.")
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
      streamlogctl partition verify orders-0

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
        say(
            f"All replicas of {len(found)} partition{'' if len(found) == 1 else 's'} are identical.",
            err=output is Output.TEXT,
        )
    if differing or failures:
        sys.exit(FAILED)


async def _digests(
    admin: AsyncAdmin, names: Sequence[str], index: int | None
) -> tuple[list[PartitionDigests], list[tuple[str, StreamlogError]]]:
    topics = await admin.describe_topics(await matching_topics(admin, names))
    named: list[TopicPartition] = []
    failures: list[tuple[str, StreamlogError]] = []
    for topic in topics:
        if topic.error is None:
            continue
        if (meant := await _partition_of_that_name(admin, topic)) is not None:
            named.append(meant)
        else:
            failures.append((topic.name, topic.error))
    partitions = [(one.topic, one.partition) for one in named]
    partitions += [
        (topic.name, at.partition)
        for topic in topics
        for at in topic.partitions
        if (index is None or at.partition == index) and TopicPartition(topic.name, at.partition) not in named
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


async def _partition_of_that_name(admin: AsyncAdmin, missing: TopicDescription) -> TopicPartition | None:
    """Of a name such as orders-0, which no topic has."""
    if not isinstance(missing.error, UnknownTopicOrPartitionError):
        return None
    try:
        at = topic_partition(missing.name)
    except click.BadParameter:
        return None
    [topic] = await admin.describe_topics([at.topic])
    return at if any(one.partition == at.partition for one in topic.partitions) else None


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


@click.command
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
    named = list(dict.fromkeys(map(topic_partition, partitions)))
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
