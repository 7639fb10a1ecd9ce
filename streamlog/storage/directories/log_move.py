"""A log that moves to another log directory of its node while it is used (Kafka's KIP-113).

    copying    `t-0.<hex>-future` in the target gets the bytes of the segments, while the log is appended to, compacted,
               truncated, repaired
    caught up  at most SWAP_BYTES are missing or not yet verified; the owner takes the replica's role away
    swap       without a role, so nothing is appended. Each step is durable before the next one:
                 1  the log is frozen: its files are as after a clean stop
                 2  the rest is copied; the copy is opened once, to see that it is whole
                 3  the target's checkpoints get the log's recovery point and start
                 4  `moving-to` in the log's directory names the target
                 5  the copy is renamed to `t-0`: from here on it is the log
                 6  what was the log is renamed to `-delete`, and removed later

The copy is the same bytes in the same files, so it needs no state of its own: epochs, producers, indexes and all marks
are those of the source, and what is damaged there is refused here, by the CRCs of the batches.

A segment is copied once it is known by its object: compaction and repairs put another one in its place, which is copied
instead, and what has been copied of the first is removed. A truncation restarts the copy.

A start that finds `moving-to` looks for the partition in the other directories (`LogDirectories`): up to step 5 there
is none, so the log has not moved; after it the copy is the log. While a directory is absent this is undecided, and the
replica offline: one of the two must not go on without the other, or the older one could win later. Unfinished copies
are removed at the start.

A full disk must not take the replicas of the target offline: the copy leaves some space free, and ends where there is
less. Neither that, nor damage in the source, affects the log: the move ends, and `failure` says why.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from crc32c import crc32c
from msgspec import Struct

from streamlog.errors import CorruptMessageError, OutcomeUnknownError, StorageError, StreamlogError
from streamlog.model import Offset
from streamlog.ports import File, FileSystem, Random
from streamlog.records import scan_headers
from streamlog.records.header import CRC_START
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.files import names
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig
from streamlog.storage.segments.segment import Segment

CHUNK_BYTES: Final = 1 << 20
SYNC_BYTES: Final = 8 << 20
"""Written to one file, the copy is synced: a larger backlog would delay the syncs of the target's logs."""
SWAP_BYTES: Final = 1 << 20
FREE_BYTES: Final = 1 << 30
FREE_SHARE: Final = 20
"""The copy leaves FREE_BYTES of the target free, or this part of a small disk."""
_INDEXES: Final = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)
_UNFINISHED: Final = (names.TEMPORARY, names.DELETED, names.CLEANED, names.SWAP)


class _Copied(Struct):
    """Of one segment."""

    position: int = 0  # up to here its batches are in the copy
    verified: int = 0  # and up to here their CRCs were right
    indexes: bool = False  # of a closed segment


