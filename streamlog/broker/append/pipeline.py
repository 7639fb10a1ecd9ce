"""The append pipeline of a partition that this node leads: the one way of a batch into its log. Read from the top.

    client's batches                 this node's own
      |
      1  verify a transaction's first batch: in the producer's turn, with the coordinator's confirmation  `verification`
      2  prepare in a worker thread: large batches, legacy formats, another codec; in order of arrival    `preparation`
      |                                |
      3  validate: headers, CRC, each record; the guard of a batch that opens a transaction
      4  append: minimum ISR, sequences; offsets and epoch into 16 bytes; page cache           `replication`, `storage`
      5  account and notify: traffic, followers' lag, watchers; readers, where nothing is synced       `leader_progress`

Stages 3 to 5 run in one synchronous step, and a small batch outside of a transaction's beginning goes through them at
once: its call never suspends. A batch that has to wait in stage 1 or 2 counts against the node's `QueuedBytes`.

Order: batches that arrive while one is in stage 2 queue behind it, also those that need no worker; otherwise a
producer's later batches would overtake it. In stage 1 only batches of the same producer wait.

An append cannot be undone: what `append` returns is in the log, and acknowledged once the high watermark has passed it
(`LeaderReplica.wait_for`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from streamlog.broker.append import preparation
from streamlog.broker.append.admission import QueuedBytes
from streamlog.broker.append.verification import VerificationGuard, Verifications, transactional_header
from streamlog.broker.leader_progress import LeaderProgress
from streamlog.broker.topic_settings import TopicSettings
from streamlog.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OutOfOrderSequenceError,
    StreamlogError,
)
from streamlog.metrics import TopicTraffic
from streamlog.model import INT32_MAX, Acks, Appended, ProducerEpoch, ProducerId, TopicPartition
from streamlog.ports import Buffer, Clock, Workers
from streamlog.records import BatchHeader, ProduceLimits, TimestampType, read_header, validate
from streamlog.records.columns.columnar import ManyHeadersError
from streamlog.records.header import MAGIC, TRANSACTIONAL_BIT
from streamlog.replication.leader import PartitionLeader
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig

ENCODED_BYTES_MAX: Final = LogConfig().max_message_bytes
"""A lower max.message.bytes bounds what producers send, not what a coordinator has to write about its groups."""

# What was appended before is not checked again; it may have any time.
_UNLIMITED: Final = ProduceLimits(
    message_bytes_max=INT32_MAX, timestamp_type=TimestampType.LOG_APPEND_TIME, check_records=False
)


class TransactionOpening(Protocol):
    """How the coordinator of a request's transaction is called."""

    @property
    def wait_s(self) -> float:
        """For the marker of the previous transaction, after the coordinator has answered."""
        ...

    async def confirm(self, producer_id: ProducerId, producer_epoch: ProducerEpoch, partition: TopicPartition) -> None:
        """The coordinator adds the partition to the transaction. StreamlogError if it refuses."""
        ...


