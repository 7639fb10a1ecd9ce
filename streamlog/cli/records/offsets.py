"""`streamlogctl offsets`: offsets of partitions at their ends, or at a time; Kafka's kafka-get-offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from streamlog.cli.common.nouns import (
    all_names,
    is_number,
    matching_topics,
    no_such_partition,
    topic_partition,
    topics_argument,
)
from streamlog.cli.common.output import Output, Row, output_option, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.records.consume import milliseconds
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.consumer.offset_finder import AtTime, Bound, Last, OffsetSpec
from streamlog.model import INT32_MAX, PartitionId, TopicPartition

_COLUMNS: Final = ("topic", "partition", "offset")
# Kafka's numbers, and words.
_TIMES: Final = {"latest": Bound.LATEST, "-1": Bound.LATEST, "earliest": Bound.EARLIEST, "-2": Bound.EARLIEST}


@click.command
@topics_argument
@click.option("--topic-partitions", "partitions", metavar="TOPIC-N,...", multiple=True, help="Only these partitions.")
@click.option("--partitions", "numbers", metavar="N,...", help="Only these partitions of each topic.")
@click.option(
    "--time",
    "at",
    metavar="latest|earliest|MS|TIME",
    default="latest",
    show_default=True,
    help="The end, the beginning, or the first record of this time or later; -1 and -2 as in Kafka's tool.",
)
@click.option("--last", type=click.IntRange(0), help="This number of offsets before the end, instead of --time.")
@output_option
@cluster_options
def offsets(
    target: Target,
    output: Output,
    names: tuple[str, ...],
    flag_names: tuple[str, ...],
    partitions: tuple[str, ...],
    numbers: str | None,
    at: str,
    last: int | None,
) -> None:
    """Show offsets of partitions; without a name: of all topics except internal ones.

    A time after the last record has no offset: -1.

    \b
    Examples:
      streamlogctl offsets orders
      streamlogctl offsets --topic 'orders.*' --time earliest
      streamlogctl offsets orders --time 2026-11-21T15:00:00Z
      streamlogctl offsets --topic-partitions orders-0,clicks-3 --last 10
    """
    place: OffsetSpec = _place(at) if last is None else Last(last)
    only = None if numbers is None else _numbers(numbers)
    named = [topic_partition(part.strip()) for text in partitions for part in text.split(",") if part.strip()]
    wanted = all_names(names, flag_names, required=False)

    async def work(admin: AsyncAdmin) -> list[Row]:
        chosen = list(named)
        if wanted or not named:
            described = await admin.describe_topics(await matching_topics(admin, wanted))
            for one in described:
                if one.error is not None:
                    raise one.error
                chosen += [
                    TopicPartition(one.name, part.partition)
                    for part in one.partitions
                    if only is None or part.partition in only
                ]
            if described and not chosen:
                raise no_such_partition([one.name for one in described], numbers or "")
        found = await admin.list_offsets(dict.fromkeys(chosen, place)) if chosen else {}
        return [
            {"topic": part.topic, "partition": part.partition, "offset": found[part].offset} for part in sorted(found)
        ]

    show_rows(output, with_admin(target, work), columns=_COLUMNS)


def _place(text: str) -> OffsetSpec:
    return _TIMES.get(text) or AtTime(milliseconds(text, "--time"))


def _numbers(text: str) -> Sequence[PartitionId]:
    parts = [part.strip() for part in text.split(",")]
    if not all(is_number(part, INT32_MAX) for part in parts):
        raise click.BadParameter(f"{text!r}: must be partition numbers, such as 0,1.", param_hint="--partitions")
    return [PartitionId(int(part)) for part in parts]
