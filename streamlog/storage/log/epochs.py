"""The leader epochs of a partition: which epoch appended from which offset on (SEMANTICS 2, KIP-101).

    entries rise strictly in epoch and in start offset: an epoch that wrote nothing ends with the next one's start
    end_offset_for(latest) = log end;  end_offset_for(older) = start of the next larger epoch

Owned by the log. The table is kept in memory; `leader-epoch-checkpoint` holds it for the next start. The file is
derived from the batches, each of which carries its epoch: it is written (by the owner, see `derived`) before
the recovery point passes an entry's start, and what lies above the recovery point is rebuilt from the batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from streamlog.errors import InvariantError
from streamlog.model import NO_LEADER_EPOCH, NO_OFFSET, EpochEnd, LeaderEpoch, Offset
from streamlog.storage.files.checkpoints import EpochEntry

UNKNOWN = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


class LeaderEpochs:
    __slots__ = ("_entries", "dirty", "latest")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        self.latest = NO_LEADER_EPOCH  # -1 where the log has no epoch yet
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.dirty = False  # differs from the file, in what it says of a record

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Note that `epoch` appends from `start_offset` on. The same or an older epoch changes nothing: the log
        checks that epochs do not fall.

        It replaces an epoch that was to start there: that wrote nothing, and only the replica that led it noted it.
        Replicas with the same records have the same table (I8).
        """
        if self._entries and epoch <= self._entries[-1].epoch:
            return
        if self._entries and start_offset < self._entries[-1].start_offset:
            raise InvariantError(f"epoch {epoch} would start at {start_offset}, before {self._entries[-1]}")
        if self._entries and start_offset == self._entries[-1].start_offset:
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        self.latest = epoch
        self.dirty = True

    def epoch_of(self, offset: Offset) -> LeaderEpoch:
        """The epoch that `offset` was (or would be) appended in; -1 below the first entry."""
        if self._entries and offset >= self._entries[-1].start_offset:
            return self.latest
        i = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[i - 1].epoch if i else NO_LEADER_EPOCH

    def end_offset_for(self, epoch: LeaderEpoch, log_end: Offset) -> EpochEnd:
        """The end of `epoch` in this log, or of the largest smaller one where it is not known here."""
        if epoch < 0 or not self._entries or epoch > self._entries[-1].epoch:
            return UNKNOWN
        if epoch == self._entries[-1].epoch:
            return EpochEnd(epoch, log_end)
        i = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if i == 0:  # older than all that is known: it ended before the first entry
            return EpochEnd(epoch, self._entries[0].start_offset)
        return EpochEnd(self._entries[i - 1].epoch, self._entries[i].start_offset)

    def truncate_end(self, offset: Offset) -> None:
        """The log was truncated to `offset`: drop the epochs that start at or above it."""
        while self._entries and self._entries[-1].start_offset >= offset:
            self._entries.pop()
            self.dirty = True
        self.latest = self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    def truncate_start(self, offset: Offset) -> None:
        """The log now starts at `offset`: the epoch that contains it starts there, older ones are dropped."""
        i = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        if i == 0 or (i == 1 and self._entries[0].start_offset == offset):
            return
        self._entries[:i] = [EpochEntry(self._entries[i - 1].epoch, offset)]
        self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self._entries)
        self._entries.clear()
        self.latest = NO_LEADER_EPOCH
