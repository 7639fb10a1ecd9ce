"""One partition read for a client: shared by Fetch and FetchStream."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamlog.api.convert.offsets import epoch_end
from streamlog.api.convert.records import fetch as convert
from streamlog.api.fetched import Fetched
from streamlog.api.requests import FetchSettings, PartitionFetch
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import DamagedFileError, MessageTooLargeError, StreamlogError, UnknownLeaderEpochError
from streamlog.model import NO_LEADER_EPOCH, IsolationLevel, LeaderEpoch, Offset, ProducerId
from streamlog.records.header import HEADER_SIZE, LOG_OVERHEAD

# Bytes of a partition in a message beside its batches and its name: ids, offsets, tags.
PARTITION_OVERHEAD: Final = 96
# Bytes of an aborted transaction in a message: tag and length, producer id, offset.
_ABORTED_BYTES: Final = 24
# Upper bound of the rest of a message that holds the batches of one partition.
_MESSAGE_OVERHEAD: Final = 1_024
_PREFIX: Final = struct.Struct(">qi")
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_POSITION: Final = 23


def diverging(fetch: PartitionFetch, replica: LeaderReplica) -> Fetched | None:
    """The response to a client that has read records that are not in this log (KIP-320); None if it has not.

    UnknownLeaderEpochError if it has read records of a later leader epoch: another node leads by now, so this log
    cannot say whether they are committed.
    """
    if fetch.last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    if fetch.last_fetched_epoch > replica.leader_epoch:
        raise UnknownLeaderEpochError(
            f"{replica.partition}: last_fetched_epoch is {fetch.last_fetched_epoch}, but this node leads in epoch "
            f"{replica.leader_epoch}: another node leads by now, refresh the metadata",
            field="last_fetched_epoch",
            limit=replica.leader_epoch,
        )
    end = replica.divergence(fetch.last_fetched_epoch, fetch.fetch_offset)
    if end is None:
        return None
    common_end = epoch_end(LeaderEpoch(end.epoch), Offset(end.end_offset))
    return Fetched(
        convert.diverged(fetch, common_end, high_watermark=replica.high_watermark, log_start=replica.log_start_offset)
    )


class FetchedBatches(NamedTuple):
    """Whole batches, and for READ_COMMITTED the aborted transactions that have records in them: producer and first
    offset, by rising offset.
    """

    data: bytes
    aborted: Sequence[tuple[ProducerId, Offset]] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes in a message."""
        return len(self.data) + _ABORTED_BYTES * len(self.aborted)


NOTHING: Final = FetchedBatches(b"")


def fetched(fetch: PartitionFetch, replica: LeaderReplica, batches: FetchedBatches) -> Fetched:
    part = convert.fetched(
        fetch,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        log_start=replica.log_start_offset,
        aborted=batches.aborted,
    )
    return Fetched(part, batches.data)


def not_fetched(fetch: PartitionFetch, error: StreamlogError) -> Fetched:
    return Fetched(convert.not_fetched(fetch, error))


async def read_batches(
    replica: LeaderReplica, offset: Offset, end: Offset | None, size_max: int, settings: FetchSettings
) -> FetchedBatches:
    """From `offset` up to the readable end, or to the first batch that reaches `end` (None: no end). At most `size_max`
    bytes, aborted transactions included, except for the first batch. MessageTooLargeError if that is larger than the
    client's gRPC message limit; OffsetOutOfRangeError, StorageError, or the error that ended the leadership.
    """
    isolation = settings.isolation_level
    data = replica.try_read(offset, size_max, isolation, at_least_one=True)
    if data is None:
        data = await replica.read(offset, size_max, isolation, at_least_one=True)
    if len(data) > settings.receive_bytes_max - _MESSAGE_OVERHEAD and len(data) > size_max:
        raise MessageTooLargeError(
            f"{replica.partition}: the batch at offset {offset} has {len(data)} bytes, more than receive_bytes_max: "
            "raise it, and the message limit of the gRPC client with it",
            field="receive_bytes_max",
            limit=settings.receive_bytes_max,
            size_bytes=len(data),
            offset=offset,
        )
    if data and end is not None:
        data = batches_to(data, end)
    replica.traffic.bytes_out += len(data)
    if not data or isolation is not IsolationLevel.READ_COMMITTED:
        return FetchedBatches(data)
    try:
        batches = _with_aborted(replica, offset, data)
    except DamagedFileError:  # an index: it is found again
        await replica.log.repair_transaction_indexes()
        batches = _with_aborted(replica, offset, data)
    surplus = batches.size_bytes - size_max
    if surplus <= 0 or not batches.aborted:
        return batches
    return _with_aborted(replica, offset, _first_batches(data, len(data) - surplus))


def _with_aborted(replica: LeaderReplica, offset: Offset, data: bytes) -> FetchedBatches:
    aborted = replica.aborted(offset, next_offset_after(data))
    return FetchedBatches(data, [(one.producer_id, one.first_offset) for one in aborted])


def _first_batches(data: bytes, size_max: int) -> bytes:
    """Whole batches of at most `size_max` bytes together, at least one."""
    end = 0
    while end < len(data):
        following = end + LOG_OVERHEAD + _PREFIX.unpack_from(data, end)[1]
        if following > size_max and end:
            break
        end = following
    return data[:end]


def batches_to(data: bytes, end: Offset) -> bytes:
    """Whole batches, up to the first that reaches `end`; also if the cleaner removed the record before `end`."""
    position = 0
    while position < len(data):
        base_offset, length = _PREFIX.unpack_from(data, position)
        delta = _LAST_OFFSET_DELTA.unpack_from(data, position + _LAST_OFFSET_DELTA_POSITION)[0]
        position += LOG_OVERHEAD + length
        if base_offset + delta + 1 >= end:
            break
    return data[:position]


def next_offset_after(batches: bytes) -> Offset:
    """One past the last offset of whole batches, at least one: reads only their lengths."""
    position, end = 0, len(batches)
    while True:
        base_offset, length = _PREFIX.unpack_from(batches, position)
        following = position + LOG_OVERHEAD + length
        if following + HEADER_SIZE > end:
            delta = _LAST_OFFSET_DELTA.unpack_from(batches, position + _LAST_OFFSET_DELTA_POSITION)[0]
            return Offset(base_offset + delta + 1)
        position = following
