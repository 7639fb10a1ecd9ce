"""Fetch, by long poll and as a stream."""

from __future__ import annotations

from collections.abc import Iterable

from streamlog.api.convert.admin.partitions import (
    isolation_level,
    known_epoch,
    partition_key,
    partition_ref,
    set_partition,
)
from streamlog.api.convert.fields import (
    amount,
    at_least,
    distinct,
    each,
    inside,
    leader_epoch,
)
from streamlog.api.errors import to_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import (
    FETCH_WAIT_MS,
    FETCH_WAIT_MS_MAX,
    PARTITION_BYTES,
    PARTITIONS_PER_REQUEST_MAX,
    RECEIVE_BYTES,
    RECEIVE_BYTES_MAX,
    RESPONSE_BYTES,
    FetchChange,
    FetchRequest,
    FetchSettings,
    PartitionFetch,
)
from streamlog.errors import StreamlogError
from streamlog.model import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    Offset,
    ProducerId,
)


def fetch_request(message: pb.FetchRequest) -> FetchRequest:
    """InvalidRequestError, InvalidTopicError."""
    with inside("settings"):
        settings = _settings(message.settings)
    fetches = each(message.partitions, "partitions", _fetch, count_min=1, count_max=PARTITIONS_PER_REQUEST_MAX)
    distinct([partition_key(fetch.ref) for fetch in fetches], "partitions")
    return FetchRequest(settings=settings, fetches=fetches)


def fetch_change(message: pb.FetchStreamRequest, *, first: bool) -> FetchChange:
    """InvalidRequestError, InvalidTopicError. The first message of a stream always has settings, by default."""
    settings = None
    if first or message.HasField("settings"):
        with inside("settings"):
            settings = _settings(message.settings)
    add = each(message.add, "add", _fetch, count_max=PARTITIONS_PER_REQUEST_MAX)
    distinct([partition_key(fetch.ref) for fetch in add], "add")
    remove = each(message.remove, "remove", partition_ref, count_max=PARTITIONS_PER_REQUEST_MAX)
    return FetchChange(settings=settings, add=add, remove=remove)


def _settings(message: pb.FetchSettings) -> FetchSettings:
    receive_bytes_max = amount(
        message.receive_bytes_max, "receive_bytes_max", default=RECEIVE_BYTES, high=RECEIVE_BYTES_MAX
    )
    response_bytes_max = amount(
        message.response_bytes_max, "response_bytes_max", default=RESPONSE_BYTES, high=receive_bytes_max
    )
    wait_ms_max = message.wait_ms_max if message.HasField("wait_ms_max") else FETCH_WAIT_MS
    return FetchSettings(
        isolation_level=isolation_level(message.isolation_level),
        bytes_min=amount(message.bytes_min, "bytes_min", default=1, high=response_bytes_max),
        wait_ms_max=amount(wait_ms_max, "wait_ms_max", default=0, high=FETCH_WAIT_MS_MAX),
        response_bytes_max=response_bytes_max,
        receive_bytes_max=receive_bytes_max,
    )


def _fetch(message: pb.FetchPartition) -> PartitionFetch:
    known = known_epoch(message)
    read = message.HasField("last_fetched_epoch")
    fetch_offset = Offset(at_least(message.fetch_offset, 0, "fetch_offset"))
    end_offset = None
    if message.HasField("end_offset"):
        end_offset = Offset(at_least(message.end_offset, fetch_offset + 1, "end_offset"))
    return PartitionFetch(
        ref=partition_ref(message, known),
        correlation_id=message.correlation_id,
        fetch_offset=fetch_offset,
        last_fetched_epoch=leader_epoch(message.last_fetched_epoch, "last_fetched_epoch") if read else NO_LEADER_EPOCH,
        bytes_max=amount(
            message.partition_bytes_max, "partition_bytes_max", default=PARTITION_BYTES, high=RECEIVE_BYTES_MAX
        ),
        end_offset=end_offset,
    )


def fetched(
    fetch: PartitionFetch,
    *,
    high_watermark: Offset,
    last_stable_offset: Offset,
    log_start: Offset,
    aborted: Iterable[tuple[ProducerId, Offset]] = (),
) -> pb.FetchedPartition:
    """Without the batches. `aborted`: producer and first offset of the transactions to skip, by rising offset."""
    result = pb.FetchedPartition(
        correlation_id=fetch.correlation_id,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start=log_start,
    )
    set_partition(result, fetch.ref)
    for producer_id, first_offset in aborted:
        result.aborted_transactions.add(producer_id=producer_id, first_offset=first_offset)
    return result


def diverged(
    fetch: PartitionFetch, end: pb.EpochEnd, *, high_watermark: Offset, log_start: Offset
) -> pb.FetchedPartition:
    """The client has read records that are not in this log."""
    result = fetched(fetch, high_watermark=high_watermark, last_stable_offset=high_watermark, log_start=log_start)
    result.diverging_epoch.CopyFrom(end)
    return result


def not_fetched(fetch: PartitionFetch, error: StreamlogError) -> pb.FetchedPartition:
    result = pb.FetchedPartition(
        correlation_id=fetch.correlation_id,
        high_watermark=NO_OFFSET,
        last_stable_offset=NO_OFFSET,
        log_start=NO_OFFSET,
        error=to_message(error),
    )
    set_partition(result, fetch.ref)
    return result
