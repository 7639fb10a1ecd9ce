"""Opening a log: complete or undo what the previous process left unfinished, then open it as checkpointed (clean stop)
or scan it (`recovery`).

left behind        at the start
.deleted           removed: its deletion was decided
.tmp, .cleaned     removed: was never part of the log
.swap              complete: replaces the segments that it covers
index without log  removed; not that of aborted transactions, where the log is lost (`lost_segments`)
old .snapshot      removed, where it is of an earlier clean stop: neither the newest nor at the base of a segment
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from streamlog.errors import CorruptMessageError, DamagedFileError
from streamlog.model import Offset, TopicPartition
from streamlog.ports import FileSystem, Probe
from streamlog.storage.files import names
from streamlog.storage.files.checkpoints import SIZE_MAX, parse_epochs, parse_sums
from streamlog.storage.files.replace_file import read_file
from streamlog.storage.log.epochs import LeaderEpochs
from streamlog.storage.log.log import Log
from streamlog.storage.log.state import LogOwner
from streamlog.storage.log_config import LogConfig
from streamlog.storage.producers.producer_states import ProducerStates
from streamlog.storage.producers.snapshot_files import drop_snapshots_above
from streamlog.storage.producers.state_replay import restore_producers
from streamlog.storage.recovery.lost_segments import keep_lost_segments
from streamlog.storage.recovery.recovery import Recovery
from streamlog.storage.segments.header_scan import scan_file
from streamlog.storage.segments.index_rebuild import rebuild_indexes
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.segment_list import Segments
from streamlog.storage.segments.swap import finish_swaps


class OpenAt(Struct, frozen=True, kw_only=True):
    """What the directory's checkpoints say of one log."""

    recovery_point: Offset
    log_start: Offset
    clean: bool  # after a clean stop: the log ends at `recovery_point`, no scan is needed
    starts_known: bool = True  # the checkpoint of log starts was read: a log without an entry begins at 0
    cleaned: bool = False  # it has been compacted
    foreign: bool = False  # there were no recovery points: a directory written by Kafka, or a damaged one


async def open_log(
    fs: FileSystem,
    owner: LogOwner,
    partition: TopicPartition,
    directory: str,
    config: LogConfig,
    at: OpenAt,
    probe: Probe,
) -> Log:
    """Open the log in `directory`, which exists; an empty one begins at `at.log_start`.

    Damaged content is not an error here: it sets the log's `damage`. OSError where the disk fails.
    """
    return await _Opening(fs, owner, partition, directory, config, at, probe).run()


