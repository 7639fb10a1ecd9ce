"""`streamlogctl verifiable produce|consume`: clients for tests, which print each event as a line of JSON, with the
flags and events of Kafka's verifiable producer and consumer. They end at SIGINT and SIGTERM as at their last record.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from streamlog.aio.timeouts import timeout
from streamlog.cli.common.failures import FAILED
from streamlog.cli.common.nouns import Noun, is_expression, key_values, one_name, topic_argument, topic_to_write_to
from streamlog.cli.common.session import check_reachable, finish_with_records, matched_topics, showing_warnings
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.records.waits import reporting_silence
from streamlog.client.consumer.async_consumer import AsyncConsumer
from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.client.producer.batches.producer_batch import RecordFuture
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition

_POLL_S: Final = 1.0


@click.group(cls=Noun)
def verifiable() -> None:
    """Write or read records, and print each event as a line of JSON, for tests of clusters."""


def _settings_option(flag: str) -> Callable[[Any], Any]:
    return click.option(flag, "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the client.")


class _Events:
    """Lines of JSON on standard output, and whether the program is to end: SIGINT, SIGTERM, an output that failed."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self._failed: OSError | None = None

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, self.stopping.set)
            except (ValueError, RuntimeError):
                return  # not in the main thread, which alone has signals

    def print(self, name: str, **facts: object) -> None:
        """Its error is kept for `check`: the caller may be a callback, whose errors the client only logs."""
        line = {"timestamp": time.time_ns() // 1_000_000, "name": name, **facts}
        if self._failed is not None:
            return
        try:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        except OSError as error:
            self._failed = error
            self.stopping.set()

    def check(self) -> None:
        """OSError if an event could not be printed."""
        if self._failed is not None:
            raise self._failed


@verifiable.command
@topic_argument
@click.option("--max-messages", type=int, default=-1, show_default=True, help="-1: until SIGINT or SIGTERM.")
@click.option("--throughput", type=float, default=-1, show_default=True, help="Records a second; -1: without limit.")
@click.option("--acks", type=click.Choice(["all", "-1", "1", "0"]), default="all", show_default=True, help="-1 is all.")
@click.option("--value-prefix", type=int, help="Values are PREFIX.NUMBER instead of NUMBER.")
@click.option("--repeating-keys", type=click.IntRange(1), help="Keys count from 0 to this number, again and again.")
@_settings_option("--producer-property")
@cluster_options
def produce(
    target: Target,
    name: str | None,
    flag_name: str | None,
    max_messages: int,
    throughput: float,
    acks: str,
    value_prefix: int | None,
    repeating_keys: int | None,
    settings: tuple[str, ...],
) -> None:
    """Write records whose values count up from 0 to TOPIC.

    \b
    Events: startup_complete, producer_send_success, producer_send_error, shutdown_complete, tool_data.

    \b
    Example:
      streamlogctl verifiable produce orders --max-messages 1000 --throughput 100
    """
    topic = topic_to_write_to(name, flag_name)
    given = target.settings | {"acks": acks} | key_values(settings, "--producer-property")
    if acks in ("0", "1"):
        given = {"enable.idempotence": "false"} | given
    events, sent, acked = _Events(), 0, 0

    def settled(key: str | None, value: str) -> Callable[[RecordFuture], None]:
        def report(future: RecordFuture) -> None:
            nonlocal acked
            try:
                result = future.result()
            except StreamlogError as error:
                _refused(events, topic, key, value, error)
                return
            acked += 1
            events.print(
                "producer_send_success",
                key=key,
                value=value,
                topic=topic,
                partition=result.partition,
                offset=result.offset,
            )

        return report

    async def run() -> None:
        nonlocal sent
        events.listen()
        with showing_warnings():
            producer = AsyncProducer(given)
        await check_reachable(target)
        begin = time.monotonic()
        async with producer:
            events.print("startup_complete")
            while sent != max_messages and not events.stopping.is_set():
                if throughput > 0 and (early_s := begin + sent / throughput - time.monotonic()) > 0:
                    await _wait(events, early_s)
                    continue
                value = str(sent) if value_prefix is None else f"{value_prefix}.{sent}"
                key = None if repeating_keys is None else str(sent % repeating_keys)
                sent += 1
                try:
                    future = await producer.enqueue(topic, value.encode(), key=None if key is None else key.encode())
                except StreamlogError as error:
                    _refused(events, topic, key, value, error)
                else:
                    future.add_done_callback(settled(key, value))
        seconds = max(time.monotonic() - begin, 1e-9)
        events.print("shutdown_complete")
        events.print(
            "tool_data",
            sent=sent,
            acked=acked,
            target_throughput=throughput,
            avg_throughput=round(acked / seconds, 1),
        )
        events.check()

    finish_with_records(target, run())
    if acked < sent:
        sys.exit(FAILED)


def _refused(events: _Events, topic: str, key: str | None, value: str, error: StreamlogError) -> None:
    events.print("producer_send_error", key=key, value=value, topic=topic, exception=error.code, message=error.message)


async def _wait(events: _Events, seconds: float) -> None:
    """Or until the program is to end."""
    try:
        async with timeout(seconds):
            await events.stopping.wait()
    except TimeoutError:
        return


@verifiable.command
@topic_argument
@click.option("--group-id", "--group", "group", required=True, metavar="GROUP", help="The group to join.")
@click.option("--max-messages", type=int, default=-1, show_default=True, help="-1: until SIGINT or SIGTERM.")
@click.option(
    "--reset-policy",
    type=click.Choice(["earliest", "latest", "none"]),
    default="earliest",
    show_default=True,
    help="Where to start in partitions without a committed offset; none: an error.",
)
@click.option("--enable-autocommit", is_flag=True, help="Commit at intervals; default: after each poll.")
@click.option("--verbose", is_flag=True, help="An event record_data for each record, too.")
@_settings_option("--consumer-property")
@cluster_options
def consume(
    target: Target,
    name: str | None,
    flag_name: str | None,
    group: str,
    max_messages: int,
    reset_policy: str,
    settings: tuple[str, ...],
    *,
    enable_autocommit: bool,
    verbose: bool,
) -> None:
    """Read TOPIC as a member of a group. TOPIC may be a regular expression: all topics that it matches as a whole,
    later ones too.

    \b
    Events: startup_complete, partitions_assigned, partitions_revoked, records_consumed, offsets_committed,
    shutdown_complete; with --verbose record_data.

    \b
    Examples:
      streamlogctl verifiable consume orders --group-id test --max-messages 1000
      streamlogctl verifiable consume 'orders-.*' --group-id test --max-messages 1000
    """
    topic = one_name(name, flag_name)
    given = target.settings | {
        "group.id": group,
        "auto.offset.reset": reset_policy,
        "enable.auto.commit": str(enable_autocommit).lower(),
        **key_values(settings, "--consumer-property"),
    }
    events, count = _Events(), 0

    async def run() -> None:
        nonlocal count
        events.listen()
        with showing_warnings():
            consumer = AsyncConsumer(given)
        by_pattern, topics = is_expression(topic), [topic]
        if by_pattern:
            topics = await matched_topics(target, topic)  # refuses one that matches nothing
        else:
            await check_reachable(target)
        async with consumer, reporting_silence(target, topics, lambda: count):
            events.print("startup_complete")
            consumer.subscribe(
                [] if by_pattern else [topic],
                pattern=topic if by_pattern else None,
                on_assigned=lambda some: events.print("partitions_assigned", partitions=_named(some)),
                on_revoked=lambda some: events.print("partitions_revoked", partitions=_named(some)),
            )
            while count != max_messages and not events.stopping.is_set():
                left = None if max_messages < 0 else max_messages - count
                records = await consumer.poll(left, timeout_s=_POLL_S)
                if not records:
                    continue
                count += len(records)
                _report(events, records, verbose=verbose)
                events.check()
                if not enable_autocommit:
                    await _commit(events, consumer, records)
        events.print("shutdown_complete")
        events.check()

    finish_with_records(target, run())


def _report(events: _Events, records: list[ConsumerRecord], *, verbose: bool) -> None:
    if verbose:
        for one in records:
            events.print(
                "record_data",
                key=_text(one.key),
                value=_text(one.value),
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
            )
    offsets: dict[TopicPartition, list[int]] = {}
    for one in records:
        offsets.setdefault(TopicPartition(one.topic, PartitionId(one.partition)), []).append(one.offset)
    events.print(
        "records_consumed",
        count=len(records),
        partitions=[
            {
                "topic": at.topic,
                "partition": at.partition,
                "count": len(some),
                "minOffset": min(some),
                "maxOffset": max(some),
            }
            for at, some in sorted(offsets.items())
        ],
    )


async def _commit(events: _Events, consumer: AsyncConsumer, records: list[ConsumerRecord]) -> None:
    offsets = {TopicPartition(one.topic, PartitionId(one.partition)): one.offset + 1 for one in records}
    rows = [{"topic": at.topic, "partition": at.partition, "offset": offset} for at, offset in sorted(offsets.items())]
    try:
        await consumer.commit()
    except StreamlogError as error:
        events.print("offsets_committed", success=False, error=error.code, message=error.message, offsets=rows)
    else:
        events.print("offsets_committed", success=True, offsets=rows)


def _named(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": at.topic, "partition": at.partition} for at in sorted(partitions)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
