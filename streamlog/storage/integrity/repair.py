"""Rewriting a damaged segment from its intact ranges and the batches of another replica.

    <base>.log.cleaned and its indexes   intact batches are copied (and checked again), missing ones fetched
    -> synced, then swapped in as by compaction (`swap`): a crash leaves the old segment or the new one

More may be missing than one segment can contain (a whole file was lost): further segments follow the first then. The
index of aborted transactions gets the entries of the old one, and those found in the batches.

What is only in doubt is fetched, too: either the other replica has the leader epoch of the log's table, and its batch
is taken, or it has the same bytes, and the table is wrong.

Damage that stands side by side is fetched as one range: where a base offset has been changed, or a header is gone, no
batch need begin or end at the offsets in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import groupby
from typing import Final, cast

from streamlog.errors import CorruptMessageError, DamagedFileError
from streamlog.model import Offset
from streamlog.ports import FileSystem
from streamlog.records import BatchHeader
from streamlog.storage.files import names
from streamlog.storage.log.damaged_ranges import ExaminationResult, SegmentDamage
from streamlog.storage.log.log import Log
from streamlog.storage.producers.markers import marker_in
from streamlog.storage.producers.producer_states import ProducerStates
from streamlog.storage.producers.transaction_replay import producers_before
from streamlog.storage.segments.batch_checks import NO_EPOCHS, BatchContext, IntactBatches, check_batches, epoch_in
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.transaction_index import AbortedTransaction
from streamlog.storage.segments.verified import VerifiedRange

CHUNK_BYTES: Final = 1 << 20
FREE_BYTES_MIN: Final = 16 << 20
"""A repair leaves at least this much free."""

Fetch = Callable[[Offset, Offset], AsyncIterator[bytes]]
"""Whole batches of the offsets [begin, end) from another replica, in order. What it raises ends the repair."""


async def repair_segment(fs: FileSystem, log: Log, segment: Segment, found: ExaminationResult, fetch: Fetch) -> bool:
    """Replace `segment` by an intact copy; False where the log has changed meanwhile. Raises what `fetch` raises,
    CorruptMessageError where the fetched batches do not fit, DamagedFileError for lack of free space, StorageError.
    """
    with log.in_use():
        _check_free_bytes(fs, log, segment, found)
        if segment is log.segments.active:
            log.roll_now()
        whole = found if _end_of(found) >= segment.size_bytes else await log.examine(segment)
        return whole is not None and await _Repair(fs, log, segment, whole, fetch).run()


def _end_of(found: ExaminationResult) -> int:
    """Batches that were appended during the examination, or since, are not in it."""
    return max([*(one.end for one in found.intact), *(one.end_position for one in found.damages)], default=0)


class _Repair:
    def __init__(self, fs: FileSystem, log: Log, segment: Segment, found: ExaminationResult, fetch: Fetch) -> None:
        self._fs = fs
        self._log = log
        self._segment = segment
        self._found = found
        self._fetch = fetch
        self._bound = log.segments.end_of(log.segments.index_of(segment.base_offset), log.log_end_offset)
        self._size_max = max(log.config.segment_bytes, segment.size_bytes)
        self._outputs: list[Segment] = []
        self._aborted: dict[Offset, AbortedTransaction] = {}
        self._producers: ProducerStates | None = None  # None: unknown, so transactions are not tracked

    async def run(self) -> bool:
        log, segment = self._log, self._segment
        generation = log.durability.generation
        self._producers = await producers_before(self._fs, log.directory, log.segments, segment)
        segment.pin()
        try:
            self._begin(segment.base_offset)
            await self._write()
            self._index_transactions()
            for output in self._outputs:
                output.become_closed()
                await output.sync()
        except BaseException:
            self._discard()
            raise
        finally:
            segment.unpin()
        if generation != log.durability.generation or not log.are_adjacent([segment]):
            self._discard()
            return False
        log.replace_segments([segment], self._outputs[0], self._outputs[1:])
        return True

    async def _write(self) -> None:
        parts: list[VerifiedRange | SegmentDamage] = [*self._found.intact, *self._found.damages]
        # Offsets that are missing before a batch are damage of no bytes, at its position.
        parts.sort(key=lambda part: (part.begin, 1) if isinstance(part, VerifiedRange) else (part.position, 0))
        for is_intact, run in groupby(parts, key=lambda part: isinstance(part, VerifiedRange)):
            if is_intact:
                for part in cast(Iterable[VerifiedRange], run):
                    await self._copy(part)
            else:
                await self._fill(list(cast(Iterable[SegmentDamage], run)))

    async def _copy(self, part: VerifiedRange) -> None:
        position, size = part.begin, CHUNK_BYTES
        while position < part.end:
            self._log.durability.check()
            wanted = min(size, part.end - position)
            data = await self._segment.file.read(wanted, position)
            if len(data) < wanted:
                raise CorruptMessageError("the file is shorter than it was", position=position)
            taken = self._append(data, self._context(position, part.end))
            size = CHUNK_BYTES if taken else size * 2
            position += taken

    async def _fill(self, damages: Sequence[SegmentDamage]) -> None:
        first, last = damages[0], damages[-1]
        doubts = {one.begin_offset: one.position for one in damages if one.in_doubt}
        expected, place = first.begin_offset, None  # where the batch stands here, if it is in doubt
        table = self._log.epochs.entries
        async for data in self._fetch(first.begin_offset, last.end_offset):
            context = BatchContext(
                path="the fetched batches",
                position=0,
                stop=len(data),
                expected=expected,
                bound=last.end_offset,
                epochs=NO_EPOCHS if doubts else table,
            )
            intact = check_batches(data, context)
            for position, header in intact.batches:
                by_table, stop = epoch_in(table, header.last_offset), position + header.size_bytes
                place = doubts.get(header.base_offset, place)
                if header.leader_epoch != by_table and not await self._has_at(place, data[position:stop]):
                    raise CorruptMessageError(
                        f"offset {header.base_offset} was fetched with leader epoch {header.leader_epoch}, but has"
                        f" {by_table} here"
                    )
                if header.base_offset > expected and not self._log.has_gaps:
                    raise CorruptMessageError(f"offset {header.base_offset} was fetched where {expected} was expected")
                expected = header.next_offset
                place = None if place is None else place + header.size_bytes
            self._add(data, intact)
        if expected < last.end_offset and not self._log.has_gaps:
            raise CorruptMessageError(f"nothing was fetched from {expected} on, up to {last.end_offset}")

    async def _has_at(self, place: int | None, batch: bytes) -> bool:
        """Whether the segment has the same bytes there."""
        return place is not None and await self._segment.file.read(len(batch), place) == batch

    def _context(self, position: int, stop: int) -> BatchContext:
        return BatchContext(
            path=self._segment.path(names.LOG),
            position=position,
            stop=stop,
            expected=self._segment.base_offset,
            bound=self._bound,
        )

    def _append(self, data: bytes, context: BatchContext) -> int:
        """Append the intact batches at the start of `data`. Returns their size."""
        intact = check_batches(data, context)
        taken = intact.end - context.position
        if taken:
            self._add(data[:taken], intact)
        return taken

    def _add(self, data: bytes, intact: IntactBatches) -> None:
        """Append to the last output, or to a new one where they do not fit."""
        if not intact.batches:
            return
        origin = intact.batches[0][0]
        batches = [(position - origin, header) for position, header in intact.batches]
        output = self._outputs[-1]
        if output.size_bytes and output.size_bytes + len(data) > self._size_max:
            output = self._begin(batches[0][1].base_offset)
        output.append((data,), batches, len(data))
        for position, header in batches:
            self._follow(data, position, header)

    def _begin(self, base: Offset) -> Segment:
        output = Segment.create(self._fs, self._log.directory, base, self._log.config, suffix=names.CLEANED)
        self._outputs.append(output)
        return output

    def _follow(self, data: bytes, position: int, header: BatchHeader) -> None:
        if self._producers is None or not header.has_producer:
            return
        marker = marker_in(data[position : position + header.size_bytes], header) if header.is_control else None
        aborted = self._producers.update(header, marker)
        if aborted is not None:
            self._aborted[aborted.last_offset] = aborted

    def _index_transactions(self) -> None:
        try:
            for known in self._segment.transaction_index.entries():
                self._aborted.setdefault(known.last_offset, known)
        except DamagedFileError:
            pass  # only the entries found in the batches are left
        for _, aborted in sorted(self._aborted.items()):
            home = [one for one in self._outputs if one.base_offset <= aborted.last_offset][-1]
            home.transaction_index.append(aborted)

    def _discard(self) -> None:
        for output in self._outputs:
            output.close()
            output.unlink()


def _check_free_bytes(fs: FileSystem, log: Log, segment: Segment, found: ExaminationResult) -> None:
    """Before anything is written: a repair must not take a full disk offline."""
    wanted = segment.size_bytes + FREE_BYTES_MIN
    if fs.free_bytes(log.directory) < wanted:
        first = found.damages[0]
        reason = f"{first.reason}: too little free space to rewrite the segment ({wanted} bytes)"
        raise DamagedFileError(first.path, first.position, reason, "free space on that disk")
