"""PublishStream: Publish, pipelined.

    reader: request -> batches -> their places in the lines of their partitions      (IN_FLIGHT requests at once)
    writer: answers in the order of the requests

Every stream writes with a producer id: the client's, by its token, or one of its own for as long as it lasts. So a
leader that moves while requests are in flight costs neither a record nor the order. Within one request nothing is
half done: what cannot be written at all is told in its results before anything is written, and the stream goes on;
what fails afterwards ends the stream, and with a token all that was not answered is sent again on another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from streamlog.api.convert import publish as convert
from streamlog.api.convert.publish import PublishOptions
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import Call, Requests, Responses
from streamlog.errors import InvalidRequestError, InvalidTopicError, StreamlogError
from streamlog.model import Acks, PartitionId, ProducerEpoch, TopicId
from streamlog.ports import Clock
from streamlog.services.needs import ProducerIds
from streamlog.services.producer_token import ProducerToken, decode_token
from streamlog.services.publish import Preparation, Prepared, results_of
from streamlog.services.writing import Write, Writer, Written

# A leader remembers the last five batches of a producer (SEMANTICS 6). Kafka's max.in.flight.requests.per.connection.
IN_FLIGHT: Final = 5


class PublishStreams:
    def __init__(self, preparation: Preparation, writer: Writer, producer_ids: ProducerIds, clock: Clock) -> None:
        self._preparation = preparation
        self._writer = writer
        self._producer_ids = producer_ids
        self._clock = clock

    async def publish_stream(
        self,
        requests: Requests[pb.PublishStreamRequest],
        responses: Responses[pb.PublishStreamResponse],
        call: Call,
    ) -> None:
        first = await requests.recv()
        if first is None:
            return
        if first.producer_token:
            token = decode_token(first.producer_token)
        else:
            token = ProducerToken(producer_id=await self._producer_ids.next(), producer_epoch=ProducerEpoch(0))
        stream = _Stream(
            self._preparation, self._writer, self._clock, token, call, tells_token=bool(first.producer_token)
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stream.answer(responses))
            await stream.read(first, requests, tasks)


class _Stream:
    def __init__(
        self,
        preparation: Preparation,
        writer: Writer,
        clock: Clock,
        token: ProducerToken,
        call: Call,
        *,
        tells_token: bool,
    ) -> None:
        self._preparation = preparation
        self._writer = writer
        self._clock = clock
        self._token = token  # after all requests so far
        self._call = call
        self._tells_token = tells_token
        self._topic = ""
        self._options = convert.publish_options(pb.PublishOptions())
        # Of each partition the batch before the next one, done when that has its place in the log.
        self._lines: dict[tuple[TopicId, PartitionId], asyncio.Future[None]] = {}
        self._room = asyncio.Semaphore(IN_FLIGHT)
        # One a request, in their order; None: the client sends no more. Bounded by the room.
        self._answers: asyncio.Queue[asyncio.Future[pb.PublishStreamResponse] | None] = asyncio.Queue()

    async def read(
        self, first: pb.PublishStreamRequest, requests: Requests[pb.PublishStreamRequest], tasks: asyncio.TaskGroup
    ) -> None:
        request: pb.PublishStreamRequest | None = first
        while request is not None:
            await self._room.acquire()
            self._take_defaults(request, is_first=request is first)
            await self._begin(request, self._options, tasks)
            request = await requests.recv()
        self._answers.put_nowait(None)

    def _take_defaults(self, request: pb.PublishStreamRequest, *, is_first: bool) -> None:
        if request.producer_token and not is_first:
            raise InvalidRequestError("a stream has its producer_token from its first request", field="producer_token")
        if request.HasField("options"):
            self._options = convert.publish_options(request.options)
        self._topic = request.topic or self._topic
        if not self._topic:
            raise InvalidRequestError("the first request names the topic", field="topic")

    async def _begin(self, request: pb.PublishStreamRequest, options: PublishOptions, tasks: asyncio.TaskGroup) -> None:
        try:
            prepared = await self._preparation.prepare(self._topic, request.records, options, self._token, self._call)
        except (InvalidRequestError, InvalidTopicError):
            raise
        except StreamlogError as error:
            self._answers.put_nowait(_ready(self._refusal(request, error)))
            return
        assert prepared.token is not None
        self._token = prepared.token
        deadline = self._clock.monotonic() + options.timeout_ms / 1000
        writes = [
            tasks.create_task(self._in_line(placed.write, prepared.acks, deadline)) for placed in prepared.batches
        ]
        self._answers.put_nowait(tasks.create_task(self._answer_of(prepared, writes)))

    def _in_line(self, write: Write, acks: Acks, deadline: float) -> Coroutine[Any, Any, Written]:
        """Called in the order of the batches. One takes its place in the log when that before it has its own."""
        key = (write.topic_id, write.partition)
        before, own = self._lines.get(key), asyncio.get_running_loop().create_future()
        self._lines[key] = own
        return self._write(write, acks, deadline, before, own)

    async def _write(
        self, write: Write, acks: Acks, deadline: float, before: asyncio.Future[None] | None, own: asyncio.Future[None]
    ) -> Written:
        def placed() -> None:
            # A leader that has never heard of a producer takes whatever sequence comes first. So the others wait until
            # the first one is acknowledged, and every leader to come has heard of it.
            if before is not None and not own.done():
                own.set_result(None)

        if before is not None:
            await before
        written = await self._writer.write(write, acks, deadline, placed)
        if not own.done():
            own.set_result(None)
        return written

    async def _answer_of(self, prepared: Prepared, writes: list[asyncio.Task[Written]]) -> pb.PublishStreamResponse:
        outcomes = [await write for write in writes]
        return pb.PublishStreamResponse(
            results=results_of(prepared, outcomes), producer_token=self._told(prepared.token)
        )

    def _refusal(self, request: pb.PublishStreamRequest, error: StreamlogError) -> pb.PublishStreamResponse:
        """Nothing of it was written, and the sequences are where they were."""
        results = [
            convert.not_published(record.partition, record.timestamp_ms, error, briefly=place > 0)
            for place, record in enumerate(request.records)
        ]
        return pb.PublishStreamResponse(results=results, producer_token=self._told(self._token))

    def _told(self, token: ProducerToken | None) -> bytes:
        return token.encode() if self._tells_token and token is not None else b""

    async def answer(self, responses: Responses[pb.PublishStreamResponse]) -> None:
        while (answer := await self._answers.get()) is not None:
            await responses.send(await answer)
            self._room.release()


def _ready(response: pb.PublishStreamResponse) -> asyncio.Future[pb.PublishStreamResponse]:
    future: asyncio.Future[pb.PublishStreamResponse] = asyncio.get_running_loop().create_future()
    future.set_result(response)
    return future
