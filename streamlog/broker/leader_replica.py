"""One leadership of one partition: what producers, readers and followers do with it.

    leading --end(error)--> ended: waiters and watchers are told, every later call raises that error

The pure decisions (ISR, high watermark, acknowledgements) are `replication.leader`'s; the bytes are the log's. This
object checks what comes in, tells the watchers what has changed, and hands proposals on.

Appending is synchronous. Batches that must be made anew first (legacy formats, a topic with a codec of its own, keys
to be looked for in compressed batches) go by `append_slow`, whose work is done off the loop; then everything that
comes for this partition queues behind it, or a producer's batches would be overtaken by its own later ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from streamlog.api.requests import OffsetPlace
from streamlog.broker import preparation
from streamlog.broker.collaborators import IsrChanges, Watcher
from streamlog.broker.topic_settings import TopicSettings
from streamlog.errors import OffsetOutOfRangeError, OutcomeUnknownError, StreamlogError
from streamlog.model import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    Acks,
    BrokerId,
    IsolationLevel,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from streamlog.ports import Buffer, Clock, Workers
from streamlog.records import ProduceLimits, validate
from streamlog.replication.isr import IsrProposal
from streamlog.replication.leader import LeaderTerm, PartitionLeader
from streamlog.replication.replica_log import EpochEnd
from streamlog.storage.log import Appended, Log
from streamlog.storage.reading import FoundOffset


class LeaderReplica:
    """Made and ended by its `Replica`. One event loop."""

    def __init__(
        self,
        topic_id: TopicId,
        log: Log,
        term: LeaderTerm,
        settings: TopicSettings,
        *,
        high_watermark: Offset,
        clock: Clock,
        workers: Workers,
        isr_changes: IsrChanges,
        may_join: Callable[[BrokerId], bool],
    ) -> None:
        self.topic_id = topic_id
        self.log = log
        self.partition: TopicPartition = log.partition
        self.leader_epoch: LeaderEpoch = term.leader_epoch
        self._settings = settings
        self._clock = clock
        self._workers = workers
        self._isr_changes = isr_changes
        self._watchers: dict[Watcher, None] = {}
        self._ended: StreamlogError | None = None
        self._slow_turn = asyncio.Lock()  # fair: first come, first served
        self._slow_waiting = 0  # callers of `append_slow`
        self._begun_at = log.log_end_offset  # all below is of former leaders
        self._committed_all: asyncio.Future[None] | None = None  # done once the high watermark has reached `_begun_at`
        self.state = PartitionLeader(log, term, high_watermark=high_watermark, now_ms=self._now_ms(), may_join=may_join)
        self._told = self._facts()
        log.durability.listen(self._on_synced)

    # -- facts

    @property
    def ended(self) -> StreamlogError | None:
        """Why the leadership is over; None while it lasts."""
        return self._ended

    @property
    def high_watermark(self) -> Offset:
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The end for read_committed: the high watermark, since nothing opens a transaction yet."""
        return self.state.high_watermark

    @property
    def log_start_offset(self) -> Offset:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self.log.log_end_offset

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """A client's or follower's belief. FencedLeaderEpochError, UnknownLeaderEpochError."""
        self.state.check_epoch(epoch)

    # -- producing

    def needs_workers(self, batches: Buffer) -> bool:
        """Whether `batches` must go by `append_slow`."""
        return self._slow_waiting > 0 or preparation.needed(batches, self._settings)

    def append(self, batches: Buffer, *, acks: Acks) -> Appended:
        """Check and append the whole batches of one partition: all or nothing. In the page cache when it returns.

        Raises what `records.validate`, `PartitionLeader.append` and `Log.append_as_leader` raise, and the error that
        ended this leadership.
        """
        return self._append(batches, acks, self._settings.limits)

    def _append(self, batches: Buffer, acks: Acks, limits: ProduceLimits) -> Appended:
        self._check()
        now_ms = self._clock.wall_ms()
        found = validate(batches, 0, len(batches), limits, now_ms)
        appended = self.state.append(batches, found, now_ms, acks_all=acks is Acks.ALL)
        assert isinstance(appended, Appended)  # what this log answers
        if appended.duplicate:
            return appended
        for watcher in tuple(self._watchers):
            watcher.on_appended(self, appended)
        if not self.log.config.syncs_each_append:
            self.state.on_stable()
            self._tell()
        return appended

    async def append_slow(self, batches: Buffer, *, acks: Acks) -> Appended:
        """As `append`, for batches of which `needs_workers` says so. Calls are carried out in their order."""
        self._slow_waiting += 1
        try:
            async with self._slow_turn:
                self._check()
                settings = self._settings
                if not preparation.needed(batches, settings):
                    return self.append(batches, acks=acks)
                batches = await self._workers.run(preparation.prepare, batches, settings, self._clock.wall_ms())
                return self._append(batches, acks, replace(settings.limits, keys_required=False))
        finally:
            self._slow_waiting -= 1

    def wait_for(self, appended: Appended) -> asyncio.Future[None]:
        """acks=all: done when the high watermark has passed. NotEnoughReplicasAfterAppendError, OutcomeUnknownError."""
        if self._ended is None:
            return self.state.wait_for(appended.next_offset)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(OutcomeUnknownError(f"{self.partition}: the leader changed before the acknowledgement"))
        return future

    # -- reading

    def readable_end(self, isolation: IsolationLevel) -> Offset:
        """One past the last offset that a reader of this isolation level may see."""
        return self.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.state.high_watermark

    def try_read(
        self, offset: Offset, size_max: int, isolation: IsolationLevel, *, at_least_one: bool = True
    ) -> bytes | None:
        """Whole batches from the one that holds `offset` on, below the readable end, at most `size_max` bytes;
        `at_least_one`: the first even if larger. b"" where there are none yet; None where the page cache lacks them.

        An offset between the readable end and the log's end is one to wait for: another leader had committed it.
        Raises OffsetOutOfRangeError, StorageError, CorruptMessageError.
        """
        self._check()
        end = self.readable_end(isolation)
        if offset >= end:
            if offset > self.log.log_end_offset:
                raise self.out_of_range(offset)
            return b""
        return self.log.try_read(offset, size_max, end_offset=end, at_least_one=at_least_one)

    async def read(
        self, offset: Offset, size_max: int, isolation: IsolationLevel, *, at_least_one: bool = True
    ) -> bytes:
        """As `try_read`, waiting for the disk off the loop where it must."""
        data = self.try_read(offset, size_max, isolation, at_least_one=at_least_one)
        if data is None:
            end = self.readable_end(isolation)
            data = await self.log.read(offset, size_max, end_offset=end, at_least_one=at_least_one)
            self._check()
        return data

    def out_of_range(self, offset: Offset) -> OffsetOutOfRangeError:
        return self.log.out_of_range(offset)

    async def offset_for(self, place: OffsetPlace | int, isolation: IsolationLevel) -> FoundOffset:
        """Where a place is; an int: the first record of this time (ms) or later. Offset -1: there is none.

        A new leader does not tell the end before the high watermark has reached what former leaders wrote: it would
        lie below what they have told (KIP-207). The caller bounds the wait.
        """
        self._check()
        if place is OffsetPlace.EARLIEST:
            start = self.log.log_start_offset
            return FoundOffset(start, NO_TIMESTAMP, self.log.epochs.epoch_of(start))
        await self.wait_for_former_leaders()
        if place is OffsetPlace.LATEST:
            return FoundOffset(self.readable_end(isolation), NO_TIMESTAMP, self.leader_epoch)
        time_ms = self._largest_timestamp() if isinstance(place, OffsetPlace) else place
        found = None if time_ms is None else await self.log.offset_for_timestamp(time_ms)
        self._check()
        if found is None or found.offset >= self.readable_end(isolation):
            return FoundOffset(NO_OFFSET, NO_TIMESTAMP, NO_LEADER_EPOCH)
        return found

    def _largest_timestamp(self) -> int | None:
        """Of all records; None where none has one."""
        largest = max(segment.max_timestamp.timestamp_ms for segment in self.log.segments)
        return None if largest < 0 else largest

    async def wait_for_former_leaders(self) -> None:
        """Until all that former leaders wrote, and this one has, is committed. Raises what ended the leadership."""
        if self.state.high_watermark >= self._begun_at:
            return
        if self._committed_all is None:
            self._committed_all = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._committed_all)
        self._check()

    def end_offset_for(self, epoch: LeaderEpoch) -> EpochEnd:
        """Where `epoch` ends here, or the largest one below it; -1, -1: not known."""
        self._check()
        return self.log.end_offset_for(epoch)

    def divergence(self, last_epoch: LeaderEpoch, offset: Offset) -> EpochEnd | None:
        """Where the history of a reader that wants to go on at `offset`, its last record being of `last_epoch`,
        leaves this log; None where it does not (KIP-320).
        """
        self._check()
        return self.state.divergence(last_epoch, offset)

    # -- watching

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` from now on. Once over, `on_ended` has been called, or this raises the error."""
        self._check()
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Idempotent."""
        self._watchers.pop(watcher, None)

    # -- what the followers' streams and the controller tell

    def on_position(self, broker: BrokerId, stable_end: Offset) -> None:
        """A replica tells what it holds on stable storage. One that is no replica any more is passed over."""
        state = self.state
        if self._ended is not None or broker not in state.replicas:
            return
        state.on_position(broker, stable_end, self._now_ms())
        self._tell()
        if broker not in state.isr.committed:
            self.review_isr()

    def on_isr(self, isr: tuple[BrokerId, ...], partition_epoch: int) -> None:
        """The controller's answer to a proposal."""
        if self._ended is None:
            self.state.on_isr(isr, partition_epoch)
            self._tell()
            self.review_isr()

    def on_refused(self, proposal: IsrProposal) -> None:
        """The controller refused it: it has not happened. Whoever carried it asks anew by `review_isr`, in time."""
        if self._ended is None:
            self.state.on_refused(proposal)
            self._tell()

    def review_isr(self) -> None:
        """Propose another ISR where one is due."""
        proposal = self.state.propose_isr(self._now_ms())
        if proposal is not None:
            self._isr_changes.proposed(self, proposal)

    # -- what the partition table tells

    def on_partition(
        self, replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...], partition_epoch: int, min_insync_replicas: int
    ) -> None:
        """The metadata's word, within this leadership."""
        self.state.on_assignment(replicas, min_insync_replicas, self._now_ms())
        self.state.on_isr(isr, partition_epoch)
        self._tell()

    def on_settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        self.state.on_stable()  # with another flush policy, more may be stable
        self._tell()

    def on_log_start_moved(self) -> None:
        """Retention has deleted segments."""
        self._tell()

    def end(self, error: StreamlogError) -> None:
        """The leadership is over. Idempotent; the first error counts."""
        if self._ended is not None:
            return
        self._ended = error
        self.state.resign()
        if self._committed_all is not None and not self._committed_all.done():
            self._committed_all.set_result(None)  # who waits asks `_check` then
        watchers, self._watchers = tuple(self._watchers), {}
        for watcher in watchers:
            watcher.on_ended(self, error)

    # -- within

    def _check(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _on_synced(self, synced_end: Offset) -> None:
        if self._ended is None:
            self.state.on_stable()
            self._tell()

    def _facts(self) -> tuple[Offset, Offset]:
        return self.state.high_watermark, self.log.log_start_offset

    def _tell(self) -> None:
        """Tell the watchers, where what readers see has changed."""
        facts = self._facts()
        if facts == self._told:
            return
        self._told = facts
        if self._committed_all is not None and facts[0] >= self._begun_at and not self._committed_all.done():
            self._committed_all.set_result(None)
        for watcher in tuple(self._watchers):
            watcher.on_readable(self)
