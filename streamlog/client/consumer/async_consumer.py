"""The consumer: partitions that its user assigns, or those that its group assigns.

    async with AsyncConsumer(bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            ...

    AsyncConsumer --has--> AssignedReader   reads partitions
                  '-has--> ConsumerGroup    with a group.id: the membership, committed offsets

    assign       partitions, and where to start. With a group.id it starts at the committed offsets, and can commit
                 while the group has no members
    subscribe    topics by name or by pattern: membership in the group, whose coordinator assigns the partitions. Starts
                 at the committed offsets, else as auto.offset.reset says

Three ways to read, which may be mixed; each record is returned once:

    async for record in consumer    one by one
    poll(max_records)               a list of them
    poll_batch(), batches()         as they were written, undecoded: for speed, columns for Arrow

Automatic commits cover what was processed: records that were returned before the last poll. So a program that ends by
an error reads its last records again (at least once); `close`, or the end of `async with` without an error, counts as a
poll. A commit without arguments covers all records that were returned, as in Kafka.

Heartbeats continue in the background, however long a handler takes, unless it blocks the event loop (the synchronous
consumer has a thread of its own for them). A warning is logged at four fifths of max.poll.interval.ms without a poll;
at max.poll.interval.ms the member leaves the group, and joins again at its next poll.

States: not started -> open (`start`, or `async with`) -> closed. Owned by one event loop, used by one task at a time;
nothing is durable.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self

from streamlog.client import settings as client_config
from streamlog.client.connection import unclosed
from streamlog.client.connection.client_ports import ClientPorts
from streamlog.client.connection.sync_loop import LoopThread
from streamlog.client.consumer.assigned_reader import AssignedReader
from streamlog.client.consumer.consumer_records import ConsumerBatch, ConsumerRecord
from streamlog.client.consumer.corrupt_batches import CorruptBatches
from streamlog.client.consumer.decoded_polls import DecodedPolls
from streamlog.client.consumer.offset_finder import AtTime, Bound, OffsetAndTimestamp, checked_count
from streamlog.client.consumer.partition_reader import PartitionReader
from streamlog.client.consumer.start_positions import EARLIEST, LATEST, Partition, Start, as_partition
from streamlog.client.groups.consumer_group import ConsumerGroup, ToCommit
from streamlog.client.groups.group_offsets import OffsetAndMetadata
from streamlog.client.groups.rebalancing import Listener, Listeners
from streamlog.client.producer.given_records import check_function, check_timeout, mapping, several, shown
from streamlog.client.serialization.formats import GivenDeserializer
from streamlog.client.serialization.record_deserializers import OnError, RecordDeserializers
from streamlog.config import load_consumer
from streamlog.config.settings import consumer_settings as consuming
from streamlog.config.settings.client_settings import TRACING_ENABLE
from streamlog.errors import InvalidConfigError, InvalidRequestError, RequestTimedOutError
from streamlog.model import NO_OFFSET, Offset, TopicPartition

CLOSE_S: Final = 30.0
"""Kafka's bound on the last commit and the leave."""

_CLOSING: Final[ContextVar[tuple[asyncio.Event, ...]]] = ContextVar("closing", default=())
"""`_ended` of the consumers in whose `close` a listener is called, which therefore does not wait for it."""


