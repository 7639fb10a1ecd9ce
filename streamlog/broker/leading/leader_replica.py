"""One leadership of one partition: ISR, high watermark, and what readers may see.

    leading --end(error)--> ended: waiters and watchers get the error, and every later call raises it

The pure decisions (ISR, high watermark, acknowledgements) are `replication.leader`'s, the bytes are the log's, and
appends are `broker.append`'s. This object checks the requests of readers and followers, publishes progress to the
watchers (`leader_progress`), and passes proposed ISRs on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streamlog.broker.append.held_markers import HeldMarkers
from streamlog.broker.append.pipeline import AppendPipeline
from streamlog.broker.append.transaction_markers import TransactionMarkers
from streamlog.broker.append.verification import Verifications
from streamlog.broker.leader_progress import LeaderProgress, ReplicaWatcher
from streamlog.broker.leading.leader_traces import LeaderTraces
from streamlog.broker.repair.log_repairs import Repairs, being_repaired
from streamlog.broker.topic_settings import TopicSettings
from streamlog.errors import (
    CorruptMessageError,
    DamagedFileError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    StreamlogError,
)
from streamlog.metadata.configs.rules import others_eligible
from streamlog.metadata.records import Partition
from streamlog.metrics import TopicTraffic
from streamlog.model import (
    Appended,
    BrokerEpoch,
    BrokerId,
    EpochEnd,
    IsolationLevel,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from streamlog.ports import Clock, Tracing, Workers
from streamlog.records.held_batch import HeldBatch
from streamlog.replication.isr import ProposedIsr
from streamlog.replication.joining import UnprovenEpochs, first_difference, first_epoch_difference
from streamlog.replication.leader import LeaderTerm, PartitionLeader
from streamlog.storage.log.batch_lookup import batches_between
from streamlog.storage.log.log import Log
from streamlog.storage.segments.transaction_index import AbortedTransaction

COMPARED_PER_HELD: Final = 4
"""Batches of this log that are compared for each that a follower names. If there are more at these offsets, the
follower's log is a different one.
"""


class IsrProposer(Protocol):
    """Carries proposals to the controller, one in flight for each partition.

    The answer comes back by `LeaderReplica.on_isr` or `LeaderReplica.on_refused`.
    """

    def proposed(self, replica: LeaderReplica, proposal: ProposedIsr) -> None: ...


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
        isr_proposer: IsrProposer,
        may_join: Callable[[BrokerId], bool],
        traffic: TopicTraffic,
        repairs: Repairs | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.log = log
        self.traffic = traffic
        self.partition: TopicPartition = log.partition
        self.leader_epoch: LeaderEpoch = term.leader_epoch
        self.follower_epochs: dict[BrokerId, BrokerEpoch] = {}  # under which they report; kept by `IsrChanges`
        self._clock = clock
        self._isr_proposer = isr_proposer
        self._repairs = repairs
        self._ended: StreamlogError | None = None
        epoch_start = log.log_end_offset
        self.state = PartitionLeader(log, term, high_watermark=high_watermark, now_ms=self._now_ms(), may_join=may_join)
        self._progress = LeaderProgress(log, self.state, epoch_start)
        self._held_markers = HeldMarkers()
        verifications = Verifications(log, self._held_markers)
        self.appends = AppendPipeline(
            log, self.state, self._progress, verifications, settings, clock=clock, workers=workers, traffic=traffic
        )
        self.traces: LeaderTraces | None = None  # while traced appends are not yet synced and replicated
        self.markers = TransactionMarkers(log, self.appends, verifications, self._held_markers, clock)
        log.durability.listen(self._on_synced)

    # -- facts

    @property
    def ended(self) -> StreamlogError | None:
        """Why the leadership has ended; None while it lasts."""
        return self._ended

    @property
    def high_watermark(self) -> Offset:
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The end for read_committed: the high watermark, or the first offset of a transaction that is open, or
        whose marker is not below the high watermark.
        """
        return self.log.last_stable_offset(self.state.high_watermark)

    @property
    def log_start_offset(self) -> Offset:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self.log.log_end_offset

    @property
    def settings(self) -> TopicSettings:
        return self.appends.settings

    def check(self) -> None:
        """Raises the error that ended this leadership."""
        if self._ended is not None:
            raise self._ended

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """The epoch that a client or follower knows. FencedLeaderEpochError, UnknownLeaderEpochError."""
        self.state.check_epoch(epoch)

    # -- acknowledging

    def wait_for(self, appended: Appended) -> asyncio.Future[None]:
        """acks=all: done when the high watermark has passed. NotEnoughReplicasAfterAppendError, OutcomeUnknownError."""
        if self._ended is None:
            return self.state.wait_for(appended.next_offset)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(OutcomeUnknownError(f"{self.partition}: the leader changed before the acknowledgement"))
        return future

    def trace(self, tracing: Tracing, appended: Appended, parent: str) -> None:
        """Spans of the sync and the replication of what has just been appended, below `parent`."""
        if self._ended is not None:
            return
        if self.traces is None:
            self.traces = LeaderTraces(self.log, self.state, tracing, self._on_traced)
            self.watch(self.traces)
        self.traces.add(appended, parent)

    def _on_traced(self) -> None:
        if self.traces is not None:
            self.unwatch(self.traces)
            self.traces = None

    # -- reading

    def readable_end(self, isolation: IsolationLevel) -> Offset:
        """One past the last offset that a reader of this isolation level may see."""
        return self.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.state.high_watermark

    def try_read(
        self, offset: Offset, size_max: int, isolation: IsolationLevel, *, at_least_one: bool = True
    ) -> bytes | None:
        """Whole batches from the one that holds `offset` on, below the readable end, at most `size_max` bytes;
        `at_least_one`: the first even if larger. b"" where there are none yet; None where the page cache lacks them.

        An offset between the readable end and the log end may be waited for: another leader had committed it.
        Raises OffsetOutOfRangeError, StorageError, CorruptMessageError.
        """
        self.check()
        end = self.readable_end(isolation)
        if offset >= end:
            if offset > self.log.log_end_offset:
                raise self.out_of_range(offset)
            return b""
        return self.log.try_read(offset, size_max, end_offset=end, at_least_one=at_least_one)

    def try_measure(self, offset: Offset, size_max: int, isolation: IsolationLevel) -> int | None:
        """How many bytes `try_read` would return, without reading them; None: only reading shows it. Errors alike."""
        self.check()
        end = self.readable_end(isolation)
        if offset < end:
            return self.log.try_measure(offset, size_max, end_offset=end)
        return 0 if offset <= self.log.log_end_offset else None

    async def read(
        self, offset: Offset, size_max: int, isolation: IsolationLevel, *, at_least_one: bool = True
    ) -> bytes:
        """As `try_read`, but what the page cache lacks is read from the disk, off the event loop. A damaged range is
        waited for while it is being repaired.
        """
        data = self.try_read(offset, size_max, isolation, at_least_one=at_least_one)
        if data is None:
            end = self.readable_end(isolation)
            try:
                data = await self.log.read(offset, size_max, end_offset=end, at_least_one=at_least_one)
            except DamagedFileError:
                if self._repairs is None:
                    raise
                await self._wait_for_repair(self._repairs)
                data = await self.log.read(offset, size_max, end_offset=end, at_least_one=at_least_one)
            self.check()
        return data

    async def _wait_for_repair(self, repairs: Repairs) -> None:
        """Until it has succeeded or failed. BrokerNotAvailableError where it takes too long."""
        repaired = await repairs.wait(self.log)
        self.check()
        if not repaired and repairs.is_under_way(self.log):
            raise being_repaired(self.log)

    def out_of_range(self, offset: Offset) -> OffsetOutOfRangeError:
        return self.log.out_of_range(offset)

    def aborted(self, offset: Offset, end: Offset) -> list[AbortedTransaction]:
        """The aborted transactions in [offset, end), `end` <= `last_stable_offset`, which a reader of committed records
        must skip; by rising first offset. DamagedFileError, StorageError.
        """
        self.check()
        return self.log.aborted(offset, end)

    def end_offset_for(self, epoch: LeaderEpoch) -> EpochEnd:
        """Where `epoch` ends here, or the largest one below it; -1, -1: unknown."""
        self.check()
        return self.log.end_offset_for(epoch)

    def divergence(self, last_epoch: LeaderEpoch, offset: Offset) -> EpochEnd | None:
        """Where the history of a reader that continues at `offset`, its last record being of `last_epoch`, diverges
        from this log; None where it does not (KIP-320).
        """
        self.check()
        return self.state.divergence(last_epoch, offset)

    async def wait_for_former_leaders(self) -> None:
        """Until all that former leaders appended, and this log has, is committed. Raises what ended the leadership."""
        await self._progress.wait_for_former_leaders()
        self.check()

    # -- watching

    def watch(self, watcher: ReplicaWatcher) -> None:
        """Notify `watcher` from now on, until `unwatch`, or `on_ended`. Raises the error that ended the leadership."""
        self.check()
        self._progress.watchers[watcher] = None

    def unwatch(self, watcher: ReplicaWatcher) -> None:
        """Idempotent."""
        self._progress.watchers.pop(watcher, None)

    # -- from the followers' streams

    def on_position(self, broker: BrokerId, ackable_end: Offset) -> None:
        """A follower reports how far it has what it may acknowledge. Ignored if it is no replica any more."""
        state = self.state
        if self._ended is not None or broker not in state.replicas:
            return
        if self.traces is not None:
            self.traces.on_position(broker, ackable_end)
        state.on_position(broker, ackable_end, self._now_ms())
        self._progress.publish()
        if broker not in state.in_sync:
            self.review_isr()

    def on_saved_log_start(self, broker: BrokerId, log_start: Offset | None) -> None:
        """As `PartitionLeader.on_saved_log_start`. A position follows, with which the ISR is reviewed."""
        if self._ended is None:
            self.state.on_saved_log_start(broker, log_start)

    def on_gone(self, broker: BrokerId) -> None:
        """The stream on which this follower copied the partition has closed."""
        if self._ended is None:
            self.state.on_gone(broker, self._now_ms())

    async def difference(
        self, held: Sequence[HeldBatch], unproven: UnprovenEpochs | None, fetch_offset: Offset
    ) -> Offset | None:
        """Where a follower's log, which ends at `fetch_offset` with the batches `held`, differs from this one; None:
        nowhere, as far as is known. Damage in this log says nothing about the follower's, so before the follower
        truncates anything, this one is examined there. StorageError, the error that ended this leadership.
        """
        try:
            differing = [await self._differing_batch(held, fetch_offset), self._differing_epoch(unproven, fetch_offset)]
        except (CorruptMessageError, DamagedFileError):
            return None
        found = min((offset for offset in differing if offset is not None), default=None)
        if found is None:
            return None
        examined_from = min(found, held[0].base_offset) if held else found
        damaged = await self.log.is_damaged_since(examined_from)
        self.check()
        return None if damaged else found

    async def _differing_batch(self, held: Sequence[HeldBatch], fetch_offset: Offset) -> Offset | None:
        if not held:
            return None
        count_max = COMPARED_PER_HELD * len(held)
        ours = await batches_between(self.log, held[0].base_offset, held[-1].next_offset, count_max)
        self.check()
        return first_difference(
            held,
            ours,
            fetch_offset=fetch_offset,
            log_start=self.log_start_offset,
            has_gaps=self.log.has_gaps,
        )

    def _differing_epoch(self, unproven: UnprovenEpochs | None, fetch_offset: Offset) -> Offset | None:
        if unproven is None or self.log.has_gaps:
            return None
        return first_epoch_difference(unproven, self.log.epochs.entries, fetch_offset=fetch_offset)

    def on_differing(self, broker: BrokerId) -> None:
        """This follower's log differs from the leader's, or is incomplete since it differed."""
        if self._ended is None:
            self.state.on_differing(broker)
            self.review_isr()

    # -- the ISR

    def review_isr(self) -> None:
        """Propose another ISR where one is due."""
        proposal = self.state.propose_isr(self._now_ms())
        if proposal is not None:
            self._isr_proposer.proposed(self, proposal)

    def on_isr(self, isr: tuple[BrokerId, ...], partition_epoch: int, *, others_eligible: bool) -> None:
        """The controller has accepted a proposal. `others_eligible`: the ELR is not empty."""
        if self._ended is None:
            self._change_isr(isr, partition_epoch, others_eligible=others_eligible, by_metadata=False)
            self.review_isr()

    def on_refused(self, proposal: ProposedIsr) -> None:
        """The controller has refused it: the ISR is unchanged. The proposer calls `review_isr` later."""
        if self._ended is None:
            self.state.on_refused(proposal)
            self._progress.publish()

    # -- from the partition table

    def on_partition(self, partition: Partition, min_insync_replicas: int) -> None:
        """The partition's metadata have changed, within this leadership."""
        self.state.on_assignment(partition.replicas, min_insync_replicas, self._now_ms())
        others = others_eligible(partition)
        self._change_isr(partition.isr, partition.partition_epoch, others_eligible=others, by_metadata=True)
        if self._ended is None:
            self.review_isr()  # the metadata may settle a proposal before its result does

    def on_settings(self, settings: TopicSettings) -> None:
        self.appends.settings = settings
        self.state.on_ackable_end()  # another flush policy may raise it
        self._progress.publish()

    def on_log_start_moved(self) -> None:
        """Retention has deleted segments."""
        self._progress.publish()

    def end(self, error: StreamlogError) -> None:
        """End the leadership. Idempotent; the first error counts."""
        if self._ended is not None:
            return
        self._ended = error
        self.state.resign()
        self._progress.wake_waiters()  # they call `check` then
        self._held_markers.end(error)
        self.appends.end(error)
        self._progress.end(error)

    # -- within

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _change_isr(
        self, isr: tuple[BrokerId, ...], partition_epoch: int, *, others_eligible: bool, by_metadata: bool
    ) -> None:
        before = self.state.in_sync
        self.state.on_isr(isr, partition_epoch, others_eligible=others_eligible, by_metadata=by_metadata)
        self._progress.publish(isr_changed=self.state.in_sync != before)

    def _on_synced(self, synced_end: Offset) -> None:
        if self._ended is None:
            if self.traces is not None:
                self.traces.on_synced(synced_end)
            self.state.on_ackable_end()
            self._progress.publish()
