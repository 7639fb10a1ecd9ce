"""Spans of polls and commits.

A poll's span is made when it has returned, with the time at which it began: its links are known then, and a poll that
returned nothing has none. What a loop waits for a record counts as that record's poll.

The context of a commit's span goes to the coordinator in the call's metadata.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from time import time_ns
from typing import Any, TypeAlias, TypeVar

from opentelemetry.trace import SpanKind, StatusCode, use_span

from streamlog.client.consumer.consumer_records import ConsumerBatch, ConsumerRecord
from streamlog.client.groups.group_offsets import OffsetAndMetadata
from streamlog.client.tracing.contexts import links, traceparent
from streamlog.client.tracing.tracer import (
    COUNT,
    ERROR_TYPE,
    GROUP,
    OFFSET,
    PARTITION,
    TOPIC,
    Attributes,
    attributes,
    end_failed,
    tracer,
)
from streamlog.config import Config
from streamlog.config.settings import consumer_settings as consuming
from streamlog.errors import StreamlogError
from streamlog.model import TopicPartition
from streamlog.ports.trace_context import TRACEPARENT

T = TypeVar("T")
Poll: TypeAlias = Callable[..., Coroutine[Any, Any, T]]
Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
Refused: TypeAlias = dict[TopicPartition, StreamlogError]


class PollSpans:
    """Of one consumer."""

    def __init__(self, config: Config) -> None:
        group = config[consuming.GROUP_ID]
        self._config = config
        self._group: Attributes = {} if group is None else {GROUP: group}
        self._tracer = tracer()

    def poll(self, untraced: Poll[list[ConsumerRecord]]) -> Poll[list[ConsumerRecord]]:
        async def poll(*args: Any, **kwargs: Any) -> list[ConsumerRecord]:
            began = time_ns()
            records = await untraced(*args, **kwargs)
            if records:
                self._polled(began, records)
            return records

        return poll

    def poll_batch(self, untraced: Poll[ConsumerBatch | None]) -> Poll[ConsumerBatch | None]:
        """Without links: a batch is not decoded here."""

        async def poll_batch(*args: Any, **kwargs: Any) -> ConsumerBatch | None:
            began = time_ns()
            batch = await untraced(*args, **kwargs)
            if batch is not None:
                count = batch.header.record_count
                self._span(began, {(batch.topic, int(batch.partition))}, count, [])
            return batch

        return poll_batch

    def records(self, untraced: Callable[[], AsyncIterator[ConsumerRecord]]) -> Callable[[], Any]:
        async def records() -> AsyncIterator[ConsumerRecord]:
            began = time_ns()
            async for record in untraced():
                self._polled(began, [record])
                yield record
                began = time_ns()

        return records

    def _polled(self, began: int, records: Sequence[ConsumerRecord]) -> None:
        self._span(began, {(one.topic, one.partition) for one in records}, len(records), records)

    def _span(self, began: int, places: set[tuple[str, int]], count: int, records: Sequence[ConsumerRecord]) -> None:
        known: Attributes = {COUNT: count, **self._group, **_place(places)}
        self._tracer.start_span(
            f"poll {known[TOPIC]}" if TOPIC in known else "poll",
            kind=SpanKind.CLIENT,
            attributes=attributes(self._config, "poll", "receive", known),
            links=links(records),
            start_time=began,
        ).end()

    def commit(self, untraced: Callable[..., Coroutine[Any, Any, Refused]]) -> Callable[..., Any]:
        async def commit(offsets: Offsets, *, timeout_s: float) -> Refused:
            known: Attributes = {**self._group, **_place({(one.topic, int(one.partition)) for one in offsets})}
            if len(offsets) == 1:
                known[OFFSET] = int(next(iter(offsets.values())).offset)
            span = self._tracer.start_span(
                f"commit {known[TOPIC]}" if TOPIC in known else "commit",
                kind=SpanKind.CLIENT,
                attributes=attributes(self._config, "commit", "settle", known),
            )
            context = span.get_span_context()
            metadata = {TRACEPARENT: traceparent(context)} if context.is_valid else None
            try:
                with use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
                    refused = await untraced(offsets, timeout_s=timeout_s, metadata=metadata)
            except BaseException as error:
                end_failed(span, error)
                raise
            if refused:
                partition, why = next(iter(refused.items()))
                span.set_attribute(ERROR_TYPE, why.code)
                span.set_status(StatusCode.ERROR, f"{partition}: {why.message}"[:1_000])
            span.end()
            return refused

        return commit


def _place(places: set[tuple[str, int]]) -> Attributes:
    """The topic, and the partition, where there is one only."""
    topics = {topic for topic, _ in places}
    found: Attributes = {}
    if len(topics) == 1:
        found[TOPIC] = topics.pop()
        if len(places) == 1:
            found[PARTITION] = str(places.pop()[1])
    return found
