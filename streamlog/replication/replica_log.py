"""What replication needs of a log. `storage.log.log.Log` is one; tests have another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streamlog.model import Appended, EpochEnd, LeaderEpoch, Offset
from streamlog.ports import Buffer
from streamlog.records import BatchHeader


class ReplicaLog(Protocol):
    """log_start <= ackable_end <= log_end, but after `restart_at`, when it is 0 until the next sync."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def ackable_end(self) -> Offset:
        """What may be acknowledged and reported, by the topic's flush policy."""
        ...

    @property
    def last_record_epoch(self) -> LeaderEpoch:
        """-1: there is no record."""
        ...

    def end_offset_for(self, epoch: LeaderEpoch) -> EpochEnd:
        """The end of `epoch`, or of the largest smaller one known."""
        ...

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """A leadership begins at the log's end."""
        ...

    def append_as_leader(
        self, buffer: Buffer, batches: Sequence[tuple[int, BatchHeader]], leader_epoch: LeaderEpoch, now_ms: int
    ) -> Appended: ...

    def append_as_follower(self, buffer: Buffer, epoch_max: int) -> Appended: ...

    async def truncate(self, offset: Offset) -> None: ...

    async def restart_at(self, offset: Offset) -> None: ...

    def advance_log_start(self, offset: Offset) -> None: ...
