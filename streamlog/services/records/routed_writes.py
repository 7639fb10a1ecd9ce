"""Batches written to whoever leads their partition: what Publish stands on.

    here      the partition is led by this node: `LeaderReplica`, without a hop
    there     Produce at the node that leads it

A write is tried again while there is time and trying again cannot write twice. A refusal that says that nothing was
written (NOT_LEADER, no leader, too few replicas) is always followed by another attempt. When it is not known what
became of it (the connection broke, the leader changed) only a batch with a sequence is sent again: its leader finds
out that it has it (SEMANTICS 6). Without a sequence the answer is OUTCOME_UNKNOWN.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from msgspec import Struct

from streamlog.api import calls
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.api.requests import PartitionAppend, PartitionRef, ProduceRequest
from streamlog.client.connection.backoff import Backoff
from streamlog.errors import (
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
from streamlog.ports import Clock
from streamlog.services.batches.produce import append_to, unconfirmed
from streamlog.services.batches.transaction_verification import Opening, Openings
from streamlog.services.common.admission import QueuedBytes
from streamlog.services.common.collaborators import Partitions
from streamlog.services.common.forwarding import Peers
from streamlog.services.records.producer_token import SEQUENCES

_PRODUCE: Final = calls.unary("streamlog.v1.Batches/Produce", pb.ProduceResponse)
_ACKS: Final = {
    Acks.NONE: common_pb2.ACKS_NONE,
    Acks.LEADER: common_pb2.ACKS_LEADER,
    Acks.ALL: common_pb2.ACKS_ALL,
}
# After these nobody knows whether the records are in the log.
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
    base_sequence: int | None  # None: not idempotent
    transactional_id: str = ""  # empty: of no transaction


class WriteResult(NamedTuple):
    base_offset: Offset  # NO_OFFSET with acks=0, and where a repetition is too old
    log_append_time_ms: int  # NO_TIMESTAMP: the records keep their own


_NOWHERE: Final = WriteResult(NO_OFFSET, NO_TIMESTAMP)


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
    ) -> None:
        self._me = node_id
        self._partitions = partitions
        self._view = view
        self._peers = peers
        self._queued = queued
        self._openings = openings
        self._clock = clock
        self._backoff = backoff

    async def write(
        self, write: BatchWrite, acks: Acks, deadline: float, placed: Callable[[], None] = lambda: None
    ) -> WriteResult:
        """StreamlogError: of the last attempt, OUTCOME_UNKNOWN where it may have been written. `deadline` on the
        monotonic clock. `placed` is called when the batch has got its place in the log for the first time.
        """
        uncertain = False
        attempt = 0
        while True:
            try:
                return await self._attempt(write, acks, deadline, placed)
            except OutOfOrderSequenceError as error:
                if _is_repetition(write, error):
                    return _NOWHERE
                trouble: StreamlogError = error  # what comes before it is still on its way, or lost
            except StreamlogError as error:
                uncertain = uncertain or isinstance(error, _UNCERTAIN)
                if uncertain and write.base_sequence is None:
                    raise _as_unknown(error) from error
                if not error.retriable:
                    raise
                trouble = error
            attempt += 1
            left_s = deadline - self._clock.monotonic()
            if left_s <= 0:
                raise _as_unknown(trouble) if uncertain else trouble
            await self._until_another_chance(write, attempt, left_s)

    async def _attempt(self, write: BatchWrite, acks: Acks, deadline: float, placed: Callable[[], None]) -> WriteResult:
        rest = await self._begin(write, acks, deadline)
        placed()
        return await rest

    async def _begin(self, write: BatchWrite, acks: Acks, deadline: float) -> Awaitable[WriteResult]:
        """When this returns the batch is appended, or answered; what it returns waits for the acknowledgement."""
        topic = self._view.image.require_topic_id(write.topic_id)
        state = topic.partitions[write.partition]
        if state.leader == NO_BROKER:
            raise LeaderNotAvailableError(f"{write.topic}-{write.partition} has no leader now")
        if state.leader != self._me:
            return _known(await self._there(state.leader, write, acks, deadline))
        replica = self._partitions.leader(write.topic, write.topic_id, write.partition)
        done = await append_to(replica, write.batch, acks, self._queued, self._opening_of(write, acks, deadline))
        if acks is not Acks.ALL:
            offset = NO_OFFSET if acks is Acks.NONE else done.first_offset
            return _known(WriteResult(offset, done.log_append_time_ms))
        confirmed = replica.wait_for(done)
        return self._confirmed(confirmed, WriteResult(done.first_offset, done.log_append_time_ms), deadline)

    def _opening_of(self, write: BatchWrite, acks: Acks, deadline: float) -> Opening | None:
        """Should the batch be the first of its transaction here."""
        if not write.transactional_id:
            return None
        left_s = max(0.0, deadline - self._clock.monotonic())
        ref = PartitionRef(topic=write.topic, topic_id=write.topic_id, partition=write.partition)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=max(1, int(left_s * 1000)),
            transactional_id=write.transactional_id,
            appends=(PartitionAppend(ref=ref, correlation_id=0, batches=write.batch),),
        )
        return self._openings.of(request, left_s)

    async def _confirmed(self, confirmed: asyncio.Future[None], written: WriteResult, deadline: float) -> WriteResult:
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                await confirmed
        except TimeoutError:
            raise unconfirmed() from None
        return written

    async def _there(self, leader: BrokerId, write: BatchWrite, acks: Acks, deadline: float) -> WriteResult:
        left_s = deadline - self._clock.monotonic()
        if left_s <= 0:
            raise LeaderNotAvailableError(f"{write.topic}-{write.partition}: the time was over before it was sent")
        part = pb.PartitionBatches(
            topic=write.topic, topic_id=write.topic_id, partition=write.partition, batches=write.batch
        )
        request = pb.ProduceRequest(
            acks=_ACKS[acks],
            timeout_ms=max(1, int(left_s * 1000)),
            transactional_id=write.transactional_id,
            partitions=[part],
        )
        with self._queued.holding(len(write.batch)):
            response = await _PRODUCE(await self._peers.channel(leader), request, timeout_s=left_s)
        result = response.results[0]
        if result.HasField("error"):
            raise from_message(result.error)
        return WriteResult(Offset(result.base_offset), result.log_append_time_ms)

    async def _until_another_chance(self, write: BatchWrite, attempt: int, left_s: float) -> None:
        """Until the partition's state has changed, or for a while."""
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


async def _known(written: WriteResult) -> WriteResult:
    return written


def _is_repetition(write: BatchWrite, error: OutOfOrderSequenceError) -> bool:
    """Sequences are used up one after the other by what is written. So a batch whose sequences lie before the one that
    is expected is in the log, only too far back for the leader to remember where (it remembers five batches).
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
