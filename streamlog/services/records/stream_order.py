"""What streams of records have in common: lines of batches to partitions, and answers in the order of the requests.

request --IN_FLIGHT at once--> batches --> each in the line of its partition
                            '--> its answer, when all of them are written --> sent when those before it are
"""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import Responses
from streamlog.model import Acks, PartitionId, TopicId
from streamlog.services.records.routed_writes import BatchWrite, RoutedWriter, WriteResult

# A leader remembers the last five batches of a producer (SEMANTICS 6). Kafka's max.in.flight.requests.per.connection.
IN_FLIGHT: Final = 5


class QueuedWrite(Struct, frozen=True):
    """Of one batch, in the line of its partition."""

    write: BatchWrite
    before: asyncio.Future[None] | None  # done when the batch before has its place in the log; None: there is none
    own: asyncio.Future[None]


class WriteQueues:
    """Of one producer: a batch takes its place in the log when the one before it in its partition has its own."""

    def __init__(self, writer: RoutedWriter) -> None:
        self._writer = writer
        self._last: dict[tuple[TopicId, PartitionId], asyncio.Future[None]] = {}

    def join(self, write: BatchWrite) -> QueuedWrite:
        """In the order of the batches; `write` it."""
        key = (write.topic_id, write.partition)
        before, own = self._last.get(key), asyncio.get_running_loop().create_future()
        self._last[key] = own
        return QueuedWrite(write, before, own)

    async def write(self, place: QueuedWrite, acks: Acks, deadline: float) -> WriteResult:
        """What `RoutedWriter.write` raises."""
        before, own = place.before, place.own

        def placed() -> None:
            # A leader that has never heard of a producer takes whatever sequence comes first. So the others wait until
            # the first one is acknowledged, and every leader to come has heard of it.
            if before is not None and not own.done():
                own.set_result(None)

        try:
            if before is not None:
                await asyncio.wait([before])
            return await self._writer.write(place.write, acks, deadline, placed)
        finally:
            if not own.done():
                own.set_result(None)  # who is behind a batch that has failed is refused by its sequence

    def clear(self) -> None:
        """Sequences begin anew: nothing is on its way, and no leader has heard of what comes."""
        self._last.clear()


class ResponseQueue:
    """One a request, bounded by the room."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._waiting: asyncio.Queue[asyncio.Future[pb.PublishStreamResponse] | None] = asyncio.Queue()

    async def wait_until_room(self) -> None:
        """Before a request is begun; `add` its answer."""
        await self._room.acquire()

    def add(self, answer: pb.PublishStreamResponse | asyncio.Future[pb.PublishStreamResponse]) -> None:
        """In the order of the requests."""
        if isinstance(answer, pb.PublishStreamResponse):
            ready: asyncio.Future[pb.PublishStreamResponse] = asyncio.get_running_loop().create_future()
            ready.set_result(answer)
            answer = ready
        self._waiting.put_nowait(answer)

    def end(self) -> None:
        """The client sends no more."""
        self._waiting.put_nowait(None)

    async def send_all(self, responses: Responses[pb.PublishStreamResponse]) -> None:
        """Until the last. What an answer raises ends it."""
        while (answer := await self._waiting.get()) is not None:
            await responses.send(await answer)
            self._room.release()
