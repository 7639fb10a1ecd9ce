"""Batches of Publish calls, each written with those that arrive together with it for the same partition.

    call's batch --lane of its partition--> group --> here appended, or in one Produce at the leader --> its outcome

Publish is called with a record or a few, and a write costs the same for one batch and for a hundred: a message to each
follower, a sync on each node, the hand-overs between their threads. So concurrent calls share them. Their batches stay
as they are, one behind the other in one append; each call has its own outcome, deadline, and trace.

Gathered is only what may be written in any order and without a check of its producer: batches without sequence and
transaction. A leader looks at sequences batch by batch, so those of a producer with a token are written one by one.

A lane is of one partition, not of a node: a Produce for several partitions would be answered when the slowest of them
is. Lanes exist while calls wait in them. What waits counts against the node's `QueuedBytes`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TypeAlias

from streamlog.broker.append.admission import QueuedBytes
from streamlog.errors import LeaderNotAvailableError
from streamlog.model import Acks, BrokerId, PartitionId, TopicId
from streamlog.ports import Clock, Tracing
from streamlog.services.batches.produce_results import unacknowledged
from streamlog.services.common.collaborators import Partitions
from streamlog.services.records.gathering.batch_write import BatchWrite, WriteResult
from streamlog.services.records.gathering.lane import Lane, Send, WaitingWrite
from streamlog.services.records.gathering.own_appends import OwnAppends
from streamlog.services.records.gathering.produce_calls import ProduceCalls

_LaneKey: TypeAlias = tuple[TopicId, PartitionId, BrokerId, Acks]


class GatheredWrites:
    """One a node."""

    def __init__(
        self,
        node_id: BrokerId,
        partitions: Partitions,
        produce_calls: ProduceCalls,
        queued: QueuedBytes,
        clock: Clock,
        tracing: Tracing | None,
    ) -> None:
        self._me = node_id
        self._partitions = partitions
        self._produce_calls = produce_calls
        self._queued = queued
        self._clock = clock
        self._tracing = tracing
        self._lanes: dict[_LaneKey, Lane] = {}

    def __len__(self) -> int:
        """Lanes in use."""
        return len(self._lanes)

    async def write(self, write: BatchWrite, leader: BrokerId, acks: Acks, deadline: float) -> WriteResult:
        """One attempt. StreamlogError: of the append; OUTCOME_UNKNOWN at the deadline, LEADER_NOT_AVAILABLE where the
        batch has not been sent by then.
        """
        size = len(write.batch)
        self._queued.take(size)
        one = WaitingWrite(write, deadline, size)
        lane = self._lane((write.topic_id, write.partition, leader, acks), write)
        lane.join(one)
        timer = asyncio.get_running_loop().call_later(max(0.0, deadline - self._clock.monotonic()), _expire, one)
        try:
            return await one.outcome
        finally:
            timer.cancel()
            lane.leave(one)
            self._queued.release(one.held_bytes)

    def _lane(self, key: _LaneKey, write: BatchWrite) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            _, _, leader, acks = key
            if leader == self._me:
                replica = partial(self._partitions.leader, write.topic, write.topic_id, write.partition)
                send: Send = OwnAppends(replica, acks, self._queued, self._tracing).send
            else:
                send = partial(self._produce_calls.send, leader, acks)
            lane = self._lanes[key] = Lane(send, lambda: self._forget(key))
        return lane

    def _forget(self, key: _LaneKey) -> None:
        self._lanes.pop(key, None)


def _expire(one: WaitingWrite) -> None:
    if one.group is None:
        write = one.write
        one.failed(LeaderNotAvailableError(f"{write.topic}-{write.partition}: the deadline passed before it was sent"))
    else:
        one.failed(unacknowledged())
