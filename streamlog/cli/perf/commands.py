"""`streamlogctl perf`: how fast this cluster writes and reads, with the flags and figures of Kafka's perf tests."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import click

from streamlog.cli.common.failures import FAILED, Interrupted
from streamlog.cli.common.nouns import Noun, key_values, one_name, topic_argument, topic_to_write_to
from streamlog.cli.common.output import Output, Row, output_option, say, show_facts
from streamlog.cli.common.session import check_reachable, finish_with_records, matched_topics, showing_warnings
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.perf.latencies import PERCENTILES, Latencies
from streamlog.cli.perf.writing import Writing, write
from streamlog.client.consumer.async_consumer import AsyncConsumer
from streamlog.client.consumer.start_positions import EARLIEST, LATEST
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.errors import RequestTimedOutError
from streamlog.model import PartitionId, TopicPartition

Command = TypeVar("Command", bound=Callable[..., object])

_MB: Final = 1 << 20
_PAYLOAD_BYTES_MAX: Final = 256 << 20
_ROUND_TRIP_S: Final = 30.0


@click.group(cls=Noun)
def perf() -> None:
    """Measure how fast the cluster writes and reads."""


def _settings_option(flag: str) -> Callable[[Command], Command]:
    return click.option(flag, "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the client.")


@perf.command
@topic_argument
@click.option("--num-records", type=click.IntRange(1), required=True, help="Number of records to write.")
@click.option(
    "--record-size", type=click.IntRange(0, _PAYLOAD_BYTES_MAX), help="Bytes of each record's value, which are random."
)
@click.option(
    "--payload-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take the values from the lines of this file, in turn, instead of --record-size.",
)
@click.option(
    "--throughput", type=float, default=-1, show_default=True, help="Records a second at most; -1: without limit."
)
@click.option(
    "--warmup-records", type=click.IntRange(0), default=0, show_default=True, help="The first records, not counted."
)
@click.option(
    "--reporting-interval",
    type=click.IntRange(1),
    default=5_000,
    show_default=True,
    help="Time between two lines of progress, in ms.",
)
@_settings_option("--producer-props")
@output_option
@cluster_options
def produce(
    target: Target,
    output: Output,
    name: str | None,
    flag_name: str | None,
    num_records: int,
    record_size: int | None,
    payload_file: Path | None,
    throughput: float,
    warmup_records: int,
    reporting_interval: int,
    settings: tuple[str, ...],
) -> None:
    """Write records to TOPIC, and show rate and latencies.

    A latency is the time from handing a record to the producer until its acknowledgement.

    \b
    Examples:
      streamlogctl perf produce orders --num-records 100000 --record-size 100
      streamlogctl perf produce orders --num-records 5000 --record-size 100 --throughput 500
      streamlogctl perf produce orders --num-records 100000 --payload-file lines.txt --output json
    """
    topic = topic_to_write_to(name, flag_name)
    payloads = _payloads(record_size, payload_file)
    given = target.settings | key_values(settings, "--producer-props")
    writing = Writing(warmup_records)

    async def run() -> None:
        with showing_warnings():
            producer = AsyncProducer(given)
        await check_reachable(target)
        async with producer:
            reports = asyncio.ensure_future(_report(writing, reporting_interval / 1_000))
            try:
                await write(producer, topic, payloads, num_records, throughput, writing)
            finally:
                reports.cancel()

    try:
        finish_with_records(target, run())
    except Interrupted:
        show_facts(output, _written(writing))
        raise
    show_facts(output, _written(writing))
    if writing.errors:
        say(f"Error: {writing.errors} records were not written: {writing.first_error}.", err=True)
        sys.exit(FAILED)


def _payloads(size: int | None, file: Path | None) -> Sequence[bytes]:
    if (size is None) == (file is None):
        raise click.UsageError("Give --record-size or --payload-file.")
    if file is None:
        return [os.urandom(size or 0)]
    if file.stat().st_size > _PAYLOAD_BYTES_MAX:
        raise click.UsageError(f"{file} has more than {_PAYLOAD_BYTES_MAX:,} bytes: give a part of it.")
    lines = file.read_bytes().splitlines()
    if not lines:
        raise click.UsageError(f"{file} has no lines.")
    return lines


async def _report(writing: Writing, interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        now, writing.interval = writing.interval, Latencies()
        say(
            f"{now.count} records sent, {now.count / interval_s:.1f} records/sec, {now.average_ms:.1f} ms avg latency, "
            f"{now.max_ms:.1f} ms max latency.",
            err=True,
        )


def _written(writing: Writing) -> Row:
    total, seconds = writing.total, writing.seconds
    return {
        "records": total.count,
        "errors": writing.errors,
        "seconds": round(seconds, 3),
        "records_per_sec": round(total.count / seconds, 1),
        "mb_per_sec": round(writing.byte_count / _MB / seconds, 3),
        **_latency_facts(total),
    }


def _latency_facts(latencies: Latencies) -> dict[str, float]:
    return {
        "avg_latency_ms": round(latencies.average_ms, 3),
        "max_latency_ms": round(latencies.max_ms, 3),
        **{f"p{percent:g}_latency_ms": round(latencies.percentile_ms(percent), 3) for percent in PERCENTILES},
    }


@perf.command
@topic_argument
@click.option("--messages", "--num-records", "messages", type=click.IntRange(1), required=True, help="Records to read.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="End when no record has arrived for this time, in ms.",
)
@click.option("--from-latest", is_flag=True, help="Start at the end; default: at the first record.")
@_settings_option("--consumer-props")
@output_option
@cluster_options
def consume(
    target: Target,
    output: Output,
    name: str | None,
    flag_name: str | None,
    messages: int,
    timeout_ms: int,
    settings: tuple[str, ...],
    *,
    from_latest: bool,
) -> None:
    """Read records of TOPIC, and show the rate. Ends also when no record has arrived for --timeout. TOPIC may be a
    regular expression: all topics that it matches as a whole when the command starts.

    \b
    Examples:
      streamlogctl perf consume orders --messages 100000
      streamlogctl perf consume 'orders-.*' --messages 100000 --timeout 30000
    """
    topic = one_name(name, flag_name)
    given = target.settings | key_values(settings, "--consumer-props")
    count = byte_count = 0
    begin = end = 0.0

    async def run() -> None:
        nonlocal count, byte_count, begin, end
        with showing_warnings():
            consumer = AsyncConsumer(given)
        topics = await matched_topics(target, topic)
        async with consumer:
            await consumer.assign_topics(topics, start=LATEST if from_latest else EARLIEST)
            begin = end = time.monotonic()
            while count < messages:
                batch = await consumer.poll_batch(timeout_s=timeout_ms / 1_000)
                if batch is None:
                    return
                for _, _, key, value, _ in batch.fields():
                    count += 1
                    byte_count += len(key or b"") + len(value or b"")
                end = time.monotonic()

    finish_with_records(target, run())
    seconds = max(end - begin, 1e-9)
    facts: Row = {
        "records": count,
        "seconds": round(seconds, 3),
        "mb": round(byte_count / _MB, 3),
        "mb_per_sec": round(byte_count / _MB / seconds, 3),
        "records_per_sec": round(count / seconds, 1),
    }
    show_facts(output, facts)
    if count < messages:
        say(f"Error: {count} of {messages} records arrived; then none for {timeout_ms} ms.", err=True)
        sys.exit(FAILED)


@perf.command
@topic_argument
@click.option("--num-records", type=click.IntRange(1), default=1_000, show_default=True, help="Round trips.")
@click.option(
    "--record-size",
    type=click.IntRange(1, _PAYLOAD_BYTES_MAX),
    default=100,
    show_default=True,
    help="Bytes of a value.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1"]),
    default="all",
    show_default=True,
    help="all: in-sync replicas have it; 1: the leader.",
)
@output_option
@cluster_options
def e2e(
    target: Target,
    output: Output,
    name: str | None,
    flag_name: str | None,
    num_records: int,
    record_size: int,
    acks: str,
) -> None:
    """Write one record to TOPIC at a time, and measure until a consumer has it.

    \b
    Example:
      streamlogctl perf e2e orders --num-records 1000 --record-size 100
    """
    topic = topic_to_write_to(name, flag_name)
    latencies = Latencies()
    given = target.settings | {"acks": acks, "linger.ms": 0, "enable.idempotence": str(acks == "all").lower()}

    async def run() -> None:
        with showing_warnings():
            producer, consumer = AsyncProducer(given), AsyncConsumer(target.settings)
        await check_reachable(target)
        async with producer, consumer:
            await consumer.assign_topics([topic], start=LATEST)
            for one in consumer.assignment:
                await consumer.position(one)  # else the first record could be before the end that is looked up
            for _ in range(num_records):
                started = time.monotonic()
                sent = await producer.send(topic, os.urandom(record_size))
                at = TopicPartition(sent.topic, PartitionId(sent.partition))
                await _read_up_to(consumer, at, sent.offset)
                latencies.add((time.monotonic() - started) * 1_000)

    finish_with_records(target, run())
    show_facts(output, {"records": latencies.count, **_latency_facts(latencies)})


async def _read_up_to(consumer: AsyncConsumer, at: TopicPartition, offset: int) -> None:
    """RequestTimedOutError. Records of other writers are passed over."""
    deadline = time.monotonic() + _ROUND_TRIP_S
    while await consumer.position(at) <= offset:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or await consumer.poll_batch(timeout_s=left_s) is None:
            raise RequestTimedOutError(f"{at}: the record at offset {offset} was not read within {_ROUND_TRIP_S:g} s")
