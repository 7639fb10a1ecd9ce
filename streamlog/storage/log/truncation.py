"""Truncating a log: at an offset, to nothing, or at its damage; then restoring the producers' state.

    checkpoints lowered, durably --> one synchronous step: files cut, facts changed --> producers restored

Checkpoints come first: with a recovery point above the new end, the next start would take the missing records for lost
ones. Waits may be overtaken by another truncation, so each step looks at the log again.

What is appended next continues at the new end, so the batches before it must reach up to it. A base offset that damage
has moved would leave a hole, or a batch too many, that nothing shows later. So the log ends where its batches stop
joining, if that is lower; the rest is fetched again from the leader. In a log that may have gaps that is unknown.
"""

from __future__ import annotations

from streamlog.errors import CorruptMessageError
from streamlog.model import Offset
from streamlog.records import read_header
from streamlog.records.header import HEADER_SIZE, MAGIC
from streamlog.storage.files import names
from streamlog.storage.log.damage import examine_segment, rebuild_damaged_indexes
from streamlog.storage.log.segment_changes import schedule_deletion
from streamlog.storage.log.state import LogState
from streamlog.storage.producers import state_replay
from streamlog.storage.producers.producer_states import ProducerStates
from streamlog.storage.segments.scan import ReadAt, Scan, run
from streamlog.storage.segments.segment import SCAN_BYTES, Segment


async def truncate(log: LogState, offset: Offset) -> None:
    """As `Log.truncate`."""
    log.durability.check()
    if offset >= log.log_end_offset:
        return
    await rebuild_damaged_indexes(log, log.segments.at(log.segments.index_of(offset)))
    end, _ = _cut_point(log, offset)
    await log.owner.lower_checkpoints(log.partition, end, end)
    if offset < log.log_end_offset:  # else truncated by another call meanwhile
        _truncate(log, offset)
    await restore_producers(log)


def _truncate(log: LogState, offset: Offset) -> None:
    if offset <= log.segments.first.base_offset:
        _restart_at(log, offset)
        return
    removed = log.segments.remove_from(offset)
    active = log.segments.active
    try:
        end, position = _cut_point(log, offset)
        schedule_deletion(log, removed[::-1])
        active.truncate(position, end)
        active.become_active(end)
        _on_truncated(log, end, active, removed)
    except OSError as e:
        raise log.owner.fail(e) from e


def _cut_point(log: LogState, offset: Offset) -> tuple[Offset, int]:
    """Where a log that is truncated at `offset` ends, and at which position of that segment."""
    segment = log.segments.at(log.segments.index_of(offset))
    if not log.has_gaps:
        return run(segment.file, _joined_end(segment, offset))
    position = run(segment.file, segment.seek(offset))
    if position == segment.size_bytes:
        return offset, position
    header = read_header(segment.file.pread(HEADER_SIZE, position), 0)
    return min(offset, header.base_offset), position


def _joined_end(segment: Segment, offset: Offset) -> Scan[tuple[Offset, int]]:
    """End, and its position, of the batches that join and are below `offset`."""
    entry = segment.offset_index.lookup(offset)
    if 0 < entry.position <= segment.size_bytes - HEADER_SIZE:
        header = read_header((yield ReadAt(HEADER_SIZE, entry.position)), 0)
        if header.magic == MAGIC and header.last_offset == entry.offset:  # index and header agree
            return (yield from _joined_end_from(segment, entry.position, header.base_offset, offset))
    return (yield from _joined_end_from(segment, 0, segment.base_offset, offset))


def _joined_end_from(segment: Segment, position: int, expected: int, offset: Offset) -> Scan[tuple[Offset, int]]:
    while position <= segment.size_bytes - HEADER_SIZE:
        data = yield ReadAt(min(SCAN_BYTES, segment.size_bytes - position), position)
        at = 0
        while at + HEADER_SIZE <= len(data):
            header = read_header(data, at)
            is_whole = HEADER_SIZE <= header.size_bytes <= segment.size_bytes - position - at
            joins = header.base_offset == expected and header.last_offset_delta >= 0
            if header.magic != MAGIC or not is_whole or not joins or header.next_offset > offset:
                return Offset(expected), position + at
            expected = header.next_offset
            at += header.size_bytes
        position += at
    return Offset(expected), position


async def restart_at(log: LogState, offset: Offset) -> None:
    """As `Log.restart_at`."""
    log.durability.check()
    await log.owner.lower_checkpoints(log.partition, Offset(0), offset)
    await log.owner.save_log_starts({log.partition: offset})
    _restart_at(log, offset)


def _restart_at(log: LogState, offset: Offset) -> None:
    old = list(log.segments)
    try:
        schedule_deletion(log, old[::-1])
        segment = Segment.create(log.fs, log.directory, offset, log.config)
        log.segments.replace_all(segment)
        log.log_start_offset = offset
        log.damage = log.lost_head = None
        _on_truncated(log, offset, segment, old, restarted=True)
    except OSError as e:
        raise log.owner.fail(e) from e
    log.epochs.clear()  # those below `offset` too: their records are removed
    log.derived.producers = ProducerStates((), offset)
    log.derived.producers_stale = False


def _on_truncated(
    log: LogState, end: Offset, active: Segment, removed: list[Segment], *, restarted: bool = False
) -> None:
    log.log_end_offset = end
    log.log_start_offset = min(log.log_start_offset, end)
    log.derived.segments_gone([active, *removed])
    for segment in [active, *removed]:
        log.damaged_segments.pop(segment, None)  # damage that remains is found again
    log.derived.truncated(end)
    log.durability.truncated(end, active, removed, restarted=restarted)


async def discard_damage(log: LogState) -> None:
    """As `Log.discard_damage`."""
    if log.damage is None:
        return
    await note_incomplete(log)
    if log.lost_head is not None:
        await restart_at(log, log.lost_head)
        return
    await log.owner.lower_checkpoints(log.partition, log.log_end_offset, log.log_end_offset)
    log.damage = None
    active = log.segments.active
    try:
        active.file.truncate(active.size_bytes)
        for name in log.fs.list(log.directory):
            parsed = names.parse_file_name(name)
            if parsed is not None and parsed[0] > active.base_offset:
                log.fs.unlink(names.join(log.directory, name))
    except OSError as e:
        raise log.owner.fail(e) from e
    _on_truncated(log, log.log_end_offset, active, [])
    await restore_producers(log)


async def note_incomplete(log: LogState) -> None:
    """Durable before the log ends where its node never reported it to end. StorageError."""
    try:
        log.fs.open(names.join(log.directory, names.INCOMPLETE), create=True).close()
        await log.fs.sync_dir(log.directory)
    except OSError as e:
        raise log.owner.fail(e) from e
    log.incomplete = True


async def restore_producers(log: LogState) -> None:
    """As `Log.restore_producers`."""
    while log.derived.producers_stale:
        generation = log.durability.generation
        try:
            with log.in_use():
                end = log.log_end_offset
                producers = await state_replay.restore_producers(log.fs, log.directory, log.segments, end)
        except CorruptMessageError as error:
            if generation != log.durability.generation:
                continue
            for segment in [one for one in log.segments if one.path(names.LOG) == error.path]:
                await examine_segment(log, segment)  # so that it is repaired
            raise
        if generation == log.durability.generation and producers.map_end_offset >= log.log_end_offset:
            log.derived.producers = producers
            log.derived.producers_stale = False
