"""What a log derives from its batches: the table of leader epochs, the state of producers, indexes of closed segments,
aborted transactions.

All of it can be rebuilt from the batches, so none of it is synced with them. It is made durable in bulk, before the
recovery point passes the batches that it is derived from (`LogDirectory.checkpoint`):

    write    -> temporary files and page cache          (every log)
    sync_all                                            (once for all logs)
    install  -> rename into place; sync_all once more

A torn snapshot is never used: it carries a CRC, and an older one gives the same state.
"""

from __future__ import annotations

from streamlog.model import Offset
from streamlog.ports import FileSystem
from streamlog.records import BatchHeader
from streamlog.records.header import CONTROL_BIT
from streamlog.storage.files import names
from streamlog.storage.files.checkpoints import EpochEntry, format_epochs, format_sums
from streamlog.storage.files.replace_file import install, write_temporary
from streamlog.storage.log.epochs import LeaderEpochs
from streamlog.storage.producers.markers import read_marker
from streamlog.storage.producers.producer_states import ProducerStates
from streamlog.storage.producers.snapshot_files import drop_snapshots_above, save_snapshot
from streamlog.storage.segments.segment import Segment


class DerivedState:
    """Owned by its log, which reports each batch and each truncation."""

    __slots__ = (
        "_directory",
        "_epochs_written",
        "_fs",
        "_snapshots_unsaved",
        "_sums_dirty",
        "_sums_written",
        "_unsaved",
        "epochs",
        "producers",
        "producers_stale",
        "transaction_sums",
    )

    def __init__(self, fs: FileSystem, directory: str, epochs: LeaderEpochs, producers: ProducerStates) -> None:
        self._fs = fs
        self._directory = directory
        self.epochs = epochs
        self.producers = producers
        self.producers_stale = False  # since a truncation: to be restored before the next append
        self._unsaved: dict[Segment, None] = {}  # closed since their indexes were last synced
        self._snapshots_unsaved = False
        # Of `.txnindex`, by the base offset of its closed segment: it has no checksum of its own, and transactions
        # missing in it would be shown to readers of committed records. A segment without one is not checked.
        self.transaction_sums: dict[Offset, int] = {}
        self._sums_dirty = False
        self._sums_written = False
        self._epochs_written: tuple[EpochEntry, ...] | None = None  # to a temporary file, and not installed yet

    def follow(self, header: BatchHeader, segment: Segment, position: int) -> None:
        """A batch was appended to `segment`, at `position`. The producers must not be stale."""
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        if header.attributes & CONTROL_BIT:
            follow_control(self.producers, header, segment, position)
        else:
            self.producers.update(header)

    def segment_closed(self, segment: Segment, end_offset: Offset) -> None:
        self._unsaved[segment] = None
        self.note_transactions(segment)
        self.take_snapshot(end_offset)

    def note_transactions(self, segment: Segment) -> None:
        """The segment is closed, and its index of aborted transactions is correct."""
        self.transaction_sums[segment.base_offset] = segment.transaction_index.checksum()
        self._sums_dirty = True

    def segments_gone(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._unsaved.pop(segment, None)
            self._sums_dirty |= self.transaction_sums.pop(segment.base_offset, None) is not None

    def truncated(self, end_offset: Offset) -> None:
        """The log ends at `end_offset` now: drop later epochs and snapshots, and the producers' state where it may be
        wrong.
        """
        self.epochs.truncate_end(end_offset)
        if self.producers.is_unmoved_by_cut(end_offset) and not self.producers_stale:
            self.producers.map_end_offset = end_offset
        else:
            self.producers_stale = True
        drop_snapshots_above(self._fs, self._directory, end_offset)

    def take_snapshot(self, end_offset: Offset) -> None:
        """Write the producers' state at the log's end."""
        if self.producers_stale:
            return
        save_snapshot(self._fs, self._directory, self.producers, end_offset)
        self._snapshots_unsaved = True

    def recovered(self, *, stale: bool) -> None:
        """After a scan: the snapshots taken during it become durable with the next checkpoint."""
        self._snapshots_unsaved = True
        self.producers_stale = stale

    def write(self) -> bool:
        """Whether there is something to sync, and to `install` after that."""
        unsaved = self.epochs.dirty or self._snapshots_unsaved or bool(self._unsaved) or self._sums_dirty
        if self._sums_dirty:
            self._sums_dirty, self._sums_written = False, True
            write_temporary(self._fs, self._sums_path, format_sums(self.transaction_sums))
        if self.epochs.dirty:
            self._epochs_written = self.epochs.entries
            write_temporary(self._fs, self._epochs_path, format_epochs(self._epochs_written))
        self._unsaved = {}
        self._snapshots_unsaved = False
        return unsaved

    def install(self) -> None:
        """Rename what was written into place; what the log has derived since is written the next time."""
        if self._sums_written and self._fs.exists(self._sums_path + names.TEMPORARY):
            install(self._fs, self._sums_path)
        self._sums_written = False
        written, self._epochs_written = self._epochs_written, None
        if written is not None and self._fs.exists(self._epochs_path + names.TEMPORARY):
            install(self._fs, self._epochs_path)
            self.epochs.dirty = self.epochs.entries != written

    @property
    def _sums_path(self) -> str:
        return names.join(self._directory, names.TRANSACTION_SUMS)

    @property
    def _epochs_path(self) -> str:
        return names.join(self._directory, names.LEADER_EPOCHS)


def follow_control(producers: ProducerStates, header: BatchHeader, segment: Segment, position: int) -> None:
    """Apply the control batch at `position` of `segment` to `producers`: it may end a transaction; an aborted one is
    added to the segment's index.
    """
    aborted = producers.update(header, read_marker(segment.file, position, header))
    if aborted is not None:
        segment.transaction_index.append(aborted)
