"""What the driver asks of the cluster: which partitions there are, where they begin and end, and whether there is more.

Two consumers, one for questions and one that waits. Spark asks an idle stream for its latest offset some 77 times a
second; so instead of asking the nodes each time, the waiting one reads at the ends that are known, which is a stream
to each node and no calls at all, and `wait_for_news` returns when the first batch arrives. What arrives is dropped;
its buffer is as small as a consumer's can be.

One thread at a time. Nothing is durable.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from streamlog.client import Admin, Consumer
from streamlog.config.client_settings import ADMIN, CONSUMER
from streamlog.errors import OffsetOutOfRangeError, StreamlogError, UnknownTopicOrPartitionError
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.spark.failures import OptionError
from streamlog.spark.options import Options, settings_for
from streamlog.spark.runtime.loop import loop_thread
from streamlog.spark.source.offsets import Offsets
from streamlog.spark.source.planning import Bounds

# The smallest that a consumer takes; a batch comes whole all the same.
_WATCH_BYTES: Final = "1024"
# While a partition ends before what had been read of it: a new leader may not know its end yet.
_END_PATIENCE: Final = 10
_END_PAUSE_S: Final = 0.2
_MEAN_S: Final = 30.0


class _Mean(Struct, frozen=True):
    topics: frozenset[str]
    asked_at: float
    value: float | None


def consumer_settings(options: Options) -> dict[str, str]:
    """read_committed, unless the options say otherwise."""
    given = {"isolation.level": "read_committed", **settings_for(CONSUMER, options.client)}
    return given | {"auto.offset.reset": "none", "enable.auto.commit": "false"}


class ClusterOffsets:
    def __init__(self, options: Options) -> None:
        """No connection is made yet."""
        self._options = options
        self._settings = consumer_settings(options)
        self._consumer: Consumer | None = None
        self._watcher: Consumer | None = None
        self._admin: Admin | None = None
        self._watched: dict[TopicPartition, Offset] = {}
        self._mean: _Mean | None = None

    def close(self) -> None:
        """Idempotent."""
        for client in (self._consumer, self._watcher, self._admin):
            if client is not None:
                client.close()
        self._consumer = self._watcher = self._admin = None

    def _asking(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(self._settings, thread=loop_thread())
        return self._consumer

    def _topics_admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(settings_for(ADMIN, self._options.client), thread=loop_thread())
        return self._admin

    # What there is.

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Of what is subscribed to, in order; without topics that there are not. StreamlogError."""
        assigned: Mapping[str, tuple[int, ...]] | None = self._options.get("assign")
        found: list[TopicPartition] = []
        for topic in sorted(assigned) if assigned is not None else self._topics():
            try:
                count = self._asking().partition_count(topic)
            except UnknownTopicOrPartitionError:
                continue
            wanted = range(count) if assigned is None else [one for one in assigned[topic] if one < count]
            found += [TopicPartition(topic, PartitionId(one)) for one in wanted]
        return tuple(sorted(found))

    def required_partitions(self) -> tuple[TopicPartition, ...]:
        """As `partitions`, of a query that begins: what it names must be there. OptionError."""
        found = self.partitions()
        topics = {one.topic for one in found}
        for name in ("subscribe", "assign"):
            for topic in self._options.get(name) or ():
                if topic not in topics:
                    raise OptionError(name, f"there is no topic {topic}; 'streamlogctl topic list' shows what there is")
        assigned: Mapping[str, tuple[int, ...]] = self._options.get("assign") or {}
        for topic, numbers in assigned.items():
            for number in numbers:
                if TopicPartition(topic, PartitionId(number)) not in found:
                    raise OptionError("assign", f"topic {topic} has no partition {number}")
        return found

    def _topics(self) -> list[str]:
        pattern: re.Pattern[str] | None = self._options.get("subscribePattern")
        if pattern is None:
            return sorted(self._options.get("subscribe"))
        listed = self._topics_admin().list_topics()
        return sorted(one.name for one in listed if pattern.fullmatch(one.name))

    def mean_bytes(self, topics: Iterable[str]) -> float | None:
        """That an offset takes on disk, as of the last half minute; None: there is nothing to tell it by."""
        wanted, now = frozenset(topics), time.monotonic()
        if self._mean is None or self._mean.topics != wanted or now - self._mean.asked_at > _MEAN_S:
            self._mean = _Mean(wanted, now, self._ask_mean_bytes(wanted) if wanted else None)
        return self._mean.value

    def _ask_mean_bytes(self, topics: frozenset[str]) -> float | None:
        size = count = 0
        for node in self._topics_admin().describe_log_dirs(topics=sorted(topics)):
            for log_dir in node.log_dirs:
                for replica in log_dir.replicas:
                    size += replica.size_bytes
                    count += replica.log_end - replica.log_start
        return size / count if size and count else None

    # Where.

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return self._asking().beginning_offsets(list(partitions))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """By isolation.level: the ends of what is committed, or the high watermarks."""
        return self._asking().end_offsets(list(partitions))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        found = self._asking().offsets_for_times(dict(times.items()))
        return {one: None if at is None else at.offset for one, at in found.items()}

    def bounds(
        self, partitions: tuple[TopicPartition, ...], known: Offsets | None = None
    ) -> dict[TopicPartition, Bounds]:
        """`known`: what has been read; ends before it are asked for again, since a leader that has just become one may
        not know how far its log is replicated.
        """
        first, last = self.earliest(partitions), self.latest(partitions)
        for _ in range(_END_PATIENCE):
            behind = [one for one in partitions if known and known.get(one, 0) > last[one]]
            if not behind:
                break
            self.wait_for_news({one: last[one] for one in behind}, timeout_s=_END_PAUSE_S)
            last |= self.latest(behind)
        return {one: Bounds(first[one], Offset(max(first[one], last[one]))) for one in partitions}

    # Whether there is more.

    def wait_for_news(self, ends: Offsets, *, timeout_s: float) -> bool:
        """Until a batch is there beyond the ends, or the time is over. True where something has happened: ask."""
        if not ends:
            return False
        if self._watcher is None:
            small = {"fetch.max.bytes": _WATCH_BYTES, "max.partition.fetch.bytes": _WATCH_BYTES, "check.crcs": "false"}
            self._watcher = Consumer(self._settings | small, thread=loop_thread())
        try:
            if self._watched != dict(ends):
                self._watched = {}
                self._watcher.assign({one: int(offset) for one, offset in ends.items()})
                self._watched = dict(ends)
            news = self._watcher.poll_batch(timeout_s=timeout_s) is not None
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError):
            news = True
        if news:
            self._rest()
        return news

    def _rest(self) -> None:
        """Read nothing while somebody else does."""
        self._watched = {}
        if self._watcher is not None:
            try:
                self._watcher.assign({})
            except StreamlogError:
                self._watcher.close()
                self._watcher = None
