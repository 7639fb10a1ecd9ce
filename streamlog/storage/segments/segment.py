"""One segment: a `.log` file of batches, its `.index` and `.timeindex`, and a `.txnindex` where it needs one.

States: *active* (the last of its log: indexes preallocated, written to), *closed* (never written again, indexes
trimmed). Files are opened when first needed, so that a closed or idle segment costs memory only.

A segment is not concerned with durability: its log passes the files to sync to group commit. What it keeps in memory
about the file's end (size, largest timestamp, tail positions) is valid after `create`, recovery or `load_end`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from streamlog.errors import CorruptMessageError, DamagedFileError
from streamlog.model import INT32_MAX, NO_TIMESTAMP, Offset
from streamlog.ports import Buffer, File, FileSystem
from streamlog.records import BatchHeader, read_header, scan_headers
from streamlog.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from streamlog.storage.files import names
from streamlog.storage.log_config import LogConfig
from streamlog.storage.segments.offset_index import OffsetIndex
from streamlog.storage.segments.scan import ReadAt, Scan
from streamlog.storage.segments.tail import Tail
from streamlog.storage.segments.time_index import TimeEntry, TimeIndex
from streamlog.storage.segments.transaction_index import TransactionIndex
from streamlog.storage.segments.verified import Verified

SCAN_BYTES = 8192  # one read covers the distance between two index entries and the header after it


class Segment:
    """Owned by one log. Readers that wait for the device hold a `pin`; a deleted segment is closed by the last one."""

    __slots__ = (
        "_bytes_since_index",
        "_closing",
        "_directory",
        "_file",
        "_first_timestamp",
        "_fs",
        "_idle",
        "_index_is_full",
        "_max_timestamp",
        "_pins",
        "_size_bytes",
        "_suffix",
        "_trimmed",
        "appended_s",
        "base_offset",
        "config",
        "offset_index",
        "tail",
        "time_index",
        "transaction_index",
        "truncations",
        "verified",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: Offset,
        config: LogConfig,
        *,
        size_bytes: int = -1,
        suffix: str = "",
    ) -> None:
        self._fs = fs
        self._directory = directory
        self.config = config  # of its log, which replaces it before it asks whether to roll
        self._suffix = suffix
        self.base_offset = base_offset
        self._size_bytes = size_bytes  # of intact batches: bytes beyond are not part of the log; -1: the file's size
        self.offset_index = OffsetIndex(fs, self.path(names.INDEX), base_offset, config.segment_index_bytes)
        self.time_index = TimeIndex(fs, self.path(names.TIME_INDEX), base_offset, config.segment_index_bytes)
        self.transaction_index = TransactionIndex(fs, self.path(names.TXN_INDEX))
        self.verified = Verified()
        self.appended_s: float | None = None  # monotonic time of the last append; None: none since the start
        self.tail: Tail | None = None
        self.truncations = 0  # for a rebuild of the indexes, which one may interrupt
        self._file: File | None = None
        self._bytes_since_index = 0
        self._first_timestamp = NO_TIMESTAMP  # largest of the first batch: rolling by age counts from it
        self._max_timestamp: TimeEntry | None = None  # None: read it from the time index
        self._index_is_full: bool | None = None  # one of the two; None: to be looked up
        self._pins = 0
        self._closing = False
        self._trimmed = False  # active, but the indexes are not preallocated yet
        self._idle = False  # not used since the last `release_if_idle`

    @classmethod
    def create(
        cls, fs: FileSystem, directory: str, base_offset: Offset, config: LogConfig, *, suffix: str = ""
    ) -> Segment:
        """An empty active segment. Its names are durable after the next sync of the directory. Existing files of the
        same name are emptied.
        """
        segment = cls(fs, directory, base_offset, config, size_bytes=0, suffix=suffix)
        segment.file.truncate(0)
        segment.reset_indexes(preallocate=not suffix)
        segment.transaction_index.clear()
        segment.verified = Verified(0)
        segment.tail = Tail(base_offset)
        return segment

    def file_name(self, kind: str) -> str:
        return names.file_name(self.base_offset, kind) + self._suffix

    def path(self, kind: str) -> str:
        return names.join(self._directory, self.file_name(kind))

    @property
    def size_bytes(self) -> int:
        if self._size_bytes < 0:
            self._size_bytes = self.file.size()
        return self._size_bytes

    @size_bytes.setter
    def size_bytes(self, size: int) -> None:
        self._size_bytes = size

    @property
    def snapshot_path(self) -> str:
        """State of the producers at the base offset. Belongs to the log, deleted with the segment."""
        return names.join(self._directory, names.file_name(self.base_offset, names.SNAPSHOT))

    @property
    def file(self) -> File:
        self._idle = False
        if self._file is None:
            self._file = self._fs.open(self.path(names.LOG), create=True)
        return self._file

    # -- appending

    def append(self, buffers: Sequence[Buffer], batches: Sequence[tuple[int, BatchHeader]], size: int) -> int:
        """Append batches; where they begin in the file. `batches`: position in the buffers, and header as it will be
        read.
        """
        start = self.size_bytes
        if self._trimmed:
            self._preallocate()
        self.file.pwritev(buffers, start)
        for position, header in batches:
            self.note(start + position, header)
        self._size_bytes = start + size
        return start

    def _preallocate(self) -> None:
        """Extend the indexes; only once they are written to, because most logs are idle after a start."""
        self.offset_index.file.preallocate(self.offset_index.preallocated_bytes)
        self.time_index.file.preallocate(self.time_index.preallocated_bytes)
        self._trimmed = False

    def note(self, position: int, header: BatchHeader) -> None:
        """Add the batch at `position` to tail, largest timestamp and indexes."""
        last_offset = Offset(header.base_offset + header.last_offset_delta)
        if self.tail is not None:
            self.tail.append(Offset(last_offset + 1), position)
        if position == 0:
            self._first_timestamp = header.max_timestamp
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last()
        if header.max_timestamp > self._max_timestamp.timestamp_ms:
            self._max_timestamp = TimeEntry(header.max_timestamp, last_offset)
        if self._bytes_since_index > self.config.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(*self._max_timestamp)
            self._bytes_since_index = 0
            self._index_is_full = None
        self._bytes_since_index += LOG_OVERHEAD + header.length

    def note_all(self, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """`note` for many consecutive batches, while the tail is not kept."""
        if self.tail is not None or batches[0][0] == 0:
            for position, header in batches:
                self.note(position, header)
            return
        interval, since, newest = self.config.index_interval_bytes, self._bytes_since_index, self.max_timestamp
        for position, header in batches:
            if header.max_timestamp > newest.timestamp_ms:
                newest = TimeEntry(header.max_timestamp, header.last_offset)
            if since > interval:
                self.offset_index.append(header.last_offset, position)
                self.time_index.maybe_append(*newest)
                since = 0
            since += header.length + LOG_OVERHEAD
        self._bytes_since_index, self._max_timestamp = since, newest
        self._index_is_full = None

    def is_full_for(self, size: int, last_offset: Offset, timestamp_ms: int) -> bool:
        """Whether a batch of `size` bytes needs a new segment (SEMANTICS 11)."""
        used = self.size_bytes
        if not used:
            return False
        if self._index_is_full is None:
            self._index_is_full = self.offset_index.is_full or self.time_index.is_full
        return (
            self._index_is_full
            or used + size > self.config.segment_bytes
            or last_offset - self.base_offset > INT32_MAX
            or self._is_too_old_for(timestamp_ms)
        )

    def _is_too_old_for(self, timestamp_ms: int) -> bool:
        if timestamp_ms < 0:
            return False
        if self._first_timestamp == NO_TIMESTAMP:
            self._first_timestamp = read_header(self.file.pread(HEADER_SIZE, 0), 0).max_timestamp
        return self._first_timestamp >= 0 and timestamp_ms - self._first_timestamp > self.config.segment_ms

    # -- states of the files

    def become_active(self, end_offset: Offset) -> None:
        """The log's last segment, after a start or a truncation; the next batch begins at `end_offset`."""
        self._trimmed = True
        self._index_is_full = None
        if self.tail is None:
            self.tail = Tail(end_offset)

    def become_closed(self) -> None:
        """Add the last entry to the time index, trim both indexes. The owner syncs them before it relies on them."""
        self.time_index.maybe_append(*self.max_timestamp)
        self.offset_index.file.trim()
        self.time_index.file.trim()
        self.tail = None

    def reset_indexes(self, *, preallocate: bool) -> None:
        """Before `note` of every batch. Aborted transactions are not derived from headers, and stay."""
        self.offset_index.clear(preallocate=preallocate)
        self.time_index.clear(preallocate=preallocate)
        self._index_is_full = None
        self._bytes_since_index = 0
        self._max_timestamp = TimeEntry(NO_TIMESTAMP, self.base_offset)

    @contextmanager
    def rebuilding(self) -> Iterator[None]:
        """Around many calls of `note` for existing batches: index entries are written in bulk."""
        files = (self.offset_index.file, self.time_index.file, self.transaction_index.file)
        for file in files:
            file.hold()
        try:
            yield
        finally:
            for file in files:
                file.release()

    async def sync(self) -> None:
        """Log and indexes, not their directory entries."""
        await self.file.sync()
        await self.offset_index.file.sync()
        await self.time_index.file.sync()
        await self.transaction_index.sync()

    def truncate(self, position: int, offset: Offset) -> None:
        """Truncate the log to `position`, where the first batch at or above `offset` begins."""
        self.truncations += 1
        self.file.truncate(position)
        self.size_bytes = position
        self.verified.cut(position)
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self._index_is_full = None
        self.transaction_index.truncate(offset)
        self._find_max_timestamp()
        if position == 0:
            self._first_timestamp = NO_TIMESTAMP
        if self.tail is not None:
            self.tail.reset(offset)

    def _find_max_timestamp(self) -> None:
        """After a truncation: of the batches since the last index entry the time index may know nothing."""
        start = self.offset_index.last().position
        newest = self.time_index.last()
        data = self.file.pread(self.size_bytes - start, start) if start < self.size_bytes else b""
        with suppress(CorruptMessageError):  # a read finds the damage
            for _, header in scan_headers(data, 0, len(data)):
                if header.max_timestamp > newest.timestamp_ms:
                    newest = TimeEntry(header.max_timestamp, header.last_offset)
        self._max_timestamp, self._bytes_since_index = newest, self.size_bytes - start

    def rename(self, suffix: str, *, log_last: bool) -> None:
        """Give all files another suffix. Open files stay open and readable.

        A segment exists if its `.log` does: it is renamed first on removal, and last on installation.
        """
        kinds = reversed(names.SEGMENT_FILES) if log_last else names.SEGMENT_FILES
        for kind in kinds:
            source = self.path(kind)
            if self._fs.exists(source):
                self._fs.rename(source, names.join(self._directory, names.file_name(self.base_offset, kind) + suffix))
        self._suffix = suffix
        self.offset_index.file.path = self.path(names.INDEX)  # where it is reopened
        self.time_index.file.path = self.path(names.TIME_INDEX)
        self.transaction_index.file.path = self.path(names.TXN_INDEX)

    def unlink(self) -> None:
        for kind in names.SEGMENT_FILES:
            if self._fs.exists(self.path(kind)):
                self._fs.unlink(self.path(kind))

    def pin(self) -> None:
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1
        if self._closing and not self._pins:
            self.close()

    def release_if_idle(self) -> None:
        """Close the files if they were not used since the last call."""
        if self._idle and not self._pins:
            self.close()
        self._idle = True

    def close(self) -> None:
        """Close the files, once no reader has a pin. A later use opens them again."""
        self._closing = self._pins > 0
        if self._closing:
            return
        if self._file is not None:
            self._file.close()
            self._file = None
        self.offset_index.file.close()
        self.time_index.file.close()
        self.transaction_index.close()

    # -- contents

    @property
    def max_timestamp(self) -> TimeEntry:
        """Largest timestamp of its batches and the last offset of the first batch that has it; (-1, base): none."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last()
        return self._max_timestamp

    def load_end(self, end_offset: Offset, *, may_have_gaps: bool) -> None:
        """After a clean stop: read from the last index entry to the end, and check that offsets are contiguous up to
        `end_offset`. A truncation may have left an empty segment behind a gap. DamagedFileError.
        """
        entry = self.offset_index.last()
        self._max_timestamp = self.time_index.last()
        position, next_offset = entry.position, self.base_offset
        data = self.file.pread(self.size_bytes - position, position) if self.size_bytes > position else b""
        self._bytes_since_index = len(data)
        try:
            for at, header in scan_headers(data, 0, len(data)):
                if (
                    header.base_offset != next_offset
                    and at
                    and not (may_have_gaps and header.base_offset > next_offset)
                ):
                    reason = f"offset {header.base_offset} where {next_offset} was expected, after a clean stop"
                    raise DamagedFileError(self.path(names.LOG), entry.position + at, reason)
                position = entry.position + at + header.size_bytes
                next_offset = header.next_offset
                if header.max_timestamp > self._max_timestamp.timestamp_ms:
                    self._max_timestamp = TimeEntry(header.max_timestamp, header.last_offset)
        except CorruptMessageError as e:
            raise DamagedFileError(self.path(names.LOG), entry.position + (e.position or 0), e.reason) from None
        if position != self.size_bytes:
            raise DamagedFileError(self.path(names.LOG), position, "the last batch is incomplete, after a clean stop")
        is_cut = may_have_gaps and not self.size_bytes and self._max_timestamp.timestamp_ms < 0
        if next_offset != end_offset and not is_cut:
            reason = f"it ends at offset {next_offset}, but the clean stop left it at {end_offset}"
            raise DamagedFileError(self.path(names.LOG), position, reason)
        self.verified.written_from = self.size_bytes

    def seek(self, offset: Offset) -> Scan[int]:
        """Position of the first batch with a record at or above `offset`; `size_bytes` where all are below it."""
        if self.tail is not None:
            known = self.tail.position_after(offset, self.size_bytes)
            if known is not None:
                return known
        position = self.offset_index.lookup(offset).position
        if 0 < position <= self.size_bytes:
            try:
                return (yield from self.seek_from(position, offset))
            except CorruptMessageError:  # an index has no CRC: a wrong entry costs a scan, not the read
                pass
        return (yield from self.seek_from(0, offset))

    def seek_from(self, position: int, offset: Offset) -> Scan[int]:
        """As `seek`, from the batch at `position` on."""
        while position < self.size_bytes:
            data = yield ReadAt(min(SCAN_BYTES, self.size_bytes - position), position)
            at = 0
            while at + HEADER_SIZE <= len(data):
                header = read_header(data, at)
                size = self.checked_size(header, position + at)
                if header.next_offset > offset:
                    return position + at
                at += size
            position = self.further(position, at)
        return position

    def locate(
        self, offset: Offset, end_offset: Offset | None, size_max: int, *, at_least_one: bool
    ) -> Scan[tuple[int, int] | None]:
        """Positions [start, stop) of whole batches from the one that contains `offset` (or the next) on, all below
        `end_offset` (None: no bound), together at most `size_max` bytes; with `at_least_one`, the first even if it is
        larger. An empty range: not even the first fits; None: there is none in this segment. Batches appended during
        the search are not included. Only the headers' lengths are checked.
        """
        whole = self.size_bytes
        start = yield from self.seek(offset)
        end = whole if end_offset is None else (yield from self.seek(end_offset))
        if end <= start:
            return None
        limit = min(end, start + size_max)
        if start < limit < end:
            limit = yield from self._boundary(start, limit)
        if limit <= start and at_least_one:
            header = read_header((yield ReadAt(HEADER_SIZE, start)), 0)
            limit = start + self.checked_size(header, start)
        return start, max(start, limit)

    def _boundary(self, start: int, limit: int) -> Scan[int]:
        """The last end of a batch in (start, limit], or `start`."""
        if self.tail is not None:
            known = self.tail.boundary_before(limit, self.size_bytes)
            if known is not None:
                return max(start, known)
        position = self.offset_index.lookup_position(limit).position
        if start < position <= limit:
            try:
                return (yield from self._boundary_from(position, limit))
            except CorruptMessageError:  # as in `seek`
                pass
        return (yield from self._boundary_from(start, limit))

    def _boundary_from(self, position: int, limit: int) -> Scan[int]:
        while True:
            data = yield ReadAt(min(SCAN_BYTES, self.size_bytes - position), position)
            at = 0
            while at + HEADER_SIZE <= len(data):
                size = self.checked_size(read_header(data, at), position + at)
                if position + at + size > limit:
                    return position + at
                at += size
            position = self.further(position, at)
            if position >= limit:
                return position

    def further(self, position: int, step: int) -> int:
        if not step:  # fewer bytes than a header: only in a corrupt log, and a search must end
            raise CorruptMessageError("incomplete batch header", path=self.path(names.LOG), position=position)
        return position + step

    def checked_size(self, header: BatchHeader, position: int) -> int:
        size = header.size_bytes
        if header.magic != MAGIC or not HEADER_SIZE <= size <= self.size_bytes - position:
            raise CorruptMessageError(
                f"not a record batch: magic {header.magic}, length {header.length}",
                path=self.path(names.LOG),
                position=position,
            )
        return size
