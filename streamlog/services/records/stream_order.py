"""The order of batches and responses, for both kinds of PublishStream.

request --IN_FLIGHT at a time--> batches --> each in the write queue of its partition
                              '--> its response, once all of them are written --> sent after the previous ones
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

from msgspec import Struct

from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import Responses
from streamlog.errors import StreamlogError
from streamlog.model import Acks, PartitionId, TopicId
from streamlog.services.records.gathering.batch_write import BatchWrite, WriteResult
from streamlog.services.records.routed_writes import RoutedWriter

# A leader remembers the last five batches of a producer (SEMANTICS 6). Kafka's max.in.flight.requests.per.connection.
IN_FLIGHT: Final = 5


_Answer: TypeAlias = pb.PublishStreamResponse | StreamlogError


class QueuedWrite(Struct, frozen=True):
    """One batch in the queue of its partition."""

    write: BatchWrite
    previous: asyncio.Future[None] | None  # done once the previous batch is appended; None: there is none
    own: asyncio.Future[None]


class WriteQueues:
    """Of one producer: a batch is appended once the previous one of its partition is."""

    def __init__(self, writer: RoutedWriter) -> None:
        self._writer = writer
        self._last: dict[tuple[TopicId, PartitionId], asyncio.Future[None]] = {}

    def join(self, write: BatchWrite) -> QueuedWrite:
        """In the order of the batches; `write` it."""
        key = (write.topic_id, write.partition)
        previous, own = self._last.get(key), asyncio.get_running_loop().create_future()
        self._last[key] = own
        return QueuedWrite(write, previous, own)

    async def write(self, queued: QueuedWrite, acks: Acks, deadline: float) -> WriteResult:
        """Raises what `RoutedWriter.write` does."""
        previous, own = queued.previous, queued.own

        def on_appended() -> None:
            # A leader accepts any first sequence of a producer that it does not know. So the next batches wait until
            # the first one is acknowledged, and every later leader knows the producer.
            if previous is not None and not own.done():
                own.set_result(None)

        try:
            if previous is not None:
                await asyncio.wait([previous])
            return await self._writer.write(queued.write, acks, deadline, on_appended)
        finally:
            if not own.done():
                own.set_result(None)  # batches behind a failed one are refused by their sequence

    def clear(self) -> None:
        """Sequences restart at 0: nothing is in flight, and no leader knows the new epoch."""
        self._last.clear()


class ResponseQueue:
    """Responses in the order of the requests, at most IN_FLIGHT."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(IN_FLIGHT)
        self._waiting: asyncio.Queue[_Answer | asyncio.Future[_Answer] | None] = asyncio.Queue()

    async def wait_until_free(self) -> None:
        """Before a request is processed; `add` its response afterwards."""
        await self._free.acquire()

    def add(self, answer: _Answer | asyncio.Future[_Answer]) -> None:
        """In the order of the requests. An error ends the stream, after the responses before it."""
        self._waiting.put_nowait(answer)

    def end(self) -> None:
        """The client sends no more."""
        self._waiting.put_nowait(None)

    async def send_all(self, responses: Responses[pb.PublishStreamResponse]) -> None:
        """Until the last one. Raises what a response raises, or the error in its place."""
        while (answer := await self._waiting.get()) is not None:
            if isinstance(answer, asyncio.Future):
                answer = await answer
            if isinstance(answer, StreamlogError):
                raise answer
            await responses.send(answer)
            self._free.release()
