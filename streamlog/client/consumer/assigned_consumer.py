"""Reading partitions that are assigned: what a consumer is without a group (`consumer` adds that).

Three ways to read, which may be mixed; each record is handed out once:

    async for record in consumer    one by one
    poll(max_records)               a list of them
    poll_batch(), batches()         as they were written, undecoded: for speed, columns for Arrow

The position is the offset of the next record to be handed out. Records are fetched ahead of it, up to fetch.max.bytes.
A leader that moves is followed without a word (`fetcher`).

In flight is what was handed out since the last poll began (or the record that a loop is at): whoever asks for more has
processed what he got before. That is kept for those who commit.

States: made -> open (`start`, or `async with`) -> closed. Owned by one event loop, used by one task at a time; nothing
is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from streamlog.client import settings as client_config
from streamlog.client.connection.client_ports import ClientPorts, RealPorts, real_ports
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import MetadataCache
from streamlog.client.consumer.consumer_records import ConsumerBatch, ConsumerRecord
from streamlog.client.consumer.consumer_rules import fetch_rules, isolation_of
from streamlog.client.consumer.corrupt_batches import CorruptBatches
from streamlog.client.consumer.fetcher import Fetcher
from streamlog.client.consumer.offset_finder import AtTime, Bound, OffsetAndTimestamp, OffsetFinder, OffsetSpec
from streamlog.client.consumer.partition_reader import PartitionReader
from streamlog.config import client_settings, load_consumer
from streamlog.config import consumer_settings as consuming
from streamlog.errors import (
    ClientClosedError,
    InvalidRequestError,
    InvariantError,
    RequestTimedOutError,
    StreamlogError,
)
from streamlog.model import NO_OFFSET, IsolationLevel, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.records.decode import Fields

# (topic, partition) does for a TopicPartition.
Partition: TypeAlias = TopicPartition | tuple[str, int]
# An offset, an end, or a time.
Start: TypeAlias = int | Bound | AtTime

EARLIEST: Final = Bound.EARLIEST
LATEST: Final = Bound.LATEST

_new_record: Final = tuple.__new__


class AssignedConsumer:
    """The half of AsyncConsumer that reads."""

    def __init__(
        self, config: Mapping[str, object] | None = None, *, ports: ClientPorts | None = None, **settings: object
    ) -> None:
        """`ports`: of a simulation; None: the real world."""
        self._config = client_config.loaded(load_consumer, config, settings)
        self._given_ports = ports
        self._own_ports: RealPorts | None = None
        self._max_poll_records = self._config[consuming.MAX_POLL_RECORDS]
        self._api_timeout_s = self._config[consuming.DEFAULT_API_TIMEOUT_MS] / 1000
        self._state = "not started"
        self._crash: BaseException | None = None
        self._polls = 0  # how often somebody has asked for records
        self._polling = False  # somebody waits for records
        self._interrupted = False  # `_settle` has something to do: a loop that is in a batch shall come by
        self._tracks = False  # keep what is in flight
        self._corrupt = self._corrupt_batches(skip=self._config[consuming.ON_CORRUPT_BATCH] == "skip")
        # Where the records in flight begin, and the epoch of the record before: the positions of whoever asks for more.
        self._in_flight: dict[TopicPartition, tuple[Offset, LeaderEpoch | None]] = {}

    # Life.

    async def start(self) -> Self:
        """Begin; `async with` does it. Does not wait for a connection."""
        if self._state != "not started":
            raise InvariantError("a consumer is started once")
        ports = self._given_ports
        if ports is None:
            ports = self._own_ports = real_ports(self._config)
        self._ports: ClientPorts = ports
        backoff = self._backoff = client_config.backoff(self._config, ports.random)
        self._connections = Connections(
            ports.network, ports.clock, ports.random, client_config.bootstrap(self._config), backoff=backoff
        )
        max_age_s = self._config[client_settings.METADATA_MAX_AGE_MS] / 1000
        self._metadata = MetadataCache(self._connections, ports.clock, backoff, max_age_s=max_age_s)
        self._finder = OffsetFinder(
            self._connections,
            self._metadata,
            ports.clock,
            backoff,
            isolation=isolation_of(self._config),
            request_timeout_s=self._config[client_settings.REQUEST_TIMEOUT_MS] / 1000,
        )
        rules = fetch_rules(self._config, own_ports=self._own_ports is not None)
        self._fetcher = Fetcher(
            self._connections, self._metadata, self._finder, ports.clock, backoff, rules, self._corrupt
        )
        self._loop = asyncio.get_running_loop()
        self._prepare()
        self._background = asyncio.ensure_future(self._run())  # sim: awaited by `close`
        self._background.add_done_callback(self._on_background_end)
        self._state = "open"
        return self

    def _corrupt_batches(self, *, skip: bool) -> CorruptBatches:
        """What is done about them."""
        return CorruptBatches(skip=skip)

    def _prepare(self) -> None:
        """The last step before what goes on behind begins."""

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for work in self._work():
                tasks.create_task(work)

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on behind for as long as the consumer is open."""
        return [self._metadata.run(), self._fetcher.run()]

    def _on_background_end(self, task: asyncio.Future[None]) -> None:
        """It ends by `close`, or by a bug, which whoever reads is told."""
        if not task.cancelled():
            self._crash = task.exception()
            self._fetcher.wake()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Idempotent."""
        was_open, self._state = self._state == "open", "closed"
        if was_open:
            await self._end()

    async def _end(self) -> None:
        self._fetcher.wake()
        self._background.cancel()
        await asyncio.gather(self._background, return_exceptions=True)
        await self._connections.close()
        if self._own_ports is not None:
            await self._own_ports.close()

    def _check_open(self) -> None:
        if self._state != "open":
            raise ClientClosedError(f"the consumer is {self._state}")
        if self._crash is not None:
            raise ClientClosedError(f"the consumer has failed: {self._crash!r}")

    # What is read.

    async def assign(
        self,
        partitions: Iterable[Partition] | Mapping[Partition, Start | None],
        *,
        start: Start | None = None,
        ends: Mapping[Partition, int] | None = None,
    ) -> None:
        """Read these partitions and no others; a mapping gives each its start. Without a start (None), those that are
        read already go on where they are, and others begin as auto.offset.reset says.

        `ends`: one past the last offset wanted of a partition. The batch that reaches it is the last that is fetched.

        UnknownTopicOrPartitionError for what is not there, RequestTimedOutError (default.api.timeout.ms).
        """
        self._check_open()
        given: dict[Partition, Start | None]
        given = dict(partitions) if isinstance(partitions, Mapping) else dict.fromkeys(partitions, start)
        starts = {as_partition(one): _start(at) for one, at in given.items()}
        await self._metadata.look_up([one.topic for one in starts], timeout_s=self._api_timeout_s)
        for one in starts:
            self._metadata.check(one)
        self._fetcher.assign(starts, {as_partition(one): Offset(end) for one, end in (ends or {}).items()})

    async def assign_topics(self, topics: Iterable[str], *, start: Start | None = None) -> None:
        """Read all partitions that these topics have now. As `assign`."""
        names = list(topics)
        counts = [await self.partition_count(topic) for topic in names]
        await self.assign(
            [(topic, number) for topic, count in zip(names, counts, strict=True) for number in range(count)],
            start=start,
        )

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """In the order of their assignment."""
        self._check_open()
        return tuple(self._fetcher.readers)

    async def partition_count(self, topic: str) -> int:
        """UnknownTopicOrPartitionError, RequestTimedOutError."""
        self._check_open()
        await self._metadata.look_up([topic], timeout_s=self._api_timeout_s)
        return self._metadata.partition_count(topic) or 0

    def _reader(self, partition: Partition) -> PartitionReader:
        self._check_open()
        found = self._fetcher.readers.get(as_partition(partition))
        if found is None:
            raise InvalidRequestError(f"{as_partition(partition)} is not assigned", field="partition")
        return found

    # Where.

    def seek(self, partition: Partition, to: Start, *, leader_epoch: int | None = None) -> None:
        """Go on from there. `leader_epoch`, with an offset: of the record before it, where it is known; a log that has
        another history since is found out by it.
        """
        start = _start(to)
        assert start is not None
        epoch = None if leader_epoch is None else LeaderEpoch(leader_epoch)
        self._fetcher.move(self._reader(partition), start, epoch)

    async def position(self, partition: Partition, *, timeout_s: float | None = None) -> Offset:
        """The offset of the next record to be handed out; waits until it is known. The error of the partition, if it
        has one; RequestTimedOutError.
        """
        reader = self._reader(partition)
        patience_s = self._api_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(patience_s):
                while reader.position is None:
                    if reader.error is not None:
                        raise reader.error
                    await self._fetcher.news()
                    self._check_open()
        except TimeoutError:
            message = f"the position of {reader.partition} was not known within {patience_s:g} s"
            raise RequestTimedOutError(message) from None
        return reader.position

    def lag(self, partition: Partition) -> int | None:
        """Records up to the last end that was told of; None: none was yet. Does not ask."""
        reader = self._reader(partition)
        committed = isolation_of(self._config) is IsolationLevel.READ_COMMITTED
        end = reader.last_stable_offset if committed else reader.high_watermark
        return None if reader.position is None or end == NO_OFFSET else max(0, end - reader.position)

    @property
    def corrupt_batches_skipped(self) -> int:
        """Batches that could not be decoded and were passed over, since the consumer was made (on.corrupt.batch)."""
        return self._corrupt.skipped_count

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Hand out nothing of these until `resume`; what was fetched ahead is fetched again then."""
        for partition in partitions:
            self._fetcher.pause(self._reader(partition))

    def resume(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._fetcher.resume(self._reader(partition))

    async def beginning_offsets(
        self, partitions: Iterable[Partition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """The first offsets that can be read, of any partitions. UnknownTopicOrPartitionError, RequestTimedOutError."""
        return await self._ends(partitions, EARLIEST, timeout_s)

    async def end_offsets(
        self, partitions: Iterable[Partition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """One past the last offsets that can be read. As `beginning_offsets`."""
        return await self._ends(partitions, LATEST, timeout_s)

    async def offsets_for_times(
        self, times: Mapping[Partition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each time (ms since 1970) or later; None: there is none. As `beginning_offsets`."""
        places = {as_partition(one): AtTime(timestamp_ms) for one, timestamp_ms in times.items()}
        found = await self._find(places, timeout_s)
        return {one: None if at.offset == NO_OFFSET else at for one, at in found.items()}

    async def _ends(
        self, partitions: Iterable[Partition], bound: Bound, timeout_s: float | None
    ) -> dict[TopicPartition, Offset]:
        found = await self._find({as_partition(one): bound for one in partitions}, timeout_s)
        return {one: at.offset for one, at in found.items()}

    async def _find(
        self, places: Mapping[TopicPartition, OffsetSpec], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self._check_open()
        found = await self._finder.find(places, timeout_s=self._api_timeout_s if timeout_s is None else timeout_s)
        return {one: found[one] for one in places}

    # Reading.

    async def poll(self, max_records: int | None = None, *, timeout_s: float | None = 0.0) -> list[ConsumerRecord]:
        """Up to `max_records` (None: max.poll.records); waits up to `timeout_s` (None: for ever) for the first.

        An error of a partition is raised when nothing else is there to be handed out; CorruptBatchError when its turn
        has come, and again until the partition is sought beyond it (on.corrupt.batch=skip does so by itself).
        """
        wanted = self._max_poll_records if max_records is None else max_records
        begin = self._loop.time()
        while True:
            left_s = None if timeout_s is None else max(0.0, begin + timeout_s - self._loop.time())
            await self._until_ready(left_s)
            if not self._fetcher.ready:
                return []
            # None where all that was left of a batch had been handed out.
            records = self._take(wanted)
            if records or wanted < 1:
                return records

    def _take(self, count: int) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        while len(records) < count and self._fetcher.ready:
            reader = next(iter(self._fetcher.ready))
            self._track(reader)
            try:
                fields = self._fields(reader)
            except StreamlogError:
                if records:
                    return records  # the next poll tells
                raise
            head = (reader.partition.topic, int(reader.partition.partition))
            left = count - len(records)
            some = [_new_record(ConsumerRecord, head + each) for each in islice(fields, left)]
            if len(some) < left or some[-1].offset + 1 == reader.batches[0].next_offset:
                self._finish(reader)
            else:
                reader.position = Offset(some[-1].offset + 1)
            records += some
        return records

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self._records()

    async def _records(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            await self._until_ready(None)
            reader = next(iter(self._fetcher.ready))
            head = (reader.partition.topic, int(reader.partition.partition))
            epoch, tracks = reader.epoch, self._tracks
            fields, generation = self._fields(reader), reader.generation
            for each in fields:
                if tracks:
                    self._in_flight[reader.partition] = Offset(each[0]), epoch
                    self._polls += 1
                    epoch = reader.epoch
                reader.position = Offset(each[0] + 1)
                yield _new_record(ConsumerRecord, head + each)
                if reader.generation != generation or reader.fields is not fields or self._interrupted:
                    break  # sought, paused or taken away meanwhile, or about to be
            else:
                self._finish(reader)

    async def poll_batch(self, *, timeout_s: float | None = 0.0) -> ConsumerBatch | None:
        """The next batch as a whole, or what is left of it; None: there was none in time. Errors as `poll`."""
        while True:
            await self._until_ready(timeout_s)
            if not self._fetcher.ready:
                return None
            reader = next(iter(self._fetcher.ready))
            self._track(reader)
            batch = reader.batches[0]
            if reader.fields is not None and reader.position is not None:
                batch = batch.from_offset(reader.position)
            self._finish(reader)
            if batch.next_offset > batch.first_offset:
                return batch

    async def poll_batches(
        self, ends: Mapping[Partition, int], *, bytes_max: int, timeout_s: float
    ) -> list[ConsumerBatch]:
        """What has come of the records before `ends`, which name all partitions that are assigned: some bytes_max of it
        at most, as it was written, so a partition's last batch may go beyond its end. None: all positions are there.

        Waits while there is nothing; RequestTimedOutError after `timeout_s`. Errors as `poll`.
        """
        left = _Left([(self._reader(partition), end) for partition, end in ends.items()])
        deadline = self._loop.time() + timeout_s
        found: list[ConsumerBatch] = []
        size = 0
        while size < bytes_max and left.readers():
            ready = bool(self._fetcher.ready)
            if not ready and found:
                break
            before, left_s = left.positions(), deadline - self._loop.time()
            if not ready and left_s <= 0:
                reader, end = left.readers()[0]
                raise RequestTimedOutError(
                    f"{reader.partition}: offset {reader.position} was not there within {timeout_s:g} s, and {end} was"
                    " promised"
                )
            batch = await self._next_batch(left_s)
            if batch is not None and batch.first_offset < left.ends[batch.topic, batch.partition]:
                found.append(batch)
                size += batch.header.size_bytes
            if left.positions() != before:
                deadline = self._loop.time() + timeout_s
        return found

    async def _next_batch(self, timeout_s: float) -> ConsumerBatch | None:
        """As `poll_batch`; None also when the position has moved."""
        if not self._fetcher.ready:
            self._check_open()
            for reader in self._fetcher.readers.values():
                if reader.error is not None:
                    self._on_error(reader, reader.error)
            await asyncio.wait([self._fetcher.news()], timeout=timeout_s)
        return await self.poll_batch() if self._fetcher.ready else None

    async def batches(self) -> AsyncIterator[ConsumerBatch]:
        """All of them, for ever."""
        while True:
            batch = await self.poll_batch(timeout_s=None)
            if batch is not None:
                yield batch

    def _fields(self, reader: PartitionReader) -> Iterator[Fields]:
        """Of its first batch, from the position on. Errors of a damaged batch are the partition's from now on."""
        if reader.fields is None:
            try:
                reader.fields = reader.batches[0].fields()
                reader.epoch = reader.batches[0].header.leader_epoch  # of the record before the position, from now on
            except StreamlogError as error:
                self._fetcher.fail(reader, error)
                raise
        return reader.fields

    def _finish(self, reader: PartitionReader) -> None:
        """Its first batch is done; the next one is another partition's."""
        fetcher = self._fetcher
        fetcher.handed_out(reader.finish())
        del fetcher.ready[reader]
        if reader.batches:
            fetcher.ready[reader] = None

    def _hand_back(self, firsts: Mapping[TopicPartition, Offset], at: ConsumerRecord | None) -> None:
        """These, and what follows them, were taken and not used; `at`: all that is in flight."""
        for partition, offset in firsts.items():
            reader = self._fetcher.readers.get(partition)
            if reader is not None:
                self._fetcher.move(reader, offset)
        self._in_flight.clear()
        if at is not None:
            self._in_flight[as_partition((at.topic, at.partition))] = at.offset, None

    def _track(self, reader: PartitionReader) -> None:
        if self._tracks and reader.position is not None:
            self._in_flight.setdefault(reader.partition, (reader.position, reader.epoch))

    async def _until_ready(self, timeout_s: float | None) -> None:
        """Something is there to be handed out, or the time is over. The error of a partition, if it has one."""
        self._check_open()
        self._in_flight.clear()
        self._polls += 1
        self._polling = True
        try:
            await self._settle()
            if not self._fetcher.ready:
                await self._wait_until_ready(timeout_s)
        finally:
            self._polling = False

    async def _wait_until_ready(self, timeout_s: float | None) -> None:
        begin, over = self._loop.time(), False
        while not self._fetcher.ready:
            for reader in self._fetcher.readers.values():
                if reader.error is not None:
                    self._on_error(reader, reader.error)
            if over:
                return
            left_s = None if timeout_s is None else max(0.0, begin + timeout_s - self._loop.time())
            await asyncio.wait([self._fetcher.news()], timeout=left_s)
            self._check_open()
            await self._settle()
            over = timeout_s is not None and self._loop.time() >= begin + timeout_s

    async def _settle(self) -> None:
        """What is to be done when whoever reads asks for more: nothing, without a group."""

    def _on_error(self, reader: PartitionReader, error: StreamlogError) -> None:
        """The partition has one, and there is nothing to be handed out."""
        raise error.restored(error.message, error.details)


def as_partition(given: Partition) -> TopicPartition:
    """(topic, partition) as a TopicPartition."""
    if isinstance(given, TopicPartition):
        return given
    topic, number = given
    return TopicPartition(topic, PartitionId(number))


def _start(given: Start | None) -> OffsetSpec | Offset | None:
    """InvalidRequestError."""
    if isinstance(given, int):
        if given < 0:
            raise InvalidRequestError(f"offset {given}: offsets count from 0", field="offset", limit=0)
        return Offset(given)
    if given is None or isinstance(given, Bound | AtTime):
        return given
    raise InvalidRequestError(f"{given!r} is no start: an offset, EARLIEST, LATEST or AtTime(ms)", field="start")


class _Left:
    """Of what `poll_batches` reads: each partition's reader, and where it ends."""

    def __init__(self, wanted: list[tuple[PartitionReader, int]]) -> None:
        self._wanted = wanted
        self.ends = {(reader.partition.topic, reader.partition.partition): end for reader, end in wanted}

    def readers(self) -> list[tuple[PartitionReader, int]]:
        """Those that are not at their end."""
        return [(reader, end) for reader, end in self._wanted if reader.position is None or reader.position < end]

    def positions(self) -> list[int | None]:
        return [reader.position for reader, _ in self._wanted]
