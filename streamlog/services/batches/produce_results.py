"""The result of one partition of a Produce or ProduceStream request: acknowledged, refused, or of unknown outcome."""

from __future__ import annotations

import asyncio

from streamlog.api.convert.records.produce import appended as appended_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import PartitionAppend
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import OutcomeUnknownError, StreamlogError
from streamlog.model import NO_OFFSET, Acks, Appended


def success(request: PartitionAppend, replica: LeaderReplica, appended: Appended, acks: Acks) -> pb.ProduceResult:
    return appended_message(
        request,
        base_offset=NO_OFFSET if acks is Acks.NONE else appended.first_offset,
        leader_epoch=replica.leader_epoch,
        log_append_time_ms=appended.log_append_time_ms,
        log_start=replica.log_start_offset,
    )


def acknowledgement_error(acknowledged: asyncio.Future[None] | None) -> StreamlogError | None:
    """None: acknowledged, or there is nothing to wait for."""
    if acknowledged is None:
        return None
    if not acknowledged.done():
        return unacknowledged()
    error = acknowledged.exception()
    if error is None or isinstance(error, StreamlogError):
        return error
    raise error


def unacknowledged() -> OutcomeUnknownError:
    return OutcomeUnknownError(
        "the records are in the leader's log, but not all in-sync replicas acknowledged them in time: they may be "
        "kept or lost"
    )
