"""`streamlogctl produce`: each line of standard input becomes a record.

    standard input --chunks--> LineSplitter --> Parser --columns--> AsyncProducer.send_many, pipelined

Reading stops while the producer's buffer is full. An error of a record ends the command.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from typing import Final

import click

from streamlog.cli.common.library_logs import leave_out_waits
from streamlog.cli.common.nouns import key_values, topic_argument, topic_to_write_to
from streamlog.cli.common.session import check_reachable, finish_with_records, showing_warnings
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.records.input_format import InputFormat, InputRecord, LineSplitter, Parser
from streamlog.cli.records.standard_input import chunks
from streamlog.cli.records.waits import report_waits
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.client.producer.batches.producer_batch import AppendedRange, ManyFuture, RecordFuture, RecordMetadata
from streamlog.config import load_producer
from streamlog.config.settings import producer_settings as producing
from streamlog.errors import StreamlogError

_PROMPT: Final = ">"
_INPUT: Final = "records are lines of standard input, streamlogctl produce TOPIC < FILE."
# Sends whose results are not read yet; the producer's buffer bounds their bytes.
_IN_FLIGHT_MAX: Final = 1_000


class _FromStandardInput(click.Command):
    """Says so to those who give a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in ("--file", "--input-file", "-f"):
                raise
            raise click.UsageError(f"No such option {error.option_name!r}: {_INPUT}", ctx) from None
        except click.UsageError as error:
            if "unexpected extra argument" in error.message:
                raise click.UsageError(f"{error.message}: {_INPUT}", ctx) from None
            raise


