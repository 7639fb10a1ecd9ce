"""Spans of `send` and `send_many`.

    send --starts a span, puts its context into the headers--> future --its batch is done--> partition, offset; or error

A send that raises has a span with the error, but for ThrottledError: nothing was taken, and callers try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from opentelemetry.trace import Span, SpanKind

from streamlog.client.producer.batches.producer_batch import ManyFuture, RecordFuture
from streamlog.client.producer.given_records import GivenHeaders, checked_headers
from streamlog.client.tracing.contexts import with_context
from streamlog.client.tracing.tracer import COUNT, OFFSET, PARTITION, TOPIC, attributes, end_failed, tracer
from streamlog.config import Config
from streamlog.errors import ThrottledError

Send: TypeAlias = Callable[..., RecordFuture]
SendMany: TypeAlias = Callable[..., Coroutine[Any, Any, ManyFuture]]


class SendSpans:
    """Of one producer."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tracer = tracer()

    def send(self, untraced: Send) -> Send:
        def send(topic: str, value: bytes | None, *, headers: GivenHeaders = (), **rest: Any) -> RecordFuture:
            given = checked_headers(headers) if headers else ()
            span = self._start(topic, {})
            try:
                future = untraced(topic, value, headers=with_context(given, span.get_span_context()), **rest)
            except ThrottledError:
                raise
            except Exception as error:
                end_failed(span, error)
                raise
            if span.is_recording():
                _Acknowledgement(span, future).follow()
            return future

        return send

    def send_many(self, untraced: SendMany) -> SendMany:
        async def send_many(
            topic: str, values: Sequence[bytes | None], *, headers: GivenHeaders = (), **rest: Any
        ) -> ManyFuture:
            given = checked_headers(headers) if headers else ()
            span = self._start(topic, {COUNT: len(values)})
            try:
                many = await untraced(topic, values, headers=with_context(given, span.get_span_context()), **rest)
            except BaseException as error:
                end_failed(span, error)
                raise
            if span.is_recording():
                many.add_done_callback(lambda error: span.end() if error is None else end_failed(span, error))
            return many

        return send_many

    def _start(self, topic: str, more: dict[str, str | int]) -> Span:
        known = attributes(self._config, "send", "send", {TOPIC: str(topic), **more})
        return self._tracer.start_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=known)


class _Acknowledgement:
    """Ends the span of one record, once."""

    __slots__ = ("_future", "_span")

    def __init__(self, span: Span, future: RecordFuture) -> None:
        self._span = span
        self._future = future

    def follow(self) -> None:
        promise = self._future.promise
        promise.add_done_callback(self._end)
        if promise.done:  # on the producer's thread, before the callback was added
            self._end()

    def _end(self) -> None:
        span = self._span
        if not span.is_recording():
            return
        promise, index = self._future.promise, self._future.index
        error = promise.failure(index)
        if error is not None:
            end_failed(span, error)
            return
        try:
            at = promise.outcome(index)
        except asyncio.InvalidStateError as unknown:
            end_failed(span, unknown)
            return
        span.set_attribute(PARTITION, str(at.partition))
        if at.offset >= 0:
            span.set_attribute(OFFSET, at.offset)
        span.end()
