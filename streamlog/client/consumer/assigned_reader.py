"""Reading assigned partitions: the part of a consumer that knows nothing of groups.

    assign, seek --> Fetcher (prefetches batches of each partition) --> ready --> take, take_batch

The position is the offset of the next record to be returned; records are prefetched beyond it, up to fetch.max.bytes.
Nothing here waits for records: the consumer waits (`async_consumer`), and settles its group before it takes any.

In flight are the records returned since the last poll began (or the record that a loop is at): a consumer that polls
again has processed them. They are tracked for automatic commits, which commit up to the first record in flight: a poll,
and a loop for each batch, notes once for a partition where that is found.

States: not started -> open (`open`, then `run_in_background`) -> closed. Owned by one event loop, used by one task at a
time; nothing is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

from streamlog.aio.call_time import counted
from streamlog.aio.timeouts import timeout
from streamlog.client import settings as client_config
from streamlog.client.connection.client_ports import ClientPorts, RealPorts, real_ports
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import MetadataCache
from streamlog.client.consumer.consumer_records import ConsumerBatch, ConsumerRecord
from streamlog.client.consumer.consumer_rules import fetch_rules, isolation_of
from streamlog.client.consumer.corrupt_batches import CorruptBatches
from streamlog.client.consumer.fetcher import Fetcher
from streamlog.client.consumer.offset_finder import OffsetAndTimestamp, OffsetFinder, OffsetSpec, checked_integer
from streamlog.client.consumer.partition_reader import PartitionReader
from streamlog.client.consumer.start_positions import Partition, Start, as_offset, as_partition, as_start
from streamlog.client.consumer.unfetched_watch import UnfetchedWatch
from streamlog.client.producer.given_records import check_timeout, check_topic, mapping
from streamlog.config import Config
from streamlog.config.settings import client_settings
from streamlog.config.settings import consumer_settings as consuming
from streamlog.errors import (
    ClientClosedError,
    InvalidRequestError,
    InvariantError,
    RequestTimedOutError,
    StreamlogError,
)
from streamlog.model import INT32_MAX, NO_LEADER_EPOCH, NO_OFFSET, IsolationLevel, LeaderEpoch, Offset, TopicPartition

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class InFlight(NamedTuple):
    """The first record in flight of a partition."""

    offset: Offset
    epoch: LeaderEpoch | None  # of the record before it
    loop: PartitionReader | None = None  # where a loop reads from that offset on: what its last record has left behind

    def place(self) -> tuple[Offset, LeaderEpoch | None]:
        """Of the first record that is not processed, and the leader epoch of the record before it."""
        at = None if self.loop is None else self.loop.looped
        if self.loop is None or at is None or at.offset == self.offset:
            return self.offset, self.epoch
        return at.offset, self.loop.epoch


class AssignedReader:
    def __init__(self, config: Config, ports: ClientPorts | None, corrupt: CorruptBatches) -> None:
        """`ports`: of a simulation; None: the real ones."""
        self.config = config
        self.api_timeout_s = config[consuming.DEFAULT_API_TIMEOUT_MS] / 1000
        self.corrupt = corrupt
        self.tracks_in_flight = False
        self.interrupted = False  # the group has something to settle: a loop over a batch stops before its next record
        self.in_flight: dict[TopicPartition, InFlight] = {}
        self._given_ports = ports
        self._own_ports: RealPorts | None = None
        self._state = "not started"
        self._crash: BaseException | None = None
        self._on_cancelled: Work | None = None

    # Lifecycle.

    def open(self) -> None:
        """Create the connections, the metadata cache and the fetcher; connects to nothing yet."""
        if self._state != "not started":
            raise InvariantError("a consumer is started once")
        config = self.config
        ports = self._given_ports
        if ports is None:
            ports = self._own_ports = real_ports(config)
        self.ports: ClientPorts = ports
        backoff = self.backoff = client_config.backoff(config, ports.random)
        network = client_config.calling_network(config, ports.network)
        self.connections = Connections(
            network, ports.clock, ports.random, client_config.bootstrap(config), backoff=backoff
        )
        max_age_s = config[client_settings.METADATA_MAX_AGE_MS] / 1000
        self._metadata = MetadataCache(self.connections, ports.clock, backoff, max_age_s=max_age_s)
        self._finder = OffsetFinder(
            self.connections,
            self._metadata,
            ports.clock,
            backoff,
            isolation=isolation_of(config),
            request_timeout_s=config[client_settings.REQUEST_TIMEOUT_MS] / 1000,
        )
        rules = fetch_rules(config, own_ports=self._own_ports is not None)
        self.fetcher = Fetcher(
            self.connections, self._metadata, self._finder, ports.clock, backoff, rules, self.corrupt
        )
        self.loop = asyncio.get_running_loop()

    def warnings(self) -> Work:
        """Work for the background that logs what the consumer waits for."""
        return UnfetchedWatch(self.fetcher, self._metadata).run

    def run_in_background(self, others: Iterable[Work] = (), on_cancelled: Work | None = None) -> None:
        """Follow the metadata and fetch until `close`; `others` run beside it. `on_cancelled`: awaited where a program
        that ends cancels this without `close` (`connection.unclosed`).
        """
        works: list[Work] = [self._metadata.run, self.fetcher.run, *others]
        self._on_cancelled = on_cancelled
        self._background = asyncio.ensure_future(self._run(works))  # sim: awaited by `close`
        self._background.add_done_callback(self._on_background_end)
        self._state = "open"

    async def _run(self, works: Iterable[Work]) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in works:
                    tasks.create_task(counted(work()))
        except asyncio.CancelledError:
            if self._state == "open" and self._own_ports is not None and self._on_cancelled is not None:
                await self._on_cancelled()
            raise

    def _on_background_end(self, task: asyncio.Future[None]) -> None:
        """Ended by `close`, or by a bug, which the next poll reports."""
        if not task.cancelled():
            self._crash = task.exception()
            self.fetcher.wake()

    async def close(self) -> None:
        """Idempotent."""
        was_open, self._state = self._state == "open", "closed"
        if was_open:
            self.fetcher.wake()
            if self._background is not asyncio.current_task():
                self._background.cancel()
                await asyncio.gather(self._background, return_exceptions=True)
            await self.connections.close()
            if self._own_ports is not None:
                await self._own_ports.close()

    @property
    def is_own(self) -> bool:
        """Over the real ports: not in a simulation, and not a member on behalf of a node's client."""
        return self._own_ports is not None

    @property
    def is_running(self) -> bool:
        return self._state == "open" and self._crash is None

    def check_open(self) -> None:
        """ClientClosedError."""
        if self._state != "open":
            raise ClientClosedError(f"the consumer is {self._state}")
        if self._crash is not None:
            raise ClientClosedError(f"the consumer stopped on an internal error: {self._crash!r}")

    # Assignment.

    async def assign(
        self, given: Mapping[TopicPartition, Start | None], ends: Mapping[Partition, int] | None = None
    ) -> None:
        """As AsyncConsumer.assign, without a group."""
        self.check_open()
        starts = {one: as_start(at) for one, at in given.items()}
        until = {as_partition(one): as_offset(end, "ends") for one, end in mapping("ends", ends or {}).items()}
        await self._metadata.look_up([one.topic for one in starts], timeout_s=self.api_timeout_s)
        for one in starts:
            self._metadata.check(one)
        self.fetcher.assign(starts, until)

    async def partition_count(self, topic: str) -> int:
        """UnknownTopicOrPartitionError, RequestTimedOutError."""
        self.check_open()
        check_topic(topic)
        await self._metadata.look_up([topic], timeout_s=self.api_timeout_s)
        return self._metadata.partition_count(topic) or 0

    def reader(self, partition: Partition) -> PartitionReader:
        """InvalidRequestError where it is not assigned."""
        self.check_open()
        found = self.fetcher.readers.get(as_partition(partition))
        if found is None:
            raise InvalidRequestError(f"{as_partition(partition)} is not assigned to this consumer", field="partition")
        return found

    # Positions.

    def seek(self, partition: Partition, to: Start, leader_epoch: int | None) -> None:
        start = as_start(to)
        assert start is not None
        known = leader_epoch is not None and leader_epoch != NO_LEADER_EPOCH
        epoch = LeaderEpoch(checked_integer("leader_epoch", leader_epoch, INT32_MAX)) if known else None
        self.fetcher.move(self.reader(partition), start, epoch)

    async def position(self, partition: Partition, timeout_s: float | None) -> Offset:
        reader = self.reader(partition)
        check_timeout(timeout_s)
        timeout_s = self.api_timeout_s if timeout_s is None else timeout_s
        try:
            async with timeout(timeout_s):
                while reader.position is None:
                    if reader.error is not None:
                        raise reader.error
                    await self.fetcher.wait_for_change()
                    self.check_open()
        except TimeoutError:
            message = f"the position of {reader.partition} was not known within {timeout_s:g} s"
            raise RequestTimedOutError(message) from None
        return reader.position

    def metrics(self) -> dict[str, float]:
        return self.connections.throttle_time.metrics("fetch")

    def lag(self, partition: Partition) -> int | None:
        reader = self.reader(partition)
        committed = isolation_of(self.config) is IsolationLevel.READ_COMMITTED
        end = reader.last_stable_offset if committed else reader.high_watermark
        return None if reader.position is None or end == NO_OFFSET else max(0, end - reader.position)

    async def find_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """UnknownTopicOrPartitionError, RequestTimedOutError."""
        self.check_open()
        check_timeout(timeout_s)
        found = await self._finder.find(specs, timeout_s=self.api_timeout_s if timeout_s is None else timeout_s)
        return {one: found[one] for one in specs}

    def hand_back(self, firsts: Mapping[TopicPartition, Offset], at: ConsumerRecord | None) -> None:
        """These records, and those after them, were taken and not used; `at`: the only record in flight."""
        for partition, offset in firsts.items():
            reader = self.fetcher.readers.get(partition)
            if reader is not None:
                self.fetcher.move(reader, offset)
        self.in_flight.clear()
        if at is not None:
            self.in_flight[as_partition((at.topic, at.partition))] = InFlight(at.offset, None)

    def put_back(self, firsts: Mapping[TopicPartition, Offset], *, processed: bool = False) -> None:
        """These records, and those after them, were taken and not returned. `processed`: those before them are."""
        for partition, offset in firsts.items():
            reader = self.fetcher.readers.get(partition)
            if reader is not None:
                self.fetcher.move(reader, offset)
                if processed and self.tracks_in_flight:
                    self.in_flight[partition] = InFlight(offset, None)

    # Taking what is ready.

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to `count` records that are ready; CorruptBatchError where the first batch cannot be decoded."""
        fetcher = self.fetcher
        records: list[ConsumerRecord] = []
        while len(records) < count and fetcher.ready:
            reader = next(iter(fetcher.ready))
            self._track(reader)
            try:
                ready = self.records(reader)
            except StreamlogError:
                if records:
                    return records  # the next poll raises it
                raise
            left = count - len(records)
            some = list(islice(ready, left))
            if len(some) < left or some[-1].offset + 1 == reader.batches[0].next_offset:
                self.finish(reader)
            else:
                reader.position = Offset(some[-1].offset + 1)
            records += some
        return records

    def begin_loop(self) -> tuple[PartitionReader, Iterator[ConsumerRecord]]:
        """The records of the first batch that is ready, for a loop: it stores each as the reader's `looped`. Something
        is ready. CorruptBatchError.
        """
        reader = next(iter(self.fetcher.ready))
        epoch = reader.epoch
        records = self.records(reader)
        first = next(records, None)
        if first is None:
            return reader, records
        if self.tracks_in_flight:
            self.in_flight[reader.partition] = InFlight(first.offset, epoch, reader)
        return reader, chain((first,), records)

    def take_batch(self) -> ConsumerBatch | None:
        """The first batch that is ready, or what is left of it; None: nothing of it is left. Something is ready."""
        reader = next(iter(self.fetcher.ready))
        self._track(reader)
        batch = reader.batches[0]
        if reader.records is not None and reader.position is not None:
            batch = batch.from_offset(reader.position)
        self.finish(reader)
        return batch if batch.next_offset > batch.first_offset else None

    def raise_error(self) -> None:
        """The error of the first partition that has one."""
        for reader in self.fetcher.readers.values():
            if reader.error is not None:
                raise reader.error.restored(reader.error.message, reader.error.details)

    def records(self, reader: PartitionReader) -> Iterator[ConsumerRecord]:
        """The records of its first batch, from the position on. A batch that cannot be decoded becomes the error of the
        partition.
        """
        if reader.records is None:
            try:
                reader.records = reader.batches[0].consumer_records()
                reader.epoch = reader.batches[0].header.leader_epoch  # of the record before the position, from now on
            except StreamlogError as error:
                self.fetcher.fail(reader, error)
                raise
        return reader.records

    def finish(self, reader: PartitionReader) -> None:
        """Its first batch has been returned; the next batch is another partition's."""
        fetcher = self.fetcher
        fetcher.taken(reader.finish())
        del fetcher.ready[reader]
        if reader.batches:
            fetcher.ready[reader] = None

    def _track(self, reader: PartitionReader) -> None:
        if self.tracks_in_flight and reader.position is not None:
            self.in_flight.setdefault(reader.partition, InFlight(reader.position, reader.epoch))
