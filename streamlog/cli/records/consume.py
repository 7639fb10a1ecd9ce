"""`streamlogctl consume`: reads records and prints them.

The consumer returns encoded batches, which are printed batch by batch. It ends by --max-messages, --until-end,
--timeout-ms without a record, Ctrl-C, or when standard output is closed, which is noticed also while no records arrive.

With --group it is a member of that group, and the offsets of printed records are committed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any, Final

import click

from streamlog.cli.common.nouns import is_expression, is_number, key_values, one_name, topic_argument
from streamlog.cli.common.output import say
from streamlog.cli.common.session import finish_with_records, matched_topics, showing_warnings
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.records.format_template import FormatTemplate
from streamlog.cli.records.output_format import OutputFormat, json_lines
from streamlog.cli.records.standard_output import is_interrupted, while_open, write
from streamlog.cli.records.waits import reporting_silence
from streamlog.client.consumer.async_consumer import AsyncConsumer
from streamlog.client.consumer.consumer_records import ConsumerBatch
from streamlog.client.consumer.offset_finder import AtTime, Last
from streamlog.client.consumer.start_positions import EARLIEST, LATEST, Start
from streamlog.model import INT32_MAX, INT64_MAX, Offset, PartitionId, TopicPartition
from streamlog.printable import escaped_json
from streamlog.records.decode import Fields

_CHECK_ENDS_S: Final = 0.5  # how often a member checks whether it has reached the ends
_ENDS: Final = {"earliest": EARLIEST, "latest": LATEST}


@click.command
@topic_argument
@click.option("--from-beginning", is_flag=True, help="Start at the first record; default: at the end.")
@click.option(
    "--offset",
    metavar="OFFSET",
    help="Start at this offset of --partition; -10: so many before the end; or earliest, latest.",
)
@click.option(
    "--partition", "partitions", type=click.IntRange(0, INT32_MAX), multiple=True, help="Only this partition."
)
@click.option(
    "--timestamp",
    metavar="MS|TIME",
    help="Start at this time: ms since 1970, or as 2026-11-21T15:00:00 (local) or ...Z.",
)
@click.option("--group", metavar="GROUP", help="Read as a member of this group, from its committed offsets.")
@click.option("--max-messages", type=click.IntRange(1), help="End after this number of records.")
@click.option("--until-end", is_flag=True, help="End at the partitions' current ends.")
@click.option("--timeout-ms", type=click.IntRange(0), help="End when no record has arrived for this time.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, help="What to print, see above.")
@click.option("--format", "template", metavar="FORMAT", help="What to print, as kcat: '%t %p %o %k %s\\n'.")
@click.option("--raw", is_flag=True, help="On a terminal too, print keys and values without escaping.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one object a line, with topic, partition, offset, timestamp, key, value and headers.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="read_committed: no records of transactions that are open or were aborted. Default: as --command-config says, "
    "else read_uncommitted.",
)
@click.option(
    "--on-corrupt-batch",
    type=click.Choice(["fail", "skip"]),
    help="At a stored batch that cannot be decoded: end with an error (default), or skip and report it.",
)
@click.option("--consumer-property", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the consumer.")
@cluster_options
def consume(
    target: Target,
    name: str | None,
    flag_name: str | None,
    offset: str | None,
    partitions: tuple[int, ...],
    timestamp: str | None,
    group: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    properties: tuple[str, ...],
    template: str | None,
    output: str,
    isolation_level: str | None,
    on_corrupt_batch: str | None,
    settings: tuple[str, ...],
    *,
    raw: bool,
    from_beginning: bool,
    until_end: bool,
) -> None:
    """Print the records of TOPIC; by default, their values. TOPIC may be a regular expression: all topics that it
    matches as a whole when the command starts, with --group later ones too.

    \b
    Properties (as of Kafka's console consumer), true or false:
      print.key print.value print.offset print.partition print.timestamp print.headers
      print.epoch
    and:
      key.separator=:          between the printed fields; default: a tab
      line.separator=, headers.separator=, null.literal=

    \b
    Examples:
      streamlogctl consume orders --from-beginning
      streamlogctl consume orders --partition 0 --offset 100 --max-messages 10
      streamlogctl consume orders --offset -10 --until-end
      streamlogctl consume orders --from-beginning --format '%t %p %o %k %s\\n'
      streamlogctl consume orders --timestamp 2026-11-21T15:00:00Z --until-end
      streamlogctl consume orders --from-beginning --property print.key=true --property key.separator=:
      streamlogctl consume orders --from-beginning --until-end --output json | jq .value.text
      streamlogctl consume orders --group billing --from-beginning
      streamlogctl consume 'orders-.*' --from-beginning --output json
    """
    topic = one_name(name, flag_name)
    start = _start(offset, timestamp, partitions, from_beginning=from_beginning)
    of_consumer = key_values(settings, "--consumer-property")
    group = of_consumer.get("group.id", group)
    if group is not None and partitions:
        raise click.UsageError(
            "--group and --partition are mutually exclusive: a group assigns the partitions to its members."
        )
    if group is not None and (offset is not None or timestamp is not None):
        raise click.UsageError(
            "A group starts at its committed offsets. Change them with 'streamlogctl group reset-offsets', or read "
            "without --group."
        )
    if partitions and is_expression(topic):
        raise click.UsageError("--partition is of one topic: give its name.")
    if template is not None and (properties or output == "json"):
        raise click.UsageError("--format, --property and --output json are mutually exclusive: give one of them.")
    form_texts = key_values(properties, "--property")
    given = {
        # A missing offset is an error; from an end on, reading continues at that end.
        "auto.offset.reset": "none" if isinstance(start, int) else "latest" if start is LATEST else "earliest",
        "default.api.timeout.ms": target.request_timeout_ms,
        **({} if group is None else {"group.id": group}),
        **({} if isolation_level is None else {"isolation.level": isolation_level}),
        **({} if on_corrupt_batch is None else {"on.corrupt.batch": on_corrupt_batch}),
        **of_consumer,
    }
    reading = _Reading(
        target,
        topic,
        target.settings | given,
        start=start,
        partitions=partitions,
        is_member=group is not None,
        until_end=until_end,
        max_messages=max_messages,
        patience_s=None if timeout_ms is None else timeout_ms / 1_000,
        output=output,
    )

    async def run() -> None:
        escape = not raw and sys.stdout.isatty()
        form: OutputFormat | FormatTemplate = OutputFormat.of(form_texts, escape=escape)
        if template is not None:
            form = FormatTemplate(template, escape=escape)
        await reading.run(form)

    try:
        finish_with_records(target, run())
    finally:
        reading.say_processed()


class _Reading:
    """One run of the command, from a consumer to standard output."""

    def __init__(
        self,
        target: Target,
        topic: str,
        settings: Mapping[str, Any],
        *,
        start: Start,
        partitions: tuple[int, ...],
        is_member: bool,
        until_end: bool,
        max_messages: int | None,
        patience_s: float | None,
        output: str,
    ) -> None:
        self._target = target
        self._topic = topic
        self._settings = settings
        self._start = start
        self._partitions = partitions
        self._is_member = is_member
        self._until_end = until_end
        self._max_messages = max_messages
        self._patience_s = patience_s
        self._output = output
        self._printed = 0  # records
        self._skipped = 0  # corrupt batches
        self._received = 0  # batches
        self._began = False
        self._writing = False

    async def run(self, form: OutputFormat | FormatTemplate) -> None:
        with showing_warnings():
            consumer = AsyncConsumer(self._settings)
        topics = await matched_topics(self._target, self._topic)
        # Leaving `async with consumer` without an error commits all batches that were returned. Where the output was
        # closed within a batch, the error has to pass it.
        with suppress(BrokenPipeError):
            async with consumer, reporting_silence(self._target, topics, self._awaited):
                await while_open(self._read(consumer, topics, form))
        if is_interrupted():
            raise asyncio.CancelledError

    def say_processed(self) -> None:
        if self._began:
            without = f"; corrupt batches skipped: {self._skipped}" if self._skipped else ""
            click.echo(f"Processed a total of {self._printed} messages{without}", err=True)

    def _awaited(self) -> int | None:
        return None if self._writing else self._received

    async def _read(self, consumer: AsyncConsumer, topics: list[str], form: OutputFormat | FormatTemplate) -> None:
        wanted = [
            TopicPartition(one, PartitionId(number))
            for one in topics
            for number in self._partitions or range(await consumer.partition_count(one))
        ]
        if self._is_member and is_expression(self._topic) and not self._until_end:
            consumer.subscribe(pattern=self._topic)
        elif self._is_member:
            consumer.subscribe(topics)
        else:
            await consumer.assign(wanted, start=self._start)
        self._began = True
        ends = await consumer.end_offsets(wanted) if self._until_end else None
        # Without --until-end the fetch fails, with the same reason.
        for at, end in (ends or {}).items():
            if isinstance(self._start, int) and self._start > end:
                text = f"{at.topic}-{at.partition} ends at offset {end}: it has nothing at offset {self._start}."
                say(text, err=True)
        batches = (_of_member if self._is_member else _batches)(consumer, ends, self._patience_s)
        async for batch in batches:
            self._received += 1
            some = _wanted(batch, ends, None if self._max_messages is None else self._max_messages - self._printed)
            self._writing = True
            goes_on = await write(_lines(form, self._output, batch, some))
            self._writing = False
            self._printed += len(some)
            self._skipped = consumer.corrupt_batches_skipped
            is_full = self._printed == self._max_messages
            if self._is_member:
                _seek_to_unprinted(consumer, batch, ends, some[-1][0] + 1 if is_full else None)
            if is_full or not goes_on:
                return


def _start(offset: str | None, timestamp: str | None, partitions: tuple[int, ...], *, from_beginning: bool) -> Start:
    if sum((offset is not None, timestamp is not None, from_beginning)) > 1:
        raise click.UsageError("--from-beginning, --offset and --timestamp are mutually exclusive: give one of them.")
    if timestamp is not None:
        return AtTime(milliseconds(timestamp, "--timestamp"))
    if offset is None or offset in _ENDS:
        return EARLIEST if from_beginning else _ENDS[offset or "latest"]
    if offset.startswith("-") and is_number(offset[1:], INT64_MAX):
        return Last(int(offset[1:]))
    if not is_number(offset, INT64_MAX):
        raise click.BadParameter(
            f"{offset!r}: must be a number up to {INT64_MAX}, earliest or latest.", param_hint="--offset"
        )
    if len(partitions) != 1:
        raise click.UsageError("--offset needs one partition: give it with --partition.")
    return int(offset)


def milliseconds(text: str, option: str) -> int:
    """Parses a number, or a time in ISO 8601."""
    try:
        found = int(text) if text.isdecimal() else round(datetime.fromisoformat(text).timestamp() * 1_000)
    except (ValueError, OverflowError):
        found = -1
    if not 0 <= found <= INT64_MAX:
        raise click.BadParameter(
            f"{text!r}: must be milliseconds since 1970, or a time from 1970 on, such as 2026-11-21T15:00:00.",
            param_hint=option,
        )
    return found


async def _batches(
    consumer: AsyncConsumer, ends: dict[TopicPartition, Offset] | None, patience_s: float | None
) -> AsyncIterator[ConsumerBatch]:
    """Batches until `ends`, if given, or until none has arrived for `patience_s`."""
    while ends is None or await _left(consumer, ends):
        batch = await consumer.poll_batch(timeout_s=patience_s)
        if batch is None:
            return
        yield batch


async def _left(consumer: AsyncConsumer, ends: dict[TopicPartition, Offset]) -> bool:
    """Whether a partition is not at its end; those at their ends are unassigned."""
    done = [one for one in consumer.assignment if await consumer.position(one) >= ends[one]]
    if done:
        await consumer.assign([one for one in consumer.assignment if one not in done])
    return bool(consumer.assignment)


async def _of_member(
    consumer: AsyncConsumer, ends: dict[TopicPartition, Offset] | None, patience_s: float | None
) -> AsyncIterator[ConsumerBatch]:
    """As `_batches`, for the partitions that the group assigns: until their ends."""
    begin = asyncio.get_running_loop().time()
    while True:
        waited_s = asyncio.get_running_loop().time() - begin
        if patience_s is not None and waited_s >= patience_s:
            return
        left_s = None if patience_s is None else patience_s - waited_s
        if ends is not None:
            left_s = _CHECK_ENDS_S if left_s is None else min(left_s, _CHECK_ENDS_S)
        batch = await consumer.poll_batch(timeout_s=left_s)
        if batch is not None:
            yield batch
            begin = asyncio.get_running_loop().time()
        # Partitions at their ends are paused: on a topic that is being written, too, there is a poll without a batch.
        if ends is not None and batch is None and await _at_ends(consumer, ends):
            return


def _reaches_end(batch: ConsumerBatch, ends: dict[TopicPartition, Offset]) -> bool:
    return batch.next_offset >= ends.get(TopicPartition(batch.topic, batch.partition), Offset(0))


async def _at_ends(consumer: AsyncConsumer, ends: dict[TopicPartition, Offset]) -> bool:
    """Whether all assigned partitions are read to their ends; without partitions, the member goes on waiting."""
    mine = consumer.assignment
    return bool(mine) and all([await consumer.position(one) >= ends.get(one, Offset(0)) for one in mine])


def _seek_to_unprinted(
    consumer: AsyncConsumer, batch: ConsumerBatch, ends: dict[TopicPartition, Offset] | None, full_at: int | None
) -> None:
    """Seek back to the first record of the batch that was not printed, since the position is what is committed; pause a
    partition that has reached its end. `full_at`: one past the last record of --max-messages.
    """
    at = TopicPartition(batch.topic, batch.partition)
    stop = int(batch.next_offset) if full_at is None else full_at
    if ends is not None:
        stop = min(stop, max(ends.get(at, Offset(0)), batch.first_offset))
    if stop < batch.next_offset:
        consumer.seek(at, stop)
    if ends is not None and _reaches_end(batch, ends):
        consumer.pause([at])


def _wanted(batch: ConsumerBatch, ends: dict[TopicPartition, Offset] | None, count: int | None) -> list[Fields]:
    """Its records before the end, at most `count`."""
    records: Iterable[Fields] = batch.fields()
    if ends is not None:
        end = ends.get(TopicPartition(batch.topic, batch.partition), Offset(0))
        records = (record for record in records if record[0] < end)
    return list(islice(records, count))


def _lines(form: OutputFormat | FormatTemplate, output: str, batch: ConsumerBatch, records: list[Fields]) -> bytes:
    if isinstance(form, FormatTemplate):
        return form.lines(batch.topic, batch.partition, records)
    if output == "json":
        lines = json_lines(batch.topic, batch.partition, batch.timestamp_type, records)
        return escaped_json(lines.decode()).encode() if form.escape else lines
    epoch = batch.header.leader_epoch
    return form.lines(batch.partition, batch.timestamp_type, records, leader_epoch=epoch)
