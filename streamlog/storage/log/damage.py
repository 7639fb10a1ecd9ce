"""A log's damaged segments: examined, noted in `damaged_segments`, and their indexes rebuilt where they are wrong.

    a read or the scrubber meets a corrupt batch -> `examine_segment` -> intact: noted as verified
                                                                      -> damage: noted, the owner is notified
                                                                      -> a wrong index: rebuilt

`.txnindex` has no checksum of its own: that of a closed segment is kept in a file beside it (`DerivedState`). Where it
does not match, the entries are recomputed from the batches.
"""

from __future__ import annotations

from contextlib import suppress

from streamlog.errors import CorruptMessageError, DamagedFileError
from streamlog.model import Offset
from streamlog.storage.files import names
from streamlog.storage.log.damaged_ranges import ExaminationResult, SegmentDamage
from streamlog.storage.log.examination import examine
from streamlog.storage.log.state import LogState
from streamlog.storage.producers.transaction_replay import aborted_in
from streamlog.storage.segments.index_rebuild import rebuild_indexes
from streamlog.storage.segments.segment import Segment


def damage_at(log: LogState, segment: Segment, offset: Offset) -> SegmentDamage | None:
    """The first damage of `segment` that is not below `offset` and is not served."""
    found = log.damaged_segments.get(segment)
    for damaged in () if found is None else found.damages:
        if damaged.end_offset > offset and not (damaged.in_doubt and log.serves_doubtful):
            return damaged
    return None


def unreadable(log: LogState, damaged: SegmentDamage) -> DamagedFileError:
    """For a reader of this range."""
    return DamagedFileError(
        damaged.path,
        damaged.position,
        f"{damaged.reason}: {log.partition} cannot be read at offset {damaged.begin_offset}",
        f"it is repaired from another in-sync replica, if there is one ('streamlogctl partition repair"
        f" {log.partition}'); a reader that can do without these records continues at offset {damaged.end_offset}",
    )


async def examine_segment(log: LogState, segment: Segment) -> ExaminationResult | None:
    """As `Log.examine`."""
    with log.in_use():
        found = await examine(log, segment)
        if found is not None:
            await note_examination(log, segment, found)
        return found


async def note_examination(log: LogState, segment: Segment, found: ExaminationResult) -> None:
    """What the examination of a segment that still belongs to the log has found."""
    if not found.damages and segment is not log.segments.active and not segment.transaction_index.checked:
        with suppress(DamagedFileError):  # an earlier segment is damaged: once that is repaired
            await _repair_transaction_index(log, segment)
        if segment not in log.segments:
            return
    known = log.damaged_segments.pop(segment, None)
    if found.damages:
        segment.verified.forget()
    for intact in found.intact:
        segment.verified.add(*intact)
    if found.damages:
        log.damaged_segments[segment] = found
        if known is None or found.damages != known.damages:
            before = () if known is None else known.damages
            log.owner.on_damage_found(log.partition, [one for one in found.damages if one not in before])
    elif found.index_fault:
        if segment is log.segments.active:
            log.roll_now()  # what is appended meanwhile goes to another one
        await rebuild_indexes(segment)
        log.owner.on_index_rebuilt(segment.path(names.INDEX), found.index_fault)


async def rebuild_damaged_indexes(log: LogState, segment: Segment) -> None:
    """Rebuild those that cannot be used, before a step that must not fail half-way. DamagedFileError, StorageError."""
    with log.in_use():
        try:
            segment.offset_index.last()
            segment.time_index.last()
        except DamagedFileError as error:
            with suppress(CorruptMessageError):  # they end there; a read beyond finds the damage
                await rebuild_indexes(segment)
            log.owner.on_index_rebuilt(error.path, error.reason)
        if not segment.transaction_index.checked and segment is not log.segments.active:
            with suppress(DamagedFileError):  # an earlier segment is damaged
                await _repair_transaction_index(log, segment)
        _ = segment.transaction_index.count


def check_transaction_index(log: LogState, segment: Segment) -> None:
    """DamagedFileError where the index of aborted transactions differs from what it was when it was closed."""
    index = segment.transaction_index
    expected = log.derived.transaction_sums.get(segment.base_offset)
    if expected is not None and segment is not log.segments.active and index.checksum() != expected:
        raise DamagedFileError(index.file.path, 0, "it does not match its checksum", "it is recomputed from the log")
    index.checked = True


async def repair_transaction_indexes(log: LogState) -> None:
    """As `Log.repair_transaction_indexes`."""
    with log.in_use():
        for segment in log.segments.closed():
            if not segment.transaction_index.checked:
                await _repair_transaction_index(log, segment)


async def _repair_transaction_index(log: LogState, segment: Segment) -> None:
    try:
        check_transaction_index(log, segment)
    except DamagedFileError as error:
        found = await aborted_in(log.fs, log.directory, log.segments, segment)
        if segment not in log.segments:
            return
        if found is None:
            raise
        segment.transaction_index.clear()
        for aborted in found:
            segment.transaction_index.append(aborted)
        await segment.transaction_index.sync()
        log.derived.note_transactions(segment)
        log.owner.on_index_rebuilt(error.path, error.reason)
