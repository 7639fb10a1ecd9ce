"""Produce: batches appended to partitions that this node leads, in one call.

    append all --acks 0, 1--> answer
               --acks all---> wait until the high watermark has passed each, or the time is over --> answer

An append cannot be taken back. So what was appended and not confirmed in time is OUTCOME_UNKNOWN and never a failure.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from streamlog.api.convert.produce import appended as appended_message
from streamlog.api.convert.produce import not_appended, produce_request
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import PartitionAppend
from streamlog.api.service import Call
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import OutcomeUnknownError, StreamlogError
from streamlog.model import NO_OFFSET, Acks, Appended
from streamlog.records.columnar import ManyHeadersError
from streamlog.services.batches.partition_leader import PartitionLeaders, within
from streamlog.services.batches.transaction_verification import Opening, Openings
from streamlog.services.common.admission import QueuedBytes


class Produce:
    def __init__(self, leaders: PartitionLeaders, queued: QueuedBytes, openings: Openings) -> None:
        self._leaders = leaders
        self._queued = queued
        self._openings = openings

    async def produce(self, request: pb.ProduceRequest, call: Call) -> pb.ProduceResponse:
        wanted = produce_request(request)
        opening = self._openings.of(wanted, within(wanted.timeout_ms, call))
        appends = [_Append(append) for append in wanted.appends]
        try:
            for one in appends:
                await self._begin(one, wanted.acks, opening)
            waiting = [one.confirmed for one in appends if one.confirmed is not None]
            if waiting:
                await asyncio.wait(waiting, timeout=within(wanted.timeout_ms, call))
            return pb.ProduceResponse(results=[one.result() for one in appends])
        finally:
            for one in appends:
                one.forget()

    async def _begin(self, one: _Append, acks: Acks, opening: Opening | None) -> None:
        try:
            replica = self._leaders.writable(one.asked.ref)
            done = await append_to(replica, one.asked.batches, acks, self._queued, opening)
            one.begun(replica, done, acks)
        except StreamlogError as error:
            one.refused(error)


class _Append:
    """One partition of the request: refused, or appended and perhaps to be confirmed."""

    def __init__(self, asked: PartitionAppend) -> None:
        self.asked = asked
        self.confirmed: asyncio.Future[None] | None = None  # None: nothing to wait for
        self._success: pb.ProduceResult | None = None
        self._refusal: pb.ProduceResult | None = None

    def refused(self, error: StreamlogError) -> None:
        self._refusal = not_appended(self.asked, error)

    def begun(self, replica: LeaderReplica, done: Appended, acks: Acks) -> None:
        self._success = success(self.asked, replica, done, acks)
        if acks is Acks.ALL:
            self.confirmed = replica.wait_for(done)

    def result(self) -> pb.ProduceResult:
        if self._refusal is not None:
            return self._refusal
        error = confirmation_error(self.confirmed)
        if error is not None or self._success is None:
            return not_appended(self.asked, error or unconfirmed())
        return self._success

    def forget(self) -> None:
        """Nobody waits any more."""
        if self.confirmed is not None:
            self.confirmed.cancel()


async def append_to(
    replica: LeaderReplica, batches: bytes, acks: Acks, queued: QueuedBytes, opening: Opening | None = None
) -> Appended:
    """At once where nothing has to be made anew, and no coordinator to be asked. What `LeaderReplica.append` and
    `Opening.append` raise; ThrottledError.
    """
    if opening is not None and replica.needs_verification(batches):
        return await opening.append(replica, batches, acks, queued)
    if not replica.needs_workers(batches):
        with suppress(ManyHeadersError):
            return replica.append(batches, acks=acks)
    with queued.holding(len(batches)):
        return await replica.append_slow(batches, acks=acks)


def success(asked: PartitionAppend, replica: LeaderReplica, done: Appended, acks: Acks) -> pb.ProduceResult:
    return appended_message(
        asked,
        base_offset=NO_OFFSET if acks is Acks.NONE else done.first_offset,
        leader_epoch=replica.leader_epoch,
        log_append_time_ms=done.log_append_time_ms,
        log_start=replica.log_start_offset,
    )


def confirmation_error(confirmed: asyncio.Future[None] | None) -> StreamlogError | None:
    """None: confirmed, or there was nothing to confirm."""
    if confirmed is None:
        return None
    if not confirmed.done():
        return unconfirmed()
    error = confirmed.exception()
    if error is None or isinstance(error, StreamlogError):
        return error
    raise error


def unconfirmed() -> OutcomeUnknownError:
    return OutcomeUnknownError(
        "the records are in the leader's log, but not all replicas in sync have confirmed them in time: they may be "
        "kept or lost"
    )
