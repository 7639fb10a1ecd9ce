"""What the feeds of a Subscribe call bring, as messages to its client: records, heartbeats, errors.

Whole batches come in; out go the records from the partition's position up to its end, without control records and,
for READ_COMMITTED, without those of aborted transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from streamlog.aio.timeouts import timeout_at
from streamlog.api.convert.records import subscribe as convert
from streamlog.api.convert.records.subscribe import OffsetPosition, OffsetResetPolicy, SubscribeQuery
from streamlog.api.errors import from_message
from streamlog.api.fetched import Fetched
from streamlog.api.pb import batches_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.requests import OffsetPlace
from streamlog.api.service import Responses
from streamlog.client.consumer.corrupt_batches import UNREADABLE, corrupt_batch
from streamlog.client.consumer.log_truncation import position_after_truncation
from streamlog.errors import (
    CorruptMessageError,
    LogTruncatedError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    StreamlogError,
)
from streamlog.metadata.view import MetadataView
from streamlog.metrics import Traffic
from streamlog.model import NO_LEADER_EPOCH, IsolationLevel, LeaderEpoch, Offset
from streamlog.ports import Buffer, Workers
from streamlog.records import BatchHeader, Codec, check_crc, codec_of, iter_fields, scan_headers
from streamlog.records.decode import Fields
from streamlog.services.records.subscribe_placement import PartitionPlacement
from streamlog.services.records.subscribed_partition import (
    RECORDS_A_TURN,
    STATUS_OVERHEAD,
    SubscribedPartition,
    record_size,
    topic_deleted,
)

_CORRUPT_READS_MAX: Final = 8
"""Attempts where a leader cannot read its own log: it may be repaired meanwhile, or another node may lead."""


class SubscribeDelivery:
    """One call's."""

    def __init__(
        self,
        query: SubscribeQuery,
        placement: PartitionPlacement,
        view: MetadataView,
        workers: Workers,
        traffic: Traffic,
    ) -> None:
        self._traffic = traffic
        self._query = query
        self._placement = placement
        self._view = view
        self._workers = workers
        self._message = pb.SubscribeResponse()  # being filled
        self._message_bytes = 0
        self._left_of_turn = RECORDS_A_TURN

    async def run(self, responses: Responses[pb.SubscribeResponse]) -> None:
        """Until all partitions are done."""
        interval_s = self._query.heartbeat_interval_ms / 1000
        heartbeat_at = asyncio.get_running_loop().time() + interval_s
        while self._placement.open_count:
            try:
                async with timeout_at(heartbeat_at):
                    message = await self._placement.updates.get()
            except TimeoutError:
                heartbeat_at = asyncio.get_running_loop().time() + interval_s
                await self._send_heartbeat(responses)
                continue
            for partition, got in message.updates:
                await self._deliver(partition, got, responses)
            message.updates.clear()
            await self._flush(responses)
            message.sent.set()
        await self._flush(responses)

    async def _send_heartbeat(self, responses: Responses[pb.SubscribeResponse]) -> None:
        for partition in self._placement.partitions.values():
            if not (partition.is_reported or partition.is_done) and partition.position is not None:
                await self._put(partition.status(), STATUS_OVERHEAD, responses)
            partition.is_reported = False
        await self._flush(responses)

    async def _deliver(
        self,
        partition: SubscribedPartition,
        got: Fetched | StreamlogError,
        responses: Responses[pb.SubscribeResponse],
    ) -> None:
        if partition.is_done:
            return
        try:
            if isinstance(got, StreamlogError):
                raise got
            if got.part.HasField("error"):
                raise from_message(got.part.error)
            if got.part.HasField("diverging_epoch"):
                self._truncate(partition, got.part.diverging_epoch)
                return
            await self._deliver_records(partition, got, responses)
        except (OffsetOutOfRangeError, LogTruncatedError) as error:
            if self._query.offset_reset is OffsetResetPolicy.NONE:
                await self._finish(partition, error, responses)
                return
            earliest = self._query.offset_reset is OffsetResetPolicy.EARLIEST
            partition.start = OffsetPlace.EARLIEST if earliest else OffsetPlace.LATEST
            partition.position, partition.leader_epoch = None, NO_LEADER_EPOCH
            self._placement.unplace(partition)
        except StreamlogError as error:
            if partition.topic_id not in self._view.image.topics:
                await self._finish(partition, topic_deleted(partition), responses)
            elif isinstance(error, CorruptMessageError) and partition.attempt > _CORRUPT_READS_MAX:
                found = corrupt_batch(partition.topic_partition, partition.position or Offset(0), None, error)
                await self._finish(partition, found, responses)
            elif error.retriable:
                self._placement.unplace(partition)
            else:
                await self._finish(partition, error, responses)

    def _truncate(self, partition: SubscribedPartition, end: batches_pb2.EpochEnd) -> None:
        """The leader's log has diverged from what was read (`log_truncation`). LogTruncatedError."""
        partition.position = position_after_truncation(
            partition.topic_partition,
            partition.position or Offset(0),
            end,
            may_go_back=self._query.offset_reset is not OffsetResetPolicy.NONE,
            remedy="subscribe again from a position of your choice, or set offset_reset",
        )
        partition.leader_epoch = LeaderEpoch(end.leader_epoch)
        self._placement.unplace(partition)

    async def _finish(
        self,
        partition: SubscribedPartition,
        error: StreamlogError | None,
        responses: Responses[pb.SubscribeResponse],
    ) -> None:
        self._placement.finish(partition)
        await self._put(partition.status(error), STATUS_OVERHEAD, responses)

    # -- records

    async def _deliver_records(
        self, partition: SubscribedPartition, got: Fetched, responses: Responses[pb.SubscribeResponse]
    ) -> None:
        part, batches = got
        partition.attempt = 0
        committed = self._query.isolation_level is IsolationLevel.READ_COMMITTED
        partition.high_watermark, partition.log_start = Offset(part.high_watermark), Offset(part.log_start)
        partition.readable_end = Offset(part.last_stable_offset if committed else part.high_watermark)
        if part.correlation_id != partition.sent_generation:  # it may be placed elsewhere while this is sent
            partition.aborted.clear()
            partition.sent_generation = part.correlation_id
        partition.aborted.add((one.first_offset, one.producer_id) for one in part.aborted_transactions)
        for position, header in _headers(partition, batches):
            if partition.end_reached:
                break
            partition.leader_epoch = header.leader_epoch
            try:
                if committed and header.is_control:
                    check_crc(batches, position, header)
                passed_over = partition.aborted.skips(batches, position, header) if committed else header.is_control
                records = iter(()) if passed_over else await self._decode(batches, position, header)
            except UNREADABLE as error:
                await self._skip(partition, header, error, responses)
            else:
                await self._deliver_batch(partition, records, header, responses)
            following = header.next_offset
            if isinstance(partition.end, OffsetPosition):
                following = min(following, partition.end.offset)
            partition.position = max(partition.position or Offset(0), following)
        if partition.end_reached:
            await self._finish(partition, None, responses)

    async def _skip(
        self,
        partition: SubscribedPartition,
        header: BatchHeader,
        error: StreamlogError,
        responses: Responses[pb.SubscribeResponse],
    ) -> None:
        """The batch cannot be decoded. CorruptBatchError unless the client asked to skip such batches."""
        found = corrupt_batch(partition.topic_partition, header.base_offset, header.next_offset, error)
        if not self._query.skip_corrupt:
            raise found from error
        self._traffic.of(partition.topic_partition.topic).skipped_batches += 1
        if header.is_control:
            partition.aborted.on_unreadable(header)
        partition.position = max(partition.position or Offset(0), header.next_offset)
        status = partition.status(skipped=[found])
        await self._put(status, STATUS_OVERHEAD + len(found.reason), responses)

    async def _deliver_batch(
        self,
        partition: SubscribedPartition,
        records: Iterator[Fields],
        header: BatchHeader,
        responses: Responses[pb.SubscribeResponse],
    ) -> None:
        """Records from the partition's position up to its end. MessageTooLargeError at one that does not fit the
        client's messages; those before it have been sent.
        """
        first = partition.position or Offset(0)
        end = partition.end.offset if isinstance(partition.end, OffsetPosition) else header.next_offset
        status: pb.PartitionRecords | None = None
        for fields in records:
            if fields[0] < first:
                continue
            if fields[0] >= end:
                break
            size = record_size(fields)
            if size + STATUS_OVERHEAD > self._query.receive_bytes_max:
                raise MessageTooLargeError(
                    f"{partition.topic_partition}: the record at offset {fields[0]} has {size} bytes, more than "
                    "receive_bytes_max: raise it, and the message limit of the gRPC client with it",
                    field="receive_bytes_max",
                    limit=self._query.receive_bytes_max,
                )
            if status is None or self._message_bytes + size > self._query.response_bytes_max:
                if self._message_bytes + size + STATUS_OVERHEAD > self._query.response_bytes_max:
                    await self._flush(responses)
                status = partition.status()
                self._message.partitions.append(status)
                status = self._message.partitions[-1]  # the message holds a copy
                self._message_bytes += STATUS_OVERHEAD
            status.records.append(convert.received_record(fields, header.timestamp_type))
            self._message_bytes += size
            partition.position = Offset(fields[0] + 1)
            status.position, status.lag = partition.position, max(0, partition.readable_end - partition.position)
            self._left_of_turn -= 1
            if not self._left_of_turn:
                self._left_of_turn = RECORDS_A_TURN
                await asyncio.sleep(0)

    async def _decode(self, batches: Buffer, position: int, header: BatchHeader) -> Iterator[Fields]:
        """Compressed batches are decoded in a worker thread. UNREADABLE errors."""
        check_crc(batches, position, header)
        if codec_of(header.attributes) is Codec.NONE:
            return iter_fields(batches, position)
        return await self._workers.run(iter_fields, batches, position)

    # -- messages

    async def _put(self, status: pb.PartitionRecords, size: int, responses: Responses[pb.SubscribeResponse]) -> None:
        if self._message_bytes + size > self._query.response_bytes_max:
            await self._flush(responses)
        self._message.partitions.append(status)
        self._message_bytes += size

    async def _flush(self, responses: Responses[pb.SubscribeResponse]) -> None:
        message, self._message, self._message_bytes = self._message, pb.SubscribeResponse(), 0
        if message.partitions:
            await responses.send(message)


def _headers(partition: SubscribedPartition, batches: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Of whole batches. CorruptBatchError where their boundaries are unreadable: fetching them again does not help."""
    try:
        yield from scan_headers(batches, 0, len(batches))
    except CorruptMessageError as error:
        raise corrupt_batch(partition.topic_partition, partition.position or Offset(0), None, error) from error
