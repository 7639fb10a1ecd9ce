"""Consume: a member of a group without a client library. The node is the member, on behalf of the client's stream.

    first message --> ConsumeMember: the Python client's reader and group on this node's ports; any node serves it
    records       --> as many as there are credits
    revoked       --> nothing more is sent; given up once all sent records are acknowledged or released, or on timeout
    acknowledged  --> committed, one commit at a time, and confirmed by `committed`
    nothing to send --> `status`, at intervals: what the call waits for (`consume_status`)
    stream ends   --> acknowledged records are committed, the member leaves

Records that are only sent are never committed (`sent_records`). A client that commits offsets in transactions does not
acknowledge: each response has the member id and epoch for these, and it answers `revoked` by `released` when the
transaction with its last offsets has ended. Until then the partition stays with it. A client that has records and sends
nothing for its processing timeout loses its partitions, as does one that does not give them up in that time; it gets
`lost`. Its member joins again with the client's next message, or after another processing timeout.

When a node fails, so do its members: their clients join again at other nodes, and continue after the last commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

from streamlog.aio.call_time import counted
from streamlog.aio.timeouts import timeout
from streamlog.api.convert.records import consume as convert
from streamlog.api.convert.records.consume import ConsumeJoin, ConsumeUp
from streamlog.api.convert.records.subscribe import partition_status, received_record
from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import Call, Requests, Responses
from streamlog.client.connection.backoff import Backoff
from streamlog.client.consumer.consumer_records import ConsumerBatch
from streamlog.client.groups.group_offsets import OffsetAndMetadata
from streamlog.client.groups.rebalancing import Listeners
from streamlog.errors import CorruptBatchError, InvalidRequestError, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.metrics import Traffic
from streamlog.model import BrokerId, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.ports import CallPace, Ports, Workers
from streamlog.records.decode import Fields
from streamlog.services.records.consuming.consume_member import ConsumeMember
from streamlog.services.records.consuming.consume_status import (
    check_topics,
    consume_status,
    unknown_topics,
)
from streamlog.services.records.consuming.sent_records import SentRecords
from streamlog.services.records.subscribed_partition import RECORDS_A_TURN, STATUS_OVERHEAD, record_size

_END_S: Final = 5.0
"""For the last commit and the leave, when the client has disconnected."""
_NEW_TOPIC_S: Final = 0.5


class ConsumeHandler:
    def __init__(self, node_id: BrokerId, view: MetadataView, ports: Ports, backoff: Backoff, traffic: Traffic) -> None:
        self._node_id = node_id
        self._view = view
        self._ports = ports
        self._backoff = backoff
        self._traffic = traffic

    async def consume(
        self, requests: Requests[pb.ConsumeRequest], responses: Responses[pb.ConsumeResponse], call: Call
    ) -> None:
        first = await requests.recv()
        if first is None:
            return
        wanted = convert.join(first)
        up = convert.up(first, by_credit=wanted.by_credit, first=True)
        if wanted.fail_unknown:
            await self._check_topics(wanted.topics)
        workers = self._ports.workers
        stream = _Stream(wanted, responses, self._backoff, self._traffic, self._view, workers, call.info.pace)
        member = ConsumeMember(wanted, self._servers(), self._ports, stream.give_up, self._epoch())
        await stream.serve(member, up, requests)

    async def _check_topics(self, topics: Sequence[str]) -> None:
        """UnknownTopicOrPartitionError. This node may learn of a new topic a moment after its creator."""
        try:
            async with timeout(_NEW_TOPIC_S):
                await self._view.wait_until(lambda image: not unknown_topics(topics, image))
        except TimeoutError:
            check_topics(topics, self._view.image)

    def _epoch(self) -> int:
        broker = self._view.image.brokers.get(self._node_id)
        return 0 if broker is None else broker.epoch

    def _servers(self) -> str:
        """This node first."""
        known = self._view.image.brokers.values()
        ordered = sorted(
            (one.broker_id for one in known if not one.fenced), key=lambda one: (one != self._node_id, one)
        )
        addresses = [self._view.address_of(one) for one in ordered]
        return ",".join(address for address in addresses if address is not None)


class _Stream:
    """One call."""

    def __init__(
        self,
        wanted: ConsumeJoin,
        responses: Responses[pb.ConsumeResponse],
        backoff: Backoff,
        traffic: Traffic,
        view: MetadataView,
        workers: Workers,
        pace: CallPace | None,
    ) -> None:
        self._pace = pace
        self._workers = workers
        self._wanted = wanted
        self._view = view
        self._is_quiet = False  # nothing was sent since the last status
        self._responses = responses
        self._backoff = backoff
        self._traffic = traffic
        self._credits = 0
        self._granted = False  # the first credits are not acknowledgements
        self._sent = SentRecords()
        self._left: tuple[ConsumerBatch, Iterator[Fields]] | None = None  # rest of a batch, which waits for credits
        self._next: Fields | None = None  # its first record, where that was taken and did not fit the last response
        self._revoked: dict[TopicPartition, None] = {}
        self._released: dict[TopicPartition, None] = {}
        self._acknowledged = asyncio.Event()
        self._progress = asyncio.Event()  # something was acknowledged, released, committed; or the client disconnected
        self._committing = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._is_disconnected = False

    async def serve(self, member: ConsumeMember, up: ConsumeUp, requests: Requests[pb.ConsumeRequest]) -> None:
        self._member = member
        listeners = Listeners(on_assigned=self._on_assigned, on_revoked=self._on_revoked, on_lost=self._on_lost)
        try:
            member.start(self._wanted, listeners)
            self._take(up)
            async with asyncio.TaskGroup() as tasks:
                work = (self._send_records(), self._keep_committing(), self._send_statuses())
                others = [tasks.create_task(counted(one)) for one in work]
                await self._receive(requests)
                for task in others:
                    task.cancel()
        finally:
            self._is_disconnected = True
            self._progress.set()
            await member.close(_END_S)

    # -- requests

    async def _receive(self, requests: Requests[pb.ConsumeRequest]) -> None:
        while (request := await requests.recv()) is not None:
            self._take(convert.up(request, by_credit=self._wanted.by_credit, first=False))

    def _take(self, up: ConsumeUp) -> None:
        for partition, last in up.acknowledged:
            self._sent.acknowledge(partition, last)
        if self._wanted.by_credit and self._granted:
            self._sent.acknowledge_oldest(up.credits)
        self._granted = self._granted or up.credits > 0
        self._credits += up.credits
        if self._credits > convert.CREDITS_MAX:
            raise InvalidRequestError(
                f"{self._credits} unused credits, more than {convert.CREDITS_MAX}: grant credits as records are "
                "processed",
                field="credits",
                limit=convert.CREDITS_MAX,
            )
        self._released.update((one, None) for one in up.released if one in self._revoked)
        self._member.on_activity()
        self._member.idle = self._sent.is_idle
        self._acknowledged.set()
        self._progress.set()
        self._member.wake()

    # -- responses

    async def _send(self, response: pb.ConsumeResponse) -> None:
        if self._is_disconnected:
            return
        async with self._sending:
            self._is_quiet = False
            if self._member.member_id is not None and self._member.member_epoch is not None:
                response.member.member_id = self._member.member_id
                response.member.member_epoch = self._member.member_epoch
            await self._responses.send(response)

    async def _send_statuses(self) -> None:
        """While nothing else is sent."""
        while True:
            self._is_quiet = True
            await asyncio.sleep(self._wanted.heartbeat_interval_ms / 1000)
            if self._is_quiet:
                await self._send(pb.ConsumeResponse(status=self._status()))

    def _status(self) -> pb.ConsumeStatus:
        wanted = self._wanted
        unknown = unknown_topics(wanted.topics, self._view.image)
        held = [one for one in self._revoked if not self._is_done([one])]
        return consume_status(
            wanted.group, self._member.standing, unknown, wanted.pattern, held, credits_left=self._credits
        )

    async def _send_records(self) -> None:
        while True:
            for skipped in self._member.take_skipped(self._left_partition):
                await self._report_skipped(skipped)
            if self._pace is not None and self._pace.active and self._pace.must_wait:
                await self._wait_for_turn(self._pace)
            if self._left is None:
                batch = await self._member.next_batch(lambda: self._credits > 0)
                if batch is not None:
                    # No partition is revoked meanwhile: only `next_batch` and `settle_until` do that, in this task.
                    self._left = batch, await batch.fields_by(self._workers)
            elif self._credits > 0:
                await self._send_some(*self._left)
            else:
                await self._member.next_batch(lambda: False)

    async def _wait_for_turn(self, pace: CallPace) -> None:
        """By the caller's quotas. Partitions are assigned and revoked meanwhile."""
        turn = asyncio.create_task(counted(pace.wait()))  # sim: cancelled below, or its result taken
        turn.add_done_callback(lambda _: self._member.wake())
        try:
            await self._member.settle_until(turn)
        finally:
            turn.cancel()
        turn.result()

    async def _send_some(self, batch: ConsumerBatch, fields: Iterator[Fields]) -> None:
        """As many records as fit the message, the credits, and a turn of the event loop."""
        partition = TopicPartition(batch.topic, batch.partition)
        some: list[Fields] = []
        size = STATUS_OVERHEAD
        first, self._next = self._next, None
        most = min(self._credits, RECORDS_A_TURN)
        for each in fields if first is None else chain((first,), fields):
            size += record_size(each)
            if some and size > self._wanted.response_bytes_max:
                self._next = each
                break
            some.append(each)
            if len(some) == most:
                break
        else:
            self._left = None
        if not some:
            return
        self._credits -= len(some)
        offsets = [Offset(each[0]) for each in some]
        self._sent.add(partition, offsets, batch.header.leader_epoch, in_order=self._wanted.by_credit)
        self._member.idle = False
        await self._send(pb.ConsumeResponse(records=self._records(partition, batch, some)))
        if len(some) == RECORDS_A_TURN:
            await asyncio.sleep(0)

    async def _report_skipped(self, skipped: CorruptBatchError) -> None:
        """The offset after it is committed, unless records before it are unacknowledged."""
        partition = TopicPartition(skipped.topic, PartitionId(skipped.partition))
        following = Offset(skipped.next_offset or 0)
        self._traffic.of(skipped.topic).skipped_batches += 1
        if self._member.reader(partition) is None:
            return
        self._sent.skip(partition, following)
        self._acknowledged.set()
        reader = self._member.reader(partition)
        end = following if reader is None else reader.high_watermark
        status = partition_status(
            partition,
            leader_epoch=LeaderEpoch(0),
            position=following,
            high_watermark=end,
            log_start=Offset(0) if reader is None else reader.log_start,
            readable_end=end,
            skipped=[skipped],
        )
        await self._send(pb.ConsumeResponse(records=status))

    def _records(self, partition: TopicPartition, batch: ConsumerBatch, some: Sequence[Fields]) -> pb.PartitionRecords:
        reader = self._member.reader(partition)
        end = Offset(0) if reader is None else reader.high_watermark
        status = partition_status(
            partition,
            leader_epoch=LeaderEpoch(max(0, batch.header.leader_epoch)),
            position=Offset(some[-1][0] + 1),
            high_watermark=end,
            log_start=Offset(0) if reader is None else reader.log_start,
            readable_end=end,
        )
        status.records.extend(received_record(each, batch.timestamp_type) for each in some)
        return status

    # -- assignment

    async def _on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await self._send(pb.ConsumeResponse(assigned=_partitions(partitions)))

    async def give_up(self, given_up: Iterable[TopicPartition]) -> None:
        """Until the client is done with these, and its acknowledgements are committed."""
        partitions = list(given_up)
        self._drop(partitions)
        self._revoked.update(dict.fromkeys(partitions))
        if not self._is_disconnected:
            await self._send(pb.ConsumeResponse(revoked=_partitions(partitions)))
        while not self._is_disconnected and not self._is_done(partitions):
            self._progress.clear()
            await self._progress.wait()
        await self._commit()

    def _is_done(self, partitions: Iterable[TopicPartition]) -> bool:
        return self._sent.is_done([one for one in partitions if one not in self._released])

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard records that were not sent yet."""
        if self._left_partition in set(partitions):
            self._left = self._next = None

    @property
    def _left_partition(self) -> TopicPartition | None:
        return None if self._left is None else TopicPartition(self._left[0].topic, self._left[0].partition)

    def _on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._forget(partitions)

    async def _on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._drop(partitions)
        self._forget(partitions)
        await self._send(pb.ConsumeResponse(lost=_partitions(partitions)))
        if self._member.was_silent:
            await self._wait_for_client()

    async def _wait_for_client(self) -> None:
        """Before the member joins again: at once it would take the partitions from the others again. A client that has
        nothing to send joins again after another processing timeout.
        """
        seen = self._member.activity
        with suppress(TimeoutError):
            async with timeout(self._wanted.processing_timeout_ms / 1000):
                while self._member.activity == seen and not self._is_disconnected:
                    self._progress.clear()
                    await self._progress.wait()

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        self._sent.forget(partitions)
        self._member.forget_skipped(partitions)
        for one in partitions:
            self._revoked.pop(one, None)
            self._released.pop(one, None)
        self._member.idle = self._sent.is_idle

    # -- commits

    async def _keep_committing(self) -> None:
        failures = 0
        while True:
            await self._acknowledged.wait()
            self._acknowledged.clear()
            if await self._commit():
                failures = 0
            else:
                failures += 1
                await self._backoff.wait(failures)
                self._acknowledged.set()

    async def _commit(self) -> bool:
        """Commit what is acknowledged. False: failed, to be retried."""
        async with self._committing:
            taken = self._sent.take()
            if not taken:
                return True
            try:
                await self._member.commit({one: OffsetAndMetadata(*at) for one, at in taken.items()})
            except StreamlogError as error:
                # A removed member gets `lost`; there is nothing to commit for a deleted topic.
                if error.retriable and self._member.member_id is not None:
                    self._sent.put_back(taken)
                    return False
                return True
            except asyncio.CancelledError:  # the stream ends, and commits once more
                self._sent.put_back(taken)
                raise
        for one, (offset, _) in taken.items():
            committed = pb.ConsumeCommitted(topic=one.topic, partition=one.partition, offset=offset)
            await self._send(pb.ConsumeResponse(committed=committed))
        return True


def _partitions(partitions: Iterable[TopicPartition]) -> pb.ConsumePartitions:
    return pb.ConsumePartitions(
        partitions=[common_pb2.TopicPartition(topic=one.topic, partition=one.partition) for one in sorted(partitions)]
    )
