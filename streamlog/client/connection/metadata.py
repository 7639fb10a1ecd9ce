"""A client's metadata: the active nodes, the partitions of topics and their leaders.

    look_up(topic) --Metadata--> the topic's metadata, or an error
    run() --WatchMetadata--> every change of the topics that were looked up, from one node at a time
    learn_leader(NOT_LEADER) --> the leader named in an error, without a request

Of two reports on a partition the one with the higher leader epoch wins, then the higher partition epoch, so the order
in which nodes report does not matter. A topic that was deleted and created again has another id; it replaces the former
one unless its report has an older metadata version. `listen` registers for changes.

The watch moves to another node when it breaks, when `refresh` doubts it, and every metadata.max.age.ms: a node that is
cut off from the quorum reports stale metadata without knowing it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct, field

from streamlog.api import calls
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.client.connection.addresses import address_of
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.errors import (
    NotLeaderError,
    RequestTimedOutError,
    StreamlogError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from streamlog.model import BrokerId, LeaderEpoch, TopicId, TopicPartition
from streamlog.ports import Clock

METADATA: Final = calls.unary("streamlog.v1.Batches/Metadata", pb.MetadataResponse)
PARTITIONS_MAX: Final = 1_000_000
"""Of one topic; far more than nodes allow. Clients keep something for each."""
_WATCH: Final = "streamlog.v1.Batches/WatchMetadata"

# How long a topic may be unknown before that is an error: a new topic is not known to all nodes at once.
UNKNOWN_TOPIC_S: Final = 1.0
# `refresh` does not move a watch that is younger than this.
WATCH_AGE_MIN_S: Final = 1.0
# A watch is left for one with more topics after so long, at least: a client may look up thousands, one by one.
WATCH_GROWS_S: Final = 0.1

Listener = Callable[[str, Collection[int] | None], None]
"""Called with a topic and those of its partitions that may have changed; None: all of them, and the topic itself. In a
fail-over thousands of partitions change in hundreds of reports, so nothing may be done for the others.
"""


class Leader(Struct, frozen=True, kw_only=True):
    """The leader of a partition, as far as this client knows."""

    broker: BrokerId
    address: str
    epoch: LeaderEpoch


class _Partition(Struct, kw_only=True):
    leader: BrokerId | None
    leader_epoch: int
    partition_epoch: int


class _Topic(Struct, kw_only=True):
    topic_id: TopicId
    version: int  # metadata version of the last report
    partition_count: int = 0
    partitions: dict[int, _Partition] = field(default_factory=dict)


class MetadataCache:
    """Owned by one client. Changes are learned while `run` runs."""

    def __init__(self, connections: Connections, clock: Clock, backoff: Backoff, *, max_age_s: float = 300.0) -> None:
        self._connections = connections
        self._clock = clock
        self._backoff = backoff
        self._max_age_s = max_age_s
        self._topics: dict[str, _Topic] = {}  # those that were looked up and exist
        self._addresses: dict[BrokerId, str] = {}  # of active nodes, and of leaders named in errors
        self._listeners: list[Listener] = []
        self._restart = asyncio.Event()  # of the watch
        self._watch_began = 0.0
        self.cluster_id = ""

    # Known metadata.
    def partition_count(self, topic: str) -> int | None:
        """None: not looked up, or it does not exist."""
        known = self._topics.get(topic)
        return None if known is None else known.partition_count

    def check(self, partition: TopicPartition) -> None:
        """UnknownTopicOrPartitionError where its topic, which was looked up, does not have the partition."""
        check_partition(partition.topic, partition.partition, self.partition_count(partition.topic) or 0)

    def topic_id(self, topic: str) -> TopicId | None:
        known = self._topics.get(topic)
        return None if known is None else known.topic_id

    def leader(self, partition: TopicPartition) -> Leader | None:
        """None: unknown, or there is none now."""
        topic = self._topics.get(partition.topic)
        known = None if topic is None else topic.partitions.get(partition.partition)
        if known is None or known.leader is None:
            return None
        address = self._addresses.get(known.leader)
        if address is None:
            return None
        return Leader(broker=known.leader, address=address, epoch=LeaderEpoch(known.leader_epoch))

    def listen(self, listener: Listener) -> Callable[[], None]:
        """`listener` is called for each topic that has changed, or was deleted. Returns what unregisters it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Lookup.

    async def look_up(self, topics: Iterable[str], *, timeout_s: float) -> None:
        """Look up topics that are not known yet, and watch them from now on. UnknownTopicOrPartitionError, and other
        errors that a node returns for one; RequestTimedOutError.
        """
        missing = [topic for topic in dict.fromkeys(topics) if topic not in self._topics]
        begin = self._clock.monotonic()
        attempt = 0
        while missing:
            waited_s = self._clock.monotonic() - begin
            if waited_s >= timeout_s:
                raise RequestTimedOutError(
                    f"no node returned the metadata of {', '.join(missing)} within {timeout_s:g} s"
                )
            for error in (await self._request(missing, timeout_s - waited_s)).values():
                unknown = isinstance(error, UnknownTopicOrPartitionError)
                if not error.retriable or (unknown and waited_s >= min(UNKNOWN_TOPIC_S, timeout_s)):
                    raise error
            missing = [topic for topic in missing if topic not in self._topics]
            if missing:
                attempt += 1
                await self._backoff.wait(attempt, left_s=timeout_s - waited_s)

    async def _request(self, topics: Sequence[str], timeout_s: float) -> dict[str, StreamlogError]:
        """Returns the errors, by topic."""
        errors: dict[str, StreamlogError] = {}
        token = ""
        while True:
            request = pb.MetadataRequest(topics=topics, page_token=token)
            response = await self._connections.ask_any(METADATA, request, timeout_s=timeout_s)
            self.cluster_id = response.cluster_id
            self._learn_nodes(response.nodes)
            for topic in response.topics:
                if topic.HasField("error"):
                    errors[topic.topic] = from_message(topic.error)
                else:
                    self._learn_topic(topic, response.metadata_version)
            token = response.next_page_token
            if not token:
                self._restart.set()
                return errors

    def forget(self, topic: str) -> None:
        """Watch the topic no longer."""
        self._topics.pop(topic, None)

    def refresh(self) -> None:
        """The metadata seems to be stale: watch another node."""
        if self._clock.monotonic() - self._watch_began >= WATCH_AGE_MIN_S:
            self._restart.set()

    # Reports.

    def learn_leader(self, partition: TopicPartition, error: NotLeaderError) -> None:
        """From the details of NOT_LEADER, which saves a request."""
        leader, address, epoch = (error.details.get(name) for name in ("leader", "address", "leader_epoch"))
        topic = self._topics.get(partition.topic)
        if topic is None or not isinstance(leader, int) or not isinstance(epoch, int):
            return
        known = topic.partitions.get(partition.partition)
        if known is not None and epoch < known.leader_epoch + (known.leader is not None):
            return
        changed: Collection[int] | None = (partition.partition,)
        if isinstance(address, str) and address and self._addresses.get(BrokerId(leader)) != address:
            self._addresses[BrokerId(leader)] = address
            changed = None  # partitions that it leads can be reached now
        topic.partitions[partition.partition] = _Partition(
            leader=BrokerId(leader) if leader >= 0 else None,
            leader_epoch=epoch,
            partition_epoch=known.partition_epoch if known is not None else -1,
        )
        self._notify(partition.topic, changed)

    def _learn_nodes(self, nodes: Iterable[common_pb2.Node]) -> None:
        addresses = {BrokerId(node.node_id): address_of(node) for node in nodes}
        if addresses and addresses != self._addresses:
            self._addresses = addresses
            self._connections.learn(addresses.values())
            for topic in list(self._topics):
                self._notify(topic)

    def _learn_topic(self, message: pb.TopicMetadata, version: int) -> None:
        """UnsupportedVersionError for what no node says."""
        numbers = [partition.partition for partition in message.partitions]
        wrong = [number for number in (message.partition_count, *numbers) if not 0 <= number <= PARTITIONS_MAX]
        if wrong:
            raise UnsupportedVersionError(
                f"the node has returned topic {message.topic!r} with {wrong[0]} as number of partitions or of one; it"
                " may not be a streamlog node"
            )
        known = self._topics.get(message.topic)
        changed: Collection[int] | None = {partition.partition for partition in message.partitions}
        if known is None or known.topic_id != message.topic_id:
            if known is not None and known.version > version:
                return
            known = self._topics[message.topic] = _Topic(topic_id=TopicId(message.topic_id), version=version)
            changed = None
        known.version = max(known.version, version)
        if message.partition_count > known.partition_count:
            changed = None
        known.partition_count = max(known.partition_count, message.partition_count)
        for partition in message.partitions:
            before = known.partitions.get(partition.partition)
            epochs = partition.leader_epoch, partition.partition_epoch
            if before is None or epochs >= (before.leader_epoch, before.partition_epoch):
                known.partitions[partition.partition] = _Partition(
                    leader=BrokerId(partition.leader) if partition.HasField("leader") else None,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                )
        self._notify(message.topic, changed)

    def _drop(self, topic: str, version: int) -> None:
        known = self._topics.get(topic)
        if known is not None and known.version <= version:
            del self._topics[topic]
            self._notify(topic)

    def _notify(self, topic: str, partitions: Collection[int] | None = None) -> None:
        for listener in list(self._listeners):
            listener(topic, partitions)

    # The watch.

    async def run(self) -> None:
        """Until it is cancelled."""
        failures = 0
        while True:
            if not self._topics:
                await self._restart.wait()
            self._restart.clear()
            if not self._topics:
                continue
            self._watch_began = self._clock.monotonic()
            try:
                await self._watch_until_restart()
                failures = 0
            except StreamlogError:
                # A node that has stopped, or is stopping: continue with the next one.
                failures = 0 if self._clock.monotonic() - self._watch_began > WATCH_AGE_MIN_S else failures + 1
                await self._backoff.wait(failures + 1)

    async def _watch_until_restart(self) -> None:
        watch = self._watch(self._connections.next_address(), list(self._topics))
        watching = asyncio.ensure_future(watch)  # sim: awaited below
        restart = asyncio.ensure_future(self._wait_for_restart())  # sim: awaited below
        try:
            await asyncio.wait({watching, restart}, timeout=self._max_age_s, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            restart.cancel()
            watching.cancel()
            await asyncio.gather(watching, restart, return_exceptions=True)

    async def _wait_for_restart(self) -> None:
        await self._restart.wait()
        await asyncio.sleep(max(0.0, self._watch_began + WATCH_GROWS_S - self._clock.monotonic()))

    async def _watch(self, address: str, topics: Sequence[str]) -> None:
        absent: set[str] | None = set(topics)  # not in the first report so far; None: that is complete
        channel = self._connections.channel(address)
        async with calls.stream(channel, _WATCH, pb.WatchMetadataResponse) as watch:
            await watch.send(pb.WatchMetadataRequest(topics=topics))
            await watch.done_sending()
            while (report := await watch.recv()) is not None:
                self._learn(report)
                if absent is not None:
                    absent -= {topic.topic for topic in report.topics}
                    if report.complete:
                        for topic in sorted(absent):
                            self._drop(topic, report.metadata_version)
                        absent = None

    def _learn(self, report: pb.WatchMetadataResponse) -> None:
        if report.cluster_id:
            self.cluster_id = report.cluster_id
        if report.HasField("nodes"):
            self._learn_nodes(report.nodes.nodes)
        removed = set(report.removed_topic_ids)
        for topic in [name for name, known in self._topics.items() if known.topic_id in removed]:
            self._drop(topic, report.metadata_version)
        for message in report.topics:
            if not message.HasField("error") and message.topic in self._topics:
                self._learn_topic(message, report.metadata_version)


def check_partition(topic: str, partition: int, count: int) -> None:
    """UnknownTopicOrPartitionError."""
    if not 0 <= partition < count:
        raise UnknownTopicOrPartitionError(
            f"topic {topic} has no partition {partition}: it has {count}, numbered from 0",
            topic=topic,
            field="partition",
            limit=count - 1,
        )
