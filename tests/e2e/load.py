"""Writers that never stop, the results that they got, and what is in the log at the end.

Each writer has values of its own, numbered, and sends them in order to its partition; so loss, doubling and a wrong
order all show in what is read: the numbers of one writer must rise, and every acknowledged one must be there.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer, RecordFuture
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition
from tests.e2e.processes import WITHIN_S, Processes

IN_FLIGHT = 20


class Load:
    """One idempotent producer, acks=all, a writer for each partition."""

    def __init__(self, processes: Processes, topic: str, partitions: int) -> None:
        self._processes = processes
        self._topic = topic
        self._partitions = partitions
        self._progress = asyncio.Condition()
        self._stopping = False
        self.acknowledged: dict[tuple[int, int], int] = {}  # (partition, number) -> offset
        self.refused: list[StreamlogError] = []

    async def run(self) -> None:
        """Until `stop`; what is under way then is awaited."""
        producer = AsyncProducer(bootstrap_servers=self._processes.bootstrap_servers, linger_ms=1)
        async with producer, asyncio.TaskGroup() as tasks:
            for partition in range(self._partitions):
                tasks.create_task(self._write(producer, partition))

    def stop(self) -> None:
        self._stopping = True

    async def _write(self, producer: AsyncProducer, partition: int) -> None:
        number, window = 0, asyncio.Semaphore(IN_FLIGHT)
        async with asyncio.TaskGroup() as answers:
            while not self._stopping:
                await window.acquire()
                sent = producer.send(self._topic, b"%d" % number, partition=partition)
                answers.create_task(self._await(sent, partition, number, window))
                number += 1

    async def _await(self, sent: RecordFuture, partition: int, number: int, window: asyncio.Semaphore) -> None:
        try:
            self.acknowledged[partition, number] = (await sent).offset
        except StreamlogError as error:
            self.refused.append(error)
        window.release()
        async with self._progress:
            self._progress.notify_all()

    async def until_acknowledged(self, more: int) -> None:
        """So many more in every partition."""
        before = Counter(partition for partition, _ in self.acknowledged)

        def enough() -> bool:
            now = Counter(partition for partition, _ in self.acknowledged)
            return all(now[p] >= before[p] + more for p in range(self._partitions))

        async with asyncio.timeout(WITHIN_S), self._progress:
            await self._progress.wait_for(enough)

    async def check(self) -> None:
        """Read everything: each acknowledged record at its offset, none twice, all in order."""
        read = await self._read()
        at = {(partition, number): offset for partition, offset, number in read}
        assert len(at) == len(read), "a record stands at two offsets"
        lost = {key: offset for key, offset in self.acknowledged.items() if at.get(key) != offset}
        assert not lost, f"acknowledged, and not at their offsets: {sorted(lost.items())[:10]}"
        for wanted in range(self._partitions):
            numbers = [number for partition, _, number in read if partition == wanted]
            assert numbers == sorted(numbers), f"partition {wanted} is not in order"

    async def _read(self) -> list[tuple[int, int, int]]:
        """(partition, offset, number) of all."""
        partitions = [TopicPartition(self._topic, PartitionId(n)) for n in range(self._partitions)]
        async with AsyncConsumer(bootstrap_servers=self._processes.bootstrap_servers) as consumer:
            ends = await consumer.end_offsets(partitions)
            await consumer.assign(partitions, start=EARLIEST)
            read: list[tuple[int, int, int]] = []
            while len(read) < sum(ends.values()):
                records = await consumer.poll(timeout_s=WITHIN_S)
                assert records, f"{len(read)} of {sum(ends.values())} records, and no more come"
                read += [(r.partition, r.offset, int(r.value or b"-1")) for r in records]
            return read
