"""What has changed in the metadata since when, kept once for all watches of a node.

    image, delta --once a command--> version of each changed topic and partition
                                     --> the watches of a changed topic: it is marked, and they wake
    a watch, when it sends: what has a version above the one that it has sent

So a command costs what it changes, and a watch what it has to send, however many watches and topics there are: a node
with 2,000 partitions that is fenced is reported by nodes with thousands of clients. The memory is bounded by the size
of the cluster, and so are the marks of a watch whose client does not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from streamlog.api.convert import view as convert
from streamlog.api.pb import batches_pb2 as pb
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.image.roles import Role
from streamlog.metadata.image.sorted_map import SortedMap
from streamlog.metadata.records import Broker
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, TopicId


class Marks:
    """Of one watch. Its owner sets `sent` and takes the rest when it sends."""

    def __init__(self, names: Iterable[str] | None) -> None:
        self.names = names  # of the topics that are watched; None: all
        self.sent = 0  # the version that the client has, except for what is marked
        self.topics: dict[TopicId, None] = {}  # changed ones; stays empty where all are watched
        self.removed: dict[TopicId, str] = {}  # with their names; only such as were sent
        self.wake = asyncio.Event()


class _Changed(Struct):
    """A topic that has changed while there were watches."""

    created: int  # the version with which it came; 0: before
    version: int = 0
    partitions: dict[int, int] = field(default_factory=dict)  # their versions, rising


class WatchedMetadata:
    def __init__(self, view: MetadataView) -> None:
        self._view = view
        self._image = view.image  # the newest, while there are watches
        self._version = 0  # rises with each command
        self._topics: dict[TopicId, _Changed] = {}  # by rising version
        # Dicts, for their order.
        self._watches: dict[Marks, None] = {}
        self._of_all: dict[Marks, None] = {}
        self._of_topic: dict[str, dict[Marks, None]] = {}
        self._stop_listening: Callable[[], None] | None = None
        self._nodes: dict[str, tuple[SortedMap[BrokerId, Broker], bytes]] = {}  # by listener

    @property
    def image(self) -> MetadataImage:
        return self._view.image

    def begin(self, marks: Marks) -> None:
        """Mark what changes from now on."""
        if self._stop_listening is None:
            self._image = self._view.image
            self._stop_listening = self._view.listen(self._on_image)
        marks.sent = self._version
        self._watches[marks] = None
        if marks.names is None:
            self._of_all[marks] = None
        else:
            for name in marks.names:
                self._of_topic.setdefault(name, {})[marks] = None

    def end(self, marks: Marks) -> None:
        """May be called twice."""
        if marks not in self._watches:
            return
        del self._watches[marks]
        self._of_all.pop(marks, None)
        for name in marks.names or ():
            watches = self._of_topic[name]
            del watches[marks]
            if not watches:
                del self._of_topic[name]
        if not self._watches and self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
            self._topics.clear()
            self._nodes.clear()

    def take(self, marks: Marks) -> list[tuple[Topic, list[int]]]:
        """The changed topics, each with its changed partitions by rising index; their marks are cleared."""
        since, marks.sent = marks.sent, self._version
        topics, marks.topics = marks.topics, {}
        image = self.image
        changed = self._changed_since(since) if marks.names is None else topics
        return [(image.topics[topic_id], self._partitions_since(topic_id, since)) for topic_id in changed]

    def nodes(self, image: MetadataImage, listener: str) -> bytes:
        """A serialized NodeList: made once, for all watches by this listener."""
        brokers, text = self._nodes.get(listener, (None, b""))
        if brokers is not image.brokers:
            text = pb.NodeList(nodes=convert.live_nodes(image, listener)).SerializeToString(deterministic=True)
            self._nodes[listener] = image.brokers, text
        return text

    def _changed_since(self, version: int) -> list[TopicId]:
        found: list[TopicId] = []
        for topic_id, changed in reversed(self._topics.items()):
            if changed.version <= version:
                break
            found.append(topic_id)
        return found[::-1]

    def _partitions_since(self, topic_id: TopicId, version: int) -> list[int]:
        found: list[int] = []
        for index, changed in reversed(self._topics[topic_id].partitions.items()):
            if changed <= version:
                break
            found.append(index)
        return sorted(found)

    # -- a command

    def _on_image(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        before, self._image = self._image, image
        self._version += 1
        changed = _everything(before, image) if delta is None else _changed(delta, before, image)
        for topic_id, indexes in changed.items():
            topic = image.topics.get(topic_id)
            if topic is None:
                self._remove(topic_id, before.topics[topic_id].name)
            else:
                self._change(topic, indexes, is_new=topic_id not in before.topics)
        if before.brokers is not image.brokers:
            _wake(self._watches)
        elif changed:
            _wake(self._of_all)

    def _change(self, topic: Topic, indexes: Iterable[int], *, is_new: bool) -> None:
        version, topic_id = self._version, topic.topic_id
        changed = self._topics.pop(topic_id, None) or _Changed(created=version if is_new else 0)
        self._topics[topic_id] = changed  # as the last
        changed.version = version
        for index in indexes:
            changed.partitions.pop(index, None)
            changed.partitions[index] = version
        watches = self._of_topic.get(topic.name, {})
        for marks in watches:
            marks.topics[topic_id] = None
        _wake(watches)

    def _remove(self, topic_id: TopicId, name: str) -> None:
        changed = self._topics.pop(topic_id, None)
        created = 0 if changed is None else changed.created
        for watches in (self._of_topic.get(name, {}), self._of_all):
            for marks in watches:
                marks.topics.pop(topic_id, None)
                if marks.sent >= created:  # otherwise it was never sent
                    marks.removed[topic_id] = name
            _wake(watches)


def _everything(before: MetadataImage, image: MetadataImage) -> dict[TopicId, Iterable[int]]:
    gone: dict[TopicId, Iterable[int]] = {topic_id: () for topic_id in before.topics if topic_id not in image.topics}
    return gone | {topic_id: range(len(topic.partitions)) for topic_id, topic in image.topics.items()}


def _changed(delta: MetadataDelta, before: MetadataImage, image: MetadataImage) -> dict[TopicId, dict[int, None]]:
    changed: dict[TopicId, dict[int, None]] = {}
    for topic_id, differences in delta.changed_topics():
        changed[topic_id] = dict.fromkeys(index for index, _, _ in differences)
    for broker_id, broker in delta.changed_brokers():
        # The message of a partition has its offline replicas, which change without a record of the partition.
        if _is_live(before.brokers.get(broker_id)) != _is_live(broker):
            for topic_id, index in image.roles.partitions(Role.REPLICA, broker_id):
                changed.setdefault(topic_id, {})[index] = None
    return changed


def _is_live(broker: Broker | None) -> bool:
    return broker is not None and not broker.fenced


def _wake(watches: Iterable[Marks]) -> None:
    for marks in watches:
        marks.wake.set()
