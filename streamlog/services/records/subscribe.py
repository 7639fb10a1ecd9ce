"""Subscribe: records of any partitions from any node.

    unplaced --leader known, start and end found--> read from the leader's feed --end reached, refused--> done
       ^                                                  |
       '--------the leader moved, its feed broke----------'      (goes on at `position`)

One task places partitions, one a feed receives, one writes to the client. A feed asks for its next message when all of
the one before has been sent, so a slow client leaves one small message of each feed lying; they count as outgoing
(`services.outgoing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from streamlog.api import calls
from streamlog.api.convert import subscribe as convert
from streamlog.api.convert.subscribe import (
    OffsetPosition,
    OffsetResetPolicy,
    Position,
    SubscribeQuery,
    TopicSubscription,
)
from streamlog.api.errors import from_message
from streamlog.api.fetched import Fetched
from streamlog.api.pb import batches_pb2, common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.requests import RECEIVE_BYTES, OffsetPlace
from streamlog.api.service import Call, Responses
from streamlog.client.connection.backoff import Backoff
from streamlog.client.consumer.corrupt_batches import UNREADABLE, corrupt_batch
from streamlog.errors import (
    CorruptMessageError,
    LogTruncatedError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    StreamlogError,
)
from streamlog.metadata.delta import MetadataDelta
from streamlog.metadata.image import MetadataImage, require_partition
from streamlog.metadata.view import MetadataView
from streamlog.model import (
    NO_BROKER,
    NO_LEADER_EPOCH,
    BrokerId,
    IsolationLevel,
    LeaderEpoch,
    Offset,
    PartitionId,
    TopicPartition,
)
from streamlog.ports import Buffer, Clock, Workers
from streamlog.records import BatchHeader, Codec, check_crc, codec_of, iter_fields, scan_headers
from streamlog.records.decode import Fields
from streamlog.services.batches.offsets import OffsetsHandler
from streamlog.services.common.auto_create import AutoCreate
from streamlog.services.common.forwarding import Peers
from streamlog.services.common.outgoing import SUBSCRIBE_COPIES, OutgoingBytes, Reader
from streamlog.services.common.topics import unknown_topic
from streamlog.services.records.feeds import Feed, FeedSource
from streamlog.services.records.subscribed_partition import (
    NEWS_OVERHEAD,
    SubscribedPartition,
    add_query,
    deleted,
    size_of,
)

_LIST_OFFSETS: Final = calls.unary("streamlog.v1.Batches/ListOffsets", batches_pb2.ListOffsetsResponse)
_OFFSETS_TIMEOUT_S: Final = 10.0
# So often a leader is asked again that cannot read its own log: it may be mended, or another node may lead.
_CORRUPT_READS_MAX: Final = 8
_FEED_BYTES: Final = 256 << 10  # of a feed's message: the records of it cost more than the message
_LEVELS: Final = {
    IsolationLevel.READ_UNCOMMITTED: common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
    IsolationLevel.READ_COMMITTED: common_pb2.ISOLATION_LEVEL_READ_COMMITTED,
}


class SubscribeHandler:
    def __init__(
        self,
        node_id: BrokerId,
        view: MetadataView,
        auto_create: AutoCreate,
        feeds: FeedSource,
        offsets: OffsetsHandler,
        peers: Peers,
        clock: Clock,
        workers: Workers,
        backoff: Backoff,
        outgoing: OutgoingBytes,
    ) -> None:
        self.outgoing = outgoing
        self.node_id = node_id
        self.view = view
        self.feeds = feeds
        self.clock = clock
        self.workers = workers
        self.backoff = backoff
        self._auto_create = auto_create
        self._offsets = offsets
        self._peers = peers

    async def subscribe(
        self, request: pb.SubscribeRequest, responses: Responses[pb.SubscribeResponse], call: Call
    ) -> None:
        query = convert.subscribe_query(request)
        for subscription in query.subscriptions:
            if self.view.image.topic_named(subscription.topic) is None:
                await self._auto_create.ensure(subscription.topic, call)
        reading = _Reading(self, query, call)
        try:
            async with self.outgoing.reader() as reader, asyncio.TaskGroup() as tasks:
                reading.reader = reader
                placing = tasks.create_task(reading.place_all(tasks))
                await reading.write(responses)
                placing.cancel()
                reading.stop()
        finally:
            reading.stop()

    async def list_offsets(
        self, leader: BrokerId, request: batches_pb2.ListOffsetsRequest, call: Call
    ) -> batches_pb2.ListOffsetsResponse:
        """Asked of the leader, here or there. StreamlogError."""
        if leader == self.node_id:
            return await self._offsets.list_offsets(request, call)
        return await _LIST_OFFSETS(await self._peers.channel(leader), request, timeout_s=_OFFSETS_TIMEOUT_S)


def _nothing() -> None:
    pass


class _News:
    """For the writer; `told` once the transport has taken all of it."""

    __slots__ = ("of", "told")

    def __init__(self, of: list[tuple[SubscribedPartition, Fetched | StreamlogError]]) -> None:
        self.of = of
        self.told = asyncio.Event()


class _Reading:
    """One call. A `feeds.Receiver`."""

    def __init__(self, owner: SubscribeHandler, query: SubscribeQuery, call: Call) -> None:
        self._owner = owner
        self._query = query
        self._call = call
        self._places: dict[TopicPartition, SubscribedPartition] = {}
        self._open = 0  # places that are not done
        self._unplaced: dict[SubscribedPartition, None] = {}
        self._feeds: dict[BrokerId, tuple[Feed, asyncio.Task[None]]] = {}
        self._news = asyncio.Event()  # something is unplaced, or the topics have changed
        self._fetched: asyncio.Queue[_News] = asyncio.Queue()  # one of each feed at most, and those of deleted topics
        self.reader: Reader | None = None  # who is ended when the client does not read
        self._message = pb.SubscribeResponse()  # being filled
        self._message_bytes = 0
        image = owner.view.image
        for subscription in query.subscriptions:
            self._take(subscription, image)
        self._stop_listening: Callable[[], None] = owner.view.listen(self._on_image)

    def stop(self) -> None:
        """For good. Nothing of this refers to itself any more, so it goes with the call."""
        self._stop_listening()
        self._stop_listening = _nothing
        feeds, self._feeds = self._feeds, {}
        for _, task in feeds.values():
            task.cancel()

    # -- which partitions

    def _take(self, subscription: TopicSubscription, image: MetadataImage) -> None:
        """UnknownTopicOrPartitionError, InvalidRequestError."""
        topic = image.topic_named(subscription.topic)
        if topic is None:
            raise unknown_topic(subscription.topic)
        indexes = subscription.partitions or tuple(map(PartitionId, range(len(topic.partitions))))
        for index in indexes:
            require_partition(topic, index)
            partition = TopicPartition(topic.name, index)
            self._add(SubscribedPartition(partition, topic.topic_id, subscription))
        convert.check_count(len(self._places))

    def _add(self, place: SubscribedPartition) -> None:
        self._places[place.partition] = place
        self._unplaced[place] = None
        self._open += 1

    def _on_image(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        self._news.set()

    def _follow_topics(self, image: MetadataImage) -> list[SubscribedPartition]:
        """Partitions that were added are read from their beginning. Those whose topic is gone are the answer."""
        for subscription in self._query.subscriptions:
            topic = image.topic_named(subscription.topic) if not subscription.partitions else None
            first = TopicPartition(subscription.topic, PartitionId(0))
            if topic is None or self._places[first].topic_id != topic.topic_id:
                continue
            for index in range(len(topic.partitions)):
                partition = TopicPartition(topic.name, PartitionId(index))
                if partition not in self._places:
                    place = SubscribedPartition(partition, topic.topic_id, subscription)
                    place.start = OffsetPlace.EARLIEST
                    self._add(place)
        return [place for place in self._places.values() if not place.is_done and place.topic_id not in image.topics]

    # -- from whom

    async def place_all(self, tasks: asyncio.TaskGroup) -> None:
        self._news.set()
        seen: MetadataImage | None = None
        while True:
            await self._news.wait()
            self._news.clear()
            image = self._owner.view.image
            if seen is None or image.topics is not seen.topics:
                seen = image
                for place in self._follow_topics(image):
                    self._unplaced.pop(place, None)
                    self._fetched.put_nowait(_News([(place, deleted(place))]))
            if self._unplaced:
                await self._place_some(image, tasks)

    async def _place_some(self, image: MetadataImage, tasks: asyncio.TaskGroup) -> None:
        by_leader: dict[BrokerId, list[SubscribedPartition]] = {}
        for place in self._unplaced:
            topic = image.topics.get(place.topic_id)
            leader = NO_BROKER if topic is None else topic.partitions[place.partition.partition].leader
            if leader != NO_BROKER:  # else the image that names one wakes this
                by_leader.setdefault(leader, []).append(place)
        attempt = max((place.attempt for places in by_leader.values() for place in places), default=0)
        if attempt:
            await asyncio.sleep(self._owner.backoff.delay_s(attempt))
        for leader, places in by_leader.items():
            for place in places:
                place.attempt += 1
            found = await self._find_offsets(leader, places)
            for place in found:
                self._unplaced.pop(place, None)
                self._read_from(leader, place, tasks)
        if self._unplaced and by_leader:
            self._news.set()

    async def _find_offsets(self, leader: BrokerId, places: list[SubscribedPartition]) -> list[SubscribedPartition]:
        """Make offsets of starts and ends. Those of which all is known now."""
        questions: list[tuple[SubscribedPartition, bool, Position]] = []
        for place in places:
            if place.position is None:
                if isinstance(place.start, OffsetPosition):
                    place.position = place.start.offset
                else:
                    questions.append((place, True, place.start))
            if place.end is not None and not isinstance(place.end, OffsetPosition):
                questions.append((place, False, place.end))
        for first in range(0, len(questions), 1_000):
            await self._ask_offsets(leader, questions[first : first + 1_000])
        return [
            place
            for place in places
            if place.position is not None and (place.end is None or isinstance(place.end, OffsetPosition))
        ]

    async def _ask_offsets(self, leader: BrokerId, questions: list[tuple[SubscribedPartition, bool, Position]]) -> None:
        request = batches_pb2.ListOffsetsRequest(isolation_level=_LEVELS[self._query.isolation_level])
        for place, _, position in questions:
            add_query(request, place, position)
        try:
            response = await self._owner.list_offsets(leader, request, self._call)
        except StreamlogError:
            return  # another attempt follows
        for (place, is_start, _), found in zip(questions, response.offsets, strict=True):
            if found.HasField("error"):
                error = from_message(found.error)
                if not error.retriable:
                    self._unplaced.pop(place, None)
                    self._fetched.put_nowait(_News([(place, error)]))
                continue
            if found.offset < 0:  # no record is of that time or later: the end, which is asked for next
                target: Position = OffsetPlace.LATEST
            else:
                target = OffsetPosition(Offset(found.offset))
            if not is_start:
                place.end = target
            elif isinstance(target, OffsetPosition):
                place.position = target.offset
            else:
                place.start = target

    def _read_from(self, leader: BrokerId, place: SubscribedPartition, tasks: asyncio.TaskGroup) -> None:
        known = self._feeds.get(leader)
        if known is None:
            settings = batches_pb2.FetchSettings(
                isolation_level=_LEVELS[self._query.isolation_level],
                response_bytes_max=_FEED_BYTES,
                receive_bytes_max=RECEIVE_BYTES,
            )
            account = self._owner.outgoing.reader(SUBSCRIBE_COPIES)
            account.on_end = None if self.reader is None else self.reader.end
            feed = Feed(leader, self._owner.feeds, settings, self, account)
            known = self._feeds[leader] = (feed, tasks.create_task(feed.run()))
        place.leader = leader
        place.generation += 1
        part = batches_pb2.FetchPartition(
            topic=place.partition.topic,
            topic_id=place.topic_id,
            partition=place.partition.partition,
            correlation_id=place.generation,
            fetch_offset=place.position or 0,
        )
        if place.leader_epoch >= 0:
            part.last_fetched_epoch = place.leader_epoch
        known[0].add(part)

    async def on_fetched(self, answer: list[Fetched]) -> None:
        news = _News([])
        for got in answer:
            place = self._places[TopicPartition(got.part.topic, PartitionId(got.part.partition))]
            if got.part.correlation_id == place.generation and place.leader != NO_BROKER:
                news.of.append((place, got))
        self._fetched.put_nowait(news)
        await news.told.wait()

    def on_feed_lost(self, leader: BrokerId, error: StreamlogError) -> None:
        self._feeds.pop(leader, None)
        for place in self._places.values():
            if place.leader == leader:
                self._lose(place)

    def _lose(self, place: SubscribedPartition) -> None:
        place.leader = NO_BROKER
        if not place.is_done:
            self._unplaced[place] = None
            self._news.set()

    # -- what the client gets

    async def write(self, responses: Responses[pb.SubscribeResponse]) -> None:
        """Until all partitions are done."""
        interval_s = self._query.heartbeat_interval_ms / 1000
        heartbeat_at = asyncio.get_running_loop().time() + interval_s
        while self._open:
            try:
                async with asyncio.timeout_at(heartbeat_at):
                    news = await self._fetched.get()
            except TimeoutError:
                heartbeat_at = asyncio.get_running_loop().time() + interval_s
                await self._beat(responses)
                continue
            for place, got in news.of:
                await self._tell(place, got, responses)
            news.of.clear()
            await self._flush(responses)
            news.told.set()
        await self._flush(responses)

    async def _beat(self, responses: Responses[pb.SubscribeResponse]) -> None:
        for place in self._places.values():
            if not (place.was_told or place.is_done) and place.position is not None:
                await self._put(place.news(), NEWS_OVERHEAD, responses)
            place.was_told = False
        await self._flush(responses)

    async def _tell(
        self, place: SubscribedPartition, got: Fetched | StreamlogError, responses: Responses[pb.SubscribeResponse]
    ) -> None:
        if place.is_done:
            return
        try:
            if isinstance(got, StreamlogError):
                raise got
            if got.part.HasField("error"):
                raise from_message(got.part.error)
            if got.part.HasField("diverging_epoch"):
                self._go_back(place, got.part.diverging_epoch)
                return
            await self._tell_records(place, got, responses)
        except (OffsetOutOfRangeError, LogTruncatedError) as error:
            if self._query.offset_reset is OffsetResetPolicy.NONE:
                await self._finish(place, error, responses)
                return
            earliest = self._query.offset_reset is OffsetResetPolicy.EARLIEST
            place.start = OffsetPlace.EARLIEST if earliest else OffsetPlace.LATEST
            place.position, place.leader_epoch = None, NO_LEADER_EPOCH
            self._lose(place)
        except StreamlogError as error:
            if place.topic_id not in self._owner.view.image.topics:
                await self._finish(place, deleted(place), responses)
            elif isinstance(error, CorruptMessageError) and place.attempt > _CORRUPT_READS_MAX:
                found = corrupt_batch(place.partition, place.position or Offset(0), None, error)
                await self._finish(place, found, responses)
            elif error.retriable:
                self._lose(place)
            else:
                await self._finish(place, error, responses)

    def _go_back(self, place: SubscribedPartition, end: batches_pb2.EpochEnd) -> None:
        """The log has another history since (KIP-320): what was read beyond `end` is not in it any more.

        LogTruncatedError where it is not known how far it is the same, and where nothing may be read again unasked.
        """
        position = place.position or Offset(0)
        may_not = self._query.offset_reset is OffsetResetPolicy.NONE and end.end_offset < position
        if end.end_offset < 0 or may_not:
            raise LogTruncatedError(
                f"{place.partition}: the log was truncated at offset {end.end_offset}, and {position} was to be read",
                topic=place.partition.topic,
                partition=place.partition.partition,
                offset=position,
                log_end=end.end_offset,
            )
        place.position = min(position, Offset(end.end_offset))
        place.leader_epoch = LeaderEpoch(end.leader_epoch)
        self._lose(place)

    async def _finish(
        self, place: SubscribedPartition, error: StreamlogError | None, responses: Responses[pb.SubscribeResponse]
    ) -> None:
        place.is_done = True
        self._open -= 1
        await self._put(place.news(error), NEWS_OVERHEAD, responses)

    async def _tell_records(
        self, place: SubscribedPartition, got: Fetched, responses: Responses[pb.SubscribeResponse]
    ) -> None:
        part, batches = got
        place.attempt = 0
        committed = self._query.isolation_level is IsolationLevel.READ_COMMITTED
        place.high_watermark, place.log_start = Offset(part.high_watermark), Offset(part.log_start)
        place.readable_end = Offset(part.last_stable_offset if committed else part.high_watermark)
        if part.correlation_id != place.told_generation:  # it may be read elsewhere while this is being told
            place.aborted.clear()
            place.told_generation = part.correlation_id
        place.aborted.add((one.first_offset, one.producer_id) for one in part.aborted_transactions)
        for position, header in _headers(place, batches):
            if place.end_reached:
                break
            place.leader_epoch = header.leader_epoch
            try:
                if committed and header.is_control:
                    check_crc(batches, position, header)
                passed_over = place.aborted.passes_over(batches, position, header) if committed else header.is_control
                records = iter(()) if passed_over else await self._decoded(batches, position, header)
            except UNREADABLE as error:
                await self._skip(place, header, error, responses)
            else:
                await self._tell_batch(place, records, header, responses)
            following = header.next_offset
            if isinstance(place.end, OffsetPosition):
                following = min(following, place.end.offset)
            place.position = max(place.position or Offset(0), following)
        if place.end_reached:
            await self._finish(place, None, responses)

    async def _skip(
        self,
        place: SubscribedPartition,
        header: BatchHeader,
        error: StreamlogError,
        responses: Responses[pb.SubscribeResponse],
    ) -> None:
        """The batch cannot be decoded. CorruptBatchError unless the client wants to go on behind it."""
        found = corrupt_batch(place.partition, header.base_offset, header.next_offset, error)
        if not self._query.skip_corrupt:
            raise found from error
        if header.is_control:
            place.aborted.on_unreadable(header)
        place.position = max(place.position or Offset(0), header.next_offset)
        news = place.news(skipped=[found])
        await self._put(news, NEWS_OVERHEAD + len(found.reason), responses)

    async def _tell_batch(
        self,
        place: SubscribedPartition,
        records: Iterator[Fields],
        header: BatchHeader,
        responses: Responses[pb.SubscribeResponse],
    ) -> None:
        """Records from the place's position on, before its end. MessageTooLargeError at one that the client cannot
        take: those before it have been told.
        """
        first = place.position or Offset(0)
        end = place.end.offset if isinstance(place.end, OffsetPosition) else header.next_offset
        news: pb.PartitionRecords | None = None
        for fields in records:
            if fields[0] < first:
                continue
            if fields[0] >= end:
                break
            size = size_of(fields)
            if size + NEWS_OVERHEAD > self._query.receive_bytes_max:
                raise MessageTooLargeError(
                    f"{place.partition}: the record at offset {fields[0]} has {size} bytes, more than the client takes "
                    "in a message: raise receive_bytes_max, and the limit of the gRPC client with it",
                    field="receive_bytes_max",
                    limit=self._query.receive_bytes_max,
                )
            if news is None or self._message_bytes + size > self._query.response_bytes_max:
                if self._message_bytes + size + NEWS_OVERHEAD > self._query.response_bytes_max:
                    await self._flush(responses)
                news = place.news()
                self._message.partitions.append(news)
                news = self._message.partitions[-1]  # the message holds a copy
                self._message_bytes += NEWS_OVERHEAD
            news.records.append(convert.received_record(fields, header.timestamp_type))
            self._message_bytes += size
            place.position = Offset(fields[0] + 1)
            news.position, news.lag = place.position, max(0, place.readable_end - place.position)

    async def _decoded(self, batches: Buffer, position: int, header: BatchHeader) -> Iterator[Fields]:
        """Packed ones are unpacked off the loop. UNREADABLE errors."""
        check_crc(batches, position, header)
        if codec_of(header.attributes) is Codec.NONE:
            return iter_fields(batches, position)
        return await self._owner.workers.run(iter_fields, batches, position)

    async def _put(self, news: pb.PartitionRecords, size: int, responses: Responses[pb.SubscribeResponse]) -> None:
        if self._message_bytes + size > self._query.response_bytes_max:
            await self._flush(responses)
        self._message.partitions.append(news)
        self._message_bytes += size

    async def _flush(self, responses: Responses[pb.SubscribeResponse]) -> None:
        message, self._message, self._message_bytes = self._message, pb.SubscribeResponse(), 0
        if message.partitions:
            await responses.send(message)


def _headers(place: SubscribedPartition, batches: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Of whole batches. CorruptBatchError where they cannot be told apart: it is of no use to ask for them again."""
    try:
        yield from scan_headers(batches, 0, len(batches))
    except CorruptMessageError as error:
        raise corrupt_batch(place.partition, place.position or Offset(0), None, error) from error
