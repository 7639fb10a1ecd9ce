"""ListOffsets and OffsetForLeaderEpoch: offsets in partitions that this node leads."""

from __future__ import annotations

import asyncio
from typing import Final

from streamlog.aio.timeouts import timeout_at
from streamlog.api.convert import offsets as convert
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import EpochQuery, OffsetQuery
from streamlog.api.service import Call
from streamlog.broker.leading.offset_lookup import offset_for
from streamlog.errors import LeaderNotAvailableError, StreamlogError
from streamlog.model import IsolationLevel, LeaderEpoch, Offset
from streamlog.services.batches.partition_leader import PartitionLeaders, within

WAIT_MS: Final = 5_000
"""A new leader returns the end once its high watermark has caught up (KIP-207); after this time the client retries."""


class OffsetsHandler:
    def __init__(self, leaders: PartitionLeaders) -> None:
        self._leaders = leaders

    async def list_offsets(self, request: pb.ListOffsetsRequest, call: Call) -> pb.ListOffsetsResponse:
        wanted = convert.list_offsets_request(request)
        deadline = asyncio.get_running_loop().time() + within(WAIT_MS, call)
        guard = call.info.guard
        leaders = self._leaders if guard is None else self._leaders.guarded(guard, "DESCRIBE")
        found = [await self._find(query, wanted.isolation_level, deadline, leaders) for query in wanted.queries]
        return pb.ListOffsetsResponse(offsets=found)

    async def _find(
        self, query: OffsetQuery, isolation: IsolationLevel, deadline: float, leaders: PartitionLeaders
    ) -> pb.FoundOffset:
        try:
            replica = leaders.leader(query.ref)
            async with timeout_at(deadline):
                found = await offset_for(replica, query.place, isolation)
        except StreamlogError as error:
            return convert.found_offset(query, error=error)
        except TimeoutError:
            late = LeaderNotAvailableError(
                f"partition {query.ref.partition} of topic {query.ref.topic!r}: the new leader's high watermark has "
                "not caught up yet (KIP-207): retry"
            )
            return convert.found_offset(query, error=late)
        return convert.found_offset(
            query, found.offset, timestamp_ms=found.timestamp_ms, leader_epoch=found.leader_epoch
        )

    async def offset_for_leader_epoch(
        self, request: pb.OffsetForLeaderEpochRequest, call: Call
    ) -> pb.OffsetForLeaderEpochResponse:
        queries = convert.epoch_queries(request)
        guard = call.info.guard
        leaders = self._leaders if guard is None else self._leaders.guarded(guard, "DESCRIBE")
        return pb.OffsetForLeaderEpochResponse(ends=[self._end(query, leaders) for query in queries])

    def _end(self, query: EpochQuery, leaders: PartitionLeaders) -> pb.FoundEpoch:
        try:
            end = leaders.leader(query.ref).end_offset_for(query.leader_epoch)
        except StreamlogError as error:
            return convert.found_epoch(query, error)
        return convert.found_epoch(query, convert.epoch_end(LeaderEpoch(end.epoch), Offset(end.end_offset)))
