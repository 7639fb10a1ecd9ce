"""Records that were sent before their topic was known: they wait for its metadata, and are then sent in their order.

    add --> waiting --the topic is known--> sent
                |____ lookup failed, or took more than max.block.ms ____ failed

Records are added under the producer's guard; everything else happens on its loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from streamlog.client.producer.batches.buffer_memory import BufferMemory
from streamlog.client.producer.batches.producer_batch import PendingRecord, ProducerBatch, RecordFuture
from streamlog.errors import StreamlogError
from streamlog.records import Headers

# What a waiting record takes of buffer.memory besides its bytes.
OVERHEAD_BYTES: Final = 200


class PendingSend(NamedTuple):
    """The arguments of a `send`."""

    record: PendingRecord
    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int
    size: int  # of buffer.memory


class PendingRecords:
    def __init__(
        self,
        find_table: Callable[[str], Awaitable[object]],
        on_failure: Callable[[PendingRecord], None],
        on_bug: Callable[[asyncio.Future[None]], None],
        buffer: BufferMemory,
        guard: AbstractContextManager[object],
    ) -> None:
        """`find_table`: looks the topic up, which calls `send_all`. StreamlogError."""
        self._find_table = find_table
        self._on_failure = on_failure
        self._on_bug = on_bug
        self._buffer = buffer
        self._guard = guard
        self._waiting: dict[str, list[PendingSend]] = {}
        self._searches: dict[asyncio.Task[None], None] = {}  # in their order

    @property
    def count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, topic: str, waiting: PendingSend, begin_search: Callable[[], object]) -> None:
        """`begin_search`: has `search` called. Before the first of a topic is added: a search without records
        is harmless, records without a search would wait for ever where the sending thread is interrupted in between.
        """
        self._buffer.reserve(waiting.size)
        if not self._waiting.get(topic):
            begin_search()
        self._waiting.setdefault(topic, []).append(waiting)

    def search(self, topic: str) -> None:
        task = asyncio.ensure_future(self._search(topic))  # sim: `_searched` is called at its end
        self._searches[task] = None
        task.add_done_callback(self._searched)

    def search_again(self) -> None:
        """All topics that records wait for: their searches were cancelled."""
        for topic in self._waiting:
            self.search(topic)

    def _searched(self, task: asyncio.Task[None]) -> None:
        self._searches.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self._on_bug(task)

    async def _search(self, topic: str) -> None:
        try:
            await self._find_table(topic)
        except StreamlogError as error:
            self._fail(topic, error)

    async def wait_until_sent(self) -> None:
        """Until the records that wait now were sent, or have failed."""
        if self._searches:
            await asyncio.wait(list(self._searches))

    def send_all(self, topic: str, send: Callable[[PendingSend], RecordFuture]) -> None:
        """The topic is known. Under the guard."""
        for waiting in self._waiting.pop(topic, []):
            self._buffer.take(-waiting.size)
            try:
                sent = send(waiting)
            except Exception as error:  # noqa: BLE001  also what a partitioner of the user's raises: this record's outcome
                waiting.record.fail(error)
                self._on_failure(waiting.record)
            else:
                assert isinstance(sent.promise, ProducerBatch)  # the topic is known
                waiting.record.located(sent.promise, sent.index)

    def fail_all(self, error: StreamlogError) -> None:
        for topic in list(self._waiting):
            self._fail(topic, error)

    def _fail(self, topic: str, error: StreamlogError) -> None:
        with self._guard:
            failed = self._waiting.pop(topic, [])
        for waiting in failed:
            waiting.record.fail(error)
            self._on_failure(waiting.record)
        self._buffer.release(sum(waiting.size for waiting in failed))

    async def close(self) -> None:
        for task in self._searches:
            task.cancel()
        if self._searches:
            await asyncio.gather(*self._searches, return_exceptions=True)
