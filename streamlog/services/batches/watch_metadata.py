"""WatchMetadata: the initial state, then changes.

    initial state, in pages --complete--> changes made meanwhile --> changes as they are applied

While a client does not read, changes are not queued but marked: which topics and partitions differ from what was sent.
Their state is taken when they are sent, so the memory of a slow client is bounded by the size of the cluster, not by
time. Changes that are applied together, such as the failover of a node, are one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from streamlog.aio.call_time import counted
from streamlog.api.convert import view as convert
from streamlog.api.convert.metadata import watched_topics
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import MetadataQuery
from streamlog.api.service import Call, Responses
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.image.roles import Role
from streamlog.metadata.records import Broker
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER, BrokerId, PartitionId, TopicId
from streamlog.ports import CallGuard, CallInfo
from streamlog.services.access.visible import listed
from streamlog.services.common.paging import BEGINNING, PAGE_BYTES, TopicEntry, TopicNames, partition_bytes, take
from streamlog.services.common.topics import all_entries, entries_of

PARTITIONS_PER_MESSAGE: Final = 2_000
_TOPIC_BYTES: Final = 64


class WatchMetadata:
    def __init__(self, view: MetadataView, names: TopicNames) -> None:
        self._view = view
        self._names = names

    async def watch_metadata(
        self, request: pb.WatchMetadataRequest, responses: Responses[pb.WatchMetadataResponse], call: Call
    ) -> None:
        query = watched_topics(request)
        watch = _Watch(self._view, query, call.info)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(counted(watch.follow_controller()))
                await self._send_initial(watch, query, responses, call.info.guard)
                await watch.send_changes(responses)
        finally:
            watch.stop()

    async def _send_initial(
        self,
        watch: _Watch,
        query: MetadataQuery,
        responses: Responses[pb.WatchMetadataResponse],
        guard: CallGuard | None,
    ) -> None:
        image, begin = watch.image, BEGINNING
        message = pb.WatchMetadataResponse(cluster_id=image.cluster_id)
        watch.set_nodes(message, image)
        while not message.complete:
            known = listed((entry for entry in self._entries(image, query) if entry.topic is not None), guard)
            parts, following = take(known, begin, PARTITIONS_PER_MESSAGE)
            for part in parts:
                if part.entry.topic is not None:
                    message.topics.append(convert.topic_metadata(part.entry.topic, image, part.partitions))
            message.metadata_version = image.index
            message.complete = following is None
            await responses.send(message)
            if following is not None:
                begin, message = following, pb.WatchMetadataResponse()

    def _entries(self, image: MetadataImage, query: MetadataQuery) -> Iterable[TopicEntry]:
        return all_entries(image, self._names) if query.all_topics else entries_of(image, query)


class _Watch:
    """What was sent to one client, and what has changed since."""

    def __init__(self, view: MetadataView, query: MetadataQuery, info: CallInfo) -> None:
        self._view = view
        self._guard = info.guard
        self._listener = info.listener
        self._names = None if query.all_topics else frozenset(query.topics)
        self.image = view.image  # as the client knows it, except for what is marked
        self._sent_nodes: list[bytes] = []
        self._sent_controller: int | None = None  # None: never sent
        # Topic -> partitions that differ; None: all, and the topic itself. In the order of the first change.
        self._topics: dict[TopicId, dict[PartitionId, None] | None] = {}
        self._removed: dict[TopicId, None] = {}
        self._changed = False
        self._wake = asyncio.Event()
        self._stop: Callable[[], None] | None = view.listen(self._on_image)

    def stop(self) -> None:
        """No reference cycle is left, so the memory is freed with the call."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    async def follow_controller(self) -> None:
        while True:
            await self._view.wait_for_controller_change()
            self._notify()

    # -- what is marked

    def _on_image(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        before, self.image = self.image, image
        if delta is None:
            self._mark_everything(before, image)
        else:
            for topic_id, differences in delta.changed_topics():
                self._mark_topic(topic_id, [index for index, _, _ in differences], before, image)
            for broker_id, broker in delta.changed_brokers():
                if _is_live(before.brokers.get(broker_id)) != _is_live(broker):
                    self._mark_replicas(broker_id, before, image)
        self._notify()

    def _mark_everything(self, before: MetadataImage, image: MetadataImage) -> None:
        for topic_id in [*before.topics, *image.topics]:
            topic = image.topics.get(topic_id) or before.topics[topic_id]
            self._mark_topic(topic_id, range(len(topic.partitions)), before, image)

    def _mark_replicas(self, broker_id: BrokerId, before: MetadataImage, image: MetadataImage) -> None:
        """The message of a partition has its offline replicas, which change without a record of the partition."""
        for topic_id, index in image.roles.partitions(Role.REPLICA, broker_id):
            self._mark_topic(topic_id, [index], before, image)

    def _mark_topic(
        self, topic_id: TopicId, indexes: Iterable[int], before: MetadataImage, image: MetadataImage
    ) -> None:
        old, new = before.topics.get(topic_id), image.topics.get(topic_id)
        topic = new or old
        if topic is None or (self._names is not None and topic.name not in self._names):
            return
        if self._guard is not None and self._guard.topic_refusal("DESCRIBE", topic.name) is not None:
            return
        if new is None:
            known = self._topics.pop(topic_id, {})
            if old is not None and known is not None:  # otherwise it was never sent
                self._removed[topic_id] = None
            return
        if old is None:
            self._topics[topic_id] = None
            return
        marked = self._topics.setdefault(topic_id, {})
        if marked is not None:
            marked.update(dict.fromkeys(map(PartitionId, indexes)))

    def _notify(self) -> None:
        self._changed = True
        self._wake.set()

    # -- what is sent

    async def send_changes(self, responses: Responses[pb.WatchMetadataResponse]) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._changed:
                self._changed = False
                for message in self._messages():
                    await responses.send(message)

    def _messages(self) -> Iterator[pb.WatchMetadataResponse]:
        """Everything that is marked, from one image; the marks are cleared."""
        image, topics, removed = self.image, self._topics, self._removed
        self._topics, self._removed = {}, {}
        message = pb.WatchMetadataResponse(metadata_version=image.index, removed_topic_ids=list(removed))
        self.set_nodes(message, image)
        used = 0
        for topic, indexes in _runs(image, topics):
            size = len(topic.name) + _TOPIC_BYTES + sum(partition_bytes(topic.partitions[i]) for i in indexes)
            if used and used + size > PAGE_BYTES:
                yield message
                message, used = pb.WatchMetadataResponse(metadata_version=image.index), 0
            used += size
            message.topics.append(convert.topic_metadata(topic, image, indexes))
        message.complete = True
        yield message

    def set_nodes(self, message: pb.WatchMetadataResponse, image: MetadataImage) -> None:
        nodes = convert.live_nodes(image, self._listener)
        texts = [node.SerializeToString(deterministic=True) for node in nodes]
        if texts != self._sent_nodes or message.cluster_id:
            self._sent_nodes = texts
            message.nodes.nodes.extend(nodes)
            message.nodes.SetInParent()
        controller = self._view.controller
        number = NO_BROKER if controller is None else controller
        if number != self._sent_controller:
            self._sent_controller = message.controller = number


def _is_live(broker: Broker | None) -> bool:
    return broker is not None and not broker.fenced


def _runs(image: MetadataImage, topics: dict[TopicId, dict[PartitionId, None] | None]) -> Iterator[tuple[Topic, range]]:
    """Topics with their changed partitions as ranges; a topic has several entries if there are gaps."""
    for topic_id, marked in topics.items():
        topic = image.topics.get(topic_id)
        if topic is None:
            continue
        count = len(topic.partitions)
        indexes = range(count) if marked is None else sorted(index for index in marked if index < count)
        start = 0
        for position, index in enumerate(indexes):
            last = position + 1 == len(indexes)
            if last or indexes[position + 1] != index + 1 or position + 1 - start == PARTITIONS_PER_MESSAGE:
                yield topic, range(indexes[start], index + 1)
                start = position + 1
