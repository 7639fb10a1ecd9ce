"""Where each partition of a consumer is read, and what is done when it cannot be.

    assigned --locate--> position --route--> link to the leader --parts--> buffered --> handed out by the consumer
                            ^                      |
                            |__ out of range, log truncated: auto.offset.reset
                                                   |__ NOT_LEADER, broken stream ...: again, here or at another leader

A leader that moves is followed; the user sees an error only where nothing but he can help: a topic that is not there,
an offset out of range or a truncated log with auto.offset.reset=none, a damaged batch. It is told at each poll until
the partition is sought or assigned anew.

The buffer is fetch.max.bytes for all partitions together; a paused partition holds nothing in it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from msgspec import Struct

from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import MetadataCache
from streamlog.client.consumer.corrupt_batches import CorruptBatches, corrupt_batch
from streamlog.client.consumer.fetch_link import FetchLink
from streamlog.client.consumer.offset_finder import AtTime, Bound, OffsetAndTimestamp, OffsetFinder, OffsetSpec
from streamlog.client.consumer.partition_reader import PartitionReader
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
from streamlog.model import NO_OFFSET, LeaderEpoch, Offset, TopicPartition
from streamlog.ports import Buffer, Clock

# How long one attempt to find positions may take before it is begun anew; there is no end to the attempts.
_LOCATE_S: Final = 60.0
# So often a node is asked again that cannot read its own log: it may be mended, or another node may lead.
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
        self.ready: dict[PartitionReader, None] = {}  # those that have something to hand out, in turn
        self._links: dict[str, FetchLink] = {}
        self._buffered_bytes = 0
        self._room = asyncio.Event()
        self._news: list[asyncio.Future[None]] = []  # of those who wait for records, errors or positions
        self._correlations = itertools.count(1)
        self._spawn: Callable[[Coroutine[Any, Any, None]], object] | None = None
        self._unlocated = asyncio.Event()
        metadata.listen(self._on_metadata)

    async def run(self) -> None:
        """Until it is cancelled. What fails in here is a bug, and is raised."""
        async with asyncio.TaskGroup() as tasks:
            self._spawn = tasks.create_task
            for link in self._links.values():
                tasks.create_task(link.run())
            await self._locate_all(tasks.create_task)

    # Assignment.

    def assign(
        self,
        starts: dict[TopicPartition, OffsetSpec | Offset | None],
        ends: Mapping[TopicPartition, Offset] | None = None,
    ) -> None:
        """Read these, and no others. None: as auto.offset.reset says. Those that are read already go on where they are
        unless a start is given.
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
        """Hand out nothing of it any more: it is being given up."""
        reader.held = True
        self._leave(reader)
        self._changed(reader, reader.rewind)

    def try_again(self, reader: PartitionReader) -> None:
        """As if it had no error."""
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

    def fail(self, reader: PartitionReader, error: StreamlogError) -> None:
        """It stands until it is sought or assigned anew."""
        self._leave(reader)
        self._changed(reader, lambda: reader.fail(error))
        self.wake()

    def _changed(self, reader: PartitionReader, change: Callable[[], object]) -> None:
        """What the change drops leaves the buffer."""
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
                asked = reader.asked_generation == reader.generation
                if reader.error is None and not asked and (reader.start is not None or not known):
                    reader.asked_generation = reader.generation
                    by_topic.setdefault(reader.partition.topic, []).append(reader)
            for topic, readers in by_topic.items():
                spawn(self._locate(topic, readers))

    async def _locate(self, topic: str, readers: list[PartitionReader]) -> None:
        """Find the positions of those that have none; begin to read the others. Goes on until it is done or of no use:
        a reader that was sought meanwhile, which its generation tells, has nothing to do with the answer.
        """
        asked = {reader.partition: (reader, reader.generation) for reader in readers}

        def current() -> list[PartitionReader]:
            return [
                reader
                for partition, (reader, generation) in asked.items()
                if reader.generation == generation and reader.error is None and self.readers.get(partition) is reader
            ]

        ends: dict[TopicPartition, OffsetAndTimestamp] = {}

        def on_found(partition: TopicPartition, found: OffsetAndTimestamp) -> None:
            reader, generation = asked[partition]
            if reader.generation == generation and self.readers.get(partition) is reader:
                reader.seek((ends[partition] if found.offset == NO_OFFSET else found).offset, None)
                self.wake()
                self._route(reader)

        while current():
            places = {reader.partition: reader.start for reader in current() if reader.start is not None}
            timed = [partition for partition, place in places.items() if isinstance(place, AtTime)]
            try:
                await self._metadata.look_up([topic], timeout_s=_LOCATE_S)
                # The ends are asked first, so that no record of that time can come between the two answers.
                ends |= await self._finder.find(dict.fromkeys(timed, Bound.LATEST), timeout_s=_LOCATE_S)
                await self._finder.find(places, timeout_s=_LOCATE_S, on_found=on_found)
            except StreamlogError as error:
                if not error.retriable or isinstance(error, UnknownTopicOrPartitionError):
                    for reader in current():
                        self.fail(reader, error)
                continue
            for reader in current():
                self._route(reader)
            return

    # Links.

    def _on_metadata(self, topic: str) -> None:
        for reader in list(self.readers.values()):
            if reader.partition.topic != topic:
                continue
            if self._metadata.partition_count(topic) is None:
                self.fail(reader, UnknownTopicOrPartitionError(f"topic {topic} was deleted", topic=topic))
            else:
                self._route(reader)

    def _route(self, reader: PartitionReader) -> None:
        """Read it where its leader is, if it can be read."""
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

    # What comes in.

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
            self._leave(reader)  # what comes before the batch that cannot be read is handed out first
        if reader.at_end and reader.link is not None:
            reader.link.ended(reader)
        if reader.batches:
            self.ready[reader] = None
        self.wake()  # where there is nothing to hand out the position has moved all the same

    def _on_error(self, reader: PartitionReader, error: StreamlogError) -> None:
        """The node reads it no further."""
        link = reader.link
        if link is not None:
            link.ended(reader)
        if isinstance(error, OffsetOutOfRangeError):
            self._on_out_of_range(reader, error)
        elif isinstance(error, DamagedFileError) and reader.batches:
            # What was fetched before the damage is good: it is handed out first, and then the node is asked again.
            self._loop.call_later(self._backoff.delay_s(1), self._again, reader, reader.generation)
        elif not error.retriable and error.details.get("retriable") is not True:
            self.fail(reader, error)
        elif isinstance(error, CorruptMessageError) and reader.failures >= _CORRUPT_READS_MAX:
            self.fail(reader, corrupt_batch(reader.partition, reader.fetch_offset, None, error))
        else:
            reader.failures += 1
            generation = reader.generation
            self._loop.call_later(self._backoff.delay_s(reader.failures), self._again, reader, generation)
            if isinstance(error, NotLeaderError):
                self._metadata.learn_leader(reader.partition, error)
            self._metadata.refresh()

    def _again(self, reader: PartitionReader, generation: int) -> None:
        if reader.generation == generation and reader.link is None:
            self._route(reader)

    def _on_out_of_range(self, reader: PartitionReader, error: StreamlogError) -> None:
        if reader.batches:
            # What was fetched before is still good. It is asked for again when that has been handed out.
            reader.fetch_offset, reader.fetch_epoch = reader.batches[-1].next_offset, reader.fetch_epoch
            self._loop.call_later(self._backoff.delay_s(1), self._again, reader, reader.generation)
            return
        self._reset(reader, OffsetOutOfRangeError(error.message, **error.details))

    def _on_diverging(self, reader: PartitionReader, end: pb.EpochEnd) -> None:
        """The log is another one since (KIP-320): what was read beyond `end` is not in it any more."""
        if reader.link is not None:
            reader.link.ended(reader)
        position = reader.position
        if end.end_offset < 0:
            self._reset(reader, _truncated(reader.partition, position, end.end_offset))
            return
        if position is not None and end.end_offset < position and self._rules.reset.strategy == "none":
            self.fail(reader, _truncated(reader.partition, position, end.end_offset))
            return
        epoch = LeaderEpoch(end.leader_epoch) if end.leader_epoch >= 0 else None
        self._changed(reader, lambda: reader.truncate(Offset(end.end_offset), epoch))
        self._route(reader)

    # The buffer, and who waits.

    def handed_out(self, size: int) -> None:
        self._count(-size)

    def _count(self, size: int) -> None:
        self._buffered_bytes += size
        if self._buffered_bytes < self._rules.buffer_bytes:
            self._room.set()
        else:
            self._room.clear()

    async def wait_until_room(self) -> None:
        while self._buffered_bytes >= self._rules.buffer_bytes:
            await self._room.wait()

    def news(self) -> asyncio.Future[None]:
        """Done when there is something to hand out or to tell."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._news.append(future)
        return future

    def wake(self) -> None:
        waiting, self._news = self._news, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def _no_start(partition: TopicPartition) -> StreamlogError:
    return InvalidRequestError(
        f"{partition}: where to begin? auto.offset.reset is none, and no start was given", field="start"
    )


def _truncated(partition: TopicPartition, position: Offset | None, end: int) -> StreamlogError:
    return LogTruncatedError(
        f"{partition}: the log was truncated at offset {end}, and {position} was to be read next: seek to go on",
        topic=partition.topic,
        partition=partition.partition,
        offset=position,
        log_end=end,
    )