class _Opening(Struct):
    fs: FileSystem
    owner: LogOwner
    partition: TopicPartition
    directory: str
    config: LogConfig
    at: OpenAt
    probe: Probe
    gaps_noted: bool = False
    incomplete: bool = False
    sums: dict[Offset, int] = field(default_factory=dict)  # checksums of `.txnindex`, by segment

    @property
    def may_have_gaps(self) -> bool:
        """Whether offsets may be missing between batches. The topic's settings may not be known yet at this point."""
        return self.gaps_noted or self.at.cleaned or self.at.foreign or self.config.cleanup_compact

    async def run(self) -> Log:
        self.sums = _load_sums(self.fs, self.directory, self.probe)
        files = finish_swaps(self.fs, self.directory, self.fs.list(self.directory))
        self.gaps_noted = names.GAPS in files
        if not self.may_have_gaps:
            files = [*files, *await keep_lost_segments(self.fs, self.directory, files, self.sums)]
        files = tidy(self.fs, self.directory, files)
        bases = sorted(parsed[0] for parsed in map(names.parse_file_name, files) if parsed and parsed[1] == names.LOG)
        is_ours = self.fs.exists(names.join(self.directory, names.TRANSACTION_SUMS))
        begin = bases[0] if bases else self.at.recovery_point
        if self.at.starts_known and is_ours and begin > self.at.log_start:
            return self._without_head(await self._found(bases, files), Offset(begin))
        return await self._found(bases, files)

    def _without_head(self, log: Log, begin: Offset) -> Log:
        """The checkpoint says where the log began, and the segment there is missing. Unreported, it would look as if
        retention had deleted it, and be deleted elsewhere too once this replica leads.
        """
        path = names.join(self.directory, names.file_name(self.at.log_start, names.LOG))
        reason = f"the segments of offsets {self.at.log_start} to {begin} are missing: the log began there"
        log.damage = DamagedFileError(path, 0, reason, "the log is fetched again from the partition's leader")
        log.lost_head = self.at.log_start
        log.torn_unless_synced = False
        self.probe("log_damaged", path=path, position=0, reason=reason)
        return log

    async def _found(self, bases: list[Offset], files: list[str]) -> Log:
        if not bases:
            return self._empty()
        segments = [Segment(self.fs, self.directory, base, self.config) for base in bases]
        await _index_missing(segments[:-1], files)
        self.incomplete = names.INCOMPLETE in files
        epochs = _load_epochs(self.fs, self.directory, self.probe)
        is_empty = len(segments) == 1 and self.at.recovery_point == segments[0].base_offset
        if self.at.clean and (epochs is not None or is_empty):
            opened = await self._clean(segments, epochs or LeaderEpochs())  # a log without records may lack the table
            if opened is not None:
                return opened
        return await self._unclean(segments, epochs)

    def _empty(self) -> Log:
        start = self.at.log_start
        drop_snapshots_above(self.fs, self.directory, start)
        segment = Segment.create(self.fs, self.directory, start, self.config)
        log = self._log([segment], LeaderEpochs(), ProducerStates((), start), start)
        log.durability.truncated(start, segment, [], restarted=True)
        return log

    async def _clean(self, segments: list[Segment], epochs: LeaderEpochs) -> Log | None:
        """The log as its clean stop left it; None where it differs from that and must be scanned."""
        active, end = segments[-1], self.at.recovery_point
        try:
            active.load_end(end, may_have_gaps=self.may_have_gaps)
            self._check_transactions(active)
        except DamagedFileError as e:
            self.probe("clean_stop_disproved", path=e.path, position=e.position, reason=e.reason)
            return None
        try:
            producers, is_stale = await self._producers_at(end, segments), False
        except CorruptMessageError:  # its replica tries again, and has the segment repaired
            producers, is_stale = ProducerStates((), end), True
        active.close()  # nothing to sync: most logs stay idle, and open their files when they are used
        log = self._log(segments, epochs, producers, end)
        log.derived.producers_stale = is_stale
        return log

    def _check_transactions(self, active: Segment) -> None:
        """After a clean stop. DamagedFileError."""
        index = active.transaction_index
        if self.sums.get(active.base_offset, (actual := index.checksum())) != actual:
            raise DamagedFileError(index.file.path, 0, "it does not match its checksum")
        index.checked = True

    async def _unclean(self, segments: list[Segment], epochs: LeaderEpochs | None) -> Log:
        first = Segments(segments).index_of(self.at.recovery_point)
        if first and self.at.recovery_point <= segments[first].base_offset:
            # The previous segment may have been truncated and appended to, and a power cut have restored this one.
            first -= 1
        table = () if epochs is None else epochs.entries
        if epochs is None:
            epochs, first = await _rebuild_epochs(segments[:first])
        producers, first = await self._producers_before(first, segments)
        epochs.truncate_end(segments[first].base_offset)
        recovery = Recovery(
            self.fs,
            self.directory,
            self.config,
            self.probe,
            segments=segments,
            first=first,
            recovery_point=self.at.recovery_point,
            epochs=epochs,
            producers=producers,
            table=table,
            may_have_gaps=self.may_have_gaps,
            gaps_allowed=self.at.foreign and self.config.cleanup_compact,
        )
        found = await recovery.run()
        self.incomplete |= found.cut_bytes > 0
        log = self._log(found.segments, epochs, producers, found.end_offset, damage=found.damage)
        log.unproven_from = self.at.recovery_point
        log.torn_unless_synced = found.torn_unless_synced
        log.derived.recovered(stale=recovery.producers_stale)
        for segment in found.segments[first:-1]:
            log.derived.note_transactions(segment)
        await log.restore_producers()
        return log

    async def _producers_before(self, first: int, segments: list[Segment]) -> tuple[ProducerStates, int]:
        """The state before the scan, and the segment where it begins: `first`, or an earlier one that is damaged, and
        read because the snapshots after it are lost.
        """
        while True:
            try:
                return await self._producers_at(segments[first].base_offset, segments), first
            except CorruptMessageError as error:
                first = [segment.path(names.LOG) for segment in segments].index(error.path or "")

    async def _producers_at(self, offset: Offset, segments: list[Segment]) -> ProducerStates:
        return await restore_producers(self.fs, self.directory, Segments(segments), offset)

    def _log(
        self,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerStates,
        end: Offset,
        *,
        damage: DamagedFileError | None = None,
    ) -> Log:
        segments[-1].become_active(end)
        start = max(segments[0].base_offset, min(end, self.at.log_start))
        epochs.truncate_start(start)
        log = Log(
            self.fs,
            self.owner,
            self.partition,
            self.directory,
            self.config,
            segments=Segments(segments),
            epochs=epochs,
            producers=producers,
            log_start_offset=start,
            log_end_offset=end,
            damage=damage,
            gaps_noted=self.gaps_noted or self.at.cleaned,
            incomplete=self.incomplete,
        )
        closed = {segment.base_offset for segment in segments[:-1]}
        log.derived.transaction_sums = {base: value for base, value in self.sums.items() if base in closed}
        return log


