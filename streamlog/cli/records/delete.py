"""`streamlogctl records delete` and `topic trim`: the oldest records; Kafka's kafka-delete-records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import click

from streamlog.cli.common.failures import end_with
from streamlog.cli.common.nouns import (
    Noun,
    all_names,
    is_number,
    matching_topics,
    topic_partition,
    topics_argument,
    whole_number,
)
from streamlog.cli.common.output import Output, Row, output_option, say, show_rows
from streamlog.cli.common.session import say_lost_quorum, with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.records.consume import milliseconds
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import DeletedRecords
from streamlog.client.consumer.offset_finder import AtTime, Bound, Last, OffsetAndTimestamp, OffsetSpec
from streamlog.daemon.text_file import read_text
from streamlog.errors import InvalidConfigError
from streamlog.model import INT32_MAX, INT64_MAX, Offset, PartitionId, TopicPartition

_COLUMNS: Final = ("topic", "partition", "log_start")
_TRIM_COLUMNS: Final = ("topic", "partition", "log_start", "deleted_offsets")
_FILE_BYTES_MAX: Final = 64 << 20
_HIGH_WATERMARK: Final = -1
_EXAMPLE: Final = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 100}]}'

Before = Mapping[TopicPartition, int | Bound]


@click.group(cls=Noun)
def records() -> None:
    """Delete the oldest records of partitions."""


@records.command
@click.argument("partitions", metavar="[TOPIC-PARTITION]...", nargs=-1)
@click.option(
    "--before",
    metavar="OFFSET|latest",
    help="Delete the records below this offset; latest: all that are committed.",
)
@click.option(
    "--offset-json-file",
    "file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help=f"As Kafka's tool: {_EXAMPLE}; offset -1: all that are committed.",
)
@output_option
@cluster_options
def delete(target: Target, output: Output, partitions: tuple[str, ...], before: str | None, file: str | None) -> None:
    """Delete the records of partitions below an offset. This cannot be undone.

    Readers find the partition to start at that offset at once; retention removes segments that are wholly below it from
    the disk later. Offsets of records do not change.

    \b
    Examples:
      streamlogctl records delete orders-0 --before 1000
      streamlogctl records delete orders-0 orders-1 --before latest
      streamlogctl records delete --offset-json-file offsets.json
    """
    if (file is None) != bool(partitions) or (file is None) != (before is not None):
        raise click.UsageError("Give partitions, such as orders-0, and --before OFFSET; or --offset-json-file FILE.")
    wanted: Before
    if file is None:
        wanted = dict.fromkeys(map(topic_partition, partitions), _offset(before or ""))
    else:
        wanted = _from_file(file)
    results = with_admin(target, lambda admin: admin.delete_records(wanted))
    rows: list[Row] = [
        {"topic": one.at.topic, "partition": one.at.partition, "log_start": one.log_start}
        for one in results
        if one.error is None
    ]
    show_rows(output, rows, columns=_COLUMNS)
    say_lost_quorum(target, (one.error for one in results))
    end_with((str(one.at), one.error) for one in results)


def _offset(text: str) -> int | Bound:
    if text in ("latest", str(_HIGH_WATERMARK)):
        return Bound.LATEST
    if not is_number(text, INT64_MAX):
        raise click.BadParameter(f"{text!r}: must be an offset, from 0, or latest.", param_hint="--before")
    return int(text)


def _from_file(path: str) -> Before:
    try:
        document = json.loads(read_text(path, bytes_max=_FILE_BYTES_MAX))
        found: dict[TopicPartition, int | Bound] = {}
        for one in document["partitions"]:
            at = TopicPartition(str(one["topic"]), PartitionId(whole_number(one["partition"], 0, INT32_MAX)))
            offset = whole_number(one["offset"], _HIGH_WATERMARK, INT64_MAX)
            found[at] = Bound.LATEST if offset == _HIGH_WATERMARK else offset
    except InvalidConfigError as error:
        raise click.UsageError(f"{error.message}.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise click.UsageError(
            f"{path} is not a list of offsets ({type(problem).__name__}: {problem}): it must look like {_EXAMPLE}."
        ) from None
    if not found:
        raise click.UsageError(f"{path} names no partitions.")
    return found


@click.command
@topics_argument
@click.option("--before-time", metavar="MS|TIME", help="Delete what is older: ms since 1970, or 2026-11-21T15:00:00.")
@click.option("--keep-last", type=click.IntRange(0), help="Keep this number of offsets of each partition.")
@click.option("--everything", is_flag=True, help="Delete all committed records.")
@click.option("--dry-run", is_flag=True, help="Only show where the partitions would start.")
@output_option
@cluster_options
def trim(
    target: Target,
    output: Output,
    names: tuple[str, ...],
    flag_names: tuple[str, ...],
    before_time: str | None,
    keep_last: int | None,
    *,
    everything: bool,
    dry_run: bool,
) -> None:
    """Delete the oldest records of all partitions of topics. This cannot be undone.

    With --before-time, the first record of that time or later, and all after it, stay.

    \b
    Examples:
      streamlogctl topic trim orders --before-time 2026-11-21T15:00:00Z --dry-run
      streamlogctl topic trim orders --before-time 2026-11-21T15:00:00Z
      streamlogctl topic trim orders --keep-last 1000
      streamlogctl topic trim orders --everything
    """
    wanted = all_names(names, flag_names)
    if [before_time is not None, keep_last is not None, everything].count(True) != 1:
        raise click.UsageError("Give one of --before-time, --keep-last and --everything.")
    place: OffsetSpec = Bound.LATEST
    if before_time is not None:
        place = AtTime(milliseconds(before_time, "--before-time"))
    elif keep_last is not None:
        place = Last(keep_last)

    async def work(admin: AsyncAdmin) -> tuple[tuple[DeletedRecords, ...], dict[TopicPartition, Offset]]:
        described = await admin.describe_topics(await matching_topics(admin, wanted))
        for one in described:
            if one.error is not None:
                raise one.error
        partitions = [TopicPartition(one.name, part.partition) for one in described for part in one.partitions]
        starts = {at: found.offset for at, found in (await _found(admin, partitions, Bound.EARLIEST)).items()}
        before = await _offsets(admin, partitions, place)
        if dry_run:
            return tuple(DeletedRecords(at=at, log_start=before[at], error=None) for at in partitions), starts
        return await admin.delete_records(before), starts

    results, starts = with_admin(target, work)
    rows: list[Row] = [
        {
            "topic": one.at.topic,
            "partition": one.at.partition,
            "log_start": one.log_start,
            "deleted_offsets": max(0, one.log_start - starts[one.at]),
        }
        for one in sorted(results, key=lambda one: one.at)
        if one.error is None
    ]
    show_rows(output, rows, columns=_TRIM_COLUMNS)
    total = sum(max(0, one.log_start - starts[one.at]) for one in results if one.error is None)
    if dry_run:
        say(f"Nothing was deleted: without --dry-run, {_of_offsets(total)} would be.", err=True)
    else:
        say(f"Deleted {_of_offsets(total)}.", err=True)
    say_lost_quorum(target, (one.error for one in results))
    end_with((str(one.at), one.error) for one in results)


def _of_offsets(count: int) -> str:
    return f"the records of {count} offset{'' if count == 1 else 's'}"


async def _offsets(
    admin: AsyncAdmin, partitions: Sequence[TopicPartition], place: OffsetSpec
) -> dict[TopicPartition, Offset]:
    """Where the partitions are to start; at the end where no record is of the time or later."""
    found = {at: one.offset for at, one in (await _found(admin, partitions, place)).items()}
    late = [at for at, offset in found.items() if offset < 0]
    ends = await _found(admin, late, Bound.LATEST)
    return found | {at: one.offset for at, one in ends.items()}


async def _found(
    admin: AsyncAdmin, partitions: Sequence[TopicPartition], place: OffsetSpec
) -> dict[TopicPartition, OffsetAndTimestamp]:
    return await admin.list_offsets(dict.fromkeys(partitions, place)) if partitions else {}
