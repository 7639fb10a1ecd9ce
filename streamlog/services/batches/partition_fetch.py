"""One partition read for a client: what a fetch, however it is made, answers of it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamlog.api.convert import fetch as convert
from streamlog.api.convert.offsets import epoch_end
from streamlog.api.fetched import Fetched
from streamlog.api.requests import FetchSettings, PartitionFetch
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import DamagedFileError, MessageTooLargeError, StreamlogError, UnknownLeaderEpochError
from streamlog.model import NO_LEADER_EPOCH, IsolationLevel, LeaderEpoch, Offset, ProducerId
from streamlog.records.header import HEADER_SIZE, LOG_OVERHEAD

# What a partition takes in a message beside its batches and its name: ids, offsets, tags.
PARTITION_OVERHEAD: Final = 96
# What an aborted transaction takes in a message: tag and length, producer id, offset.
_ABORTED_BYTES: Final = 24
# What a message may have beside the batches of one partition, where these alone fill it.
_MESSAGE_OVERHEAD: Final = 1_024
_PREFIX: Final = struct.Struct(">qi")
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_POSITION: Final = 23


def diverging(fetch: PartitionFetch, replica: LeaderReplica) -> Fetched | None:
    """The answer to a client whose history is not this log's; None where it is.

    UnknownLeaderEpochError for one that has read what a later leader wrote: another node leads by now, and that its
    records are not in this log says nothing of them.
    """
    if fetch.last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    if fetch.last_fetched_epoch > replica.leader_epoch:
        raise UnknownLeaderEpochError(
            f"{replica.partition}: records of leader epoch {fetch.last_fetched_epoch} were read, and "
            f"{replica.leader_epoch} is known here: another node leads",
            field="last_fetched_epoch",
            limit=replica.leader_epoch,
        )
    end = replica.divergence(fetch.last_fetched_epoch, fetch.fetch_offset)
    if end is None:
        return None
    told = epoch_end(LeaderEpoch(end.epoch), Offset(end.end_offset))
    return Fetched(
        convert.diverged(fetch, told, high_watermark=replica.high_watermark, log_start=replica.log_start_offset)
    )


class FetchedBatches(NamedTuple):
    """Whole batches, and for a reader of committed records the aborted transactions that it must leave out of them:
    producer and first offset, by rising offset.
    """

    data: bytes
    aborted: Sequence[tuple[ProducerId, Offset]] = ()

    @property
    def size_bytes(self) -> int:
        """What it takes in a message."""
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
    """From `offset` on, below what this reader may see, to the first batch that reaches `end` (None: no end); at most
    `size_max` bytes, aborted transactions among them, but for the first batch. MessageTooLargeError where that is more
    than the reader's gRPC client takes; OffsetOutOfRangeError, StorageError, what ended the leadership.
    """
    isolation = settings.isolation_level
    data = replica.try_read(offset, size_max, isolation, at_least_one=True)
    if data is None:
        data = await replica.read(offset, size_max, isolation, at_least_one=True)
    if len(data) > settings.receive_bytes_max - _MESSAGE_OVERHEAD and len(data) > size_max:
        raise MessageTooLargeError(
            f"{replica.partition}: the batch at offset {offset} has {len(data)} bytes, more than the client takes in a "
            "message: raise receive_bytes_max, and the limit of the gRPC client with it",
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
    """Whole ones, of at most that many bytes together; one at least."""
    end = 0
    while end < len(data):
        following = end + LOG_OVERHEAD + _PREFIX.unpack_from(data, end)[1]
        if following > size_max and end:
            break
        end = following
    return data[:end]


def batches_to(data: bytes, end: Offset) -> bytes:
    """Whole ones, to the first that reaches `end`: also where a cleaner took the record before it."""
    position = 0
    while position < len(data):
        base_offset, length = _PREFIX.unpack_from(data, position)
        delta = _LAST_OFFSET_DELTA.unpack_from(data, position + _LAST_OFFSET_DELTA_POSITION)[0]
        position += LOG_OVERHEAD + length
        if base_offset + delta + 1 >= end:
            break
    return data[:position]


def next_offset_after(batches: bytes) -> Offset:
    """One past the last offset of whole batches, of which there is one at least: a look at each one's length."""
    position, end = 0, len(batches)
    while True:
        base_offset, length = _PREFIX.unpack_from(batches, position)
        following = position + LOG_OVERHEAD + length
        if following + HEADER_SIZE > end:
            delta = _LAST_OFFSET_DELTA.unpack_from(batches, position + _LAST_OFFSET_DELTA_POSITION)[0]
            return Offset(base_offset + delta + 1)
        position = following
