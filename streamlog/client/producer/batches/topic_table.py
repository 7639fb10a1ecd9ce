"""A topic of a producer: a queue and an open batch for each partition, and the sticky choice for records without a key.

The sticky choice (KIP-794): one partition for batch.size bytes, then another, drawn at random with weights that prefer
short queues; partitions without a leader are skipped while others have one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamlog.client.connection.metadata import check_partition
from streamlog.client.producer.batches.partition_queue import PartitionQueue
from streamlog.client.producer.batches.producer_batch import CLOSED, ProducerBatch
from streamlog.client.producer.partitioner import (
    HashPartitioner,
    IntegerModuloPartitioner,
    Partitioner,
    StickyPartitioner,
)
from streamlog.errors import InvalidRequestError
from streamlog.model import PartitionId, TopicId, TopicPartition
from streamlog.ports import Random

# Keys cached with their partition, for each topic; then the cache is cleared. About 10 MB for keys of 100 bytes.
KEYS_KNOWN_MAX: Final = 1 << 16
_NO_PARTITION: Final = TopicPartition("", PartitionId(0))


def no_batch() -> ProducerBatch:
    """A placeholder where no batch is open; it takes no record."""
    return ProducerBatch(_NO_PARTITION, CLOSED, None)


class TopicTable:
    """Written under the producer's guard."""

    def __init__(self, topic: str, topic_id: TopicId, partitioner: Partitioner, random: Random) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.queues: list[PartitionQueue] = []
        self.open: list[ProducerBatch] = []  # by partition; closed ones too
        self.sticky = no_batch()  # one of `open`
        # Whether the partitioner is called for records without a key.
        self.asks_without_key = not isinstance(
            partitioner, HashPartitioner | StickyPartitioner | IntegerModuloPartitioner
        )
        # Cached partitions of keys: `send` looks here first. Empty unless the partitioner hashes keys.
        self.known: dict[bytes | None, int] = {}
        self._sticky_partition = -1
        self._sticky_left = 0  # bytes that may still go to this partition, not counting the open batch
        self._partitioner = partitioner
        self._random = random

    def grow(self, queues: Iterable[PartitionQueue]) -> None:
        self.known.clear()
        for queue in queues:
            self.queues.append(queue)
            self.open.append(no_batch())

    def choose(self, key: bytes | None, value: bytes | None) -> int | None:
        """By the partitioner; None: the sticky one. Errors are the partitioner's, and InvalidRequestError."""
        count = len(self.queues)
        partition = self._partitioner.partition(self.topic, key, value, count)
        if partition is not None and not (isinstance(partition, int) and 0 <= partition < count):
            name = type(self._partitioner).__name__
            raise InvalidRequestError(f"{name} chose partition {partition!r} of {count}", field="partition")
        if partition is not None and isinstance(self._partitioner, HashPartitioner):
            if len(self.known) >= KEYS_KNOWN_MAX:
                self.known.clear()
            self.known[key] = partition
        return partition

    def check(self, partition: int) -> int:
        """UnknownTopicOrPartitionError."""
        check_partition(self.topic, partition, len(self.queues))
        return partition

    def sticky_partition(self, sticky_bytes: int, *, adaptive: bool) -> int:
        """Where the next batch without a key goes; the partition changes after `sticky_bytes`."""
        self._sticky_left -= self.sticky.size if self._sticky_partition >= 0 else 0
        if self._sticky_partition < 0 or self._sticky_left <= 0:
            self._sticky_partition = self._draw(adaptive=adaptive)
            self._sticky_left = sticky_bytes
        return self._sticky_partition

    def _draw(self, *, adaptive: bool) -> int:
        able = [number for number, queue in enumerate(self.queues) if queue.leader is not None]
        able = able or list(range(len(self.queues)))
        if len(able) > 1 and self._sticky_partition in able:
            able.remove(self._sticky_partition)
        if not adaptive or len(able) == 1:
            return able[self._random.randrange(len(able))]
        lengths = [len(self.queues[number].batches) for number in able]
        longest = max(lengths)
        at = self._random.randrange(sum(longest + 1 - length for length in lengths))
        for number, length in zip(able, lengths, strict=True):
            at -= longest + 1 - length
            if at < 0:
                return number
        return able[-1]
