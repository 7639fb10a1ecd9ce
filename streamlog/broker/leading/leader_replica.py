"""One leadership of one partition: what producers, readers and followers do with it.

    leading --end(error)--> ended: waiters and watchers are told, every later call raises that error

The pure decisions (ISR, high watermark, acknowledgements) are `replication.leader`'s; the bytes are the log's. This
object checks what comes in, tells the watchers what has changed, and hands proposals on.

Appending is synchronous. Batches that are work (`preparation`: large ones, whose records are to be checked, legacy
formats, a topic with a codec of its own) go by `append_slow`, whose work is done off the loop; then everything that
comes for this partition queues behind it, or a producer's batches would be overtaken by its own later ones. The
first batch of a transaction goes by `append_verified`, where it waits for the coordinator (`verification`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Final

from msgspec.structs import replace

from streamlog.api.requests import OffsetPlace
from streamlog.broker.append import preparation
from streamlog.broker.append.held_markers import HeldMarkers
from streamlog.broker.append.verification import VerificationGuard, Verifications, transactional_header
from streamlog.broker.collaborators import IsrChanges, Watcher
from streamlog.broker.leading import offset_lookup
from streamlog.broker.repair.log_repairs import Repairs, being_repaired
from streamlog.broker.topic_settings import TopicSettings
from streamlog.errors import (
    ConcurrentTransactionsError,
    CorruptMessageError,
    DamagedFileError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    StreamlogError,
)
from streamlog.metrics import TopicTraffic
from streamlog.model import (
    Acks,
    Appended,
    BrokerId,
    EpochEnd,
    IsolationLevel,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from streamlog.ports import Buffer, Clock, Workers
from streamlog.records import (
    BatchHeader,
    EndTransactionMarker,
    ProduceLimits,
    encode_end_transaction,
    read_header,
    validate,
)
from streamlog.records.columnar import ManyHeadersError
from streamlog.records.header import TRANSACTIONAL_BIT
from streamlog.records.held_batch import HeldBatch
from streamlog.replication.isr import ProposedIsr
from streamlog.replication.joining import first_difference
from streamlog.replication.leader import LeaderTerm, PartitionLeader
from streamlog.storage.log.batch_lookup import batches_between
from streamlog.storage.log.log import Log
from streamlog.storage.log.reading import FoundOffset
from streamlog.storage.segments.transaction_index import AbortedTransaction

COMPARED_PER_HELD: Final = 4
"""Batches of this log that are looked at for each that a follower names: where it has more at these offsets, the
follower's is another log.
"""
MARKER_SOON_S: Final = 0.1
"""Most markers are here by then, also on a busy node. After that the coordinator is asked, which costs it a call."""


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
        traffic: TopicTraffic,
        repairs: Repairs | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.log = log
        self.traffic = traffic
        self.partition: TopicPartition = log.partition
        self.leader_epoch: LeaderEpoch = term.leader_epoch
        self._settings = settings
        self._clock = clock
        self._workers = workers
        self._isr_changes = isr_changes
        self._repairs = repairs
        self._watchers: dict[Watcher, None] = {}
        self._ended: StreamlogError | None = None
        self._slow_turn = asyncio.Lock()  # fair: first come, first served
        self._slow_waiting = 0  # callers of `append_slow`
        self._verifications = Verifications()
        self._held_markers = HeldMarkers()
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
        return self._settings

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """A client's or follower's belief. FencedLeaderEpochError, UnknownLeaderEpochError."""
        self.state.check_epoch(epoch)

    # -- producing

    def needs_workers(self, batches: Buffer) -> bool:
        """Whether `batches` must go by `append_slow`."""
        return self._slow_waiting > 0 or preparation.needed(batches, self._settings)

    def append(self, batches: Buffer, *, acks: Acks, guard: VerificationGuard | None = None) -> Appended:
        """Check and append the whole batches of one partition: all or nothing. In the page cache when it returns.
        `guard`: for the batch that opens a transaction.

        Raises what `records.validate`, `PartitionLeader.append` and `Log.append_as_leader` raise, the error that
        ended this leadership, and InvalidTransactionStateError for a transaction that was not verified;
        ManyHeadersError where only a look inside told that they must go by `append_slow`.
        """
        return self._append(batches, acks, self._settings.limits, guard)

    def append_own(self, batches: Buffer, *, acks: Acks, guard: VerificationGuard | None = None) -> Appended:
        """As `append`, for batches that this node has encoded: their records are not checked."""
        return self._append(batches, acks, replace(self._settings.limits, check_records=False), guard)

    def _append(self, batches: Buffer, acks: Acks, limits: ProduceLimits, guard: VerificationGuard | None) -> Appended:
        self._check()
        now_ms = self._clock.wall_ms()
        found = validate(batches, 0, len(batches), limits, now_ms, header_bytes_max=preparation.INLINE_HEADER_BYTES_MAX)
        return self._append_valid(batches, found, now_ms, acks, guard)

    def _append_valid(
        self,
        batches: Buffer,
        found: list[tuple[int, BatchHeader]],
        now_ms: int,
        acks: Acks,
        guard: VerificationGuard | None,
    ) -> Appended:
        """`found`: what `validate` gave for them."""
        first = found[0][1]  # a producer with an id sends one batch at a time: the log sees to it
        if first.attributes & TRANSACTIONAL_BIT and self._opens_transaction(first):
            self._verifications.check(first, guard)
        return self._write(batches, found, now_ms, acks)

    def _write(self, batches: Buffer, found: list[tuple[int, BatchHeader]], now_ms: int, acks: Acks) -> Appended:
        appended = self.state.append(batches, found, now_ms, acks_all=acks is Acks.ALL)
        if appended.duplicate:
            return appended
        self.traffic.records_in += appended.next_offset - appended.first_offset
        self.traffic.bytes_in += appended.size_bytes
        self.state.on_appended(appended.first_offset, self._now_ms)
        for watcher in tuple(self._watchers):
            watcher.on_appended(self, appended)
        if not self.log.config.syncs_each_append:
            self.state.on_ackable_end()
            self._tell()
        return appended

    async def append_slow(self, batches: Buffer, *, acks: Acks, guard: VerificationGuard | None = None) -> Appended:
        """As `append`, for batches of which `needs_workers` says so. Calls are carried out in their order."""
        self._slow_waiting += 1
        try:
            async with self._slow_turn:
                self._check()
                settings = self._settings
                if not preparation.needed(batches, settings):
                    with suppress(ManyHeadersError):
                        return self.append(batches, acks=acks, guard=guard)
                ready = await self._workers.run(preparation.prepare, batches, settings, self._clock.wall_ms())
                self._check()
                return self._append_valid(ready.batches, ready.found, self._clock.wall_ms(), acks, guard)
        finally:
            self._slow_waiting -= 1

    def wait_for(self, appended: Appended) -> asyncio.Future[None]:
        """acks=all: done when the high watermark has passed. NotEnoughReplicasAfterAppendError, OutcomeUnknownError."""
        if self._ended is None:
            return self.state.wait_for(appended.next_offset)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(OutcomeUnknownError(f"{self.partition}: the leader changed before the acknowledgement"))
        return future

    # -- transactions

    def needs_verification(self, batches: Buffer) -> bool:
        """Whether `batches` must go by `append_verified`: they open a transaction, or queue behind what does."""
        header = transactional_header(batches)
        if header is None:
            return False
        return self._opens_transaction(header) or self._verifications.is_queued(header.producer_id)

    def _opens_transaction(self, header: BatchHeader) -> bool:
        return not self.log.producers.has_open(header.producer_id, header.producer_epoch)

    async def append_verified(
        self, batches: Buffer, *, acks: Acks, verify: Callable[[], Awaitable[None]], wait_s: float
    ) -> Appended:
        """As `append` or `append_slow`, for batches of which `needs_verification` says so. Batches of one producer are
        appended in the order of the calls; where an earlier one has opened the transaction meanwhile, nobody is asked.
        `verify`, `wait_s`: as of `allow`.
        """

        async def append(guard: VerificationGuard | None) -> Appended:
            if not self.needs_workers(batches):
                with suppress(ManyHeadersError):
                    return self.append(batches, acks=acks, guard=guard)
            return await self.append_slow(batches, acks=acks, guard=guard)

        allow = partial(self.allow, verify=verify, wait_s=wait_s)
        return await self._verifications.append(batches, self._opens_transaction, allow, append)

    def verification(
        self, producer_id: ProducerId, producer_epoch: ProducerEpoch
    ) -> AbstractContextManager[VerificationGuard]:
        """Around `allow` and the append that is allowed then; for those who keep the order themselves."""
        return self._verifications.begin(producer_id, producer_epoch)

    async def allow(self, guard: VerificationGuard, verify: Callable[[], Awaitable[None]], wait_s: float) -> None:
        """Until the transaction may be opened here: the producer's one before has ended, and its marker or the
        coordinator says that this one is open. `verify` asks the coordinator, and raises where it refuses.

        ConcurrentTransactionsError where the marker is not there `wait_s` seconds after the answer; what has ended
        the leadership.
        """
        if not await self._is_granted(guard):
            await verify()
        try:
            async with asyncio.timeout(wait_s):
                await self._marker(guard)
        except TimeoutError:
            raise ConcurrentTransactionsError(
                f"{self.partition}: the transaction before of producer {guard.producer_id} is still being ended: ask"
                " again"
            ) from None

    async def _is_granted(self, guard: VerificationGuard) -> bool:
        """Whether the marker before says that this transaction is open here. Where it is on its way it is waited for a
        moment; not longer, for the transaction before may be one that only the end of this one ends.
        """
        try:
            async with asyncio.timeout(MARKER_SOON_S):
                await self._marker(guard)
        except TimeoutError:
            return False
        return self._verifications.is_granted(guard)

    async def _marker(self, guard: VerificationGuard) -> None:
        self._held_markers.release(guard.producer_id)
        while self.has_open_before(guard.producer_id, guard.producer_epoch):
            await self._verifications.next_marker(guard.producer_id)
            self._check()

    def has_open_before(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
        """Whether a transaction of a lower epoch is open here."""
        producer = self.log.producers.get(producer_id)
        return producer is not None and producer.transaction_start >= 0 and producer.epoch < producer_epoch

    def append_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: int,
        *,
        commit: bool,
        opens_next: bool = False,
    ) -> Appended:
        """End the producer's transaction. `producer_epoch` is the one above the transaction's. The marker counts once
        `wait_for` is done, also where it is a duplicate. `opens_next`: the transaction of the marker's epoch is open
        here, for the coordinator; only a marker that is no duplicate tells that.

        Raises ProducerFencedError, TransactionCoordinatorFencedError, NotEnoughReplicasError, and what `append` raises.
        """
        self._check()
        self._held_markers.release(producer_id)
        now_ms = self._clock.wall_ms()
        marker = EndTransactionMarker(commit=commit, coordinator_epoch=coordinator_epoch)
        batch = encode_end_transaction(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms
        )
        appended = self._write(batch, [(0, read_header(batch, 0))], now_ms, Acks.ALL)
        if appended.duplicate:
            self._verifications.invalidate(producer_id, producer_epoch)
        else:
            self._verifications.on_marker(producer_id, producer_epoch, opens_next=opens_next)
        return appended

    async def append_marker_with_next(
        self, producer_id: ProducerId, producer_epoch: ProducerEpoch, coordinator_epoch: int, *, commit: bool
    ) -> Appended:
        """As `append_marker` with `opens_next`, together with the first batch of that transaction if this comes soon
        (`held_markers`).
        """
        self._check()
        append = partial(
            self.append_marker, producer_id, producer_epoch, coordinator_epoch, commit=commit, opens_next=True
        )
        ends_something = self.has_open_before(producer_id, producer_epoch)
        if not ends_something or self._verifications.is_awaited(producer_id):
            return append()
        return await self._held_markers.hold(producer_id, append)

    def take_back(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
        """What a marker has granted (`append_marker`): from now on the coordinator is asked. Whether it has been used,
        or is about to be.
        """
        self._check()
        self._held_markers.release(producer_id)
        is_wanted = self._verifications.take_back(producer_id, producer_epoch)
        return is_wanted or self.log.producers.has_open(producer_id, producer_epoch)

    def aborted(self, offset: Offset, end: Offset) -> list[AbortedTransaction]:
        """What a reader of committed records must leave out of [offset, end), `end` <= `last_stable_offset`; by rising
        first offset. DamagedFileError, StorageError.
        """
        self._check()
        return self.log.aborted(offset, end)

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
            try:
                data = await self.log.read(offset, size_max, end_offset=end, at_least_one=at_least_one)
            except DamagedFileError:
                if self._repairs is None or not await self._is_repaired(self._repairs):
                    raise
                data = await self.log.read(offset, size_max, end_offset=end, at_least_one=at_least_one)
            self._check()
        return data

    async def _is_repaired(self, repairs: Repairs) -> bool:
        """Wait a moment for it. BrokerNotAvailableError where it takes longer."""
        if await repairs.wait(self.log):
            return True
        self._check()
        if repairs.is_under_way(self.log):
            raise being_repaired(self.log)
        return False

    def out_of_range(self, offset: Offset) -> OffsetOutOfRangeError:
        return self.log.out_of_range(offset)

    async def offset_for(self, place: OffsetPlace | int, isolation: IsolationLevel) -> FoundOffset:
        """Where a place is; an int: the first record of this time (ms) or later. Offset -1: there is none.

        A new leader does not tell the end before the high watermark has reached what former leaders wrote: it would
        lie below what they have told (KIP-207). The caller bounds the wait.
        """
        self._check()
        found = await offset_lookup.offset_for(self, place, isolation)
        self._check()
        return found

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

    def on_position(self, broker: BrokerId, ackable_end: Offset) -> None:
        """A replica tells what it holds on stable storage. One that is no replica any more is passed over."""
        state = self.state
        if self._ended is not None or broker not in state.replicas:
            return
        state.on_position(broker, ackable_end, self._now_ms())
        self._tell()
        if broker not in state.isr.committed:
            self.review_isr()

    def on_gone(self, broker: BrokerId) -> None:
        """The stream on which this follower copied the partition is over."""
        if self._ended is None:
            self.state.on_gone(broker, self._now_ms())

    async def difference(self, held: Sequence[HeldBatch], fetch_offset: Offset) -> Offset | None:
        """Where a follower's log, that ends at `fetch_offset` with the batches `held`, is not this one; None: nowhere,
        as far as can be told. What is damaged here says nothing of others. StorageError, the error that ended this.
        """
        try:
            ours = await batches_between(
                self.log, held[0].base_offset, held[-1].next_offset, COMPARED_PER_HELD * len(held)
            )
        except (CorruptMessageError, DamagedFileError):
            return None
        self._check()
        return first_difference(
            held,
            ours,
            fetch_offset=fetch_offset,
            log_start=self.log_start_offset,
            has_gaps=self.log.has_gaps,
        )

    def on_differing(self, broker: BrokerId) -> None:
        """The log of this follower is not this one."""
        if self._ended is None:
            self.state.on_differing(broker, self._now_ms())
            self.review_isr()

    def on_isr(self, isr: tuple[BrokerId, ...], partition_epoch: int) -> None:
        """The controller's answer to a proposal."""
        if self._ended is None:
            self.state.on_isr(isr, partition_epoch)
            self._tell()
            self.review_isr()

    def on_refused(self, proposal: ProposedIsr) -> None:
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
        self.state.on_ackable_end()  # another flush policy may raise it
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
        self._held_markers.end(error)
        self._verifications.end()
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
            self.state.on_ackable_end()
            self._tell()

    def _facts(self) -> tuple[Offset, Offset, Offset]:
        return self.state.high_watermark, self.last_stable_offset, self.log.log_start_offset

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
