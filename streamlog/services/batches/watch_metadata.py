"""WatchMetadata: the initial state, then changes.

    initial state, in pages --complete--> changes made meanwhile --> changes as they are applied

While a client does not read, changes are not queued but marked: which topics and partitions differ from what was sent
(`WatchedMetadata`). Their state is taken when they are sent, so the memory of a slow client is bounded by the size of
the cluster, not by time. Changes that are applied together, such as the failover of a node, are one message, or several
if they are many. What changes nothing for a client is not sent to it.

Each watch makes its own messages, about 0.2 ms each and 30 us a partition. They take turns: thousands of watches that
wake together do not hold up the node's session with the controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from streamlog.aio.call_time import counted
from streamlog.api.convert import view as convert
from streamlog.api.convert.metadata import watched_topics
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import MetadataQuery
from streamlog.api.service import Call, Responses
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER
from streamlog.ports import CallGuard, CallInfo
from streamlog.services.access.visible import listed
from streamlog.services.batches.watched_metadata import Marks, WatchedMetadata
from streamlog.services.common.loop_turns import LoopTurns
from streamlog.services.common.paging import BEGINNING, PAGE_BYTES, TopicEntry, TopicNames, partition_bytes, take
from streamlog.services.common.topics import all_entries, entries_of

PARTITIONS_PER_MESSAGE: Final = 2_000
"""Of the initial state."""
CHANGES_PER_MESSAGE: Final = 250
"""Changed partitions; also of one turn of the event loop."""
SMALL_MESSAGE: Final = 16
"""What a message counts for in it beside its partitions."""
_TOPIC_BYTES: Final = 64


class WatchMetadata:
    def __init__(self, view: MetadataView, names: TopicNames) -> None:
        self._view = view
        self._names = names
        self._changes = WatchedMetadata(view)
        self._turns = LoopTurns(room=CHANGES_PER_MESSAGE, least=SMALL_MESSAGE)

    async def watch_metadata(
        self, request: pb.WatchMetadataRequest, responses: Responses[pb.WatchMetadataResponse], call: Call
    ) -> None:
        query = watched_topics(request)
        watch = _Watch(self._view, self._changes, self._turns, query, call.info)
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
        image, begin = watch.begin(), BEGINNING
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

    def __init__(
        self, view: MetadataView, changes: WatchedMetadata, turns: LoopTurns, query: MetadataQuery, info: CallInfo
    ) -> None:
        self._view = view
        self._changes = changes
        self._turns = turns
        self._guard = info.guard
        self._listener = info.listener
        self._marks = Marks(None if query.all_topics else frozenset(query.topics))
        self._sent_nodes: bytes | None = None  # None: never sent
        self._sent_controller: int | None = None

    def begin(self) -> MetadataImage:
        """The image of the initial state."""
        self._changes.begin(self._marks)
        return self._changes.image

    def stop(self) -> None:
        """No reference cycle is left, so the memory is freed with the call."""
        self._changes.end(self._marks)

    async def follow_controller(self) -> None:
        while True:
            self._marks.wake.set()  # it may have changed before this task began
            await self._view.wait_for_controller_change()

    async def send_changes(self, responses: Responses[pb.WatchMetadataResponse]) -> None:
        while True:
            await self._marks.wake.wait()
            await self._turns.begin()
            self._marks.wake.clear()
            await self._send_marked(responses)

    async def _send_marked(self, responses: Responses[pb.WatchMetadataResponse]) -> None:
        """Everything that is marked, from one image; nothing if nothing is."""
        image = self._changes.image
        changed = [(topic, indexes) for topic, indexes in self._changes.take(self._marks) if self._shows(topic.name)]
        removed, self._marks.removed = self._marks.removed, {}
        shown = [topic_id for topic_id, name in removed.items() if self._shows(name)]
        message = pb.WatchMetadataResponse(removed_topic_ids=shown)
        self.set_nodes(message, image)
        messages = list(_cut(changed))
        if not messages and not message.ListFields():
            return
        for number, parts in enumerate(messages or [[]], 1):
            if number > 1:
                await self._turns.begin()
            self._turns.took(sum(len(indexes) for _, indexes in parts))
            message.metadata_version = image.index
            message.topics.extend(convert.topic_metadata(topic, image, indexes) for topic, indexes in parts)
            message.complete = number >= len(messages)
            await responses.send(message)
            message = pb.WatchMetadataResponse()

    def _shows(self, name: str) -> bool:
        return self._guard is None or self._guard.topic_refusal("DESCRIBE", name) is None

    def set_nodes(self, message: pb.WatchMetadataResponse, image: MetadataImage) -> None:
        nodes = self._changes.nodes(image, self._listener)
        if nodes != self._sent_nodes:
            self._sent_nodes = nodes
            message.nodes.MergeFromString(nodes)
            message.nodes.SetInParent()
        controller = self._view.controller
        number = NO_BROKER if controller is None else controller
        if number != self._sent_controller:
            self._sent_controller = message.controller = number


def _cut(changed: Iterable[tuple[Topic, list[int]]]) -> Iterator[list[tuple[Topic, range]]]:
    """What each message has of it."""
    parts: list[tuple[Topic, range]] = []
    used = count = 0
    for topic, indexes in changed:
        for run in _runs(indexes):
            size = len(topic.name) + _TOPIC_BYTES + sum(partition_bytes(topic.partitions[index]) for index in run)
            if parts and (used + size > PAGE_BYTES or count + len(run) > CHANGES_PER_MESSAGE):
                yield parts
                parts, used, count = [], 0, 0
            parts.append((topic, run))
            used += size
            count += len(run)
    if parts:
        yield parts


def _runs(indexes: list[int]) -> Iterator[range]:
    """As ranges: several if there are gaps, or more than a message may have."""
    start = 0
    for position, index in enumerate(indexes, 1):
        last = position == len(indexes)
        if last or indexes[position] != index + 1 or position - start == CHANGES_PER_MESSAGE:
            yield range(indexes[start], index + 1)
            start = position
