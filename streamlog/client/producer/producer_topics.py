"""The topics that a producer writes to: their tables, made at the first lookup and updated with the metadata.

When a topic is deleted its table is removed, and its unsettled batches fail; a new topic of the name gets a new table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

from streamlog.client.connection.metadata import MetadataCache
from streamlog.client.producer.batches.partition_queue import PartitionQueue, QueueRules
from streamlog.client.producer.batches.topic_table import TopicTable
from streamlog.client.producer.delivery import Delivery
from streamlog.client.producer.partitioner import Partitioner
from streamlog.errors import UnknownTopicIdError
from streamlog.model import PartitionId, TopicPartition
from streamlog.ports import Random


class ProducerTopics:
    """Changed on the producer's loop, under its guard."""

    def __init__(
        self,
        metadata: MetadataCache,
        delivery: Delivery,
        partitioner: Partitioner,
        random: Random,
        rules: QueueRules,
        on_known: Callable[[str], None],
        guard: AbstractContextManager[object],
    ) -> None:
        """`on_known`: called, under the guard, with the name of a topic whose table was made."""
        self.tables: dict[str, TopicTable] = {}
        self.partitioner = partitioner
        self._metadata = metadata
        self._delivery = delivery
        self._random = random
        self._rules = rules
        self._on_known = on_known
        self._guard = guard
        metadata.listen(self._on_metadata)

    async def table(self, topic: str, timeout_s: float) -> TopicTable:
        """UnknownTopicOrPartitionError, RequestTimedOutError."""
        if topic not in self.tables:
            await self._metadata.look_up([topic], timeout_s=timeout_s)
            self._on_metadata(topic)
        table = self.tables.get(topic)
        if table is None:
            raise UnknownTopicIdError(f"topic {topic} has just been deleted")
        return table

    def _on_metadata(self, topic: str, partitions: Collection[int] | None = None) -> None:
        """The topic has changed: these partitions; None: all of it."""
        count, topic_id = self._metadata.partition_count(topic), self._metadata.topic_id(topic)
        table = self.tables.get(topic)
        if table is not None and table.topic_id != topic_id:
            self._forget(table)
            table = None
        if count is None or topic_id is None:
            return
        if table is None or len(table.queues) < count:
            partitions = None
            with self._guard:
                table = table or TopicTable(topic, topic_id, self.partitioner, self._random)
                self._grow(table, count)
        count = len(table.queues)
        for number in range(count) if partitions is None else [one for one in partitions if 0 <= one < count]:
            self._delivery.route(table.queues[number])
        if topic not in self.tables:
            with self._guard:
                self.tables[topic] = table
                self._on_known(topic)

    def _grow(self, table: TopicTable, count: int) -> None:
        numbers = range(len(table.queues), count)
        partitions = [TopicPartition(table.topic, PartitionId(number)) for number in numbers]
        table.grow([PartitionQueue(partition, table.topic_id, self._rules) for partition in partitions])

    def _forget(self, table: TopicTable) -> None:
        with self._guard:
            del self.tables[table.topic]
        for queue in table.queues:
            self._delivery.fail_all(queue, UnknownTopicIdError(f"topic {table.topic} was deleted"))

    def close(self) -> None:
        self.tables.clear()
