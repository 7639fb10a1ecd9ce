"""Produce: batches appended to partitions that this node leads, in one call.

    append all --acks 0, 1--> response
               --acks all---> wait until the high watermark has passed each, or until the timeout --> response

An append cannot be undone. So what was appended and not acknowledged in time is OUTCOME_UNKNOWN, never a failure.
"""

from __future__ import annotations

import asyncio

from streamlog.api.convert.records.produce import not_appended, produce_request
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import PartitionAppend
from streamlog.api.service import Call
from streamlog.broker.append.admission import QueuedBytes
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import StreamlogError
from streamlog.model import Acks, Appended
from streamlog.ports import Tracing
from streamlog.services.batches.partition_leader import PartitionLeaders, within
from streamlog.services.batches.produce_results import acknowledgement_error, success, unacknowledged
from streamlog.services.batches.traced_appends import TracedAppend, begin_append
from streamlog.services.batches.transaction_verification import Opening, Openings


class ProduceHandler:
    def __init__(
        self, leaders: PartitionLeaders, queued: QueuedBytes, openings: Openings, tracing: Tracing | None = None
    ) -> None:
        self._leaders = leaders
        self._queued = queued
        self._openings = openings
        self._tracing = tracing

    async def produce(self, request: pb.ProduceRequest, call: Call) -> pb.ProduceResponse:
        wanted = produce_request(request)
        appends = [_PartitionAppend(append) for append in wanted.appends]
        guard = call.info.guard
        leaders = self._leaders if guard is None else self._leaders.guarded(guard, "WRITE")
        opening = self._openings.of(wanted, leaders, within(wanted.timeout_ms, call))
        if self._tracing is not None:
            for one in appends:
                one.trace = begin_append(self._tracing, one.request, call.info)
        try:
            for one in appends:
                await self._append(one, wanted.acks, opening, leaders)
            waiting = [one.acknowledged for one in appends if one.acknowledged is not None]
            if waiting:
                await asyncio.wait(waiting, timeout=within(wanted.timeout_ms, call))
            return pb.ProduceResponse(results=[one.result() for one in appends])
        finally:
            for one in appends:
                one.cancel()

    async def _append(
        self, one: _PartitionAppend, acks: Acks, opening: Opening | None, leaders: PartitionLeaders
    ) -> None:
        try:
            replica = leaders.writable(one.request.ref)
            appended = await replica.appends.append(one.request.batches, acks, self._queued, opening)
            one.appended(replica, appended, acks)
        except StreamlogError as error:
            one.refused(error)


class _PartitionAppend:
    """One partition of the request: refused, or appended and, with acks=all, to be acknowledged."""

    def __init__(self, request: PartitionAppend) -> None:
        self.request = request
        self.acknowledged: asyncio.Future[None] | None = None  # None: nothing to wait for
        self.trace: TracedAppend | None = None
        self._success: pb.ProduceResult | None = None
        self._refusal: pb.ProduceResult | None = None

    def refused(self, error: StreamlogError) -> None:
        if self.trace is not None:
            self.trace.failed(error)
        self._refusal = not_appended(self.request, error)

    def appended(self, replica: LeaderReplica, appended: Appended, acks: Acks) -> None:
        if self.trace is not None:
            self.trace.appended(replica, appended)
        self._success = success(self.request, replica, appended, acks)
        if acks is Acks.ALL:
            self.acknowledged = replica.wait_for(appended)

    def result(self) -> pb.ProduceResult:
        if self._refusal is not None:
            return self._refusal
        error = acknowledgement_error(self.acknowledged)
        if error is not None or self._success is None:
            failed = error or unacknowledged()
            if self.trace is not None:
                self.trace.failed(failed)
            return not_appended(self.request, failed)
        if self.trace is not None:
            self.trace.answered()
        return self._success

    def cancel(self) -> None:
        """The call has ended."""
        if self.acknowledged is not None:
            self.acknowledged.cancel()
        if self.trace is not None:
            self.trace.failed(unacknowledged())