class AppendPipeline:
    """Of one leadership; ended with it. One event loop."""

    __slots__ = (
        "_clock",
        "_ended",
        "_leader",
        "_log",
        "_preparing",
        "_progress",
        "_traffic",
        "_turn",
        "_workers",
        "settings",
        "verifications",
    )

    def __init__(
        self,
        log: Log,
        leader: PartitionLeader,
        progress: LeaderProgress,
        verifications: Verifications,
        settings: TopicSettings,
        *,
        clock: Clock,
        workers: Workers,
        traffic: TopicTraffic,
    ) -> None:
        self._log = log
        self._leader = leader
        self._progress = progress
        self._clock = clock
        self._workers = workers
        self._traffic = traffic
        self._ended: StreamlogError | None = None
        self._turn = asyncio.Lock()  # of stage 2; fair: first come, first served
        self._preparing = 0  # batches in stage 2
        self.settings = settings  # replaced by the leader when the topic's configuration changes
        self.verifications = verifications

    async def append(
        self, batches: Buffer, acks: Acks, queued: QueuedBytes, opening: TransactionOpening | None = None
    ) -> Appended:
        """Check and append the whole batches of one partition: all or nothing. In the page cache when it returns.
        `opening`: of the transaction that the request names.

        Raises what `records.validate`, `PartitionLeader.append`, `Log.append_as_leader` and `opening.confirm` raise,
        InvalidTransactionStateError for a transaction that was not verified, ThrottledError where too many bytes wait,
        and the error that ended this leadership.
        """
        try:
            if opening is not None:
                header = transactional_header(batches)
                if header is not None and self.verifications.is_needed(header):
                    with queued.holding(len(batches)):
                        return await self._append_verified(batches, header, acks, opening)
            if not self.needs_worker(batches):
                with suppress(ManyHeadersError):
                    return self._append_now(batches, acks, None)
            with queued.holding(len(batches)):
                return await self._append_prepared(batches, acks, None)
        except CorruptMessageError:
            self._traffic.refused_batches += 1
            raise
        except InvalidRecordError as refusal:
            try:
                return self._append_repeated(batches, acks, refusal)
            except InvalidRecordError:
                self._traffic.refused_batches += 1
                raise
        except (MessageTooLargeError, InvalidTimestampError) as refusal:
            return self._append_repeated(batches, acks, refusal)

    # -- stage 1: a transaction's first batch

    async def _append_verified(
        self, batches: Buffer, header: BatchHeader, acks: Acks, opening: TransactionOpening
    ) -> Appended:
        producer = (header.producer_id, header.producer_epoch)
        async with self.verifications.turn(header.producer_id):
            if not self.verifications.opens_transaction(header):  # an earlier batch has opened it meanwhile
                return await self._append_guarded(batches, acks, None)
            confirm = partial(opening.confirm, *producer, self._log.partition)
            async with self.verifications.verified(*producer, confirm, opening.wait_s) as guard:
                return await self._append_guarded(batches, acks, guard)

    async def _append_guarded(self, batches: Buffer, acks: Acks, guard: VerificationGuard | None) -> Appended:
        if not self.needs_worker(batches):
            with suppress(ManyHeadersError):
                return self._append_now(batches, acks, guard)
        return await self._append_prepared(batches, acks, guard)

    # -- stage 2: preparation, in order of arrival

    def needs_worker(self, batches: Buffer) -> bool:
        """Whether `batches` cannot be appended at once: they need preparation, or queue behind batches that do.

        Only a look inside shows some of those that need it: ManyHeadersError.
        """
        return self._preparing > 0 or preparation.needed(batches, self.settings)

    async def _append_prepared(self, batches: Buffer, acks: Acks, guard: VerificationGuard | None) -> Appended:
        self._preparing += 1
        try:
            async with self._turn:
                self.check()
                settings = self.settings
                if not preparation.needed(batches, settings):
                    with suppress(ManyHeadersError):
                        return self._append_now(batches, acks, guard)
                ready = await self._workers.run(preparation.prepare, batches, settings, self._clock.wall_ms())
                self.check()
                return self._append_validated(ready.batches, ready.found, self._clock.wall_ms(), acks, guard)
        finally:
            self._preparing -= 1

    # -- stage 3: validation

    def _append_now(self, batches: Buffer, acks: Acks, guard: VerificationGuard | None) -> Appended:
        self.check()
        now_ms = self._clock.wall_ms()
        found = validate(
            batches,
            0,
            len(batches),
            self.settings.limits,
            now_ms,
            header_bytes_max=preparation.INLINE_HEADER_BYTES_MAX,
        )
        return self._append_validated(batches, found, now_ms, acks, guard)

    @property
    def encoded_bytes_max(self) -> int:
        """Of a batch for `append_encoded`."""
        return max(ENCODED_BYTES_MAX, self.settings.limits.message_bytes_max)

    def append_encoded(self, batches: Buffer, acks: Acks, guard: VerificationGuard | None = None) -> Appended:
        """Batches that this node has encoded: their records are not checked, and they need no preparation.
        `guard`: for a batch that opens a transaction. Raises as `append`.
        """
        self.check()
        now_ms = self._clock.wall_ms()
        limits = replace(self.settings.limits, check_records=False, message_bytes_max=self.encoded_bytes_max)
        found = validate(batches, 0, len(batches), limits, now_ms)
        return self._append_validated(batches, found, now_ms, acks, guard)

    def _append_validated(
        self,
        batches: Buffer,
        found: Sequence[tuple[int, BatchHeader]],
        now_ms: int,
        acks: Acks,
        guard: VerificationGuard | None,
    ) -> Appended:
        """`found`: the headers in `batches`, with their positions."""
        first = found[0][1]  # a producer with an id sends one batch at a time: the log checks that
        if first.attributes & TRANSACTIONAL_BIT:
            self.verifications.check(first, guard)
        return self.write(batches, found, now_ms, acks)

    def _append_repeated(self, batches: Buffer, acks: Acks, refusal: StreamlogError) -> Appended:
        """The result of the first append where they are a retry of what was appended before the topic's settings
        changed, or it became too old. Raises `refusal`, at once for batches without a producer's id;
        OutOfOrderSequenceError for a retry whose offsets are not known (`is_repeat`).
        """
        self.check()
        now_ms = self._clock.wall_ms()
        try:
            header = read_header(batches, 0)
            if header.magic != MAGIC or not header.has_producer:
                raise refusal
            found = validate(batches, 0, len(batches), _UNLIMITED, now_ms)
            is_known = self._is_known(found[0][1])
        except StreamlogError:
            raise refusal from None
        if not is_known:
            raise refusal
        return self.write(batches, found, now_ms, acks)

    def _is_known(self, batch: BatchHeader) -> bool:
        """Whether it is in the log: `write` does not append it."""
        try:
            return self._log.producers.check(batch) is not None
        except OutOfOrderSequenceError as error:
            return error.is_repeat(batch.base_sequence, batch.last_offset_delta + 1)

    # -- stages 4 and 5: the log, then all who wait for it

    def write(self, batches: Buffer, found: Sequence[tuple[int, BatchHeader]], now_ms: int, acks: Acks) -> Appended:
        """Append valid batches, or a transaction marker."""
        leader, log = self._leader, self._log
        try:
            appended = leader.append(batches, found, now_ms, acks_all=acks is Acks.ALL)
        except OutOfOrderSequenceError as error:
            raise (error.known_at(leader.high_watermark) if acks is Acks.ALL else error) from None
        if appended.duplicate:
            return appended
        traffic = self._traffic
        traffic.records_in += appended.next_offset - appended.first_offset
        traffic.bytes_in += appended.size_bytes
        leader.on_appended(appended.first_offset, self._now_ms())
        self._progress.on_appended(appended)
        if not log.config.syncs_each_append:
            leader.on_ackable_end()
            self._progress.publish()
        return appended

    # -- the end

    def check(self) -> None:
        """Raises the error that ended this leadership."""
        if self._ended is not None:
            raise self._ended

    def end(self, error: StreamlogError) -> None:
        """The leadership has ended: nothing is appended from now on."""
        self._ended = error
        self.verifications.end(error)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
