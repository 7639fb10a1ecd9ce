"""Batches written to the leaders of their partitions, wherever these are; Publish is built on it.

    this node leads       `AppendPipeline`, without a hop
    another node leads    Produce at that node

A write is retried until its deadline if a retry cannot write twice. After an error which says that nothing was written
(NOT_LEADER, no leader, too few replicas, no connection to the leader) it is always retried. If the outcome is unknown
(the connection broke, the leader changed) only a batch with a sequence is sent again: its leader detects the duplicate
(SEMANTICS 6). Without a sequence the result is OUTCOME_UNKNOWN, which is not retriable then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from streamlog.api import calls
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.api.requests import PartitionAppend, PartitionRef, ProduceRequest
from streamlog.broker.append.admission import QueuedBytes
from streamlog.client.connection.backoff import Backoff
from streamlog.errors import (
    BrokerNotAvailableError,
    LeaderNotAvailableError,
    NetworkError,
    NotEnoughReplicasAfterAppendError,
    OutcomeUnknownError,
    OutOfOrderSequenceError,
    RequestTimedOutError,
    StorageError,
    StreamlogError,
)
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER, NO_OFFSET, NO_TIMESTAMP, Acks, BrokerId, Offset, PartitionId, TopicId
from streamlog.ports import CallInfo, Clock, Tracing
from streamlog.services.batches.produce_results import unacknowledged
from streamlog.services.batches.traced_appends import begin_append
from streamlog.services.batches.transaction_verification import Opening, Openings
from streamlog.services.common.collaborators import Partitions
from streamlog.services.common.forwarding import Peers
from streamlog.services.records.producer_token import SEQUENCES

_PRODUCE: Final = calls.unary("streamlog.v1.Batches/Produce", pb.ProduceResponse)
_ACKS: Final = {
    Acks.NONE: common_pb2.ACKS_NONE,
    Acks.LEADER: common_pb2.ACKS_LEADER,
    Acks.ALL: common_pb2.ACKS_ALL,
}
# After these it is unknown whether the records are in the log.
_UNCERTAIN: Final = (
    NetworkError,
    NotEnoughReplicasAfterAppendError,
    OutcomeUnknownError,
    RequestTimedOutError,
    StorageError,
)


class BatchWrite(Struct, frozen=True, kw_only=True):
    """One batch for one partition."""

    topic: str
    topic_id: TopicId
    partition: PartitionId
    batch: bytes
    count: int  # of its records
    base_sequence: int | None  # None: the producer is not idempotent
    transactional_id: str = ""  # empty: not transactional
    call: CallInfo | None = None  # that it is written for, on a node that is traced
    traceparents: Sequence[str] = ()  # contexts in the headers of its records, there


class WriteResult(NamedTuple):
    base_offset: Offset  # NO_OFFSET with acks=0, and for a duplicate that is too old
    log_append_time_ms: int  # NO_TIMESTAMP: the records keep their own


_OFFSET_UNKNOWN: Final = WriteResult(NO_OFFSET, NO_TIMESTAMP)


class RoutedWriter:
    def __init__(
        self,
        node_id: BrokerId,
        partitions: Partitions,
        view: MetadataView,
        peers: Peers,
        queued: QueuedBytes,
        openings: Openings,
        clock: Clock,
        backoff: Backoff,
        tracing: Tracing | None = None,
    ) -> None:
        self._me = node_id
        self._partitions = partitions
        self._view = view
        self._peers = peers
        self._queued = queued
        self._openings = openings
        self._clock = clock
        self._backoff = backoff
        self._tracing = tracing

    async def write(
        self, write: BatchWrite, acks: Acks, deadline: float, placed: Callable[[], None] = lambda: None
    ) -> WriteResult:
        """StreamlogError: of the last attempt; OUTCOME_UNKNOWN where it may have been written. `deadline` on the
        monotonic clock. `placed` is called when the batch is in the leader's log for the first time.
        """
        uncertain = False
        attempt = 0
        while True:
            try:
                return await self._attempt(write, acks, deadline, placed)
            except OutOfOrderSequenceError as error:
                if _is_duplicate(write, error):
                    return _OFFSET_UNKNOWN
                failure: StreamlogError = error  # an earlier batch is still in flight, or lost
            except StreamlogError as error:
                uncertain = uncertain or isinstance(error, _UNCERTAIN)
                if uncertain and write.base_sequence is None:
                    raise _as_unknown(error).permanent() from error
                if not error.retriable:
                    raise
                failure = error
            attempt += 1
            left_s = deadline - self._clock.monotonic()
            if left_s <= 0:
                raise _as_unknown(failure) if uncertain else failure
            await self._wait_before_retry(write, attempt, left_s)

    async def _attempt(self, write: BatchWrite, acks: Acks, deadline: float, placed: Callable[[], None]) -> WriteResult:
        acknowledged = await self._send(write, acks, deadline)
        placed()
        return await acknowledged

    async def _send(self, write: BatchWrite, acks: Acks, deadline: float) -> Awaitable[WriteResult]:
        """Append the batch, or get another leader's response; the returned awaitable waits for the acknowledgement."""
        topic = self._view.image.require_topic_id(write.topic_id)
        state = topic.partitions[write.partition]
        if state.leader == NO_BROKER:
            raise LeaderNotAvailableError(f"{write.topic}-{write.partition} has no leader now")
        if state.leader != self._me:
            return _acknowledged(await self._send_to_leader(state.leader, write, acks, deadline))
        replica = self._partitions.leader(write.topic, write.topic_id, write.partition)
        trace = None
        if self._tracing is not None and write.call is not None:
            trace = begin_append(self._tracing, _partition_append(write), write.call)
        try:
            appended = await replica.appends.append(
                write.batch, acks, self._queued, self._opening_of(write, acks, deadline)
            )
        except StreamlogError as error:
            if trace is not None:
                trace.failed(error)
            raise
        if trace is not None:
            trace.appended(replica, appended)
        if acks is not Acks.ALL:
            if trace is not None:
                trace.answered()
            offset = NO_OFFSET if acks is Acks.NONE else appended.first_offset
            return _acknowledged(WriteResult(offset, appended.log_append_time_ms))
        acknowledged = replica.wait_for(appended)
        if trace is not None:
            trace.answered_by(acknowledged)
        return self._wait_for(acknowledged, WriteResult(appended.first_offset, appended.log_append_time_ms), deadline)

    def _opening_of(self, write: BatchWrite, acks: Acks, deadline: float) -> Opening | None:
        """For a batch that may be the first of its transaction in this partition."""
        if not write.transactional_id:
            return None
        left_s = max(0.0, deadline - self._clock.monotonic())
        request = ProduceRequest(
            acks=acks,
            timeout_ms=max(1, int(left_s * 1000)),
            transactional_id=write.transactional_id,
            appends=(_partition_append(write),),
        )
        return self._openings.of(request, left_s)

    async def _wait_for(self, acknowledged: asyncio.Future[None], written: WriteResult, deadline: float) -> WriteResult:
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                await acknowledged
        except TimeoutError:
            raise unacknowledged() from None
        return written

    async def _send_to_leader(self, leader: BrokerId, write: BatchWrite, acks: Acks, deadline: float) -> WriteResult:
        left_s = deadline - self._clock.monotonic()
        if left_s <= 0:
            raise LeaderNotAvailableError(f"{write.topic}-{write.partition}: the deadline passed before it was sent")
        part = pb.PartitionBatches(
            topic=write.topic, topic_id=write.topic_id, partition=write.partition, batches=write.batch
        )
        if write.call is not None:
            span = write.call.span
            own = [] if span is None else [span.traceparent]
            part.traceparent, *linked = [*own, *write.traceparents] or [""]
            part.linked_traceparents.extend(linked)
        request = pb.ProduceRequest(
            acks=_ACKS[acks],
            timeout_ms=max(1, int(left_s * 1000)),
            transactional_id=write.transactional_id,
            partitions=[part],
        )
        with self._queued.holding(len(write.batch)):
            channel = await self._peers.channel(leader)
            try:
                response = await _PRODUCE(channel, request, timeout_s=left_s)
            except NetworkError as error:
                if calls.was_sent(error):
                    raise
                raise BrokerNotAvailableError(
                    f"{write.topic}-{write.partition}: its leader, node {leader}, is unreachable; nothing was written",
                    node=leader,
                ) from error
        result = response.results[0]
        if result.HasField("error"):
            raise from_message(result.error)
        return WriteResult(Offset(result.base_offset), result.log_append_time_ms)

    async def _wait_before_retry(self, write: BatchWrite, attempt: int, left_s: float) -> None:
        """Until the partition's metadata has changed, or the backoff has passed."""
        before = self._view.image.topics.get(write.topic_id)
        state = None if before is None else before.partitions.get(write.partition)
        pause_s = min(left_s, self._backoff.delay_s(attempt))
        try:
            async with asyncio.timeout(pause_s):
                await self._view.wait_until(
                    lambda image: (
                        (topic := image.topics.get(write.topic_id)) is None
                        or topic.partitions.get(write.partition) is not state
                    )
                )
        except TimeoutError:
            pass


def _partition_append(write: BatchWrite) -> PartitionAppend:
    ref = PartitionRef(topic=write.topic, topic_id=write.topic_id, partition=write.partition)
    return PartitionAppend(ref=ref, correlation_id=0, batches=write.batch, traceparents=tuple(write.traceparents))


async def _acknowledged(written: WriteResult) -> WriteResult:
    return written


def _is_duplicate(write: BatchWrite, error: OutOfOrderSequenceError) -> bool:
    """Batches are written in the order of their sequences. So a batch below the expected sequence is in the log, but
    too far back for the leader to know its offset (it keeps the last five batches).
    """
    expected = error.details.get("limit")
    if write.base_sequence is None or not isinstance(expected, int):
        return False
    behind = (expected - write.base_sequence) % SEQUENCES
    return write.count <= behind < SEQUENCES // 2


def _as_unknown(error: StreamlogError) -> StreamlogError:
    if isinstance(error, OutcomeUnknownError):
        return error
    return OutcomeUnknownError(f"the records may or may not have been written: {error}")