class LogMove:
    """One move. Owned by the node; `begin`, then `catch_up` as often as needed, then `swap`; else `abandon`."""

    def __init__(
        self,
        fs: FileSystem,
        log: Log,
        source: LogDirectory,
        target: LogDirectory,
        random: Random,
        pace: Callable[[int], float],
    ) -> None:
        """`pace`: for how many seconds the copy of so many bytes must wait; 0: not, and they count."""
        self.log = log
        self.source = source
        self.target = target
        self.failure: StorageError | None = None  # why it ended without success
        self.is_swapping = False
        self.is_done = False
        self.settled = asyncio.Event()  # the swap has ended, with or without success
        self._fs = fs
        self._pace = pace
        token = random.getrandbits(128)
        name = names.removed_directory_name(log.partition, token, names.FUTURE_SUFFIX)
        self.path = names.join(target.path, name)
        self._copied: dict[Segment, _Copied] = {}
        self._generation = log.durability.generation
        self._indexes_rebuilt = source.indexes_rebuilt
        self._end = log.segments.first.base_offset  # up to here all records were in the copy at some time

    @property
    def size_bytes(self) -> int:
        """Of the copy."""
        return sum(copied.position for copied in self._copied.values())

    def verified_bytes(self, segment: Segment) -> int:
        """Of this segment's bytes in the copy."""
        copied = self._copied.get(segment)
        return 0 if copied is None else copied.verified

    @property
    def offset_lag(self) -> int:
        """How many offsets the copy lacks, at most."""
        return max(0, self.log.log_end_offset - max(self._end, self.log.log_start_offset))

    # -- while the log is used

    async def begin(self) -> None:
        """StorageError: it cannot be moved, or its disks have failed."""
        self._check()
        self._check_space(self.log.size_bytes)
        try:
            self._fs.mkdir(self.path)
            await self._fs.sync_dir(self.target.path)
        except OSError as e:
            raise self._failed_write(e) from e

    def cancel(self, reason: str) -> None:
        """`catch_up` ends with this."""
        self.failure = self.failure or StorageError(reason)

    async def catch_up(self) -> None:
        """Copy and verify until at most SWAP_BYTES are left. StorageError."""
        while True:
            self._check()
            self._drop_stale()
            step = self._next_step(final=False)
            if step is None:
                return
            await step()

    async def abandon(self) -> None:
        """Remove the copy. Its disk may have failed."""
        try:
            if self.target.failure is None and self._fs.exists(self.path):
                for name in self._fs.list(self.path):
                    self._fs.unlink(names.join(self.path, name))
                self._fs.rmdir(self.path)
                await self._fs.sync_dir(self.target.path)
        except OSError as e:
            self.target.fail(e)

    def _check(self) -> None:
        log = self.log
        if self.failure is not None:
            raise self.failure
        log.durability.check()
        self.target.check()
        if log.damage is not None or log.damaged_segments:
            raise StorageError(
                f"{log.partition} is damaged: first repair it ('streamlogctl partition repair {log.partition}')"
            )

    def _drop_stale(self) -> None:
        """What has been copied and is not the log's any more."""
        log = self.log
        if self._generation != log.durability.generation:
            self._generation = log.durability.generation
            stale = list(self._copied)
        else:
            stale = [segment for segment in self._copied if segment not in log.segments]
        try:
            for segment in stale:
                del self._copied[segment]
                for kind in names.SEGMENT_FILES:
                    path = self._path(names.file_name(segment.base_offset, kind))
                    if self._fs.exists(path):
                        self._fs.unlink(path)
        except OSError as e:
            raise self.target.fail(e) from e
        if self._indexes_rebuilt != self.source.indexes_rebuilt:
            self._indexes_rebuilt = self.source.indexes_rebuilt
            for copied in self._copied.values():
                copied.indexes = False

    def _next_step(self, *, final: bool) -> Callable[[], Awaitable[None]] | None:
        """`final`: to the last byte."""
        log = self.log
        missing, is_due = 0, final
        first: Callable[[], Awaitable[None]] | None = None
        for index, segment in enumerate(log.segments):
            copied = self._copied.setdefault(segment, _Copied())
            step: Callable[[], Awaitable[None]] | None = None
            missing += segment.size_bytes - copied.verified
            if copied.position < segment.size_bytes:
                step = partial(self._copy_chunk, segment, copied)
            elif copied.verified < copied.position:
                step = partial(self._verify, segment, copied)
            elif segment is not log.segments.active and not copied.indexes:
                is_due = True
                step = partial(self._copy_indexes, segment, copied)
            elif first is None:
                self._end = log.segments.end_of(index, log.log_end_offset)
            first = first or step
        return first if is_due or missing > SWAP_BYTES else None

    async def _copy_chunk(self, segment: Segment, copied: _Copied) -> None:
        """Up to CHUNK_BYTES at a time; at the end of the segment, and now and then, they are synced."""
        source = self._open(segment.path(names.LOG))
        try:
            target = self._create(segment.file_name(names.LOG))
            try:
                if not copied.position:
                    target.truncate(0)
                unsynced = 0
                end = segment.size_bytes
                while copied.position < end and unsynced < SYNC_BYTES and self._is_current(segment):
                    size = min(CHUNK_BYTES, end - copied.position)
                    await self._wait(size)
                    data = await self._read(source, size, copied.position)
                    if not self._is_current(segment):
                        break
                    if len(data) < size:
                        raise StorageError(f"{source.path} is shorter than it was: it has no byte {copied.position}")
                    self._check_space(size)
                    self._write(target, data, copied.position)
                    copied.position += size
                    unsynced += size
                await target.sync()
            except OSError as e:
                raise self._failed_write(e) from e
            finally:
                target.close()
        finally:
            source.close()

    def _is_current(self, segment: Segment) -> bool:
        log = self.log
        return self._generation == log.durability.generation and segment in log.segments

    async def _verify(self, segment: Segment, copied: _Copied) -> None:
        """The CRCs of what has been copied since the last time, as it is in the copy."""
        path, end = self._path(segment.file_name(names.LOG)), copied.position
        file = self._open_copy(path)
        try:
            size = CHUNK_BYTES
            while copied.verified < end:
                wanted = min(size, end - copied.verified)
                read = partial(_intact_bytes, path, copied.verified)
                done = await self._read_with(file, wanted, copied.verified, read)
                if not done and wanted == end - copied.verified:
                    raise CorruptMessageError("the last batch is incomplete", path=path, position=copied.verified)
                copied.verified += done
                size = CHUNK_BYTES if done else 2 * size
        except CorruptMessageError as e:
            if self._is_current(segment):
                raise StorageError(
                    f"{self.log.partition} has a damaged batch at position {e.position} of"
                    f" {segment.path(names.LOG)} ({e.reason}): first repair it"
                    f" ('streamlogctl partition repair {self.log.partition}')"
                ) from e
        finally:
            file.close()

    async def _copy_indexes(self, segment: Segment, copied: _Copied) -> None:
        """Of a closed segment. If one is rebuilt meanwhile, they are copied again."""
        copied.indexes = True
        for kind in _INDEXES:
            if self._is_current(segment) and self._fs.exists(segment.path(kind)):
                await self._copy_file(segment.path(kind), segment.file_name(kind))

    async def _copy_file(self, source_path: str, name: str) -> None:
        source = self._open(source_path)
        try:
            target = self._create(name)
            try:
                target.truncate(0)
                position = 0
                while data := await self._read(source, CHUNK_BYTES, position):
                    await self._wait(len(data))
                    self._check_space(len(data))
                    self._write(target, data, position)
                    position += len(data)
                await target.sync()
            except OSError as e:
                raise self._failed_write(e) from e
            finally:
                target.close()
        finally:
            source.close()

    # -- the swap

    async def swap(self, config: LogConfig) -> Log:
        """Move what has no role and no truncation under way. Returns the log that is used from now on: the one in the
        target, or the same one again, opened again, with `failure` set. StorageError: neither can be used.
        """
        log, source, target = self.log, self.source, self.target
        self.is_swapping = True
        try:
            await log.durability.wait_until_synced(log.log_end_offset)
        except OutcomeUnknownError as error:
            self.failure = StorageError(str(error))
            return log
        await source.moving.freeze(log)
        try:
            await self._complete_copy(config)
            await target.moving.expect(log, source.checkpoints.cleaned.get(log.partition, Offset(0)))
            await source.moving.note_moving(log.partition, target.meta.directory_id)
            target.check()
            self._rename()
        except StreamlogError as error:
            target.moving.expect_no_more(log.partition)
            source.check()
            self.failure = error if isinstance(error, StorageError) else StorageError(str(error))
            return await source.moving.thaw(log.partition, config)
        except BaseException:
            target.moving.expect_no_more(log.partition)
            raise
        try:
            await self._fs.sync_dir(target.path)
        except OSError as e:
            raise target.fail(e) from e
        moved = await target.moving.adopt(log, config)
        try:
            await source.moving.drop_frozen(log.partition)
        except StorageError:
            pass  # its disk has failed: the next start with it removes what is left
        self.is_done = True
        return moved

    def _rename(self) -> None:
        try:
            self._fs.rename(self.path, self.target.partition_path(self.log.partition))
        except OSError as e:
            raise self.target.fail(e) from e

    async def _complete_copy(self, config: LogConfig) -> None:
        """StorageError, also where the result cannot be opened as after a clean stop."""
        log = self.log
        self._drop_stale()
        while (step := self._next_step(final=True)) is not None:
            await step()
        copied = {segment.file_name(kind) for segment in log.segments.closed() for kind in names.SEGMENT_FILES}
        if log.segments.active.size_bytes:
            copied.add(log.segments.active.file_name(names.LOG))
        kept = {name for name in self._list(log.directory) if not name.endswith(_UNFINISHED)} - {names.MOVING_TO}
        for name in sorted(kept - copied):
            await self._copy_file(names.join(log.directory, name), name)
        try:
            for name in self._fs.list(self.path):
                if name not in kept:
                    self._fs.unlink(names.join(self.path, name))
            await self._fs.sync_dir(self.path)
            opened = await self.target.moving.open_copy(log, self.path, config)
        except OSError as e:
            raise self.target.fail(e) from e
        opened.close()
        facts = (opened.log_start_offset, opened.log_end_offset, opened.size_bytes)
        if opened.damage is not None or facts != (log.log_start_offset, log.log_end_offset, log.size_bytes):
            raise StorageError(f"the copy in {self.path} differs from the log: {opened.damage or facts}")

    # -- files

    async def _wait(self, size: int) -> None:
        """For the rate; not while the replica is without a role. StorageError where the move ends meanwhile."""
        while not self.is_swapping and (wait_s := self._pace(size)) > 0:
            await asyncio.sleep(wait_s)
            self._check()

    def _path(self, name: str) -> str:
        return names.join(self.path, name)

    def _open(self, path: str) -> File:
        try:
            return self._fs.open_readonly(path)
        except OSError as e:
            raise self.source.fail(e) from e

    def _open_copy(self, path: str) -> File:
        try:
            return self._fs.open_readonly(path)
        except OSError as e:
            raise self.target.fail(e) from e

    def _create(self, name: str) -> File:
        try:
            return self._fs.open(self._path(name), create=True)
        except OSError as e:
            raise self._failed_write(e) from e

    def _list(self, path: str) -> list[str]:
        try:
            return self._fs.list(path)
        except OSError as e:
            raise self.source.fail(e) from e

    async def _read(self, file: File, size: int, position: int) -> bytes:
        try:
            return await file.read(size, position)
        except OSError as e:
            raise self.source.fail(e) from e

    async def _read_with(self, file: File, size: int, position: int, work: Callable[[bytes], int]) -> int:
        try:
            return await file.read_with(size, position, work)
        except OSError as e:
            raise self.target.fail(e) from e

    def _write(self, file: File, data: bytes, position: int) -> None:
        try:
            file.pwritev([data], position)
        except OSError as e:
            raise self._failed_write(e) from e

    def _check_space(self, size: int) -> None:
        """StorageError where the disk of the target would become too full."""
        path = self.target.path
        try:
            left = min(FREE_BYTES, self._fs.total_bytes(path) // FREE_SHARE)
            free = self._fs.free_bytes(path)
        except OSError as e:
            raise self.target.fail(e) from e
        if free < size + left:
            raise StorageError(
                f"{path} has {free} bytes free, and {size} more must leave {left}: make room there, or move"
                f" {self.log.partition} elsewhere"
            )

    def _failed_write(self, error: OSError) -> StorageError:
        """A full disk only ends the move; any other failure takes the target offline."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageError(f"{self.target.path} is full: {error}")
        return self.target.fail(error)


def _intact_bytes(path: str, position: int, data: bytes) -> int:
    """How many bytes of `data`, from its begin, are whole batches. CorruptMessageError."""
    view, end = memoryview(data), 0
    for at, header in scan_headers(data, 0, len(data)):
        if crc32c(view[at + CRC_START : at + header.size_bytes]) != header.crc:
            raise CorruptMessageError("CRC mismatch", path=path, position=position + at)
        end = at + header.size_bytes
    return end
