"""A group appended to a partition that this node leads: one write, one message to each follower, one sync.

    append the batches of the group, all or nothing
      refused, not retriable (one of them is too large for settings that have just changed ...) --> each alone
      refused, retriable (not the leader any more, too few replicas in sync, throttled ...)     --> so is each of them
      appended --high watermark--> each has its offset

The log gives offsets in the order of the batches, so each batch's follow from the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from streamlog.broker.append.admission import QueuedBytes
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import StreamlogError
from streamlog.model import NO_OFFSET, Acks, Appended, Offset
from streamlog.ports import Tracing
from streamlog.services.batches.traced_appends import begin_append
from streamlog.services.records.gathering.batch_write import WriteResult, is_of_one
from streamlog.services.records.gathering.lane import WaitingWrite


class OwnAppends:
    """Of one lane: a partition, and an acks."""

    def __init__(
        self, leader: Callable[[], LeaderReplica], acks: Acks, queued: QueuedBytes, tracing: Tracing | None
    ) -> None:
        """`leader`: as of now; StreamlogError where this node is not it."""
        self._leader = leader
        self._acks = acks
        self._queued = queued
        self._tracing = tracing

    async def send(self, writes: Sequence[WaitingWrite]) -> None:
        """As `lane.Send`."""
        for one in writes:  # from here on the pipeline counts what waits
            self._queued.release(one.held_bytes)
            one.held_bytes = 0
            if self._tracing is not None and one.write.call is not None:
                one.trace = begin_append(self._tracing, one.write.as_append(), one.write.call)
        appends = await self._append(writes)
        try:
            for some, results, acknowledged in appends:
                await _acknowledge(some, results, acknowledged)
        finally:
            for _, _, acknowledged in appends:
                acknowledged.cancel()

    async def _append(
        self, writes: Sequence[WaitingWrite]
    ) -> list[tuple[Sequence[WaitingWrite], list[WriteResult], asyncio.Future[None]]]:
        """Those that wait for the high watermark now. The others have their outcomes."""
        try:
            replica = self._leader()
            buffer = writes[0].write.batch if len(writes) == 1 else b"".join(one.write.batch for one in writes)
            appended = await replica.appends.append(buffer, self._acks, self._queued)
        except StreamlogError as error:
            if len(writes) > 1 and is_of_one(error):
                return [found for one in writes for found in await self._append((one,))]
            _fail(writes, error)
            return []
        results = _results(writes, appended)
        for one, result in zip(writes, results, strict=True):
            if one.trace is not None:
                one.trace.appended(replica, _part(appended, one, result))
        if self._acks is Acks.ALL:
            return [(writes, results, replica.wait_for(appended))]
        for one, result in zip(writes, results, strict=True):
            one.done(result if self._acks is Acks.LEADER else result._replace(base_offset=NO_OFFSET))
            if one.trace is not None:
                one.trace.answered()
        return []


async def _acknowledge(
    writes: Sequence[WaitingWrite], results: Sequence[WriteResult], acknowledged: asyncio.Future[None]
) -> None:
    for one in writes:
        if one.trace is not None:
            one.trace.answered_by(acknowledged)
    try:
        await acknowledged
    except StreamlogError as error:
        for one in writes:
            one.failed(error)
        return
    for one, result in zip(writes, results, strict=True):
        one.done(result)


def _results(writes: Sequence[WaitingWrite], appended: Appended) -> list[WriteResult]:
    offset, results = appended.first_offset, []
    for one in writes:
        results.append(WriteResult(offset, appended.log_append_time_ms))
        offset = Offset(offset + one.write.count)
    return results


def _part(appended: Appended, one: WaitingWrite, result: WriteResult) -> Appended:
    """What the append did with one batch."""
    end = Offset(result.base_offset + one.write.count)
    return appended._replace(first_offset=result.base_offset, next_offset=end, size_bytes=len(one.write.batch))


def _fail(writes: Sequence[WaitingWrite], error: StreamlogError) -> None:
    for one in writes:
        if one.trace is not None:
            one.trace.failed(error)
        one.failed(error)
