"""The snapshot on disk: one file, replaced atomically, and the file being received.

    snapshot        the latest, durable with its name before it is used
    snapshot.new    being written by this node
    snapshot.part   being received from the leader

Both are renamed to `snapshot` after they are synced and, if received, checked. Leftovers are removed at start. A reader
keeps the file it has opened, also when another one replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from streamlog.errors import DamagedFileError, InvariantError, StorageError
from streamlog.ports import File, FileSystem, Workers
from streamlog.raft.protocol.messages import SnapshotRequest
from streamlog.raft.protocol.stored import SnapshotHead
from streamlog.raft.storage import snapshot_file
from streamlog.raft.storage.snapshot_file import SnapshotContent

SNAPSHOT: Final = "snapshot"
_NEW: Final = ".new"
_PART: Final = ".part"
_READ_BYTES: Final = 1 << 20


class SnapshotReader:
    """For one transfer: the file as it was when it was opened. Close it."""

    def __init__(self, file: File, head: SnapshotHead, size: int, fetches: list[ChunkRead]) -> None:
        self.head = head
        self.size = size
        self._file = file
        self._fetches = fetches
        self._fetched: tuple[int, bytes] | None = None  # (offset, data)
        self._fetching = False
        self._closed = False

    def try_read(self, offset: int, size: int) -> bytes | None:
        """The bytes from `offset` on; None if they must be read from the device: a ChunkRead is queued then."""
        if self._fetched is not None and self._fetched[0] == offset:
            data, self._fetched = self._fetched[1], None
            return data
        if self._fetching:
            return None
        found = self._file.try_pread(size, offset)
        if found is None:
            self._fetching = True
            self._fetches.append(ChunkRead(self, offset, size))
        return found

    async def fetch(self, offset: int, size: int) -> None:
        """Called once for each ChunkRead."""
        if not self._closed:
            self._fetched = (offset, await self._file.read(size, offset))
        self._fetching = False
        if self._closed:
            self._file.close()

    def close(self) -> None:
        """A queued or running ChunkRead closes the file at its end."""
        self._closed = True
        if not self._fetching:
            self._file.close()


class ChunkRead:
    """A read that must wait for the device: run outside the turn."""

    def __init__(self, reader: SnapshotReader, offset: int, size: int) -> None:
        self._reader = reader
        self._offset = offset
        self._size = size

    async def run(self) -> None:
        await self._reader.fetch(self._offset, self._size)


class _Receiving:
    """A snapshot being received."""

    def __init__(self, file: File, first: SnapshotRequest) -> None:
        self.file = file
        self.identity = (first.last_index, first.last_term, first.size)
        self.offset = 0  # wanted next
        self.finishing = False  # its file is being read and renamed: no chunk may be written

    @property
    def complete(self) -> bool:
        return self.offset == self.identity[2]


class SnapshotStore:
    """Owned by the node; its async methods are called by one task. StorageError stops the node."""

    def __init__(self, fs: FileSystem, workers: Workers, directory: str, *, remedy: str) -> None:
        self._fs = fs
        self._workers = workers
        self._directory = directory
        self._path = f"{directory}/{SNAPSHOT}"
        self._remedy = remedy
        self._receiving: _Receiving | None = None
        self.head: SnapshotHead | None = None  # of the file on disk
        self._size = 0
        self.fetches: list[ChunkRead] = []  # queued by readers

    @property
    def path(self) -> str:
        return self._path

    # The node's own.

    async def load(self) -> SnapshotContent | None:
        """The snapshot of the previous run, checked. DamagedFileError, UnsupportedVersionError."""
        for leftover in (self._path + _NEW, self._path + _PART):
            if self._fs.exists(leftover):
                self._fs.unlink(leftover)
        if not self._fs.exists(self._path):
            return None
        content, self._size = await self._read(self._path)
        await self._fs.sync_dir(self._directory)  # it may have been renamed just before a crash
        self.head = content.head
        return content

    async def write(self, head: SnapshotHead, pieces: Iterable[bytes]) -> None:
        """Replace the snapshot by this one. Durable when it returns."""
        file = self._fs.open(self._path + _NEW, create=True)
        try:
            file.truncate(0)
            size = 0
            for piece in pieces:
                file.pwritev((piece,), size)
                size += len(piece)
                await asyncio.sleep(0)  # writing hundreds of megabytes to the page cache at once blocks the loop
            await self._put_in_place(file, self._path + _NEW)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            file.close()
        self.head, self._size = head, size

    async def _put_in_place(self, file: File, path: str) -> None:
        await file.sync()
        self._fs.rename(path, self._path)
        await self._fs.sync_dir(self._directory)

    async def _read(self, path: str) -> tuple[SnapshotContent, int]:
        file = self._fs.open_readonly(path)
        try:
            size = file.size()
            data = bytearray()
            while len(data) < size:
                data += await file.read(min(_READ_BYTES, size - len(data)), len(data))
        finally:
            file.close()
        return await self._workers.run(snapshot_file.decode, bytes(data), path, self._remedy), size

    # Sending.

    def open_reader(self) -> SnapshotReader:
        """InvariantError when there is no snapshot: the log was compacted without one."""
        if self.head is None:
            raise InvariantError(f"{self._path}: a snapshot is needed, but there is none")
        return SnapshotReader(self._fs.open_readonly(self._path), self.head, self._size, self.fetches)

    # Receiving.

    def receive(self, chunk: SnapshotRequest) -> int | None:
        """Store a chunk; the next offset. A snapshot other than the one being received starts at 0.

        None: not now, another one is being put in place.
        """
        receiving = self._receiving
        if receiving is None or receiving.identity != (chunk.last_index, chunk.last_term, chunk.size):
            if receiving is not None and receiving.finishing:
                return None
            if chunk.offset != 0:
                return 0
            receiving = self._begin(chunk)
        if chunk.offset == receiving.offset and not receiving.complete:
            try:
                receiving.file.pwritev((chunk.data,), chunk.offset)
            except OSError as error:
                raise self._failed(error) from error
            receiving.offset += len(chunk.data)
        return receiving.offset

    def _begin(self, chunk: SnapshotRequest) -> _Receiving:
        if self._receiving is not None:
            self._receiving.file.close()
        file = self._fs.open(self._path + _PART, create=True)
        file.truncate(0)
        self._receiving = _Receiving(file, chunk)
        return self._receiving

    def has_received(self) -> bool:
        """A complete snapshot waits for `finish_receiving`."""
        return self._receiving is not None and self._receiving.complete

    async def finish_receiving(
        self, decode: Callable[[SnapshotContent], Awaitable[Any]]
    ) -> tuple[SnapshotContent, Any] | None:
        """Check the received snapshot and put it in place, durably: the content, and the result of `decode`.

        None if it is corrupt, or older than the current one. Either way the next one may be received. An exception of
        `decode` is raised, and nothing is put in place: the next start must not find an unusable snapshot.
        """
        receiving = self._receiving
        assert receiving is not None
        receiving.finishing = True
        try:
            return await self._take_over(receiving, decode)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            self._receiving = None
            receiving.file.close()

    async def _take_over(
        self, receiving: _Receiving, decode: Callable[[SnapshotContent], Awaitable[Any]]
    ) -> tuple[SnapshotContent, Any] | None:
        try:
            content, size = await self._read(self._path + _PART)
        except DamagedFileError:
            return None
        head = content.head
        if (head.last_index, head.last_term) != receiving.identity[:2]:
            return None
        if self.head is not None and self.head.last_index >= head.last_index:
            return None
        decoded = await decode(content)
        await self._put_in_place(receiving.file, self._path + _PART)
        self.head, self._size = head, size
        return content, decoded

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"{self._path}: {error}", path=self._path, errno=error.errno)
