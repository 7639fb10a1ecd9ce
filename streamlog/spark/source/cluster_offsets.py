"""The driver's queries to the cluster: partitions, their first and end offsets, and a wait for new records.

Two consumers: one for queries and one that waits. Spark asks an idle stream for its latest offset some 77 times a
second. So instead of a call to the nodes each time, the waiting consumer fetches at the known end offsets, which is one
stream to each node and no calls, and `wait_for_records` returns when the first batch arrives. The records are dropped;
the consumer's buffer is as small as possible.

One thread at a time. Nothing is durable.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from streamlog.client import Admin, Consumer
from streamlog.config.settings.client_settings import ADMIN, CONSUMER
from streamlog.errors import (
    ClusterAuthorizationError,
    OffsetOutOfRangeError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.spark.failures import OptionError
from streamlog.spark.options import Options, settings_for
from streamlog.spark.runtime.loop import loop_thread
from streamlog.spark.source.offsets import Offsets
from streamlog.spark.source.planning import Bounds

_log = logging.getLogger(__name__)

# The smallest value that a consumer accepts; a batch is always returned as a whole.
_WATCH_BYTES: Final = "1024"
# Retries while a partition's end offset is before its read position: a new leader may not know its high watermark yet.
_END_PATIENCE: Final = 10
_END_PAUSE_S: Final = 0.2
_MEAN_S: Final = 30.0


class _Mean(Struct, frozen=True):
    topics: frozenset[str]
    asked_at: float
    value: float | None


def consumer_settings(options: Options) -> dict[str, str]:
    """read_committed, unless the options set another level."""
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
        self._may_describe = True

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

    # Partitions.

    def partitions(self) -> tuple[TopicPartition, ...]:
        """The subscribed partitions, sorted; topics that do not exist are skipped. StreamlogError."""
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
        """As `partitions`, for a query that starts: topics and partitions that it names must exist. OptionError."""
        found = self.partitions()
        topics = {one.topic for one in found}
        for name in ("subscribe", "assign"):
            for topic in self._options.get(name) or ():
                if topic not in topics:
                    raise OptionError(
                        name, f"there is no topic {topic}; list the topics with 'streamlogctl topic list'"
                    )
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
        """The mean size of an offset on disk, cached for half a minute; None: unknown, the topics are empty.
        ClusterAuthorizationError.
        """
        wanted, now = frozenset(topics), time.monotonic()
        if self._mean is None or self._mean.topics != wanted or now - self._mean.asked_at > _MEAN_S:
            self._mean = _Mean(wanted, now, self._ask_mean_bytes(wanted) if wanted else None)
        return self._mean.value

    def mean_bytes_if_allowed(self, topics: Iterable[str]) -> float | None:
        """None also where the user may not know it."""
        try:
            return self.mean_bytes(topics) if self._may_describe else None
        except ClusterAuthorizationError as error:
            self._may_describe = False
            _log.warning("tasks are planned by numbers of offsets, without the topics' sizes: %s", error)
            return None

    def _ask_mean_bytes(self, topics: frozenset[str]) -> float | None:
        size = count = 0
        for node in self._topics_admin().describe_log_dirs(topics=sorted(topics)):
            for log_dir in node.log_dirs:
                for replica in log_dir.replicas:
                    size += replica.size_bytes
                    count += replica.log_end - replica.log_start
        return size / count if size and count else None

    # Offsets.

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return self._asking().beginning_offsets(list(partitions))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """By isolation.level: last stable offsets, or high watermarks."""
        return self._asking().end_offsets(list(partitions))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        found = self._asking().offsets_for_times(dict(times.items()))
        return {one: None if at is None else at.offset for one, at in found.items()}

    def bounds(
        self, partitions: tuple[TopicPartition, ...], known: Offsets | None = None
    ) -> dict[TopicPartition, Bounds]:
        """`known`: the read positions; end offsets before them are requested again, since a new leader may not know its
        high watermark yet.
        """
        first, last = self.earliest(partitions), self.latest(partitions)
        for _ in range(_END_PATIENCE):
            behind = [one for one in partitions if known and known.get(one, 0) > last[one]]
            if not behind:
                break
            self.wait_for_records({one: last[one] for one in behind}, timeout_s=_END_PAUSE_S)
            last |= self.latest(behind)
        return {one: Bounds(first[one], Offset(max(first[one], last[one]))) for one in partitions}

    # New records.

    def wait_for_records(self, ends: Offsets, *, timeout_s: float) -> bool:
        """Waits for a batch after the end offsets. True: there may be one; False: timeout."""
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
            changed = self._watcher.poll_batch(timeout_s=timeout_s) is not None
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError):
            changed = True
        if changed:
            self._pause()
        return changed

    def _pause(self) -> None:
        """Fetches nothing while the tasks read."""
        self._watched = {}
        if self._watcher is not None:
            try:
                self._watcher.assign({})
            except StreamlogError:
                self._watcher.close()
                self._watcher = None
