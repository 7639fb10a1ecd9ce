"""Which partitions a Subscribe call reads, and from which leader: each is placed on the leader's feed once its start
and end are known as offsets, and placed again when the leader moves or the feed is lost.

It follows the topics: partitions that are added are read from their beginning, deleted topics end with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from streamlog.aio.call_time import counted
from streamlog.api.convert.records import subscribe as convert
from streamlog.api.convert.records.subscribe import OffsetPosition, Position, SubscribeQuery, TopicSubscription
from streamlog.api.errors import from_message
from streamlog.api.fetched import Fetched
from streamlog.api.pb import batches_pb2, common_pb2
from streamlog.api.requests import RECEIVE_BYTES, OffsetPlace
from streamlog.client.connection.backoff import Backoff
from streamlog.errors import BrokerNotAvailableError, StreamlogError
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage, require_partition
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER, BrokerId, IsolationLevel, Offset, PartitionId, TopicPartition
from streamlog.ports import CallPace
from streamlog.services.common.outgoing import SUBSCRIBE_COPIES, OutgoingBytes, Reader
from streamlog.services.common.topics import unknown_topic
from streamlog.services.records.feeds import Feed, FeedSource
from streamlog.services.records.subscribed_partition import (
    PartitionUpdates,
    SubscribedPartition,
    add_offset_query,
    topic_deleted,
)

_QUERIES_MAX: Final = 1_000  # of one ListOffsets
_FEED_BYTES: Final = 256 << 10  # of a feed's message: its decoded records take more memory than the message
_LEVELS: Final = {
    IsolationLevel.READ_UNCOMMITTED: common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
    IsolationLevel.READ_COMMITTED: common_pb2.ISOLATION_LEVEL_READ_COMMITTED,
}

ListOffsets: TypeAlias = Callable[
    [BrokerId, batches_pb2.ListOffsetsRequest], Awaitable[batches_pb2.ListOffsetsResponse]
]
"""ListOffsets at that leader. StreamlogError."""


def _nothing() -> None:
    pass


class PartitionPlacement:
    """The partitions of one call. A `feeds.FeedReceiver`."""

    def __init__(
        self,
        query: SubscribeQuery,
        view: MetadataView,
        feeds: FeedSource,
        list_offsets: ListOffsets,
        backoff: Backoff,
        outgoing: OutgoingBytes,
    ) -> None:
        """UnknownTopicOrPartitionError, InvalidRequestError."""
        self._query = query
        self._view = view
        self._feed_source = feeds
        self._list_offsets = list_offsets
        self._backoff = backoff
        self._outgoing = outgoing
        self.partitions: dict[TopicPartition, SubscribedPartition] = {}
        self.open_count = 0  # partitions that are not done
        self.updates: asyncio.Queue[PartitionUpdates] = asyncio.Queue()  # one of each feed at most, and errors
        self.reader: Reader | None = None  # ended with the call when the client does not read
        self.pace: CallPace | None = None  # where the call's bytes count against a quota
        self._unplaced: dict[SubscribedPartition, None] = {}
        self._feeds: dict[BrokerId, tuple[Feed, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()  # something is unplaced, or the topics have changed
        image = view.image
        for subscription in sorted(query.subscriptions, key=lambda one: not one.partitions):
            self._subscribe(subscription, image)  # entries that name partitions come first
        self._stop_listening: Callable[[], None] = view.listen(self._on_image)

    def stop(self) -> None:
        """Permanently. No reference cycle is left, so the memory is freed with the call."""
        self._stop_listening()
        self._stop_listening = _nothing
        feeds, self._feeds = self._feeds, {}
        for _, task in feeds.values():
            task.cancel()

    def finish(self, partition: SubscribedPartition) -> None:
        partition.is_done = True
        self.open_count -= 1

    # -- which partitions

    def _subscribe(self, subscription: TopicSubscription, image: MetadataImage) -> None:
        topic = image.topic_named(subscription.topic)
        if topic is None:
            raise unknown_topic(subscription.topic)
        indexes = subscription.partitions or tuple(map(PartitionId, range(len(topic.partitions))))
        for index in indexes:
            require_partition(topic, index)
            key = TopicPartition(topic.name, index)
            if key not in self.partitions:
                self._add(SubscribedPartition(key, topic.topic_id, subscription))
        convert.check_count(len(self.partitions))

    def _add(self, partition: SubscribedPartition) -> None:
        self.partitions[partition.topic_partition] = partition
        self._unplaced[partition] = None
        self.open_count += 1

    def _on_image(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        self._changed.set()

    def _follow_topics(self, image: MetadataImage, before: MetadataImage | None) -> list[SubscribedPartition]:
        """Add partitions that were added to the topics. Returns those whose topic was deleted since `before`."""
        for subscription in self._query.subscriptions:
            topic = image.topic_named(subscription.topic) if not subscription.partitions else None
            first = TopicPartition(subscription.topic, PartitionId(0))
            if topic is None or self.partitions[first].topic_id != topic.topic_id:
                continue
            for index in range(len(topic.partitions)):
                key = TopicPartition(topic.name, PartitionId(index))
                if key not in self.partitions:
                    partition = SubscribedPartition(key, topic.topic_id, subscription)
                    partition.start = OffsetPlace.EARLIEST
                    self._add(partition)
        return [
            one
            for one in self.partitions.values()
            if not one.is_done
            and one.topic_id not in image.topics
            and (before is None or one.topic_id in before.topics)  # once: the error may wait for the client to read
        ]

    # -- from which leader

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Place what is unplaced, until cancelled. The feeds are tasks of `tasks`."""
        self._changed.set()
        seen: MetadataImage | None = None
        while True:
            await self._changed.wait()
            self._changed.clear()
            image = self._view.image
            if seen is None or image.topics is not seen.topics:
                for partition in self._follow_topics(image, seen):
                    self._fail(partition, topic_deleted(partition))
                seen = image
            if self._unplaced:
                await self._place_some(image, tasks)

    async def _place_some(self, image: MetadataImage, tasks: asyncio.TaskGroup) -> None:
        by_leader: dict[BrokerId, list[SubscribedPartition]] = {}
        for partition in self._unplaced:
            topic = image.topics.get(partition.topic_id)
            index = partition.topic_partition.partition
            leader = NO_BROKER if topic is None else topic.partitions[index].leader
            if leader != NO_BROKER:  # otherwise the image that names one sets `_changed`
                by_leader.setdefault(leader, []).append(partition)
        attempt = max((one.attempt for partitions in by_leader.values() for one in partitions), default=0)
        if attempt:
            await asyncio.sleep(self._backoff.delay_s(attempt))
        for leader, partitions in by_leader.items():
            for partition in partitions:
                partition.attempt += 1
            found = await self._find_offsets(leader, partitions)
            for partition in found:
                self._unplaced.pop(partition, None)
                self._read_from(leader, partition, tasks)
        if self._unplaced and by_leader:
            self._changed.set()

    async def _find_offsets(self, leader: BrokerId, partitions: list[SubscribedPartition]) -> list[SubscribedPartition]:
        """Look up starts and ends as offsets. Returns the partitions whose start and end are known now."""
        queries: list[tuple[SubscribedPartition, bool, Position]] = []
        for partition in partitions:
            if partition.position is None:
                if isinstance(partition.start, OffsetPosition):
                    partition.position = partition.start.offset
                else:
                    queries.append((partition, True, partition.start))
            if partition.end is not None and not isinstance(partition.end, OffsetPosition):
                queries.append((partition, False, partition.end))
        for first in range(0, len(queries), _QUERIES_MAX):
            await self._look_up(leader, queries[first : first + _QUERIES_MAX])
        return [
            partition
            for partition in partitions
            if partition.position is not None and (partition.end is None or isinstance(partition.end, OffsetPosition))
        ]

    async def _look_up(self, leader: BrokerId, queries: list[tuple[SubscribedPartition, bool, Position]]) -> None:
        request = batches_pb2.ListOffsetsRequest(isolation_level=_LEVELS[self._query.isolation_level])
        for partition, _, position in queries:
            add_offset_query(request, partition, position)
        try:
            response = await self._list_offsets(leader, request)
        except StreamlogError:
            return  # another attempt follows
        if len(response.offsets) != len(queries):
            return  # the same: it may not be a streamlog node
        for (partition, is_start, _), found in zip(queries, response.offsets, strict=True):
            if found.HasField("error"):
                error = from_message(found.error)
                if not error.retriable:
                    self._fail(partition, error)
                continue
            if found.offset < 0:  # no record has that timestamp or a later one: the end, which is looked up next
                target: Position = OffsetPlace.LATEST
            else:
                target = OffsetPosition(Offset(found.offset))
            if not is_start:
                partition.end = target
            elif isinstance(target, OffsetPosition):
                partition.position = target.offset
            else:
                partition.start = target

    def _fail(self, partition: SubscribedPartition, error: StreamlogError) -> None:
        self._unplaced.pop(partition, None)
        self.updates.put_nowait(PartitionUpdates([(partition, error)]))

    # -- the feeds

    def _read_from(self, leader: BrokerId, partition: SubscribedPartition, tasks: asyncio.TaskGroup) -> None:
        known = self._feeds.get(leader)
        if known is None:
            settings = batches_pb2.FetchSettings(
                isolation_level=_LEVELS[self._query.isolation_level],
                response_bytes_max=_FEED_BYTES,
                receive_bytes_max=RECEIVE_BYTES,
            )
            account = self._outgoing.reader(SUBSCRIBE_COPIES)
            account.on_end = None if self.reader is None else self.reader.end
            account.pace = self.pace
            feed = Feed(leader, self._feed_source, settings, self, account)
            known = self._feeds[leader] = (feed, tasks.create_task(counted(feed.run())))
        partition.leader = leader
        partition.generation += 1
        part = batches_pb2.FetchPartition(
            topic=partition.topic_partition.topic,
            topic_id=partition.topic_id,
            partition=partition.topic_partition.partition,
            correlation_id=partition.generation,
            fetch_offset=partition.position or 0,
        )
        if partition.leader_epoch >= 0:
            part.last_fetched_epoch = partition.leader_epoch
        known[0].add(part)

    async def on_fetched(self, answer: list[Fetched]) -> None:
        """BrokerNotAvailableError for a partition that was not requested."""
        message = PartitionUpdates([])
        for got in answer:
            partition = self.partitions.get(TopicPartition(got.part.topic, PartitionId(got.part.partition)))
            if partition is None:
                raise BrokerNotAvailableError("a fetch stream has returned a partition that was not requested")
            if got.part.correlation_id == partition.generation and partition.leader != NO_BROKER:
                message.updates.append((partition, got))
        self.updates.put_nowait(message)
        await message.sent.wait()

    def on_feed_lost(self, leader: BrokerId, error: StreamlogError) -> None:
        self._feeds.pop(leader, None)
        for partition in self.partitions.values():
            if partition.leader == leader:
                self.unplace(partition)

    def unplace(self, partition: SubscribedPartition) -> None:
        """It is read no longer, until it is placed again."""
        partition.leader = NO_BROKER
        if not partition.is_done:
            self._unplaced[partition] = None
            self._changed.set()
