"""PublishStream: Publish, pipelined.

    reader: request -> batches -> their places in the lines of their partitions      (IN_FLIGHT requests at once)
    writer: answers in the order of the requests

Every stream writes with a producer id: the client's, by its token, or one of its own for as long as it lasts. So a
leader that moves while requests are in flight costs neither a record nor the order. Within one request nothing is
half done: what cannot be written at all is told in its results before anything is written, and the stream goes on;
what fails afterwards ends the stream, and with a token all that was not answered is sent again on another one.

A stream that writes in transactions is another matter: publish_transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamlog.api.convert import publish as convert
from streamlog.api.convert.publish import PublishOptions
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import Call, Requests, Responses
from streamlog.errors import InvalidRequestError, InvalidTopicError, StreamlogError
from streamlog.model import ProducerEpoch
from streamlog.ports import Clock
from streamlog.services.common.collaborators import ProducerIdSequence
from streamlog.services.records.producer_token import ProducerToken, decode_token
from streamlog.services.records.publish import Preparation, PreparedPublish, results_of
from streamlog.services.records.publish_transactions import TransactionalStream
from streamlog.services.records.routed_writes import RoutedWriter, WriteResult
from streamlog.services.records.stream_order import ResponseQueue, WriteQueues


class PublishStreams:
    def __init__(
        self,
        preparation: Preparation,
        writer: RoutedWriter,
        producer_ids: ProducerIdSequence,
        clock: Clock,
        transactional: Callable[[pb.PublishStreamRequest, Call], TransactionalStream],
    ) -> None:
        self._preparation = preparation
        self._writer = writer
        self._producer_ids = producer_ids
        self._clock = clock
        self._transactional = transactional

    async def publish_stream(
        self,
        requests: Requests[pb.PublishStreamRequest],
        responses: Responses[pb.PublishStreamResponse],
        call: Call,
    ) -> None:
        first = await requests.recv()
        if first is None:
            return
        if first.HasField("transactional"):
            await self._transactional(first, call).serve(first, requests, responses)
            return
        if first.producer_token:
            token = decode_token(first.producer_token)
        else:
            token = ProducerToken(producer_id=await self._producer_ids.next(), producer_epoch=ProducerEpoch(0))
        stream = _Stream(
            self._preparation,
            WriteQueues(self._writer),
            self._clock,
            token,
            call,
            tells_token=bool(first.producer_token),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stream.answers.send_all(responses))
            await stream.read(first, requests, tasks)


class _Stream:
    def __init__(
        self,
        preparation: Preparation,
        lines: WriteQueues,
        clock: Clock,
        token: ProducerToken,
        call: Call,
        *,
        tells_token: bool,
    ) -> None:
        self.answers = ResponseQueue()
        self._preparation = preparation
        self._lines = lines
        self._clock = clock
        self._token = token  # after all requests so far
        self._call = call
        self._tells_token = tells_token
        self._topic = ""
        self._options = convert.publish_options(pb.PublishOptions())

    async def read(
        self, first: pb.PublishStreamRequest, requests: Requests[pb.PublishStreamRequest], tasks: asyncio.TaskGroup
    ) -> None:
        request: pb.PublishStreamRequest | None = first
        while request is not None:
            await self.answers.wait_until_room()
            self._take_defaults(request, is_first=request is first)
            await self._begin(request, self._options, tasks)
            request = await requests.recv()
        self.answers.end()

    def _take_defaults(self, request: pb.PublishStreamRequest, *, is_first: bool) -> None:
        convert.check_in_stream(request, is_first=is_first, is_transactional=False)
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
            self.answers.add(self._refusal(request, error))
            return
        assert prepared.token is not None
        self._token = prepared.token
        deadline = self._clock.monotonic() + options.timeout_ms / 1000
        places = [self._lines.join(placed.write) for placed in prepared.batches]
        writes = [tasks.create_task(self._lines.write(place, prepared.acks, deadline)) for place in places]
        self.answers.add(tasks.create_task(self._answer_of(prepared, writes)))

    async def _answer_of(
        self, prepared: PreparedPublish, writes: list[asyncio.Task[WriteResult]]
    ) -> pb.PublishStreamResponse:
        outcomes = [await write for write in writes]
        return pb.PublishStreamResponse(
            results=results_of(prepared, outcomes), producer_token=self._told(prepared.token)
        )

    def _refusal(self, request: pb.PublishStreamRequest, error: StreamlogError) -> pb.PublishStreamResponse:
        """Nothing of it was written, and the sequences are where they were."""
        return pb.PublishStreamResponse(
            results=convert.none_published(request.records, error), producer_token=self._told(self._token)
        )

    def _told(self, token: ProducerToken | None) -> bytes:
        return token.encode() if self._tells_token and token is not None else b""
