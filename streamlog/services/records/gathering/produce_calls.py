"""Batches for one partition in a Produce at the node that leads it: of one call, or of a group.

What the leader refuses, not retriable, it refuses because of one of them, or more: each is sent again alone. Where it
is unknown whether the group was written, so it is for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamlog.api import calls
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.errors import (
    BrokerNotAvailableError,
    LeaderNotAvailableError,
    NetworkError,
    OutcomeUnknownError,
    StreamlogError,
)
from streamlog.model import NO_OFFSET, Acks, BrokerId, Offset
from streamlog.ports import Clock
from streamlog.ports.tracing import LINKS_MAX
from streamlog.services.common.forwarding import Peers
from streamlog.services.records.gathering.batch_write import BatchWrite, WriteResult, is_of_one
from streamlog.services.records.gathering.lane import WaitingWrite

_PRODUCE: Final = calls.unary("streamlog.v1.Batches/Produce", pb.ProduceResponse)
_ACKS: Final = {
    Acks.NONE: common_pb2.ACKS_NONE,
    Acks.LEADER: common_pb2.ACKS_LEADER,
    Acks.ALL: common_pb2.ACKS_ALL,
}


class ProduceCalls:
    def __init__(self, peers: Peers, clock: Clock) -> None:
        self._peers = peers
        self._clock = clock

    async def produce(
        self, leader: BrokerId, writes: Sequence[BatchWrite], acks: Acks, deadline: float
    ) -> list[WriteResult]:
        """Of each of `writes`, at least one, all for one partition. StreamlogError; BrokerNotAvailableError,
        LeaderNotAvailableError where nothing was written.
        """
        first = writes[0]
        left_s = deadline - self._clock.monotonic()
        if left_s <= 0:
            raise LeaderNotAvailableError(f"{first.topic}-{first.partition}: the deadline passed before it was sent")
        request = pb.ProduceRequest(
            acks=_ACKS[acks],
            timeout_ms=max(1, int(left_s * 1000)),
            transactional_id=first.transactional_id,
            partitions=[_part(writes)],
        )
        channel = await self._peers.channel(leader)
        try:
            response = await _PRODUCE(channel, request, timeout_s=left_s)
        except NetworkError as error:
            if calls.was_sent(error):
                raise
            raise BrokerNotAvailableError(
                f"{first.topic}-{first.partition}: its leader, node {leader}, is unreachable; nothing was written",
                node=leader,
            ) from error
        if len(response.results) != 1:
            raise OutcomeUnknownError(
                f"node {leader} returned {len(response.results)} results of a request for one; the records may or may "
                "not have been written"
            )
        result = response.results[0]
        if result.HasField("error"):
            raise from_message(result.error)
        offset, results = result.base_offset, []
        for write in writes:
            results.append(WriteResult(Offset(offset), result.log_append_time_ms))
            offset = offset if offset == NO_OFFSET else offset + write.count
        return results

    async def send(self, leader: BrokerId, acks: Acks, writes: Sequence[WaitingWrite]) -> None:
        """As `lane.Send`, once the first two are given."""
        deadline = max(one.deadline for one in writes)
        try:
            results = await self.produce(leader, [one.write for one in writes], acks, deadline)
        except StreamlogError as error:
            if len(writes) > 1 and is_of_one(error):
                for one in writes:
                    await self.send(leader, acks, (one,))
                return
            for one in writes:
                one.failed(error)
            return
        for one, result in zip(writes, results, strict=True):
            one.done(result)


def _part(writes: Sequence[BatchWrite]) -> pb.PartitionBatches:
    first = writes[0]
    batches = first.batch if len(writes) == 1 else b"".join(write.batch for write in writes)
    part = pb.PartitionBatches(topic=first.topic, topic_id=first.topic_id, partition=first.partition, batches=batches)
    contexts = [context for write in writes if write.call is not None for context in write.contexts()]
    if contexts:
        part.traceparent = contexts[0]
        part.linked_traceparents.extend(contexts[1:LINKS_MAX])
    return part