def tidy(fs: FileSystem, directory: str, files: Sequence[str]) -> list[str]:
    """Remove unfinished files, and what segments without a log have left. Returns the names that remain."""
    logs = {parsed[0] for parsed in map(names.parse_file_name, files) if parsed and parsed[1:] == (names.LOG, "")}
    snapshots = {
        parsed[0] for parsed in map(names.parse_file_name, files) if parsed and parsed[1:] == (names.SNAPSHOT, "")
    }
    needed = logs | {max(snapshots, default=Offset(0))}
    kept = []
    for name in files:
        parsed = names.parse_file_name(name)
        orphan = parsed is not None and parsed[1] in names.SEGMENT_FILES and parsed[0] not in logs
        orphan = orphan or (parsed is not None and parsed[1] == names.SNAPSHOT and parsed[0] not in needed)
        if orphan or name.endswith((names.DELETED, names.TEMPORARY, names.CLEANED)):
            fs.unlink(names.join(directory, name))
        else:
            kept.append(name)
    return kept


def _load_epochs(fs: FileSystem, directory: str, probe: Probe) -> LeaderEpochs | None:
    """The table from its file; None where the file is missing or damaged."""
    path = names.join(directory, names.LEADER_EPOCHS)
    try:
        content = read_file(fs, path, SIZE_MAX)
        return None if content is None else LeaderEpochs(parse_epochs(path, content))
    except DamagedFileError as e:
        probe("epochs_rebuilt", path=e.path, position=e.position, reason=e.reason)
        return None


def _load_sums(fs: FileSystem, directory: str, probe: Probe) -> dict[Offset, int]:
    path = names.join(directory, names.TRANSACTION_SUMS)
    try:
        content = read_file(fs, path, SIZE_MAX)
        return {} if content is None else parse_sums(path, content)
    except DamagedFileError as e:
        probe("checkpoint_ignored", path=e.path, position=e.position, reason=e.reason)
        return {}


async def _index_missing(segments: list[Segment], files: list[str]) -> None:
    """Rebuild the indexes of closed segments that lack one."""
    present = set(files)
    for segment in segments:
        if {segment.file_name(names.INDEX), segment.file_name(names.TIME_INDEX)} <= present:
            continue
        try:
            await rebuild_indexes(segment)
        except CorruptMessageError:
            pass  # the indexes end there; a read beyond finds the damage
        await segment.sync()


async def _rebuild_epochs(segments: list[Segment]) -> tuple[LeaderEpochs, int]:
    """From the batches of segments below the scan. Returns also where the scan begins: after them, or at a damaged one,
    since the epochs of the segments after it cannot be known.
    """
    epochs = LeaderEpochs()
    for number, segment in enumerate(segments):
        try:
            async for batches in scan_file(segment.file, 0, segment.size_bytes, check_crc=False):
                for _, header in batches:
                    epochs.assign(header.leader_epoch, header.base_offset)
        except CorruptMessageError:
            return epochs, number
    return epochs, len(segments)
