"""What one partition's log consists of: its segments, offsets and derived state, and the facts that follow from them.

`log.Log` adds appending and reading; `truncation`, `segment_changes`, `damage` and `reading` are functions over this
state. The log directory that owns a log is a `LogOwner` here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from streamlog.errors import DamagedFileError, OffsetOutOfRangeError, StorageError
from streamlog.model import NO_LEADER_EPOCH, EpochEnd, LeaderEpoch, Offset, TopicPartition
from streamlog.ports import FileSystem
from streamlog.storage.log.damaged_ranges import ExaminationResult, SegmentDamage
from streamlog.storage.log.derived_state import DerivedState
from streamlog.storage.log.durability import Durability
from streamlog.storage.log.epochs import LeaderEpochs
from streamlog.storage.log_config import LogConfig
from streamlog.storage.producers.producer_states import ProducerStates
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.segment_list import Segments


class LogOwner(Protocol):
    """The log directory, as its logs see it."""

    def monotonic(self) -> float:
        """Seconds, as `ports.Clock` has it."""

    def mark(self, log: LogState) -> None:
        """`log` needs a sync."""

    def schedule_deletion(self, segments: Sequence[Segment], paths: Sequence[str], delay_ms: int) -> None:
        """Remove these renamed segments and files after the delay."""

    def fail(self, error: OSError) -> StorageError:
        """A write failed: take the directory offline. Returns what to raise."""

    def on_damage_found(self, partition: TopicPartition, damages: Sequence[SegmentDamage]) -> None:
        """Ranges below the log's end cannot be read (`damaged_segments`). `damages`: those not reported yet."""

    def on_index_rebuilt(self, path: str, reason: str) -> None:
        """An index was wrong and has been rebuilt."""

    async def lower_checkpoints(self, partition: TopicPartition, recovery_point: Offset, log_start: Offset) -> None:
        """Before a truncation: durably lower the log's checkpointed offsets to at most these."""

    def log_start_moved(self, log: LogState) -> None:
        """It has risen: write it to the checkpoint soon. `start_saved` of the log is called then."""

    def saved_log_start(self, log: LogState) -> Offset:
        """As in the checkpoint."""

    async def save_log_starts(self, starts: Mapping[TopicPartition, Offset]) -> None:
        """Before the segments below them are removed: durably write these log starts to the checkpoint."""


class LogState:
    """Owned by its directory. Not safe for use from several threads."""

    __slots__ = (
        "_unused",
        "_users",
        "config",
        "damage",
        "damaged_segments",
        "derived",
        "directory",
        "durability",
        "fs",
        "gaps_noted",
        "incomplete",
        "leader_has_gaps",
        "log_end_offset",
        "log_start_offset",
        "lost_head",
        "owner",
        "partition",
        "segments",
        "serves_doubtful",
        "start_saved",
        "torn_unless_synced",
        "unproven_from",
    )

    def __init__(
        self,
        fs: FileSystem,
        owner: LogOwner,
        partition: TopicPartition,
        directory: str,
        config: LogConfig,
        *,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        log_start_offset: Offset,
        log_end_offset: Offset,
        damage: DamagedFileError | None = None,
        gaps_noted: bool = False,
        incomplete: bool = False,
    ) -> None:
        self.fs = fs
        self.owner = owner
        self.partition = partition
        self.directory = directory
        self.config = config  # may be replaced while running
        self.segments = segments
        self.derived = DerivedState(fs, directory, epochs, producers)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.damage = damage  # found at the start: what is intact before it is served, appends are refused
        self.gaps_noted = gaps_noted  # offsets may be missing between batches; a file in the directory says so
        self.incomplete = incomplete  # it may lack records that it had on stable storage; a file says so
        self.unproven_from: Offset | None = None  # epochs from here on were not compared since an unclean stop
        self.leader_has_gaps = False  # of the leader that is followed
        self.torn_unless_synced = False  # the damage is a torn tail where the topic does not sync each append
        self.lost_head: Offset | None = None  # with damage: the log's start before its first segments were lost
        self.damaged_segments: dict[Segment, ExaminationResult] = {}  # found since the start
        self.serves_doubtful = False  # no replica can show what is wrong of batches in doubt: their records are intact
        self.durability = Durability(partial(owner.mark, self), log_end_offset)
        self.start_saved: Callable[[], None] | None = None  # called when a new log start is in the checkpoint
        self._users = 0  # of `in_use`
        self._unused = asyncio.Event()
        self._unused.set()

    # -- facts

    @property
    def epochs(self) -> LeaderEpochs:
        return self.derived.epochs

    @property
    def producers(self) -> ProducerStates:
        return self.derived.producers

    @property
    def ackable_end(self) -> Offset:
        """Records below it may be acknowledged, and it is what a follower reports to its leader (SEMANTICS 1 and 5)."""
        return self.durability.synced_end if self.config.syncs_each_append else self.log_end_offset

    @property
    def last_record_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last record; -1 where there is none."""
        if self.log_end_offset == self.log_start_offset:
            return NO_LEADER_EPOCH
        return self.derived.epochs.epoch_of(Offset(self.log_end_offset - 1))

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def has_gaps(self) -> bool:
        """Whether offsets may be missing between batches, because this log, or the one that it was copied from, is or
        was compacted (I20).
        """
        return self.gaps_noted or self.config.cleanup_compact

    def end_offset_for(self, epoch: LeaderEpoch) -> EpochEnd:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The end for readers of committed records: no transaction below it is open. At most `high_watermark`, which
        must not be below that of an earlier call. The log's start while the producers' state is not restored.
        """
        if self.derived.producers_stale:
            return self.log_start_offset
        first = self.derived.producers.first_unstable_offset(high_watermark)
        return high_watermark if first is None else min(high_watermark, max(first, self.log_start_offset))

    def out_of_range(self, offset: Offset) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"{self.partition}: offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}",
            field="offset",
            log_start=self.log_start_offset,
            log_end=self.log_end_offset,
        )

    # -- the active segment

    def roll(self) -> Segment:
        """Close the active segment and start another at the log's end. Its names are durable with the next sync."""
        active = self.segments.active
        active.become_closed()
        self.derived.segment_closed(active, self.log_end_offset)
        segment = Segment.create(self.fs, self.directory, self.log_end_offset, self.config)
        self.segments.append(segment)
        self.durability.names_changed()
        self.durability.request()
        return segment

    def roll_now(self) -> None:
        """`roll`, for callers outside of an append; an empty active segment stays. A failure is a StorageError."""
        self.durability.check()
        if not self.segments.active.size_bytes:
            return
        try:
            self.roll()
        except OSError as e:
            raise self.owner.fail(e) from e

    # -- use of its files

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Around work on the files that awaits in between: the log is not removed during it. An OSError in it takes
        the directory offline. StorageError where the log is closed or removed: its paths may be another one's already.
        """
        self.durability.check()
        self._users += 1
        self._unused.clear()
        try:
            yield
        except OSError as e:
            raise self.owner.fail(e) from e
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def wait_until_unused(self) -> None:
        await self._unused.wait()
