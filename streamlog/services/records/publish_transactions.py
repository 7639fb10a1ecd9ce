"""PublishStream with transactions: the node is the transactional producer, on behalf of the client's stream.

    first request --InitProducerId, or end of the transaction that a previous stream left--> ready
    ready --record or offset--> open --end: commit--> all writes completed --> decided --> outcome, ready
                                   '-- refused --> failed --end--> aborted, with the error in the response --> ready
    refused with PRODUCER_FENCED --> aborted at once --fenced, too--> another producer has the id: the stream ends
                                                     '--aborted--> it had timed out: failed, until the client's end
    stream disconnected, or ended with a transaction open --> aborted

States and calls to coordinators are those of the Python client (streamlog.client.transactions), served by this node
itself; so any node serves any transactional id. Requests are pipelined within a transaction; after an `end` the next
request waits, since every transaction has an epoch of its own. PRODUCER_FENCED and OUTCOME_UNKNOWN end the stream in
the place of a response: those before it, with the outcomes of previous transactions, are sent first.

The token of a response identifies the open transaction. After a disconnect another stream that begins with it, at any
node, aborts this very transaction; the result is whether it was committed before. A stream that begins without a token
fences earlier producers with the id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from streamlog.aio.call_time import counted
from streamlog.aio.timeouts import timeout
from streamlog.api.convert.records import publish as convert
from streamlog.api.convert.records import publish_transactions as convert_transactions
from streamlog.api.convert.records.publish_transactions import EndRequest
from streamlog.api.errors import to_message
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import Call, Requests, Responses
from streamlog.client.connection.backoff import Backoff
from streamlog.client.groups.group_offsets import OffsetAndMetadata
from streamlog.client.producer.batches.wire_batch import ProducerIdAndEpoch
from streamlog.client.transactions.transaction_manager import (
    GroupMetadata,
    Nodes,
    TransactionManager,
    TransactionPhase,
    TransactionRules,
)
from streamlog.errors import (
    InvalidRequestError,
    InvalidTopicError,
    OutcomeUnknownError,
    ProducerFencedError,
    RequestTimedOutError,
    StreamlogError,
    TransactionAbortableError,
)
from streamlog.groups.committing import CommitOffsets, Committer
from streamlog.model import Acks
from streamlog.ports import Clock
from streamlog.services.records.gathering.batch_write import WriteResult
from streamlog.services.records.producer_token import ProducerToken, decode_token
from streamlog.services.records.publish import Preparation, PreparedPublish, results_of
from streamlog.services.records.routed_writes import RoutedWriter
from streamlog.services.records.stream_order import QueuedWrite, ResponseQueue, WriteQueues
from streamlog.services.records.transactional_request import TransactionalRequest

T = TypeVar("T")

_ATTEMPT_S: Final = 10.0
"""For one response of a coordinator, which may wait for the end of the previous transaction."""
_LEAVE_S: Final = 5.0
"""For the abort of the open transaction when the client has disconnected."""
_ABORTABLE: Final = (TransactionPhase.OPEN, TransactionPhase.SETTLING, TransactionPhase.FAILED)
_COMMITTED: Final = pb.TRANSACTION_OUTCOME_COMMITTED
_ABORTED: Final = pb.TRANSACTION_OUTCOME_ABORTED


class TransactionalStreams(Struct, frozen=True, kw_only=True):
    """What a transactional stream needs of its node."""

    preparation: Preparation
    writer: RoutedWriter
    own_node: Nodes
    clock: Clock
    backoff: Backoff

    def stream(self, first: pb.PublishStreamRequest, call: Call) -> TransactionalStream:
        """By its first request. InvalidRequestError."""
        return TransactionalStream(self, first, call)


class TransactionalStream:
    def __init__(self, streams: TransactionalStreams, first: pb.PublishStreamRequest, call: Call) -> None:
        self._streams = streams
        self._call = call
        self._options = convert.publish_options(first.options)
        self._former = decode_token(first.producer_token) if first.producer_token else None
        self._topic = ""
        self._answers = ResponseQueue()
        self._queues = WriteQueues(streams.writer)
        self._going: dict[asyncio.Task[Any], None] = {}  # what is being written of the open transaction
        self._turn = asyncio.Lock()  # one request, or the abort of a fenced transaction
        self._aborted = ""  # why the open transaction was aborted before the client ended it
        writer = convert_transactions.writer(first.transactional)
        self._transactional_id = writer.transactional_id
        self._token = _token_of(ProducerIdAndEpoch())
        self._transactions = TransactionManager(
            TransactionRules(
                transactional_id=writer.transactional_id,
                timeout_ms=writer.timeout_ms,
                two_phase=False,
                call_timeout_s=self._options.timeout_ms / 1000,
                attempt_s=_ATTEMPT_S,
            ),
            streams.own_node,
            streams.clock,
            streams.backoff,
            settle=self._settle,
            drop=lambda _: self._drop(),
            on_state=self._on_state,
        )

    async def serve(
        self,
        first: pb.PublishStreamRequest,
        requests: Requests[pb.PublishStreamRequest],
        responses: Responses[pb.PublishStreamResponse],
    ) -> None:
        try:
            former = await self._start()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(counted(self._answers.send_all(responses)))
                is_open = await self._take(first, pb.PublishStreamResponse(former_outcome=former), tasks)
                while is_open and (request := await requests.recv()) is not None:
                    convert.check_in_stream(request, is_first=False, is_transactional=True)
                    is_open = await self._take(request, pb.PublishStreamResponse(), tasks)
                self._answers.end()
        finally:
            await self._leave()

    # -- start and end of the stream

    async def _start(self) -> pb.TransactionOutcome.ValueType:
        """The outcome of the transaction that the token identifies. ProducerFencedError, UnknownProducerIdError."""
        if self._former is None:
            await self._transactions.begin()
            return pb.TRANSACTION_OUTCOME_UNSPECIFIED
        former = ProducerIdAndEpoch(self._former.producer_id, self._former.producer_epoch)
        return _COMMITTED if await self._transactions.take_over(former) else _ABORTED

    async def _leave(self) -> None:
        """Abort the open transaction. If that fails, the next stream or the timeout does."""
        try:
            async with timeout(_LEAVE_S):
                if self._transactions.state is TransactionPhase.COMMITTING:
                    await self._transactions.commit()  # requested, and perhaps decided already
                elif self._transactions.state in _ABORTABLE:
                    await self._transactions.abort()
        except (StreamlogError, TimeoutError):
            return

    @property
    def _identity(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self._token.producer_id, self._token.producer_epoch)

    def _on_state(self, state: TransactionPhase, identity: ProducerIdAndEpoch) -> None:
        """Sequences restart at 0 with every transaction."""
        if identity != self._identity:
            self._token = _token_of(identity)
            self._queues.clear()

    # -- one request

    async def _take(
        self, request: pb.PublishStreamRequest, answer: pb.PublishStreamResponse, tasks: asyncio.TaskGroup
    ) -> bool:
        """False: the stream ends, with an error in the place of the response. InvalidRequestError and others."""
        end, offsets = convert_transactions.end(request), convert_transactions.offsets(request)
        self._take_defaults(request)
        await self._answers.wait_until_free()
        async with self._turn:
            try:
                written = await self._begin(request, offsets, TransactionalRequest(answer), tasks)
                if end is not EndRequest.NONE:
                    await self._end(end, answer)
            except (OutcomeUnknownError, ProducerFencedError) as error:
                self._answers.add(error)
                return False
            answer.producer_token = _token_of(self._identity).encode()
            self._answers.add(tasks.create_task(counted(self._complete(written))))
        return True

    async def _begin(
        self,
        request: pb.PublishStreamRequest,
        offsets: Sequence[CommitOffsets],
        written: TransactionalRequest,
        tasks: asyncio.TaskGroup,
    ) -> TransactionalRequest:
        if (request.records or offsets) and not self._aborted and self._transactions.state is TransactionPhase.READY:
            await self._transactions.begin()
        written.identity = self._identity
        if request.records:
            await self._begin_records(request, written, tasks)
        written.commits = [self._go(tasks, self._commit_offsets(one)) for one in offsets]
        return written

    async def _complete(self, written: TransactionalRequest) -> pb.PublishStreamResponse | StreamlogError:
        """Once everything is written or given up. An error ends the stream."""
        if await written.wait():
            error = await self._abort_fenced(written.identity)
            if error is not None:
                return error
        return written.response()

    def _take_defaults(self, request: pb.PublishStreamRequest) -> None:
        if request.HasField("options"):
            self._options = convert.publish_options(request.options)
        convert_transactions.check_acks(self._options)
        self._topic = request.topic or self._topic
        if request.records and not self._topic:
            raise InvalidRequestError("topic is required in the first request with records", field="topic")

    async def _begin_records(
        self, request: pb.PublishStreamRequest, written: TransactionalRequest, tasks: asyncio.TaskGroup
    ) -> None:
        try:
            self._check_open()
            prepared = await self._streams.preparation.prepare(
                self._topic,
                request.records,
                self._options,
                self._token,
                self._call,
                self._transactional_id,
                alone=True,
            )
        except (InvalidRequestError, InvalidTopicError):
            raise
        except StreamlogError as error:
            self._transactions.on_failure(error)
            written.answer.results.extend(convert.none_published(request.records, error))
            return
        if prepared.refused:
            self._refuse(prepared, written.answer)
            return
        assert prepared.token is not None
        self._token = prepared.token
        self._transactions.touch()
        deadline = self._streams.clock.monotonic() + self._options.timeout_ms / 1000
        queued = [self._queues.join(placed.write) for placed in prepared.batches]
        written.prepared = prepared
        written.writes = [self._go(tasks, self._outcome_of(one, deadline)) for one in queued]

    def _refuse(self, prepared: PreparedPublish, answer: pb.PublishStreamResponse) -> None:
        """Records are invalid. So the transaction can only be aborted, and there is no use in writing the others."""
        index, error = next(iter(prepared.refused.items()))
        self._transactions.on_failure(error)
        others = TransactionAbortableError(
            f"not written, since record {index} of the request was refused, and the transaction can only be aborted: "
            f"{error.code}: {error}"
        )
        answer.results.extend(results_of(prepared, [others] * len(prepared.batches)))

    def _check_open(self) -> None:
        """TransactionAbortableError and others."""
        if self._aborted:
            raise TransactionAbortableError(self._aborted)
        self._transactions.check_open()

    async def _outcome_of(self, queued: QueuedWrite, deadline: float) -> WriteResult | StreamlogError:
        try:
            return await self._queues.write(queued, Acks.ALL, deadline)
        except StreamlogError as error:
            self._transactions.on_failure(error)
            return error

    async def _commit_offsets(self, command: CommitOffsets) -> StreamlogError | None:
        member = command.member
        group = GroupMetadata(command.group) if member is None else _member(command.group, member)
        places = {
            one.partition: OffsetAndMetadata(one.offset, leader_epoch=one.leader_epoch, metadata=one.metadata)
            for one in command.offsets
        }
        try:
            self._check_open()
            await self._transactions.send_offsets(places, group)
        except StreamlogError as error:
            return error
        return None

    # -- writes in flight

    def _go(self, tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = tasks.create_task(counted(work))
        self._going[task] = None
        task.add_done_callback(self._going.pop)
        return task

    async def _settle(self) -> None:
        """Until all of the open transaction is written or refused."""
        while self._going:
            await asyncio.wait(self._going)

    def _drop(self) -> None:
        """Give up the writes in flight: late ones are fenced by the epoch of the ended transaction."""
        for task in self._going:
            task.cancel()

    async def _end(self, end: EndRequest, answer: pb.PublishStreamResponse) -> None:
        """ProducerFencedError; OutcomeUnknownError."""
        aborted, self._aborted = self._aborted, ""
        if aborted:
            answer.outcome = _ABORTED
            if end is EndRequest.COMMIT:
                answer.error.CopyFrom(to_message(TransactionAbortableError(aborted)))
            return
        try:
            if end is EndRequest.COMMIT and await self._commit(answer):
                answer.outcome = _COMMITTED
                return
            await self._abort()
            answer.outcome = _ABORTED
        except RequestTimedOutError as error:
            raise OutcomeUnknownError(
                f"the outcome of the transaction of {self._transactional_id!r} is unknown; open a stream with the last "
                f"producer_token to find out: {error}"
            ) from error

    async def _abort(self) -> None:
        """ProducerFencedError, RequestTimedOutError and others."""
        self._drop()
        await self._settle()
        await self._transactions.abort()

    async def _abort_fenced(self, identity: ProducerIdAndEpoch) -> StreamlogError | None:
        """Something of this producer's transaction was refused with PRODUCER_FENCED: because another producer has the
        id now, or because the transaction timed out. The abort finds out. Returns what ends the stream.
        """
        async with self._turn:
            if self._aborted or identity != self._identity or self._transactions.state is not TransactionPhase.FAILED:
                return None  # it has ended already
            try:
                await self._abort()
            except RequestTimedOutError:
                return None  # the client's end finds out
            except StreamlogError as error:
                return error
            self._aborted = (
                f"the transaction of {self._transactional_id!r} was aborted, since it was open for longer than its "
                "timeout_ms; end it, and begin another one"
            )
        return None

    async def _commit(self, answer: pb.PublishStreamResponse) -> bool:
        """False: it has to be aborted."""
        if self._transactions.state is TransactionPhase.READY:
            return True  # it is empty
        try:
            await self._settle()  # offsets are accepted by an open transaction only
            await self._transactions.commit()
        except TransactionAbortableError as error:
            answer.error.CopyFrom(to_message(error))
            return False
        return True


def _token_of(identity: ProducerIdAndEpoch) -> ProducerToken:
    return ProducerToken(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def _member(group: str, member: Committer) -> GroupMetadata:
    return GroupMetadata(group, member_id=member.member_id, member_epoch=member.epoch)
