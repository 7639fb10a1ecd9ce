"""Segments removed or replaced: by retention, by compaction, by a repair, by a truncation.

Files are renamed at once and deleted after a delay. The order of the renames matters, because a power cut may keep a
part of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamlog.model import NO_OFFSET, Offset
from streamlog.storage.files import names
from streamlog.storage.log.state import LogState
from streamlog.storage.segments.segment import Segment


def advance_log_start(log: LogState, offset: Offset) -> None:
    """As `Log.advance_log_start`."""
    if offset > log.log_end_offset:
        raise log.out_of_range(offset)
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_start(offset)
        log.owner.log_start_moved(log)


def remove_oldest(log: LogState, count: int) -> None:
    """As `Log.remove_oldest`."""
    log.durability.check()
    removed = log.segments.remove_first(count)
    advance_log_start(log, log.segments.first.base_offset)
    try:
        schedule_deletion(log, removed)
    except OSError as e:
        raise log.owner.fail(e) from e
    log.derived.segments_gone(removed)
    for segment in removed:
        log.damaged_segments.pop(segment, None)
    log.durability.names_changed()


def replace_segments(log: LogState, old: list[Segment], copy: Segment, further: Sequence[Segment]) -> None:
    """As `Log.replace_segments`."""
    log.durability.check()
    try:
        for segment in reversed(further):
            segment.rename("", log_last=True)
        copy.rename(names.SWAP, log_last=True)
        schedule_deletion(log, old, keep_snapshot_of=copy.base_offset)
        copy.rename("", log_last=True)
    except OSError as e:
        raise log.owner.fail(e) from e
    appended = [segment.appended_s for segment in old if segment.appended_s is not None]
    for segment in (copy, *further):
        segment.appended_s = max(appended, default=None)
    log.segments.replace(old, [copy, *further])
    log.derived.segments_gone(old)
    for segment in (copy, *further):
        log.derived.note_transactions(segment)
    for segment in old:
        log.damaged_segments.pop(segment, None)
    log.durability.names_changed()
    log.durability.request()


def schedule_deletion(log: LogState, segments: list[Segment], *, keep_snapshot_of: Offset = NO_OFFSET) -> None:
    """Rename them in this order and delete them later. A truncation passes the newest first, retention the oldest: so
    whatever a power cut keeps of the renames, the log has no hole. OSError.
    """
    paths = []
    for segment in segments:
        segment.rename(names.DELETED, log_last=False)
        snapshot = segment.snapshot_path
        if segment.base_offset != keep_snapshot_of and log.fs.exists(snapshot):
            log.fs.rename(snapshot, snapshot + names.DELETED)
            paths.append(snapshot + names.DELETED)
    if segments:
        log.owner.schedule_deletion(segments, paths, log.config.file_delete_delay_ms)
