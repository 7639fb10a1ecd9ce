"""`streamlogctl group reset-offsets`: changes the committed offsets of a group without members.

Nothing is changed without --execute. An offset outside the log becomes the nearer end of the log, as in Kafka.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from streamlog.cli.common.failures import NAMED_MAX, end_with
from streamlog.cli.common.nouns import is_number
from streamlog.cli.common.output import Output, Row, on_terminal, output_option, say, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.group.partitions import chosen_partitions, matched, one_group, parsed, topics_option
from streamlog.cli.records.consume import milliseconds
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.offset_resets import ResetKind, ResetTo, check_empty, plan_offsets, plan_reset
from streamlog.config.offset_reset import parse_duration_ms
from streamlog.errors import GroupIdNotFoundError, StreamlogError
from streamlog.model import INT32_MAX, INT64_MAX, Offset, PartitionId, TopicPartition

_COLUMNS: Final = ("group", "topic", "partition", "new_offset")
_HEADINGS: Final = {"new_offset": "new-offset"}
# Columns of a plan: without, or with the group first.
_PLAN_COLUMNS: Final = (3, 4)


class _Modes(Struct, frozen=True, kw_only=True):
    """Exactly one is given."""

    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_offset: int | None
    shift_by: int | None
    to_datetime: str | None
    by_duration: str | None
    from_file: Mapping[TopicPartition, Offset] | None

    def check(self) -> None:
        modes = {
            "--to-earliest": self.to_earliest,
            "--to-latest": self.to_latest,
            "--to-current": self.to_current,
            "--to-offset": self.to_offset is not None,
            "--shift-by": self.shift_by is not None,
            "--to-datetime": self.to_datetime is not None,
            "--by-duration": self.by_duration is not None,
            "--from-file": self.from_file is not None,
        }
        given = [mode for mode, is_given in modes.items() if is_given]
        if not given:
            raise click.UsageError(f"Give the new offsets by one of {', '.join(modes)}.")
        if len(given) > 1:
            raise click.UsageError(f"{' and '.join(given)} are mutually exclusive: give one of them.")
        if self.to_datetime is not None or self.by_duration is not None:
            self.timestamp_ms()

    def to(self) -> ResetTo:
        """Of all modes but --from-file."""
        for kind, chosen in (
            (ResetKind.EARLIEST, self.to_earliest),
            (ResetKind.LATEST, self.to_latest),
            (ResetKind.CURRENT, self.to_current),
        ):
            if chosen:
                return ResetTo(kind)
        if self.to_offset is not None:
            return ResetTo(ResetKind.OFFSET, self.to_offset)
        if self.shift_by is not None:
            return ResetTo(ResetKind.SHIFT, self.shift_by)
        return ResetTo(ResetKind.TIME, self.timestamp_ms())

    def timestamp_ms(self) -> int:
        if self.to_datetime is not None:
            return milliseconds(self.to_datetime, "--to-datetime")
        assert self.by_duration is not None, "one of them is given"
        try:
            duration_ms = parse_duration_ms(self.by_duration)
        except ValueError as problem:
            raise click.BadParameter(f"{self.by_duration!r}: {problem}.", param_hint="--by-duration") from None
        return max(0, time.time_ns() // 1_000_000 - duration_ms)


@click.command("reset-offsets")
@click.argument("name", metavar="[GROUP]", required=False)
@click.option("--group", "flag_name", metavar="GROUP", help="As GROUP.")
@topics_option
@click.option("--all-topics", is_flag=True, help="All topics with committed offsets of the group.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To the committed offset; without one, to the end.")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset.")
@click.option("--shift-by", type=int, help="By this number of offsets; negative: back.")
@click.option("--to-datetime", metavar="TIME", help="To the first record of this time or later: 2026-11-21T15:00:00Z.")
@click.option("--by-duration", metavar="DURATION", help="To this long ago: PT1H, P2DT3H4M.")
@click.option(
    "--from-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A file of --export: lines of topic,partition,offset, or of group,topic,partition,offset.",
)
@click.option("--dry-run", is_flag=True, help="Only show the new offsets. The default.")
@click.option("--execute", is_flag=True, help="Change the offsets.")
@click.option("--export", is_flag=True, help="Print the plan as a file for --from-file.")
@output_option
@cluster_options
def reset_offsets(
    target: Target,
    output: Output,
    name: str | None,
    flag_name: str | None,
    topics: tuple[str, ...],
    *,
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: str | None,
) -> None:
    """Change the committed offsets of a group without members.

    Without --execute, the new offsets are only shown.

    \b
    Examples:
      streamlogctl group reset-offsets billing --topic orders --to-earliest
      streamlogctl group reset-offsets billing --topic orders:0,1 --shift-by -100 --execute
      streamlogctl group reset-offsets billing --all-topics --to-datetime 2026-11-21T15:00:00Z --execute
      streamlogctl group reset-offsets billing --all-topics --to-current --export > plan.csv
      streamlogctl group reset-offsets billing --from-file plan.csv --execute
    """
    named = one_group(name, flag_name)
    modes = _Modes(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=None if from_file is None else _read(from_file, named),
    )
    modes.check()
    _check_scope(topics, dry_run=dry_run, execute=execute, chosen_by_file=from_file is not None, all_topics=all_topics)

    async def work(admin: AsyncAdmin) -> tuple[dict[TopicPartition, Offset], list[tuple[str, StreamlogError | None]]]:
        await check_empty(admin, named)
        is_missing = await _is_missing(admin, named)
        plan = await _plan(admin, named, modes, topics, all_topics=all_topics)
        if is_missing and plan:
            say(f"There is no group {named}: {'it is created.' if execute else '--execute creates it.'}", err=True)
        if not execute:
            return plan, []
        results = await admin.alter_group_offsets(named, plan)
        return plan, [(str(one.at), one.error) for one in results]

    plan, results = with_admin(target, work)
    _say_moved(modes, plan)
    if export:
        _export(plan)
    else:
        _show(output, named, plan)
    if not execute and plan:
        click.echo("Nothing was changed: to change the offsets, give --execute.", err=True)
    end_with(results)


def _say_moved(modes: _Modes, plan: Mapping[TopicPartition, Offset]) -> None:
    """Of which partitions an offset that was given is outside of the log."""
    asked = modes.from_file or {}
    moved = [one for one, offset in plan.items() if offset != asked.get(one, offset)]
    if modes.to_offset is not None:
        moved = [one for one, offset in plan.items() if offset != modes.to_offset]
    if moved:
        named = ", ".join(map(str, moved[:NAMED_MAX])) + (
            f" and {len(moved) - NAMED_MAX} more" if len(moved) > NAMED_MAX else ""
        )
        say(f"Outside of the log, so its nearer end is taken: {named}.", err=True)


def _check_scope(
    topics: Sequence[str], *, dry_run: bool, execute: bool, chosen_by_file: bool, all_topics: bool
) -> None:
    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute are mutually exclusive: give one of them.")
    if not chosen_by_file and all_topics == bool(topics):
        raise click.UsageError("Give the partitions: --topic TOPIC[:0,1], or --all-topics.")


def _show(output: Output, group: str, plan: Mapping[TopicPartition, Offset]) -> None:
    rows: list[Row] = [
        {"group": group, "topic": one.topic, "partition": one.partition, "new_offset": offset}
        for one, offset in plan.items()
    ]
    show_rows(output, rows, columns=_COLUMNS, headings=_HEADINGS)


async def _is_missing(admin: AsyncAdmin, group: str) -> bool:
    """A group may have offsets alone."""
    [described] = await admin.describe_groups([group])
    return isinstance(described.error, GroupIdNotFoundError) and not await admin.list_group_offsets(group)


async def _plan(
    admin: AsyncAdmin, name: str, modes: _Modes, topics: Sequence[str], *, all_topics: bool
) -> dict[TopicPartition, Offset]:
    if modes.from_file is not None:
        return await plan_offsets(admin, modes.from_file)
    committed = await admin.list_group_offsets(name)
    if all_topics:
        return await plan_reset(admin, committed, sorted(committed), modes.to())
    named = await matched(admin, topics)
    known = chosen_partitions(named, await _partitions_of(admin, named))
    return await plan_reset(admin, committed, known, modes.to())


async def _partitions_of(admin: AsyncAdmin, topics: Sequence[str]) -> list[TopicPartition]:
    """All partitions of topics that are given without partition numbers."""
    whole = [topic for topic, numbers in map(parsed, topics) if numbers is None]
    found = []
    for topic in await admin.describe_topics(whole) if whole else ():
        if topic.error is not None:
            raise topic.error
        found += [TopicPartition(topic.name, one.partition) for one in topic.partitions]
    return found


def _read(path: str, name: str) -> dict[TopicPartition, Offset]:
    """UsageError. Spreadsheets begin a file of UTF-8 with a byte order mark."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            return _parsed_plan(path, csv.reader(file), name)
    except (UnicodeDecodeError, csv.Error) as problem:
        raise click.UsageError(
            f"{path} cannot be read ({problem}): it must have lines of topic,partition,offset, in UTF-8."
        ) from None


def _parsed_plan(path: str, rows: Iterable[list[str]], name: str) -> dict[TopicPartition, Offset]:
    plan: dict[TopicPartition, Offset] = {}
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) not in _PLAN_COLUMNS or not (is_number(cells[-2], INT32_MAX) and is_number(cells[-1], INT64_MAX)):
            raise click.UsageError(f"{path}: line {number}: must be topic,partition,offset.")
        if len(cells) == max(_PLAN_COLUMNS) and cells[0] != name:
            continue
        topic, partition, offset = cells[-3:]
        plan[TopicPartition(topic, PartitionId(int(partition)))] = Offset(int(offset))
    return plan


def _export(plan: Mapping[TopicPartition, Offset]) -> None:
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([one.topic, one.partition, at] for one, at in plan.items())
    sys.stdout.write(on_terminal(lines.getvalue()))
