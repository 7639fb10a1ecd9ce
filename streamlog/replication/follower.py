"""A partition on a follower (SEMANTICS 1, 2). One object for each leader epoch that is followed.

    begin --position--> following --batches--> following
                            |---differs at-------> truncate to there, begin again, and name more batches
                            |---diverging epoch--> truncate to the common history, begin again
                            |---out of range-----> below the leader's start: restart there; above its end: truncate

Truncation is by epochs, never by the high watermark: records above it may be committed already (KIP-101).
"""

from __future__ import annotations

from typing import NamedTuple

from streamlog.errors import CorruptMessageError
from streamlog.model import LeaderEpoch, Offset
from streamlog.ports import Buffer
from streamlog.records import read_header
from streamlog.records.header import HEADER_SIZE
from streamlog.replication.replica_log import ReplicaLog


class FetchPosition(NamedTuple):
    """Where a follower continues."""

    fetch_offset: Offset  # its log end
    last_epoch: LeaderEpoch  # of its last record; -1: its log is empty
    ackable_end: Offset  # what counts for the high watermark
    log_start: Offset


class PartitionFollower:
    """Owned by the node's partition table; its methods never run concurrently."""

    def __init__(self, log: ReplicaLog, leader_epoch: LeaderEpoch, *, high_watermark: Offset) -> None:
        self._log = log
        self.leader_epoch = leader_epoch
        # min(the leader's, own end). Falls only with a truncation below it, which only an unclean election causes.
        self.high_watermark = Offset(min(high_watermark, log.log_end_offset))

    def position(self) -> FetchPosition:
        log = self._log
        return FetchPosition(log.log_end_offset, log.last_record_epoch, self.ackable_end, log.log_start_offset)

    @property
    def ackable_end(self) -> Offset:
        """What counts for the high watermark."""
        return self._log.ackable_end

    def on_batches(self, batches: Buffer, leader_high_watermark: Offset, leader_log_start: Offset) -> None:
        """Append what was received (perhaps nothing), and take over the leader's high watermark and log start.

        Raises CorruptMessageError (fetch again under another slot), ThrottledError (wait for the disk), StorageError.
        """
        if len(batches):
            self._log.append_as_follower(batches, self.leader_epoch)
        end = self._log.log_end_offset
        if leader_high_watermark > self.high_watermark:
            self.high_watermark = max(self.high_watermark, min(leader_high_watermark, end))
        if self._log.log_start_offset < leader_log_start <= end:
            self._log.advance_log_start(leader_log_start)

    def straddles(self, batches: Buffer) -> bool:
        """Whether the log is empty and begins inside the first received batch: if the leader's log starts in the
        middle of a batch (delete-records), a follower that restarts there gets the whole batch.
        """
        log = self._log
        if log.log_start_offset != log.log_end_offset or len(batches) < HEADER_SIZE:
            return False
        try:
            header = read_header(batches, 0)
        except CorruptMessageError:
            return False
        return header.base_offset < log.log_end_offset <= header.last_offset

    async def on_straddling(self, batches: Buffer, leader_high_watermark: Offset, leader_log_start: Offset) -> None:
        """As `on_batches`, for batches that straddle the empty log's start: the log starts where they do."""
        await self._log.restart_at(Offset(read_header(batches, 0).base_offset))
        self.on_batches(batches, leader_high_watermark, leader_log_start)

    async def on_diverging(self, leader_epoch: LeaderEpoch, leader_end: Offset) -> None:
        """The leader's largest epoch at or below ours, and where it ends there: truncate to the common history."""
        ours = self._log.end_offset_for(leader_epoch)
        if ours.epoch == leader_epoch:
            target = min(ours.end_offset, leader_end)
        elif ours.epoch < 0:
            target = self._log.log_start_offset
        else:
            target = ours.end_offset  # the end of our largest smaller epoch
        await self._truncate(Offset(max(target, self._log.log_start_offset)))

    async def on_differing(self, offset: Offset) -> None:
        """The leader has compared our last batches: they differ from `offset` on. Ours are damaged on disk; the leader
        has all that was acknowledged.
        """
        await self._truncate(Offset(max(offset, self._log.log_start_offset)))

    async def on_out_of_range(self, leader_start: Offset, leader_end: Offset) -> None:
        """The leader's log does not have the next offset."""
        if self._log.log_end_offset < leader_start:
            await self._log.restart_at(leader_start)
            self.high_watermark = leader_start
        elif self._log.log_end_offset > leader_end:
            await self._truncate(leader_end)

    async def _truncate(self, offset: Offset) -> None:
        await self._log.truncate(offset)
        self.high_watermark = min(self.high_watermark, self._log.log_end_offset)
