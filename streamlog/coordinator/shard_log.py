"""One partition of an internal topic as the log of a coordinator shard, for one leadership. See the package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from streamlog.aio.timeouts import timeout
from streamlog.broker.append.verification import VerificationGuard
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    DamagedFileError,
    InvalidTransactionStateError,
    InvariantError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    ProducerFencedError,
    StreamlogError,
    ThrottledError,
)
from streamlog.model import NO_PRODUCER_ID, Acks, Appended, IsolationLevel, Offset, ProducerEpoch, ProducerId
from streamlog.ports import Clock, Probe
from streamlog.records import (
    BatchBuilder,
    BatchFields,
    BatchHeader,
    EndTransactionMarker,
    check_crc,
    decode_control,
    iter_batch,
    scan_headers,
)
from streamlog.storage.producers.producer_states import next_sequence

KeyValue: TypeAlias = tuple[bytes, bytes | None]

READ_BYTES: Final = 128 << 10
"""Read and replayed in one step while loading: about 10 ms on the event loop."""
REREAD_S: Final = 1.0
"""Pause before a range that is damaged, or being repaired, is read again."""
CONTRADICTS: Final = "has records that contradict one another"
"""In the reason of a shard that has failed: records are missing or stale. Stopping the node would stop each later
leader, too.
"""
BATCH_BYTES: Final = 512 << 10
"""Size of the batches of one decision, unless a single record is larger."""


class CoordinatorPlayback(Protocol):
    """The state that is built from the log."""

    def replay(self, key: bytes | None, value: bytes | None, producer_id: ProducerId) -> None:
        """Apply one record while loading. StreamlogError where it cannot be decoded: the shard fails.

        `producer_id`: of the transaction that it was written in; NO_PRODUCER_ID: none.
        """
        ...

    def replay_marker(self, producer_id: ProducerId, *, commit: bool) -> None:
        """Apply a transaction marker while loading."""
        ...

    def check(self) -> None:
        """All is applied. InvariantError: records contradict one another."""
        ...


class ShardLog:
    """`run` is a task of `Shards`. One event loop."""

    def __init__(self, replica: LeaderReplica, playback: CoordinatorPlayback, clock: Clock, probe: Probe) -> None:
        self.replica = replica
        self._playback = playback
        self._clock = clock
        self._probe = probe
        self._is_active = False
        self._is_over = False  # `run` has returned, or was cancelled: the node stops
        self._failure: StreamlogError | None = None
        self._last: Appended | None = None  # of this leadership
        self._ended = asyncio.Event()

    @property
    def is_active(self) -> bool:
        """Loaded, and still the coordinator."""
        return self._is_active and not self._is_over and self._failure is None and self.replica.ended is None

    async def run(self, on_active: Callable[[], None]) -> None:
        """Load, then wait until the leadership ends or the state has to be rebuilt from the log (`write`). A log that
        cannot be decoded, or contradicts itself, makes this shard unavailable; the node continues.
        """
        try:
            self.replica.watch(self)
            begun = self._clock.monotonic()
            count = await self._load()
            self._is_active = True
            on_active()
            took_ms = int((self._clock.monotonic() - begun) * 1000)
            self._probe("coordinator_loaded", partition=str(self.replica.partition), records=count, took_ms=took_ms)
            await self._ended.wait()
        except StreamlogError as error:
            self._failure = error
            if self.replica.ended is None:
                self._probe_failure(error)
                await self._ended.wait()
        finally:
            self._is_over = True
            self.replica.unwatch(self)

    async def _load(self) -> int:
        replica = self.replica
        await replica.wait_for_former_leaders()
        offset, end, count = replica.log_start_offset, replica.high_watermark, 0
        while offset < end:
            data = await self._read(offset)
            before = offset
            for position, header in scan_headers(data, 0, len(data)):
                check_crc(data, position, header)
                count += self._replay(data, position, header, before)
                offset = header.next_offset
            if offset == before:
                raise CoordinatorNotAvailableError(f"{replica.partition}: no batch can be read at offset {offset}")
            await asyncio.sleep(0)
        try:
            self._playback.check()
        except InvariantError as error:
            raise CoordinatorNotAvailableError(f"{replica.partition} {CONTRADICTS}: {error}") from error
        return count

    async def _read(self, offset: Offset) -> bytes:
        """Until it succeeds: damage is repaired once another replica is in sync, which may be long after the election.
        Raises the error that ended the leadership, and errors that stay.
        """
        while True:
            try:
                data = await self.replica.read(offset, READ_BYTES, IsolationLevel.READ_UNCOMMITTED)
            except StreamlogError as error:
                if self.replica.ended is not None or not (error.retriable or isinstance(error, DamagedFileError)):
                    raise
                if self._failure is None:
                    self._probe_failure(error)
                self._failure = error
            else:
                self._failure = None
                return data
            try:
                async with timeout(REREAD_S):
                    await self._ended.wait()
            except TimeoutError:
                pass

    def _probe_failure(self, error: StreamlogError) -> None:
        self._probe("coordinator_failed", partition=str(self.replica.partition), reason=str(error))

    def _replay(self, data: bytes, position: int, header: BatchHeader, start: Offset) -> int:
        """Replay one batch from `start` on; return the number of its records."""
        records = [record for record in iter_batch(data, position) if record.offset >= start]
        if header.is_control:
            for record in records:
                marker = decode_control(record)
                if isinstance(marker, EndTransactionMarker):
                    self._playback.replay_marker(header.producer_id, commit=marker.commit)
            return 0
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records:
            self._playback.replay(record.key, record.value, producer_id)
        return len(records)

    # -- commands

    def check(self) -> None:
        """NotCoordinatorError, CoordinatorLoadInProgressError, CoordinatorNotAvailableError."""
        if self.replica.ended is not None:
            raise NotCoordinatorError(f"this node no longer leads {self.replica.partition}")
        if self._failure is not None:
            raise CoordinatorNotAvailableError(f"{self.replica.partition} cannot be loaded: {self._failure}")
        if self._is_over:
            raise NotCoordinatorError(f"this node is stopping; another one will coordinate {self.replica.partition}")
        if not self._is_active:
            raise CoordinatorLoadInProgressError(f"{self.replica.partition} is being loaded")

    def write(self, records: Sequence[KeyValue], guard: VerificationGuard | None = None) -> None:
        """Append a decision's records; the caller replays them in the same step. CoordinatorNotAvailableError: nothing
        was appended, or only the first ones, which are consistent by themselves; the shard has then failed.

        `guard`: as part of this producer's transaction; raises ProducerFencedError, InvalidTransactionStateError too.
        """
        self.check()
        begun = False
        for builder in self._builders(records):
            try:
                batch = builder.build(BatchFields() if guard is None else self._fields(guard))
                self._last = self.replica.appends.append_encoded(batch, Acks.ALL, guard)
            except StreamlogError as error:
                if begun:  # the state has to be rebuilt from the log
                    self._failure = error
                    self._ended.set()
                if isinstance(error, ProducerFencedError | InvalidTransactionStateError):
                    raise
                raise _unavailable(error) from error
            begun = True

    def _fields(self, guard: VerificationGuard) -> BatchFields:
        """For the next batch of this transaction. The coordinator numbers them: clients send no sequences here."""
        known = self.replica.log.producers.get(guard.producer_id)
        goes_on = known is not None and known.epoch == guard.producer_epoch and known.batches
        return BatchFields(
            producer_id=guard.producer_id,
            producer_epoch=guard.producer_epoch,
            base_sequence=next_sequence(known.last_sequence) if known is not None and goes_on else 0,
            is_transactional=True,
        )

    def write_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: int,
        *,
        commit: bool,
        opens_next: bool,
    ) -> bool:
        """Append a transaction marker; the caller replays it in the same step. False: it was there already. Raises the
        errors of `check` and `TransactionMarkers.append`.
        """
        self.check()
        appended = self.replica.markers.append(
            producer_id, producer_epoch, coordinator_epoch, commit=commit, opens_next=opens_next
        )
        self._last = appended
        return not appended.duplicate

    def _builders(self, records: Sequence[KeyValue]) -> list[BatchBuilder]:
        """At least one. CoordinatorNotAvailableError for a record that is too large."""
        now_ms, size_max = self._clock.wall_ms(), self.replica.appends.encoded_bytes_max
        builders = [BatchBuilder(BATCH_BYTES)]
        for key, value in records:
            if not builders[-1].try_append(value, key, timestamp=now_ms):
                builders.append(BatchBuilder(BATCH_BYTES))
                builders[-1].try_append(value, key, timestamp=now_ms)
            if builders[-1].size_bytes > size_max:
                raise CoordinatorNotAvailableError(
                    f"{self.replica.partition}: a decision needs a record of {builders[-1].size_bytes} bytes, more "
                    f"than the {size_max} of max.message.bytes: subscribe to fewer topics, use fewer partitions in one "
                    "transaction, or raise message.max.bytes"
                )
        return builders

    async def wait_until_safe(self) -> None:
        """Until the high watermark has passed everything written. NotCoordinatorError, CoordinatorNotAvailableError:
        whether the records in the log will be committed is unknown.
        """
        last = self._last
        if last is None or self.replica.high_watermark >= last.next_offset:
            return
        try:
            await self.replica.wait_for(last)
        except StreamlogError as error:
            raise _unavailable(error) from error

    # -- from the partition's leader (ReplicaWatcher)

    def on_appended(self, appended: Appended) -> None:
        """Its own."""

    def on_readable(self) -> None:
        """`wait_for` covers it."""

    def on_ended(self, error: StreamlogError) -> None:
        self._ended.set()


def _unavailable(error: StreamlogError) -> StreamlogError:
    """The error that the coordinator's client gets for one of its log."""
    if isinstance(error, NotEnoughReplicasError | NotEnoughReplicasAfterAppendError | ThrottledError):
        return CoordinatorNotAvailableError(f"the coordinator cannot append to its log: {error}")
    return NotCoordinatorError(f"another node is becoming the coordinator: {error}")
