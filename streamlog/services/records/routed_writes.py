"""Batches written to the leaders of their partitions, wherever these are; Publish is built on it.

    this node leads       `AppendPipeline`, without a hop
    another node leads    Produce at that node
    gathered              either, together with the batches of other calls  (`gathering.gathered_writes`)

A write is retried until its deadline if a retry cannot write twice. After an error which says that nothing was written
(NOT_LEADER, no leader, too few replicas, no connection to the leader) it is always retried. If the outcome is unknown
(the connection broke, the leader changed) only a batch with a sequence is sent again: its leader detects the duplicate
(SEMANTICS 6). Without a sequence the result is OUTCOME_UNKNOWN, which is not retriable then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from streamlog.aio.timeouts import timeout
from streamlog.api.requests import ProduceRequest
from streamlog.broker.append.admission import QueuedBytes
from streamlog.client.connection.backoff import Backoff
from streamlog.errors import LeaderNotAvailableError, OutcomeUnknownError, OutOfOrderSequenceError, StreamlogError
from streamlog.metadata.image.image import require_partition
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER, NO_OFFSET, NO_TIMESTAMP, Acks, BrokerId
from streamlog.ports import Clock, Tracing
from streamlog.services.batches.partition_leader import PartitionLeaders
from streamlog.services.batches.produce_results import unacknowledged
from streamlog.services.batches.traced_appends import begin_append
from streamlog.services.batches.transaction_verification import Opening, Openings
from streamlog.services.common.collaborators import Partitions
from streamlog.services.common.forwarding import Peers
from streamlog.services.records.gathering.batch_write import UNCERTAIN, BatchWrite, WriteResult
from streamlog.services.records.gathering.gathered_writes import GatheredWrites
from streamlog.services.records.gathering.produce_calls import ProduceCalls

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
        self._leaders = PartitionLeaders(partitions, view)  # callers have been checked (`Preparation`)
        self._view = view
        self._produce_calls = ProduceCalls(peers, clock)
        self._gathered = GatheredWrites(node_id, partitions, self._produce_calls, queued, clock, tracing)
        self._queued = queued
        self._openings = openings
        self._clock = clock
        self._backoff = backoff
        self._tracing = tracing

    async def write(
        self, write: BatchWrite, acks: Acks, deadline: float, placed: Callable[[], None] | None = None
    ) -> WriteResult:
        """StreamlogError: of the last attempt; OUTCOME_UNKNOWN where it may have been written. `deadline` on the
        monotonic clock. `placed` is called when the batch is in the leader's log for the first time; without it, a
        batch without a sequence is gathered with those of other calls.
        """
        uncertain = False
        attempt = 0
        while True:
            try:
                return await self._attempt(write, acks, deadline, placed)
            except OutOfOrderSequenceError as error:
                # An earlier batch is in flight or lost, or this one is a repeat that is not committed yet.
                failure: StreamlogError = error
                written = 0 if write.base_sequence is None else error.written_of(write.base_sequence, write.count)
                if written == write.count:
                    if error.is_committed:
                        return _OFFSET_UNKNOWN
                    uncertain = True
                elif written:  # what is in flight may still write the others
                    failure = _written_in_part(write, written)
            except StreamlogError as error:
                uncertain = uncertain or isinstance(error, UNCERTAIN)
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

    async def _attempt(
        self, write: BatchWrite, acks: Acks, deadline: float, placed: Callable[[], None] | None
    ) -> WriteResult:
        leader = self._leader_of(write)
        if placed is None and write.base_sequence is None:
            return await self._gathered.write(write, leader, acks, deadline)
        acknowledged = await self._send(write, leader, acks, deadline)
        if placed is not None:
            placed()
        return await acknowledged

    def _leader_of(self, write: BatchWrite) -> BrokerId:
        """As of now. LeaderNotAvailableError; UnknownTopicIdError once the topic is deleted;
        UnknownTopicOrPartitionError until this node has the partition's metadata: a producer token may be that of a
        node which had them earlier.
        """
        leader = require_partition(self._view.image.require_topic_id(write.topic_id), write.partition).leader
        if leader == NO_BROKER:
            raise LeaderNotAvailableError(f"{write.topic}-{write.partition} has no leader now")
        return leader

    async def _send(self, write: BatchWrite, leader: BrokerId, acks: Acks, deadline: float) -> Awaitable[WriteResult]:
        """Append the batch, or get another leader's response; the returned awaitable waits for the acknowledgement."""
        if leader != self._me:
            with self._queued.holding(len(write.batch)):
                (result,) = await self._produce_calls.produce(leader, (write,), acks, deadline)
            return _acknowledged(result)
        replica = self._partitions.leader(write.topic, write.topic_id, write.partition)
        trace = None
        if self._tracing is not None and write.call is not None:
            trace = begin_append(self._tracing, write.as_append(), write.call)
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
            appends=(write.as_append(),),
        )
        return self._openings.of(request, self._leaders, left_s)

    async def _wait_for(self, acknowledged: asyncio.Future[None], written: WriteResult, deadline: float) -> WriteResult:
        try:
            async with timeout(max(0.0, deadline - self._clock.monotonic())):
                await acknowledged
        except TimeoutError:
            raise unacknowledged() from None
        return written

    async def _wait_before_retry(self, write: BatchWrite, attempt: int, left_s: float) -> None:
        """Until the partition's metadata has changed, or the backoff has passed."""
        before = self._view.image.topics.get(write.topic_id)
        state = None if before is None else before.partitions.get(write.partition)
        pause_s = min(left_s, self._backoff.delay_s(attempt))
        try:
            async with timeout(pause_s):
                await self._view.wait_until(
                    lambda image: (
                        (topic := image.topics.get(write.topic_id)) is None
                        or topic.partitions.get(write.partition) is not state
                    )
                )
        except TimeoutError:
            pass


async def _acknowledged(written: WriteResult) -> WriteResult:
    return written


def _written_in_part(write: BatchWrite, written: int) -> StreamlogError:
    return OutcomeUnknownError(
        f"{written} of {write.count} records of a batch for {write.topic}-{write.partition} are in the log since an "
        "earlier request with this producer_token, the others are not: either max.message.bytes was changed in "
        "between (set it back, and send the request again unchanged), or the request was",
        field="producer_token",
    ).permanent()


def _as_unknown(error: StreamlogError) -> StreamlogError:
    if isinstance(error, OutcomeUnknownError):
        return error
    return OutcomeUnknownError(f"the records may or may not have been written: {error}")
