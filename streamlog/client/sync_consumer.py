"""The consumer for programs without an event loop.

    with Consumer(bootstrap_servers="127.0.0.1:9092") as consumer:
        consumer.assign([("logs", 0)], start=EARLIEST)
        for record in consumer:
            print(record.offset, record.value)

Thin: AsyncConsumer does the work, on a thread of its own. A loop over the consumer takes max.poll.records at a time;
those that it has taken and not handed out yet are kept here, count as not read, and are the next that `poll` gives.

One thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from streamlog.client.assigned_consumer import Partition, Start, as_partition
from streamlog.client.consumer import AsyncConsumer
from streamlog.client.consumer_records import ConsumerBatch, ConsumerRecord
from streamlog.client.settings import merged
from streamlog.client.sync_loop import LoopThread, blocking, on_loop
from streamlog.model import Offset, TopicPartition


class Consumer:
    """Settings as of AsyncConsumer. Open from the moment that it is made; `close` it, or use `with`."""

    def __init__(self, config: Mapping[str, object] | None = None, **settings: object) -> None:
        self._client = AsyncConsumer(merged(config, settings))
        self._thread = LoopThread("streamlog-consumer")
        self._thread.call(self._client.start())
        self._ahead: deque[ConsumerRecord] = deque()  # taken for a loop, not handed out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        if self._thread.closed:
            return
        try:
            self._thread.call(self._client.close())
        finally:
            self._thread.close()

    # What is read, and where.

    def assign(
        self, partitions: Iterable[Partition] | Mapping[Partition, Start | None], *, start: Start | None = None
    ) -> None:
        """As of AsyncConsumer."""
        self._give_back()
        self._thread.call(self._client.assign(partitions, start=start))

    def assign_topics(self, topics: Iterable[str], *, start: Start | None = None) -> None:
        """As of AsyncConsumer."""
        self._give_back()
        self._thread.call(self._client.assign_topics(topics, start=start))

    def seek(self, partition: Partition, to: Start, *, leader_epoch: int | None = None) -> None:
        """As of AsyncConsumer."""
        self._give_back()
        self._thread.run(self._client.seek, partition, to, leader_epoch=leader_epoch)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """As of AsyncConsumer."""
        self._give_back()
        self._thread.run(self._client.pause, partitions)

    def position(self, partition: Partition, *, timeout_s: float | None = None) -> Offset:
        """As of AsyncConsumer."""
        asked = as_partition(partition)
        for record in self._ahead:
            if (record.topic, record.partition) == (asked.topic, asked.partition):
                return record.offset
        return self._thread.call(self._client.position(partition, timeout_s=timeout_s))

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """In the order of their assignment."""
        return self._thread.run(lambda: self._client.assignment)

    resume = on_loop(AsyncConsumer.resume)
    lag = on_loop(AsyncConsumer.lag)
    partition_count = blocking(AsyncConsumer.partition_count)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)

    def _give_back(self) -> None:
        """What was taken for a loop is read again."""
        firsts: dict[TopicPartition, Offset] = {}
        for record in self._ahead:
            firsts.setdefault(as_partition((record.topic, record.partition)), record.offset)
        self._ahead.clear()
        for partition, offset in firsts.items():
            self._thread.run(self._client.seek, partition, offset)

    # Reading.

    def poll(self, max_records: int | None = None, *, timeout_s: float | None = 0.0) -> list[ConsumerRecord]:
        """As of AsyncConsumer."""
        if self._ahead:
            count = len(self._ahead) if max_records is None else min(max_records, len(self._ahead))
            return [self._ahead.popleft() for _ in range(count)]
        return self._thread.call(self._client.poll(max_records, timeout_s=timeout_s))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """For ever."""
        while True:
            if not self._ahead:
                self._ahead.extend(self._thread.call(self._client.poll(timeout_s=None)))
            while self._ahead:
                yield self._ahead.popleft()

    def poll_batch(self, *, timeout_s: float | None = 0.0) -> ConsumerBatch | None:
        """As of AsyncConsumer."""
        self._give_back()
        return self._thread.call(self._client.poll_batch(timeout_s=timeout_s))

    def batches(self) -> Iterator[ConsumerBatch]:
        """For ever."""
        while True:
            batch = self.poll_batch(timeout_s=None)
            if batch is not None:
                yield batch
