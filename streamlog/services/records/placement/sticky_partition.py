"""The partition for records without a key and a token, of all Publish calls that a node receives for a topic.

    chosen at random --STAY_BYTES written, STAY_S passed, or it has no leader--> another one, at random

Kafka's producers stay on a partition until a batch is full (KIP-480, KIP-794). A node does the same across calls:
those that arrive together go to one partition, where they are appended together. By time as well as by bytes, so that
a partition which is slow gets no more records than the others, and rare calls are spread as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from streamlog.metadata.image.image import Topic
from streamlog.model import NO_BROKER, PartitionId, TopicId
from streamlog.ports import Clock, Random

STAY_BYTES: Final = 16 << 10
"""Kafka's batch.size."""
STAY_S: Final = 0.1
_RECORD_OVERHEAD: Final = 10
_TOPICS_MAX: Final = 1_000
_DRAWS_MAX: Final = 8


class _Chosen(Struct):
    partition: int
    left_bytes: int
    until: float  # on the monotonic clock


class StickyPartitions:
    """Of one node."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._chosen: dict[TopicId, _Chosen] = {}

    def take(self, topic: Topic, sizes: Sequence[int]) -> int:
        """For records of these sizes: key, value and headers."""
        chosen, now = self._chosen.get(topic.topic_id), self._clock.monotonic()
        if chosen is None or chosen.left_bytes <= 0 or now >= chosen.until or not _is_led(topic, chosen.partition):
            if len(self._chosen) >= _TOPICS_MAX:
                self._chosen.clear()
            chosen = self._chosen[topic.topic_id] = _Chosen(self._draw(topic), STAY_BYTES, now + STAY_S)
        chosen.left_bytes -= sum(sizes) + len(sizes) * _RECORD_OVERHEAD
        return chosen.partition

    def _draw(self, topic: Topic) -> int:
        """One with a leader, if there is one among a few."""
        count = len(topic.partitions)
        partition = self._random.getrandbits(32) % count
        for _ in range(_DRAWS_MAX):
            if _is_led(topic, partition):
                break
            partition = self._random.getrandbits(32) % count
        return partition


def _is_led(topic: Topic, partition: int) -> bool:
    return topic.partitions[PartitionId(partition)].leader != NO_BROKER
