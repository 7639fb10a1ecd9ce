"""The ways of sending that wait while the buffer is full: `enqueue`, `send_many`, `wait_until_room`.

They wait until FREE_PART of the buffer is free, not for a single batch: a program that is faster than the cluster then
runs for a while and waits for a while, instead of being woken for each batch that is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

from streamlog.client.producer.batches.accumulator import NO_HEADERS, Accumulator
from streamlog.client.producer.batches.many_records import Columns, Sizes, by_partition, check_types
from streamlog.client.producer.batches.pending_records import OVERHEAD_BYTES
from streamlog.client.producer.batches.producer_batch import ManyFuture, ProducerBatch, RecordFuture
from streamlog.client.producer.batches.topic_table import TopicTable
from streamlog.client.producer.given_records import (
    GivenHeaders,
    check_topic,
    checked_headers,
    checked_partition,
    checked_timestamp,
)
from streamlog.client.serialization.record_serializers import RecordSerializers
from streamlog.errors import InvalidRequestError, ThrottledError
from streamlog.records import Headers
from streamlog.records.encode import encode_headers
from streamlog.records.header import HEADER_SIZE

# After so many records send_many lets other tasks run.
_TURN_RECORDS: Final = 16_384


class WaitingSends(Accumulator):
    _serializers: RecordSerializers | None = None

    def _serialize(self, serializers: RecordSerializers) -> None:
        """Of keys and values, from now on."""
        send, send_many = self.send, self.send_many
        self._serializers, self._send_bytes = serializers, send

        def serializing(topic: str, value: Any, *, key: Any = None, **rest: Any) -> RecordFuture:
            key, value = serializers.encode_at_once(topic, key, value)
            return send(topic, value, key=key, **rest)

        async def serializing_many(topic: str, values: Any, *, keys: Any = None, **rest: Any) -> ManyFuture:
            values, keys = await serializers.encode_many_async(topic, keys, values)
            return await send_many(topic, values, keys=keys, **rest)

        self.send = serializing  # type: ignore[method-assign]
        self.send_many = serializing_many  # type: ignore[method-assign]

    async def enqueue(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: GivenHeaders = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """As `send`; waits while the buffer is full, max.block.ms at most (RequestTimedOutError)."""
        if headers:
            headers = checked_headers(headers)  # it may be an iterator, and sent twice
        send = self.send
        if self._serializers is not None:
            check_topic(topic)
            key, value = await self._serializers.encode_async(topic, key, value)
            send = self._send_bytes
        deadline: float | None = None
        while True:
            try:
                return send(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
            except ThrottledError:
                if deadline is None:
                    deadline = self._loop.time() + self._rules.max_block_s
                size = OVERHEAD_BYTES + len(value or b"") + len(key or b"")
                size += len(encode_headers(cast(Headers, headers)))
                await self._wait_for_space(size, deadline - self._loop.time())

    async def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        headers: GivenHeaders = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> ManyFuture:
        """Send many records; waits while the buffer is full, max.block.ms at most. `await` what it returns for the
        offsets. `headers`: of each record. Errors as `send`; RequestTimedOutError.
        """
        headers = checked_headers(headers) if headers else NO_HEADERS
        check_types(values, keys)
        if keys is not None and len(keys) != len(values):
            raise InvalidRequestError(f"{len(keys)} keys for {len(values)} values: give as many", field="keys")
        if timestamp_ms is not None:
            timestamp_ms = checked_timestamp(timestamp_ms)
        if partition is not None:
            partition = checked_partition(partition)
        table = await self._table(topic)
        if partition is not None:
            table.check(partition)
        parts: list[tuple[ProducerBatch, int, int]] = []
        for start in range(0, len(values), _TURN_RECORDS):
            some_values = values[start : start + _TURN_RECORDS]
            some_keys = None if keys is None else keys[start : start + _TURN_RECORDS]
            if partition is None:
                columns = by_partition(table, self._topics.partitioner, some_values, some_keys)
            else:
                columns = [Columns(partition, some_values, some_keys)]
            for one in columns:
                await self._extend(table, one, headers, timestamp_ms, parts)
            await asyncio.sleep(0)
        return ManyFuture(parts)

    async def _extend(
        self,
        table: TopicTable,
        columns: Columns,
        headers: Headers,
        timestamp_ms: int | None,
        parts: list[tuple[ProducerBatch, int, int]],
    ) -> None:
        """Add the records to one partition, or to the sticky ones, a batch at a time."""
        partition, values, keys = columns
        sizes = Sizes(columns, len(encode_headers(headers)) if headers else 0)
        at, deadline = 0, self._loop.time() + self._rules.max_block_s
        while at < len(values):
            size = HEADER_SIZE + sizes.between(at, at + 1)
            if not self._buffer.has_room(max(self._rules.batch_bytes, size)):
                await self._wait_for_space(size, deadline - self._loop.time())
            self._check_open()
            if self._transactions is not None:
                self._transactions.check_open()
            try:
                with self._guard:
                    batch = table.sticky if partition is None else table.open[partition]
                    if batch.size + sizes.between(at, at + 1) > batch.limit:
                        batch = self._next_batch(table, partition, sizes.between(at, at + 1))
                    index = len(batch.values)
                    stop = sizes.fitting(at, batch.limit - batch.size)
                    batch.size += sizes.between(at, stop)
                    stamp = (self._now_ms or self._read_clock()) if timestamp_ms is None else timestamp_ms
                    if stamp != batch.timestamp:
                        batch.add_timestamp(index, stamp)
                    if keys is not None:
                        batch.add_keys(index, keys[at:stop])
                    if headers:
                        batch.add_headers(index, headers, stop - at)
                    batch.values += values[at:stop]
            except ThrottledError:
                continue  # another thread has taken the space since
            parts.append((batch, index, index + stop - at))
            at, deadline = stop, self._loop.time() + self._rules.max_block_s

    @property
    def is_full(self) -> bool:
        """Whether another batch does not fit in the buffer: `await wait_until_room()`."""
        return not self._buffer.has_room(self._rules.batch_bytes)

    async def wait_until_room(self, record_bytes: int = 0, *, timeout_s: float | None = None) -> None:
        """Until a batch, or a record of so many bytes, fits in the buffer. RequestTimedOutError after `timeout_s`
        (None: max.block.ms).
        """
        timeout_s = self._rules.max_block_s if timeout_s is None else timeout_s
        await self._buffer.wait_until_room(max(self._rules.batch_bytes, record_bytes), timeout_s)

    async def _wait_for_space(self, record_bytes: int, timeout_s: float) -> None:
        """RequestTimedOutError."""
        size = max(self._rules.batch_bytes, HEADER_SIZE + record_bytes)
        await self._buffer.wait_until_mostly_free(size, max(0.0, timeout_s))
