"""PublishStream: Publish, pipelined.

    reader: request -> batches -> the write queues of their partitions      (IN_FLIGHT requests at a time)
    writer: responses in the order of the requests

Every stream writes with a producer id: the client's, from its token, or one of the stream. So records are neither lost
nor reordered when a leader moves while requests are in flight. An invalid record is refused in its result, the others
of its request are written, and the stream continues. A failure of a write ends the stream; with a token the client
sends all requests without a response again on another stream.

With a client's token a record is refused in its result only for what the request itself says. One that the topic's
settings or the clock refuse, and an unknown topic, end the stream: when the requests are sent again they may be
accepted, and the records behind them would have other sequences.

Transactional streams: publish_transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamlog.aio.call_time import counted
from streamlog.api.convert.records import publish as convert
from streamlog.api.convert.records.publish import PublishOptions
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import Call, Requests, Responses
from streamlog.coordinator.transaction_shard import ProducerIdSequence
from streamlog.errors import InvalidRequestError, InvalidTopicError, StreamlogError
from streamlog.model import ProducerEpoch
from streamlog.ports import Clock
from streamlog.services.records.gathering.batch_write import WriteResult
from streamlog.services.records.producer_token import ProducerToken, decode_token
from streamlog.services.records.publish import PlacedBatch, Preparation, PreparedPublish, results_of
from streamlog.services.records.publish_transactions import TransactionalStream
from streamlog.services.records.routed_writes import RoutedWriter
from streamlog.services.records.stream_order import QueuedWrite, ResponseQueue, WriteQueues


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
            returns_token=bool(first.producer_token),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(counted(stream.answers.send_all(responses)))
            await stream.read(first, requests, tasks)


class _Stream:
    def __init__(
        self,
        preparation: Preparation,
        queues: WriteQueues,
        clock: Clock,
        token: ProducerToken,
        call: Call,
        *,
        returns_token: bool,
    ) -> None:
        self.answers = ResponseQueue()
        self._preparation = preparation
        self._queues = queues
        self._clock = clock
        self._token = token  # after all requests so far
        self._call = call
        self._returns_token = returns_token
        self._topic = ""
        self._options = convert.publish_options(pb.PublishOptions())

    async def read(
        self, first: pb.PublishStreamRequest, requests: Requests[pb.PublishStreamRequest], tasks: asyncio.TaskGroup
    ) -> None:
        request: pb.PublishStreamRequest | None = first
        while request is not None:
            await self.answers.wait_until_free()
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
            raise InvalidRequestError("topic is required in the first request of a stream", field="topic")

    async def _begin(self, request: pb.PublishStreamRequest, options: PublishOptions, tasks: asyncio.TaskGroup) -> None:
        try:
            prepared = await self._preparation.prepare(
                self._topic,
                request.records,
                options,
                self._token,
                self._call,
                alone=True,
                repeatable=self._returns_token,
            )
        except (InvalidRequestError, InvalidTopicError):
            raise
        except StreamlogError as error:
            if self._returns_token:
                raise
            self.answers.add(self._refusal(request, error))
            return
        assert prepared.token is not None
        self._token = prepared.token
        deadline = self._clock.monotonic() + options.timeout_ms / 1000
        queued = [(placed, self._queues.join(placed.write)) for placed in prepared.batches]
        if prepared.refused_by_settings:
            work = [self._write(prepared, *one, deadline) for one in queued]
        else:
            # Without a coroutine in between, as for nearly all requests.
            work = [self._queues.write(one, prepared.acks, deadline) for _, one in queued]
        writes = [tasks.create_task(counted(one)) for one in work]
        self.answers.add(tasks.create_task(counted(self._answer_of(prepared, writes))))

    async def _write(
        self, prepared: PreparedPublish, placed: PlacedBatch, queued: QueuedWrite, deadline: float
    ) -> WriteResult:
        try:
            return await self._queues.write(queued, prepared.acks, deadline)
        except StreamlogError as error:
            reason = prepared.reason(placed, error)
            if reason is error:
                raise
            raise reason from error

    async def _answer_of(
        self, prepared: PreparedPublish, writes: list[asyncio.Task[WriteResult]]
    ) -> pb.PublishStreamResponse:
        outcomes = [await write for write in writes]
        return pb.PublishStreamResponse(
            results=results_of(prepared, outcomes), producer_token=self._returned(prepared.token)
        )

    def _refusal(self, request: pb.PublishStreamRequest, error: StreamlogError) -> pb.PublishStreamResponse:
        """Nothing was written, and the sequences are unchanged. The stream has no token."""
        return pb.PublishStreamResponse(results=convert.none_published(request.records, error))

    def _returned(self, token: ProducerToken | None) -> bytes:
        return token.encode() if self._returns_token and token is not None else b""