@click.command(cls=_FromStandardInput)
@topic_argument
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, help="How to read a line, see above.")
@click.option("--acks", "--request-required-acks", type=click.Choice(["all", "-1", "1", "0"]), help="Default: all.")
@click.option(
    "--compression",
    "--compression-codec",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Default: none.",
)
@click.option(
    "--partitioner", metavar="NAME", help="default, round-robin, random, integer-modulo, or a class: module.Class."
)
@click.option("--partition", type=click.IntRange(0), help="Write all records to this partition.")
@click.option("--batch-size", type=click.IntRange(0), help="Bytes of a batch of records to one partition.")
@click.option(
    "--linger-ms", "--timeout", type=click.IntRange(0), help="How long a record waits for others in its batch, in ms."
)
@click.option("--sync", is_flag=True, help="Wait for the acknowledgement of each line before reading the next.")
@click.option("--producer-property", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the producer.")
@click.option("-v", "--verbose", is_flag=True, help="Report at the end how many records each partition got.")
@cluster_options
def produce(
    target: Target,
    name: str | None,
    flag_name: str | None,
    properties: tuple[str, ...],
    acks: str | None,
    compression: str | None,
    partitioner: str | None,
    partition: int | None,
    batch_size: int | None,
    linger_ms: int | None,
    settings: tuple[str, ...],
    *,
    sync: bool,
    verbose: bool,
) -> None:
    """Write each line of standard input to TOPIC as a record.

    A record that is not acknowledged fails after delivery.timeout.ms (--producer-property), two minutes by default;
    --request-timeout-ms bounds the waits for the topic's metadata and for room in the buffer.

    \b
    Properties (as of Kafka's console producer):
      parse.key=true           the line is KEY, separator, VALUE
      key.separator=:          default: a tab
      parse.headers=true       before the key: NAME:VALUE,NAME:VALUE, then a tab
      null.marker=NULL         a key or value of this text is null
      ignore.error=true        a line without its separator is a value, a header without its
                               colon a name with a null value

    \b
    Examples:
      streamlogctl produce orders < orders.txt
      tail -F app.log | streamlogctl produce --topic logs --compression zstd
      streamlogctl produce orders --property parse.key=true --property key.separator=:
      seq 9 | sed 's/.*/&:row &/' | streamlogctl produce t --partitioner integer-modulo \\
          --property parse.key=true --property key.separator=:
    """
    given = {
        "max.block.ms": target.request_timeout_ms,
        **key_values(settings, "--producer-property"),
        **{
            setting: value
            for setting, value in {
                "acks": acks,
                "compression.type": compression,
                "partitioner.class": partitioner,
                "batch.size": batch_size,
                "linger.ms": linger_ms,
            }.items()
            if value is not None
        },
    }
    # Idempotence is the producer's default, and needs acks=all.
    if acks in ("0", "1"):
        given.setdefault("enable.idempotence", "false")
    topic = topic_to_write_to(name, flag_name)
    texts = key_values(properties, "--property")

    async def run() -> None:
        form = InputFormat.of(texts)
        leave_out_waits()
        with showing_warnings():
            producer = AsyncProducer(target.settings | given)
        bytes_max = load_producer(target.settings | given).config[producing.MAX_REQUEST_SIZE]
        await check_reachable(target)
        writer = _Writer(producer, topic, partition, sync=sync)
        try:
            async with producer:
                notices = asyncio.ensure_future(report_waits(target, topic, writer.oldest_open))
                try:
                    await writer.write_all(LineSplitter(bytes_max), Parser(form))
                finally:
                    notices.cancel()
        except asyncio.CancelledError:  # Ctrl-C: nothing else says that records are lost
            writer.take_done()
            if verbose or writer.unacknowledged:
                click.echo(writer.summary(), err=True)
            raise
        if verbose:
            click.echo(writer.summary(), err=True)

    finish_with_records(target, run())


class _Writer:
    def __init__(self, producer: AsyncProducer, topic: str, partition: int | None, *, sync: bool) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._sync = sync
        self._in_flight: deque[ManyFuture | RecordFuture] = deque()
        self._written: dict[int, int] = {}  # partition -> records that were acknowledged
        self._read = 0  # records of lines

    async def write_all(self, lines: LineSplitter, parser: Parser) -> None:
        """StreamlogError: of a line, or of a record that was not written."""
        prompting = sys.stdin.isatty() and sys.stdout.isatty()
        self._prompt(prompting)
        async for chunk in chunks():
            await self._write(parser.records(lines.feed(chunk)))
            await self._end_at(parser.problem or lines.problem)
            self._prompt(prompting)
        await self._write(parser.records(lines.end()))
        await self._end_at(parser.problem)
        await self._producer.flush()
        await self._take(0)

    async def _end_at(self, problem: StreamlogError | None) -> None:
        """Raises it, once the lines before it are written; says that they are."""
        if problem is None:
            return
        await self._producer.flush()
        await self._take(0)
        written = sum(self._written.values())
        if written == 0:
            raise problem
        before = "The line before it is" if written == 1 else f"The {written} lines before it are"
        message = f"{problem.message}. {before} written, this line and those after it are not"
        raise type(problem)(message, **problem.details)

    async def _write(self, records: Sequence[InputRecord]) -> None:
        if self._sync:
            for record in records:
                await self._send([record])
                await self._take(0)
        elif any(record.headers for record in records):
            for record in records:
                await self._send([record])
        elif records:
            await self._send(records)
        await self._take(_IN_FLIGHT_MAX)

    async def _send(self, records: Sequence[InputRecord]) -> None:
        self._read += len(records)
        if records[0].headers:
            await self._send_with_headers(records[0])
            return
        keys = [record.key for record in records]
        self._in_flight.append(
            await self._producer.send_many(
                self._topic,
                [record.value for record in records],
                keys=None if all(key is None for key in keys) else keys,
                partition=self._partition,
            )
        )

    async def _send_with_headers(self, record: InputRecord) -> None:
        await self._producer.wait_until_room(len(record.value or b"") + len(record.key or b""))
        self._in_flight.append(
            self._producer.send(
                self._topic, record.value, key=record.key, headers=record.headers, partition=self._partition
            )
        )

    async def _take(self, left: int) -> None:
        """Waits for results until only `left` sends are open; takes all results that are known already."""
        while self._in_flight and (len(self._in_flight) > left or self._in_flight[0].done()):
            result = await self._in_flight[0]
            self._in_flight.popleft()
            self._count_all(result)

    def take_done(self) -> None:
        """All results that are known; without an error of any."""
        while self._in_flight:
            one = self._in_flight.popleft()
            if isinstance(one, ManyFuture):
                self._count_all(one.written())
            elif one.done() and one.exception() is None:
                self._count_all(one.result())

    def _count_all(self, result: RecordMetadata | list[AppendedRange]) -> None:
        if isinstance(result, RecordMetadata):
            self._count(result.partition, 1)
            return
        for one in result:
            self._count(one.partition, one.record_count)

    def _count(self, partition: int, records: int) -> None:
        self._written[partition] = self._written.get(partition, 0) + records

    def oldest_open(self) -> object:
        """The oldest send without a result; None: there is none."""
        return next((one for one in self._in_flight if not one.done()), None)

    @property
    def unacknowledged(self) -> int:
        return self._read - sum(self._written.values())

    def summary(self) -> str:
        each = ", ".join(f"{count} to {self._topic}-{number}" for number, count in sorted(self._written.items()))
        total = sum(self._written.values())
        lacking = f"; {self.unacknowledged} more were not acknowledged" if self.unacknowledged else ""
        return f"Wrote {total} record{'' if total == 1 else 's'}{each and ': ' + each}{lacking}."

    def _prompt(self, prompting: bool) -> None:
        if prompting:
            click.echo(_PROMPT, nl=False)
