"""`poll` and loops of a consumer with deserializers: over those that return bytes (`async_consumer`).

What was taken and cannot be returned, since a record before it cannot be deserialized or the wait for a schema was
cancelled, is put back: the position is that of the first record that was not returned.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Final, cast

from streamlog.client.consumer.assigned_reader import AssignedReader
from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.client.producer.given_records import check_timeout
from streamlog.client.serialization.record_deserializers import Decoding, RecordDeserializers
from streamlog.errors import DeserializationError


class DecodedPolls:
    def __init__(
        self,
        deserializers: RecordDeserializers,
        reader: AssignedReader,
        poll: Callable[..., Coroutine[Any, Any, list[ConsumerRecord]]],
        records: Callable[[], AsyncIterator[ConsumerRecord]],
    ) -> None:
        """`poll`, `records`: with bytes."""
        self._deserializers: Final = deserializers
        self._reader: Final = reader
        self._poll: Final = poll
        self._records: Final = records

    async def poll(self, max_records: int | None = None, *, timeout_s: float | None = 0.0) -> list[ConsumerRecord]:
        """As AsyncConsumer.poll."""
        self._reader.check_open()
        check_timeout(timeout_s)
        deadline = self._reader.loop.time() + (timeout_s or 0.0)
        while True:
            taken = await self._poll(max_records, timeout_s=timeout_s)
            found = await self._decoded(taken)
            if found or not taken:
                return found
            # All of them were skipped.
            if timeout_s is not None:
                timeout_s = max(0.0, deadline - self._reader.loop.time())

    async def _decoded(self, taken: list[ConsumerRecord]) -> list[ConsumerRecord]:
        decoding = Decoding(self._deserializers, taken)
        try:
            await decoding.finish_async()
        except DeserializationError:
            self._reader.put_back(decoding.rest(whole=False))
            if not decoding.found:
                raise
        except BaseException:
            self._reader.put_back(decoding.rest(whole=True))
            raise
        return decoding.found

    async def records(self) -> AsyncIterator[ConsumerRecord]:
        """As AsyncConsumer's loop."""
        async with aclosing(cast(AsyncGenerator[ConsumerRecord, None], self._records())) as records:
            async for record in records:
                decoding = Decoding(self._deserializers, (record,))
                try:
                    await decoding.finish_async()
                except BaseException:
                    self._reader.put_back(decoding.rest(whole=True), processed=True)
                    raise
                for found in decoding.found:
                    yield found
