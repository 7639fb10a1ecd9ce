"""Processors in processes of their own, what they are fed, and their output: the input transformed, once each."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer
from streamlog.model import PartitionId, TopicPartition
from tests.e2e.processes import WITHIN_S, Processes

PROGRAM: Final = Path(__file__).with_name("transform_program.py")
SOURCE: Final = "input"
TARGET: Final = "output"
SOURCE_PARTITIONS: Final = 2
TARGET_PARTITIONS: Final = 3


class Processor:
    """`tests.e2e.transform_program`, and what it has said."""

    def __init__(self, process: Process, on_news: Callable[[], None]) -> None:
        self.events: list[dict[str, Any]] = []
        self._process = process
        self._on_news = on_news

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    def said(self, event: str) -> int:
        return sum(one["event"] == event for one in self.events)

    async def listen(self) -> None:
        """Until it has ended."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.events.append(json.loads(line))
            self._on_news()
        await self._process.wait()
        self._on_news()

    def kill(self) -> None:
        """SIGKILL."""
        if self.is_running:
            self._process.kill()


class Transformation:
    """`async with`; all processors are dead afterwards."""

    def __init__(self, processes: Processes, name: str = "transform") -> None:
        self.name = name  # the transactional id, and the group
        self.processors: list[Processor] = []
        self.output: list[tuple[int, int]] = []  # (partition, number), as a reader of committed records gets it
        self._processes = processes
        self._fed = 0
        self._news = asyncio.Event()
        self._listening: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Transformation:
        for topic, count in ((SOURCE, SOURCE_PARTITIONS), (TARGET, TARGET_PARTITIONS)):
            await self._processes.create_topic(topic, count)
        self._listening.append(asyncio.create_task(self._read()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for processor in self.processors:
            processor.kill()
        reading, *others = self._listening
        reading.cancel()
        await asyncio.gather(*others)
        await asyncio.wait([reading])

    async def start(self, code: Path | None = None) -> Processor:
        """`code`: a directory with another release's streamlog, which is the processor's client."""
        arguments = [self._processes.bootstrap_servers, self.name, SOURCE, TARGET, str(TARGET_PARTITIONS)]
        environment = None if code is None else {**os.environ, "PYTHONPATH": str(code)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), *arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment
        )
        processor = Processor(process, self._news.set)
        self.processors.append(processor)
        self._listening.append(asyncio.create_task(processor.listen()))
        return processor

    async def feed(self, count: int) -> None:
        """So many numbers more, acknowledged."""
        numbers = range(self._fed, self._fed + count)
        self._fed = numbers.stop
        async with AsyncProducer(bootstrap_servers=self._processes.bootstrap_servers) as producer:
            for number in numbers:
                producer.send(SOURCE, b"%d" % number, partition=number % SOURCE_PARTITIONS)
            await producer.flush()

    @asynccontextmanager
    async def feeding(self, count: int, through: int) -> AsyncIterator[None]:
        """So many numbers more; the body begins as soon as `through` of them are there to be read."""
        wanted = len(self.output) + through  # counted before the first is fed: a slow feeder's may all be through
        async with asyncio.TaskGroup() as group:
            group.create_task(self.feed(count))
            await self.until(lambda: len(self.output) >= wanted, f"{through} of {count} more")
            yield

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            said = [processor.events[-3:] for processor in self.processors[-3:]]
            words = self._processes.last_log_line()
            raise AssertionError(f"{what}: {len(self.output)} of {self._fed} are there; {said}\n{words}") from None

    async def until_done(self) -> None:
        """All that was fed is there, at least once."""
        await self.until(lambda: len(set(self.output)) >= self._fed, "all of it")

    async def check(self) -> None:
        """Another reader gets each number once, in its partition; those of one input partition in their order. And no
        partition is held up by a transaction without an end: the reader gets to the end.
        """
        output = await self._read_to_the_end()
        counts = Counter(number for _, number in output)
        twice = sorted(number for number, count in counts.items() if count > 1)
        assert not twice, f"written twice: {twice[:10]}"
        lost = sorted(set(range(self._fed)) - counts.keys())
        assert not lost, f"lost: {lost[:10]}"
        assert sorted(counts) == list(range(self._fed)), "numbers that were not fed"
        assert sorted(self.output) == sorted(output), "another reader has seen something else"
        for partition in range(TARGET_PARTITIONS):
            for source in range(SOURCE_PARTITIONS):
                own = [n for p, n in output if p == partition and n % SOURCE_PARTITIONS == source]
                assert own == sorted(own), f"numbers of partition {source} are not in their order in {partition}"
                assert all(number % TARGET_PARTITIONS == partition for number in own)

    def _reader(self) -> AsyncConsumer:
        return AsyncConsumer(bootstrap_servers=self._processes.bootstrap_servers, isolation_level="read_committed")

    async def _read(self) -> None:
        """For ever."""
        async with self._reader() as consumer:
            await consumer.assign_topics([TARGET], start=EARLIEST)
            while True:
                for record in await consumer.poll(timeout_s=None):
                    self.output.append((record.partition, _number(record.value)))
                self._news.set()

    async def _read_to_the_end(self) -> list[tuple[int, int]]:
        partitions = [TopicPartition(TARGET, PartitionId(n)) for n in range(TARGET_PARTITIONS)]
        found: list[tuple[int, int]] = []
        async with self._reader() as consumer, asyncio.timeout(WITHIN_S):
            await consumer.assign(partitions, start=EARLIEST)
            async with AsyncConsumer(bootstrap_servers=self._processes.bootstrap_servers) as other:
                ends = await other.end_offsets(partitions)  # of all records
            for partition in partitions:
                while await consumer.position(partition) < ends[partition]:
                    found += [(one.partition, _number(one.value)) for one in await consumer.poll(timeout_s=0.1)]
        return found


def _number(value: bytes | None) -> int:
    text = value or b""
    assert text.endswith(b"!"), f"{text!r} is none of a processor's"
    return int(text[:-1])
