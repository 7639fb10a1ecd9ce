"""Prefetching: from which leader each partition of a consumer is fetched, and what follows an error.

    assigned --locate--> position --route--> link to the leader --parts--> buffered --> taken by the consumer
                            ^                      |
                            |__ out of range, log truncated: auto.offset.reset
                                                   |__ NOT_LEADER, broken stream: retried, here or at the new leader

A leader that moves is followed. The user gets only errors that need a decision: an unknown topic, an offset out of
range or a truncated log with auto.offset.reset=none, a corrupt batch. Polls raise such an error until the partition is
sought or assigned again.

The buffer is fetch.max.bytes for all partitions together; a paused partition holds nothing in it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final

from msgspec import Struct

from streamlog.aio.call_time import counted
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.client.connection.authentication import is_authentication_failure
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import MetadataCache
from streamlog.client.consumer.corrupt_batches import CorruptBatches, corrupt_batch
from streamlog.client.consumer.fetch_link import FetchLink
from streamlog.client.consumer.log_truncation import position_after_truncation
from streamlog.client.consumer.offset_finder import AtTime, Bound, OffsetAndTimestamp, OffsetFinder, OffsetSpec
from streamlog.client.consumer.partition_reader import PartitionReader
from streamlog.client.log_lines import warn
from streamlog.config.offset_reset import BY_DURATION, AutoOffsetReset
from streamlog.errors import (
    CorruptMessageError,
    DamagedFileError,
    InvalidRequestError,
    LogTruncatedError,
    NotLeaderError,
    OffsetOutOfRangeError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)
from streamlog.model import NO_OFFSET, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.ports import Buffer, Clock

_log: Final = logging.getLogger(__name__)

# Timeout of one attempt to find positions; attempts are repeated without limit.
_LOCATE_S: Final = 60.0
# Retries of a fetch whose leader cannot read its own log: it may be repaired meanwhile, or another node may lead.
_CORRUPT_READS_MAX: Final = 8


class FetchRules(Struct, frozen=True, kw_only=True):
    settings: pb.FetchSettings
    partition_bytes_max: int
    buffer_bytes: int
    read_committed: bool
    check_crcs: bool
    reset: AutoOffsetReset


class Fetcher:
    def __init__(
        self,
        connections: Connections,
        metadata: MetadataCache,
        finder: OffsetFinder,
        clock: Clock,
        backoff: Backoff,
        rules: FetchRules,
        corrupt: CorruptBatches,
    ) -> None:
        self._connections = connections
        self._metadata = metadata
        self._finder = finder
        self._clock = clock
        self._backoff = backoff
        self._rules = rules
        self._corrupt = corrupt
        self._loop = asyncio.get_running_loop()
        self.readers: dict[TopicPartition, PartitionReader] = {}
        self.ready: dict[PartitionReader, None] = {}  # those with a batch to take, in turn
        self._links: dict[str, FetchLink] = {}
        self._buffered_bytes = 0
        self._has_space = asyncio.Event()  # in the buffer
        self._change: asyncio.Future[None] = self._loop.create_future()  # of records, errors or positions
        self._correlations = itertools.count(1)
        self._spawn: Callable[[Coroutine[Any, Any, None]], object] | None = None
        self._unlocated = asyncio.Event()
        metadata.listen(self._on_metadata)

    async def run(self) -> None:
        """Until it is cancelled. An exception in here is a bug, and is raised."""
        async with asyncio.TaskGroup() as tasks:
            self._spawn = lambda work: tasks.create_task(counted(work))
            for link in self._links.values():
                self._spawn(link.run())
            await self._locate_all(self._spawn)

    # Assignment.

    def assign(
        self,
        starts: dict[TopicPartition, OffsetSpec | Offset | None],
        ends: Mapping[TopicPartition, Offset] | None = None,
    ) -> None:
        """Read these, and no others. None: those that are read already continue, others start as auto.offset.reset
        says.
        """
        for partition in [one for one in self.readers if one not in starts]:
            reader = self.readers.pop(partition)
            self._leave(reader)
            self._changed(reader, reader.rewind)
        for partition, start in starts.items():
            known = self.readers.get(partition)
            reader = known or self.readers.setdefault(partition, PartitionReader(partition))
            self._set_end(reader, (ends or {}).get(partition))
            if start is None and known is None:
                self._reset(reader, None)
            elif start is not None:
                self.move(reader, start)

    def _set_end(self, reader: PartitionReader, end: Offset | None) -> None:
        if reader.end != end:
            self._leave(reader)
            self._changed(reader, reader.rewind)
            reader.end = end
            self._route(reader)

    def move(self, reader: PartitionReader, start: OffsetSpec | Offset, epoch: LeaderEpoch | None = None) -> None:
        """Seek."""
        self._leave(reader)
        if isinstance(start, int):
            self._changed(reader, lambda: reader.seek(Offset(start), epoch))
            self._unlocated.set()
            self._route(reader)
        else:
            self._changed(reader, lambda: reader.locate(start))
            self._unlocated.set()

    def pause(self, reader: PartitionReader) -> None:
        reader.paused = True
        self._leave(reader)
        self._changed(reader, reader.rewind)

    def resume(self, reader: PartitionReader) -> None:
        reader.paused = False
        self._route(reader)

    def hold(self, reader: PartitionReader) -> None:
        """Return no more of its records: it is being revoked."""
        reader.held = True
        self._leave(reader)
        self._changed(reader, reader.rewind)

    def try_again(self, reader: PartitionReader) -> None:
        """Read on as if it had no error."""
        start = reader.start
        if start is not None:
            self.move(reader, start)
        elif reader.position is not None:
            self.move(reader, reader.position, reader.epoch)
        else:
            self._reset(reader, None)

    def _reset(self, reader: PartitionReader, why: StreamlogError | None) -> None:
        """As auto.offset.reset says."""
        reset = self._rules.reset
        match reset.strategy:
            case "earliest":
                self.move(reader, Bound.EARLIEST)
            case "latest":
                self.move(reader, Bound.LATEST)
            case strategy if strategy == BY_DURATION:
                self.move(reader, AtTime(max(0, self._clock.wall_ms() - reset.duration_ms)))
            case _:
                self.fail(reader, why or _no_start(reader.partition))
                return
        if why is not None:
            warn(_log, f"{why.message}; reading goes on at {reset} (auto.offset.reset)")

    def fail(self, reader: PartitionReader, error: StreamlogError) -> None:
        """Stop reading it until it is sought or assigned again."""
        self._leave(reader)
        self._changed(reader, lambda: reader.fail(error))
        self.wake()

    def _changed(self, reader: PartitionReader, change: Callable[[], object]) -> None:
        """Make a change, and account for what it drops from the buffer."""
        before = reader.buffered_bytes
        change()
        self._count(reader.buffered_bytes - before)
        if not reader.batches:
            self.ready.pop(reader, None)

    # Positions.

    async def _locate_all(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        while True:
            await self._unlocated.wait()
            self._unlocated.clear()
            by_topic: dict[str, list[PartitionReader]] = {}
            for reader in self.readers.values():
                known = self._metadata.partition_count(reader.partition.topic) is not None
                looked_up = reader.lookup_generation == reader.generation
                if reader.error is None and not looked_up and (reader.start is not None or not known):
                    reader.lookup_generation = reader.generation
                    by_topic.setdefault(reader.partition.topic, []).append(reader)
            for topic, readers in by_topic.items():
                spawn(self._locate(topic, readers))

    async def _locate(self, topic: str, readers: list[PartitionReader]) -> None:
        """Find the positions of those that have none; start to read the others. Repeats until all are found. A reader
        that was sought meanwhile, as its generation shows, ignores the result.
        """
        wanted = {reader.partition: (reader, reader.generation) for reader in readers}

        def current() -> list[PartitionReader]:
            return [
                reader
                for partition, (reader, generation) in wanted.items()
                if reader.generation == generation and reader.error is None and self.readers.get(partition) is reader
            ]

        ends: dict[TopicPartition, OffsetAndTimestamp] = {}

        def on_found(partition: TopicPartition, found: OffsetAndTimestamp) -> None:
            reader, generation = wanted[partition]
            if reader.generation == generation and self.readers.get(partition) is reader:
                reader.seek((ends[partition] if found.offset == NO_OFFSET else found).offset, None)
                self.wake()
                self._route(reader)

        while current():
            specs = {reader.partition: reader.start for reader in current() if reader.start is not None}
            timed = [partition for partition, spec in specs.items() if isinstance(spec, AtTime)]
            try:
                await self._metadata.look_up([topic], timeout_s=_LOCATE_S)
                # The ends are looked up first: a record of that time that arrives between the two lookups is not lost.
                ends |= await self._finder.find(dict.fromkeys(timed, Bound.LATEST), timeout_s=_LOCATE_S)
                await self._finder.find(specs, timeout_s=_LOCATE_S, on_found=on_found)
            except StreamlogError as error:
                if not error.retriable or isinstance(error, UnknownTopicOrPartitionError):
                    for reader in current():
                        self.fail(reader, error)
                continue
            for reader in current():
                self._route(reader)
            return

    # Links.

    def _on_metadata(self, topic: str, partitions: Collection[int] | None) -> None:
        count = self._metadata.partition_count(topic)
        if count is None:
            for reader in [one for one in self.readers.values() if one.partition.topic == topic]:
                self.fail(reader, UnknownTopicOrPartitionError(f"topic {topic} was deleted", topic=topic))
            return
        for number in range(count) if partitions is None else partitions:
            known = self.readers.get(TopicPartition(topic, PartitionId(number)))
            if known is not None:
                self._route(known)

    def _route(self, reader: PartitionReader) -> None:
        """Fetch it from its leader, if it can be fetched."""
        if not reader.wants_data or self.readers.get(reader.partition) is not reader:
            return
        leader = self._metadata.leader(reader.partition)
        if leader is None or (leader == reader.leader and reader.link is not None):
            return
        if reader.link is not None and reader.link.address != leader.address:
            reader.link.remove(reader)
        reader.leader = leader
        self._link(leader.address).add(reader)

    def _link(self, address: str) -> FetchLink:
        link = self._links.get(address)
        if link is None:
            rules = self._rules
            link = self._links[address] = FetchLink(
                address, self._connections, self, rules.settings, rules.partition_bytes_max, self._backoff
            )
            if self._spawn is not None:
                self._spawn(link.run())
        return link

    def _leave(self, reader: PartitionReader) -> None:
        if reader.link is not None:
            reader.link.remove(reader)

    def next_correlation(self) -> int:
        return next(self._correlations)

    def on_broken(self, link: FetchLink, error: StreamlogError) -> None:
        self._metadata.refresh()
        if is_authentication_failure(error):
            for reader in [one for one in self.readers.values() if one.link is link]:
                link.ended(reader)
                self.fail(reader, error)

    # Fetched parts.

    def on_part(self, reader: PartitionReader, part: pb.FetchedPartition, batches: Buffer) -> None:
        """`part`: all but the batches."""
        if part.HasField("error"):
            self._on_error(reader, from_message(part.error))
            return
        reader.high_watermark = Offset(part.high_watermark)
        reader.last_stable_offset = Offset(part.last_stable_offset)
        reader.log_start = Offset(part.log_start)
        if part.HasField("diverging_epoch"):
            self._on_diverging(reader, part.diverging_epoch)
            return
        reader.failures = 0
        if not batches:
            return
        aborted = [(one.first_offset, one.producer_id) for one in part.aborted_transactions]
        rules = self._rules
        self._changed(
            reader,
            lambda: reader.add(
                batches,
                aborted,
                read_committed=rules.read_committed,
                check_crcs=rules.check_crcs,
                corrupt=self._corrupt,
            ),
        )
        if reader.error is not None:
            self._leave(reader)  # the error is raised after the batches before it were taken
        if reader.at_end and reader.link is not None:
            reader.link.ended(reader)
        if reader.batches:
            self.ready[reader] = None
        self.wake()  # the position may have moved even if there is no batch

    def _on_error(self, reader: PartitionReader, error: StreamlogError) -> None:
        """The node has stopped sending it."""
        link = reader.link
        if link is not None:
            link.ended(reader)
        if isinstance(error, OffsetOutOfRangeError):
            self._on_out_of_range(reader, error)
        elif isinstance(error, DamagedFileError) and reader.batches:
            # The batches before the damage are intact: they are taken first, then the fetch is retried.
            self._loop.call_later(self._backoff.delay_s(1), self._retry, reader, reader.generation)
        elif not error.retriable and error.details.get("retriable") is not True:
            self.fail(reader, error)
        elif isinstance(error, CorruptMessageError) and reader.failures >= _CORRUPT_READS_MAX:
            self.fail(reader, corrupt_batch(reader.partition, reader.fetch_offset, None, error))
        else:
            reader.failures += 1
            generation = reader.generation
            self._loop.call_later(self._backoff.delay_s(reader.failures), self._retry, reader, generation)
            if isinstance(error, NotLeaderError):
                self._metadata.learn_leader(reader.partition, error)
            self._metadata.refresh()

    def _retry(self, reader: PartitionReader, generation: int) -> None:
        if reader.generation == generation and reader.link is None:
            self._route(reader)

    def _on_out_of_range(self, reader: PartitionReader, error: StreamlogError) -> None:
        if reader.batches:
            # What was fetched before is still valid: it is taken first, then the fetch is retried.
            reader.fetch_offset = reader.batches[-1].next_offset
            self._loop.call_later(self._backoff.delay_s(1), self._retry, reader, reader.generation)
            return
        self._reset(reader, OffsetOutOfRangeError(error.message, **error.details))

    def _on_diverging(self, reader: PartitionReader, end: pb.EpochEnd) -> None:
        """The leader's log has diverged from what was read (`log_truncation`)."""
        if reader.link is not None:
            reader.link.ended(reader)
        if reader.position is None:
            return
        may_go_back = self._rules.reset.strategy != "none"
        try:
            position = position_after_truncation(
                reader.partition,
                reader.position,
                end,
                may_go_back=may_go_back,
                remedy="" if may_go_back else "seek to an offset of your choice, or set auto.offset.reset",
            )
        except LogTruncatedError as error:
            self._reset(reader, error)
            return
        if position < reader.position:
            lost = reader.position - position
            warn(
                _log,
                f"{reader.partition}: the log was truncated below what was read: {lost} offsets from {position} on are"
                " read again, and may be other records",
            )
        epoch = LeaderEpoch(end.leader_epoch) if end.leader_epoch >= 0 else None
        self._changed(reader, lambda: reader.truncate(position, epoch))
        self._route(reader)

    # The buffer, and what waits for a change.

    def taken(self, size: int) -> None:
        self._count(-size)

    def _count(self, size: int) -> None:
        self._buffered_bytes += size
        if self._buffered_bytes < self._rules.buffer_bytes:
            self._has_space.set()
        else:
            self._has_space.clear()

    async def wait_until_space(self) -> None:
        """In the buffer."""
        while self._buffered_bytes >= self._rules.buffer_bytes:
            await self._has_space.wait()

    async def wait_for_change(self, timeout_s: float | None = None) -> None:
        """Until there are records, errors or positions to look at, or the timeout."""
        if self._change.done():
            self._change = self._loop.create_future()
        # All callers share it: one that is cancelled leaves it alone.
        await asyncio.wait([self._change], timeout=timeout_s)

    def wake(self) -> None:
        if not self._change.done():
            self._change.set_result(None)


def _no_start(partition: TopicPartition) -> StreamlogError:
    return InvalidRequestError(
        f"{partition} has no start position, because auto.offset.reset is none: give a start, or seek", field="start"
    )
