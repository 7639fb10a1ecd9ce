"""One partition of an internal topic as the log of a state machine, for one leadership. See the package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from streamlog.broker.leader_replica import LeaderReplica
from streamlog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    StreamlogError,
    ThrottledError,
)
from streamlog.model import Acks, IsolationLevel
from streamlog.ports import Clock, Probe
from streamlog.records import BatchBuilder, BatchFields, check_crc, iter_batch, scan_headers
from streamlog.storage.log import Appended

KeyValue: TypeAlias = tuple[bytes, bytes | None]

READ_BYTES: Final = 128 << 10
"""Read and replayed in one step while loading: some 10 ms of the event loop."""
BATCH_BYTES: Final = 512 << 10
"""Records of one decision go into batches of about this size, below every sensible max.message.bytes."""


class Machine(Protocol):
    """What the shard's log makes."""

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """One record of the log while loading. StreamlogError where it cannot be read: the shard ends then."""
        ...


class Shard:
    """`run` is a task of the table of shards. One event loop."""

    def __init__(self, replica: LeaderReplica, machine: Machine, clock: Clock, probe: Probe) -> None:
        self.replica = replica
        self._machine = machine
        self._clock = clock
        self._probe = probe
        self._is_active = False
        self._failure: StreamlogError | None = None
        self._last: Appended | None = None  # of this leadership
        self._ended = asyncio.Event()

    @property
    def is_active(self) -> bool:
        """Loaded, and still the coordinator."""
        return self._is_active and self._failure is None and self.replica.ended is None

    async def run(self, on_active: Callable[[], None]) -> None:
        """Load, then stay until the leadership is over, or until the state must be made from the log anew (`write`).
        A log that cannot be read leaves the shard without a use, and the node alone.
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
                self._probe("coordinator_failed", partition=str(self.replica.partition), reason=str(error))
                await self._ended.wait()
        finally:
            self.replica.unwatch(self)

    async def _load(self) -> int:
        replica = self.replica
        await replica.wait_for_former_leaders()
        offset, end, count = replica.log_start_offset, replica.high_watermark, 0
        while offset < end:
            data = await replica.read(offset, READ_BYTES, IsolationLevel.READ_UNCOMMITTED)
            before = offset
            for position, header in scan_headers(data, 0, len(data)):
                check_crc(data, position, header)
                if not header.is_control:
                    for record in iter_batch(data, position):
                        if record.offset >= before:
                            self._machine.replay(record.key, record.value)
                            count += 1
                offset = header.next_offset
            if offset == before:
                raise CoordinatorNotAvailableError(f"{replica.partition}: offset {offset} cannot be read")
            await asyncio.sleep(0)
        return count

    # -- commands

    def check(self) -> None:
        """NotCoordinatorError, CoordinatorLoadInProgressError, CoordinatorNotAvailableError."""
        if self.replica.ended is not None:
            raise NotCoordinatorError(f"{self.replica.partition} has another leader now")
        if self._failure is not None:
            raise CoordinatorNotAvailableError(f"{self.replica.partition} cannot be loaded: {self._failure}")
        if not self._is_active:
            raise CoordinatorLoadInProgressError(f"{self.replica.partition} is being loaded")

    def write(self, records: Sequence[KeyValue]) -> None:
        """Append a decision's records, to be replayed in the same step. CoordinatorNotAvailableError: nothing, or only
        a beginning of them, which is sound, has been appended; the shard has ended where it was a beginning.
        """
        self.check()
        begun = False
        for batch in self._batches(records):
            try:
                self._last = self.replica.append(batch, acks=Acks.ALL)
            except StreamlogError as error:
                if begun:  # the state must be made from the log anew
                    self._failure = error
                    self._ended.set()
                raise _unavailable(error) from error
            begun = True

    def _batches(self, records: Sequence[KeyValue]) -> list[bytes]:
        now_ms, fields = self._clock.wall_ms(), BatchFields()
        batches = []
        builder = BatchBuilder(BATCH_BYTES)
        for key, value in records:
            if not builder.try_append(value, key, timestamp=now_ms):
                batches.append(builder.build(fields))
                builder = BatchBuilder(BATCH_BYTES)
                builder.try_append(value, key, timestamp=now_ms)
        if len(builder):
            batches.append(builder.build(fields))
        return batches

    async def wait_until_safe(self) -> None:
        """Until the high watermark has passed all that has been written. NotCoordinatorError,
        CoordinatorNotAvailableError: it is in the log, and may or may not stay there.
        """
        last = self._last
        if last is None or self.replica.high_watermark >= last.next_offset:
            return
        try:
            await self.replica.wait_for(last)
        except StreamlogError as error:
            raise _unavailable(error) from error

    # -- the partition's leader tells (broker.Watcher)

    def on_appended(self, replica: LeaderReplica, appended: Appended) -> None:
        """Its own."""

    def on_readable(self, replica: LeaderReplica) -> None:
        """`wait_for` tells whom it concerns."""

    def on_ended(self, replica: LeaderReplica, error: StreamlogError) -> None:
        self._ended.set()


def _unavailable(error: StreamlogError) -> StreamlogError:
    """What the client of a coordinator is told of its log's errors."""
    if isinstance(error, NotEnoughReplicasError | NotEnoughReplicasAfterAppendError | ThrottledError):
        return CoordinatorNotAvailableError(f"the coordinator's log takes nothing now: {error}")
    return NotCoordinatorError(f"another node is, or is about to be, the coordinator: {error}")
