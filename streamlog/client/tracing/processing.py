"""The span of what a program does with a record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import Span, SpanKind, use_span

from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.client.tracing.contexts import record_context
from streamlog.client.tracing.tracer import OFFSET, PARTITION, TOPIC, Attributes, attributes, tracer


@contextmanager
def processing(record: ConsumerRecord) -> Iterator[Span]:
    """The span "process TOPIC" of the block, a child of the one in the record's headers. It is current in the block, so
    spans that are made there, also of sends and commits, are its children. An exception is recorded in it.
    """
    place: Attributes = {TOPIC: record.topic, PARTITION: str(record.partition), OFFSET: int(record.offset)}
    span = tracer().start_span(
        f"process {record.topic}",
        context=record_context(record),
        kind=SpanKind.CONSUMER,
        attributes=attributes(None, "process", "process", place),
    )
    with use_span(span, end_on_exit=True):
        yield span