class AsyncConsumer:
    """Settings by Kafka's names: `max_poll_records=100`, or `{"max.poll.records": 100}`. InvalidConfigError names
    everything that is wrong with them.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: GivenDeserializer | None = None,
        value_deserializer: GivenDeserializer | None = None,
        on_deserialization_error: OnError = "fail",
        ports: ClientPorts | None = None,
        **settings: object,
    ) -> None:
        """`key_deserializer`, `value_deserializer`: a function, an object with `deserialize`, or a format
        (`client.serialization.formats`). `on_deserialization_error`: fail; skip; or a function of the error, which is
        called before the record is skipped. `ports`: of a simulation; None: the real ones.
        """
        loaded = self._config = client_config.loaded(load_consumer, config, settings)
        corrupt = CorruptBatches(skip=loaded[consuming.ON_CORRUPT_BATCH] == "skip")
        self._reader = AssignedReader(loaded, ports, corrupt)
        self._group: ConsumerGroup | None = None  # None also before the start
        self._max_poll_records = loaded[consuming.MAX_POLL_RECORDS]
        self._closing = False
        self._ended = asyncio.Event()  # it is closed
        self._polls = 0  # how often the user has polled
        self._polling = False  # a poll is waiting
        self._looping: PartitionReader | None = None  # what a loop reads
        self._looped: ConsumerRecord | None = None  # what it was at when its progress was last noticed
        self._deserializers = RecordDeserializers.of(key_deserializer, value_deserializer, on_deserialization_error)
        if self._deserializers is not None:
            self._deserialize(self._deserializers)
        self._spans = client_config.tracing("polling").PollSpans(loaded) if loaded[TRACING_ENABLE] else None
        if self._spans is not None:
            self.poll = self._spans.poll(self.poll)  # type: ignore[method-assign]
            self.poll_batch = self._spans.poll_batch(self.poll_batch)  # type: ignore[method-assign]
            self._records = self._spans.records(self._records)  # type: ignore[method-assign]
        self._unclosed = unclosed.Unclosed(
            client_config.name_of("consumer", loaded, loaded[consuming.GROUP_ID]),
            self._stopped_loop,
            self._abandon,
            work=unclosed.ENDS if loaded[consuming.GROUP_ID] is None else unclosed.LEAVES,
        )

    def _deserialize(self, deserializers: RecordDeserializers) -> None:
        """What is polled, from now on."""
        polled = DecodedPolls(deserializers, self._reader, self.poll, self._records)
        self.poll = polled.poll  # type: ignore[method-assign]
        self._records = polled.records  # type: ignore[method-assign]

    # Lifecycle.

    async def start(self) -> Self:
        """Start in the background; `async with` does it. Does not wait for a connection."""
        reader, group_id = self._reader, self._config[consuming.GROUP_ID]
        reader.open()
        self._fetcher, self._loop = reader.fetcher, reader.loop
        if group_id is not None:
            self._group = ConsumerGroup(group_id, reader, activity=self._activity)
        if self._spans is not None and self._group is not None:
            self._group.trace_commits(self._spans.commit)
        with client_config.background(self._config):
            work = [reader.warnings()]
            if self._group is not None:
                work += [*self._group.work(), *self._group.warnings()]
            reader.run_in_background(work, self._on_cancelled)
        if reader.is_own:
            unclosed.flush_at_exit(self._unclosed)
        return self

    def _stopped_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop where it has stopped and the consumer is open: at the end of a program."""
        if not self._reader.is_running or self._loop.is_closed() or self._loop.is_running():
            return None
        return self._loop

    def _close_with(self, front: object, thread: LoopThread) -> Callable[[], object]:
        """When `front` is collected, or the interpreter exits. To be called when it is closed."""
        return unclosed.close_at_the_end(front, self._unclosed, thread)

    def _begin_close(self, thread: LoopThread) -> None:
        """Without a wait."""
        unclosed.begin_close(self._unclosed, thread)

    async def _on_cancelled(self) -> None:
        """`asyncio.run` ends, which has cancelled all tasks, that of the membership too, and `close` was not called."""
        try:
            unclosed.warn(self._unclosed)
        finally:
            await self._reader.close()

    async def _abandon(self, *, timeout_s: float) -> None:
        """Close it where the program forgot to: records in flight count as not processed, and no listener is called, as
        none of the program's threads may wait for it.
        """
        try:
            if self._group is not None and self._reader.is_running:
                await self._group.abandon(timeout_s)
        finally:
            await self._reader.close()

    def _activity(self) -> tuple[int, bool]:
        """A loop polls with each record; that is noticed here, not by the loop."""
        looped = None if self._looping is None else self._looping.looped
        if looped is not self._looped:
            self._looped = looped
            self._polls += 1
        return self._polls, self._polling

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(CLOSE_S, processed=error is None)

    async def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """Commit the records that were returned (enable.auto.commit), and leave the group. Idempotent: a later call
        waits for the end of the first, which it allows `timeout_s` from now on at most; in a listener that the first
        one calls it returns at once.
        """
        check_timeout(timeout_s)
        await self._close(timeout_s, processed=True)

    def _limit_close(self, timeout_s: float) -> None:
        if self._group is not None:
            self._group.close_time.limit(timeout_s)

    async def _close(self, timeout_s: float, *, processed: bool) -> None:
        """`processed`: the records in flight are."""
        if self._closing:
            if self._ended not in _CLOSING.get():
                self._limit_close(timeout_s)
                await self._ended.wait()
            return
        self._closing = True
        within = _CLOSING.set((*_CLOSING.get(), self._ended))
        try:
            if self._group is not None and self._reader.is_running:
                await self._group.close(timeout_s, processed=processed)
        finally:
            _CLOSING.reset(within)
            try:
                await self._reader.close()
            finally:
                self._ended.set()

    def _required_group(self) -> ConsumerGroup:
        self._reader.check_open()
        if self._group is None:
            raise InvalidConfigError(
                "the consumer has no group: set group.id to subscribe or to commit", field=consuming.GROUP_ID.name
            )
        return self._group

    # Subscription.

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Join the group for these topics: those by name, and those whose whole name matches `pattern` (RE2). Replaces
        the previous subscription. Returns at once; polls raise what the coordinator refuses.

        The listeners get a list of partitions, may be coroutine functions, and are called while this consumer polls or
        closes: `on_assigned` before the first record is returned, `on_revoked` while the partitions are still this
        member's, `on_lost` when they may be another's already (None: `on_revoked` is called). `on_assigned` and
        `on_revoked` that are cancelled with their poll are called again by the next one.
        """
        if pattern is not None and not isinstance(pattern, str | re.Pattern):
            raise InvalidRequestError(f"pattern must be a str or None, not {shown(pattern)}", field="pattern")
        for name, listener in (("on_assigned", on_assigned), ("on_revoked", on_revoked), ("on_lost", on_lost)):
            check_function(name, listener)
        listeners = Listeners(on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        self._required_group().subscribe(topics, pattern, listeners)

    async def unsubscribe(self) -> None:
        """Leave the group, and read nothing more. The records that were returned count as processed."""
        if self._group is not None:
            await self._group.unsubscribe()

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics by name."""
        return () if self._group is None else self._group.topics

    @property
    def member_id(self) -> str | None:
        """None: not a member now."""
        return None if self._group is None else self._group.member_id

    @property
    def member_epoch(self) -> int | None:
        """As the coordinator said last; None: not a member now."""
        return None if self._group is None else self._group.member_epoch

    # Assignment.

    async def assign(
        self,
        partitions: Iterable[Partition] | Mapping[Partition, Start | None],
        *,
        start: Start | None = None,
        ends: Mapping[Partition, int] | None = None,
    ) -> None:
        """Read these partitions and no others; a mapping gives each its start. Without a start (None), those that are
        read already continue, and others start where the group has committed, or as auto.offset.reset says.

        `ends`: one past the last offset wanted of a partition. The batch that reaches it is the last that is fetched.

        UnknownTopicOrPartitionError for what does not exist, RequestTimedOutError (default.api.timeout.ms).
        """
        self._reader.check_open()
        given = (
            dict(partitions)
            if isinstance(partitions, Mapping)
            else dict.fromkeys(several("partitions", partitions), start)
        )
        starts = {as_partition(one): at for one, at in given.items()}
        if self._group is None:
            await self._reader.assign(starts, ends)
        else:
            await self._group.assign(starts, ends)

    async def assign_topics(self, topics: Iterable[str], *, start: Start | None = None) -> None:
        """Read all partitions that these topics have now. As `assign`."""
        names = list(several("topics", topics))
        counts = [await self.partition_count(topic) for topic in names]
        await self.assign(
            [(topic, number) for topic, count in zip(names, counts, strict=True) for number in range(count)],
            start=start,
        )

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """In the order of their assignment."""
        self._reader.check_open()
        return tuple(self._fetcher.readers)

    async def partition_count(self, topic: str) -> int:
        """UnknownTopicOrPartitionError, RequestTimedOutError."""
        return await self._reader.partition_count(topic)

    # Positions.

    def seek(self, partition: Partition, to: Start, *, leader_epoch: int | None = None) -> None:
        """Continue from there. `leader_epoch`, with an offset: of the record before it, where it is known; by it a
        truncation of the log is detected (KIP-320).
        """
        self._reader.seek(partition, to, leader_epoch)

    async def position(self, partition: Partition, *, timeout_s: float | None = None) -> Offset:
        """The offset of the next record to be returned; waits until it is known. The error of the partition, if it
        has one; RequestTimedOutError.
        """
        return await self._reader.position(partition, timeout_s)

    def lag(self, partition: Partition) -> int | None:
        """Records up to the end of the partition as of the last fetch; None: nothing was fetched yet. Sends nothing."""
        return self._reader.lag(partition)

    @property
    def corrupt_batches_skipped(self) -> int:
        """Batches that could not be decoded and were skipped, since the consumer was made (on.corrupt.batch)."""
        return self._reader.corrupt.skipped_count

    @property
    def undecodable_records_skipped(self) -> int:
        """Records that were skipped since the consumer was made (on_deserialization_error)."""
        return 0 if self._deserializers is None else self._deserializers.skipped_count

    def metrics(self) -> dict[str, float]:
        """By Kafka's names, since the start: how long quotas held responses up, in ms."""
        return self._reader.metrics()

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Return nothing of these until `resume`; what was prefetched is fetched again then."""
        for partition in several("partitions", partitions):
            self._fetcher.pause(self._reader.reader(partition))

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Undo `pause`."""
        for partition in several("partitions", partitions):
            self._fetcher.resume(self._reader.reader(partition))

    async def beginning_offsets(
        self, partitions: Iterable[Partition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """The first offsets that can be read, of any partitions. UnknownTopicOrPartitionError, RequestTimedOutError."""
        return await self._bounds(partitions, EARLIEST, timeout_s)

    async def end_offsets(
        self, partitions: Iterable[Partition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """One past the last offsets that can be read. As `beginning_offsets`."""
        return await self._bounds(partitions, LATEST, timeout_s)

    async def offsets_for_times(
        self, times: Mapping[Partition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each time (ms since 1970) or later; None: there is none. As `beginning_offsets`."""
        specs = {as_partition(one): AtTime(timestamp_ms) for one, timestamp_ms in mapping("times", times).items()}
        found = await self._reader.find_offsets(specs, timeout_s)
        return {one: None if at.offset == NO_OFFSET else at for one, at in found.items()}

    async def _bounds(
        self, partitions: Iterable[Partition], bound: Bound, timeout_s: float | None
    ) -> dict[TopicPartition, Offset]:
        found = await self._reader.find_offsets(
            {as_partition(one): bound for one in several("partitions", partitions)}, timeout_s
        )
        return {one: at.offset for one, at in found.items()}

    # Reading.

    async def poll(self, max_records: int | None = None, *, timeout_s: float | None = 0.0) -> list[ConsumerRecord]:
        """Up to `max_records`, at least 1 (None: max.poll.records); waits up to `timeout_s` (None: without limit) for
        the first. DeserializationError, again until the partition is sought beyond the record.

        The error of a partition is raised when no records are left to return; CorruptBatchError when its batch is next,
        and again until the partition is sought beyond it (on.corrupt.batch=skip does so by itself).
        """
        wanted = self._max_poll_records if max_records is None else checked_count(max_records)
        deadline, left_s = 0.0, timeout_s
        if timeout_s:
            self._reader.check_open()
            if timeout_s.__class__ is not float:
                check_timeout(timeout_s)
            deadline = self._loop.time() + timeout_s
        while True:
            await self._wait_until_ready(left_s)
            if not self._fetcher.ready:
                return []
            # Empty where all that was left of a batch had been returned.
            records = self._reader.take(wanted)
            if records:
                return records
            if timeout_s:
                left_s = max(0.0, deadline - self._loop.time())

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self._records()

    async def _records(self) -> AsyncIterator[ConsumerRecord]:
        source = self._reader
        while True:
            await self._wait_until_ready(None)
            reader, records = source.begin_loop()
            self._looping, left, generation = reader, reader.records, reader.generation
            for record in records:
                reader.looped = record
                yield record
                if reader.generation != generation or reader.records is not left or source.interrupted:
                    break  # sought, paused or revoked meanwhile, or about to be revoked
            else:
                source.finish(reader)

    async def poll_batch(self, *, timeout_s: float | None = 0.0) -> ConsumerBatch | None:
        """The next batch as a whole, or what is left of it; None: there was none in time. Errors as `poll`."""
        while True:
            await self._wait_until_ready(timeout_s)
            if not self._fetcher.ready:
                return None
            batch = self._reader.take_batch()
            if batch is not None:
                return batch

    async def poll_batches(
        self, ends: Mapping[Partition, int], *, bytes_max: int, timeout_s: float
    ) -> list[ConsumerBatch]:
        """What was fetched of the records before `ends`, which name all partitions that are assigned: about bytes_max
        at most, as it was written, so a partition's last batch may go beyond its end. Empty: all ends are reached.

        Waits while there is nothing; RequestTimedOutError after `timeout_s`. Errors as `poll`.
        """
        left = _Unread([(self._reader.reader(partition), end) for partition, end in ends.items()])
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
                    f"{reader.partition}: no record at offset {reader.position} was fetched within {timeout_s:g} s;"
                    f" records up to offset {end} were expected"
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
            self._reader.check_open()
            (self._group or self._reader).raise_error()
            await self._fetcher.wait_for_change(timeout_s)
        return await self.poll_batch() if self._fetcher.ready else None

    async def batches(self) -> AsyncIterator[ConsumerBatch]:
        """All batches, without end."""
        while True:
            batch = await self.poll_batch(timeout_s=None)
            if batch is not None:
                yield batch

    def _put_back(self, firsts: Mapping[TopicPartition, Offset]) -> None:
        """For the synchronous consumer: `AssignedReader.put_back`."""
        self._reader.put_back(firsts)

    def _hand_back(self, firsts: Mapping[TopicPartition, Offset], at: ConsumerRecord | None) -> None:
        """For the synchronous consumer: `AssignedReader.hand_back`."""
        self._reader.hand_back(firsts, at)

    async def _wait_until_ready(self, timeout_s: float | None) -> None:
        """Until records are ready, or the timeout. Raises the error of a partition, if one has any."""
        source, group = self._reader, self._group
        source.check_open()
        source.in_flight.clear()
        self._polls += 1
        self._polling = True
        try:
            if group is not None:
                await group.settle()
            if not self._fetcher.ready:
                await self._wait_for_fetch(timeout_s)
        finally:
            self._polling = False

    async def _wait_for_fetch(self, timeout_s: float | None) -> None:
        source, group, fetcher = self._reader, self._group, self._fetcher
        check_timeout(timeout_s)
        if timeout_s is None and not fetcher.readers and not (group is not None and group.is_subscribed):
            source.check_open()
            raise InvalidRequestError(
                "the consumer has no topics and no partitions, so that this would wait without end: subscribe to"
                " topics, or assign partitions, first",
                field="topics",
            )
        begin, timed_out = self._loop.time(), False
        while not fetcher.ready:
            (group or source).raise_error()
            if timed_out:
                return
            left_s = None if timeout_s is None else max(0.0, begin + timeout_s - self._loop.time())
            await fetcher.wait_for_change(left_s)
            source.check_open()
            if group is not None:
                await group.settle()
            timed_out = timeout_s is not None and self._loop.time() >= begin + timeout_s

    # Commits.

    async def commit(self, offsets: ToCommit | ConsumerRecord | None = None, *, timeout_s: float | None = None) -> None:
        """Commit, and wait until the commit is replicated. None: all records that were returned; a record: that one,
        and all before it in its partition; a mapping: for each partition the next offset to read.

        UnknownMemberIdError and IllegalGenerationError where this member was removed from the group: its partitions are
        another member's now. RequestTimedOutError. Of several partitions the error of the first that was refused; the
        others are committed.
        """
        await self._required_group().commit(offsets, timeout_s)

    async def _commit_before(self, firsts: Mapping[TopicPartition, Offset], timeout_s: float | None) -> None:
        """For the synchronous consumer: `ConsumerGroup.commit_before`."""
        await self._required_group().commit_before(firsts, timeout_s)

    def commit_async(self, offsets: ToCommit | ConsumerRecord | None = None) -> asyncio.Task[None]:
        """As `commit`, of what was returned until now, without waiting. Commits are sent in their order."""
        return self._required_group().commit_async(offsets)

    async def committed(
        self, partitions: Iterable[Partition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets of the group; None: none. RequestTimedOutError."""
        return await self._required_group().committed(partitions, timeout_s)


class _Unread:
    """What `poll_batches` has still to read: each partition's reader, and where it ends."""

    def __init__(self, wanted: list[tuple[PartitionReader, int]]) -> None:
        self._wanted = wanted
        self.ends = {(reader.partition.topic, reader.partition.partition): end for reader, end in wanted}

    def readers(self) -> list[tuple[PartitionReader, int]]:
        """Those that are not at their end."""
        return [(reader, end) for reader, end in self._wanted if reader.position is None or reader.position < end]

    def positions(self) -> list[int | None]:
        return [reader.position for reader, _ in self._wanted]
