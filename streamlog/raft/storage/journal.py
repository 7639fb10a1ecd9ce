"""The journal: the replicated log with term and vote, in memory, and as a write-ahead log in one file.

Every change is a record at the end of the file (journal_format.py): an entry, the term and vote, a truncation of the
log, a reset, a voter's directory. A change is visible to readers at once, reaches the page cache at `flush` and stable
storage at the end of a `sync` that started after it. Changes are counted: `written` is the number of the latest,
`durable` that of the latest on stable storage. A message that depends on the state waits until `durable` has reached
the `written` of its time. A failed sync stops the node (StorageError) and is never retried.

`compact` moves the base of the log: it writes the rest to a new file and renames it over the old one. It runs between
two syncs, in the same task: everything acknowledged is in the new file before the rename, and nothing is acknowledged
until the directory is synced.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from streamlog.errors import DamagedFileError, InvariantError, StorageError, UnsupportedVersionError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.ports import File, FileSystem
from streamlog.raft.protocol.entries import FIRST_ENTRY, LogEntry
from streamlog.raft.storage import journal_format as fmt
from streamlog.raft.storage.journal_format import RecordKind
from streamlog.raft.storage.memory_log import MemoryLog
from streamlog.raft.voters import DirectoryId

FORMAT_VERSION: Final = 1
_NO_VOTE: Final = -1


class Journal(MemoryLog):
    """One owner, one event loop; `sync` and `compact` are called by one task, one at a time."""

    def __init__(self, fs: FileSystem, path: str, directory_id: DirectoryId, file: File) -> None:
        """Use `create` or `open`."""
        super().__init__()
        self._fs = fs
        self._path = path
        self._directory_id = directory_id
        self._file = file
        self._end = 0  # of the file, including what is not flushed yet
        self._flushed = 0  # <= _end; what the page cache has
        self._durable_end = 0  # <= _flushed
        self._buffer: list[bytes] = []  # records of [_flushed, _end)
        self._since: list[tuple[RecordKind, bytes]] | None = None  # changes during a compaction, for the new file
        self._sealed = True  # the last record states that everything before it is durable
        self.term = RaftTerm(0)
        self.vote: BrokerId | None = None
        self.peers: dict[BrokerId, DirectoryId] = {}  # the directories of voters (voter_set_history)
        self.written = 0
        self.durable = 0  # <= written

    # Opening.

    @classmethod
    async def create(cls, fs: FileSystem, path: str, directory_id: DirectoryId) -> Journal:
        """A new journal with FIRST_ENTRY, durable with its name when this returns. Replaces an existing file."""
        file = fs.open(path, create=True)
        file.truncate(0)
        journal = cls(fs, path, directory_id, file)
        journal._write_beginning()
        await journal.sync()
        await fs.sync_dir(_directory_of(path))
        return journal

    @classmethod
    async def open(cls, fs: FileSystem, path: str, directory_id: DirectoryId | None, *, remedy: str) -> Journal:
        """Read the journal, drop a torn tail, and make the rest durable.

        The previous run may have ended in a failed sync: then the page cache has data that the disk does not have, and
        the next sync succeeds nevertheless. So an unsealed journal is rewritten, and of a sealed one the seal:
        everything before it is durable, but the failed sync may have been its own.

        `directory_id` None: accept any. DamagedFileError with `remedy`, UnsupportedVersionError.
        """
        file = fs.open(path)
        data = await file.read(file.size(), 0)
        records, end = fmt.scan(data, path, remedy)
        found = _check_beginning(records, path, directory_id, remedy)
        journal = cls(fs, path, found, file)
        for record in records[1:]:
            journal._replay(record, remedy)
        journal._end = journal._flushed = journal._durable_end = end
        journal._sealed = records[-1].kind == RecordKind.SEAL and end == len(data)
        if journal._sealed:
            seal = records[-1].position
            file.pwritev((data[seal:],), seal)
            await file.sync()
            await fs.sync_dir(_directory_of(path))  # a crash may have preceded a compaction's own
        else:
            await journal._rewrite(journal.base.index)
        return journal

    def _write_beginning(self) -> None:
        self._put(RecordKind.FILE, fmt.FILE_PAYLOAD.pack(FORMAT_VERSION, self._directory_id))
        self._put(RecordKind.BASE, fmt.BASE_PAYLOAD.pack(self.base.index, self.base.term))

    def _replay(self, record: fmt.JournalRecord, remedy: str) -> None:
        """Apply one record of the file to memory. Its CRC is valid, but its content may still be impossible."""
        try:
            self._take(record)
        except (ValueError, InvariantError) as error:
            raise DamagedFileError(self._path, record.position, str(error), remedy) from None

    def _take(self, record: fmt.JournalRecord) -> None:
        payload = record.payload
        match record.kind:
            case RecordKind.ENTRY:
                index, term = _unpack(fmt.ENTRY_PAYLOAD, payload[: fmt.ENTRY_PAYLOAD.size])
                self._take_entry(LogEntry(payload[fmt.ENTRY_PAYLOAD.size :], RaftIndex(index), RaftTerm(term)), 0)
            case RecordKind.STATE:
                term, vote = _unpack(fmt.STATE_PAYLOAD, payload)
                self.term, self.vote = RaftTerm(term), None if vote == _NO_VOTE else BrokerId(vote)
            case RecordKind.TRUNCATE:
                (index,) = _unpack(fmt.TRUNCATE_PAYLOAD, payload)
                self._cut_tail(RaftIndex(index))
            case RecordKind.BASE:
                index, term = _unpack(fmt.BASE_PAYLOAD, payload)
                self._begin_behind(RaftIndex(index), RaftTerm(term))
            case RecordKind.PEER:
                peer, directory_id = _unpack(fmt.PEER_PAYLOAD, payload)
                self.peers[BrokerId(peer)] = DirectoryId(directory_id)
            case RecordKind.SEAL:
                pass
            case unknown:
                raise UnsupportedVersionError(
                    f"{self._path}: position {record.position}: record kind {unknown} is of a newer version"
                )

    @property
    def directory_id(self) -> DirectoryId:
        return self._directory_id

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._end

    @property
    def is_unused(self) -> bool:
        """Never voted, never had an entry."""
        return self.term == 0 and len(self._entries) == 1 and self.base == FIRST_ENTRY

    @property
    def durable_index(self) -> RaftIndex:
        """The last entry on stable storage."""
        return self.index_at_number(self.durable)

    # Changes. Visible at once; durable after a sync.

    def append(self, entry: LogEntry) -> None:
        """InvariantError unless it is the next one, of no older term."""
        self._take_entry(entry, self.written + 1)
        self._put(RecordKind.ENTRY, fmt.ENTRY_PAYLOAD.pack(entry.index, entry.term) + entry.data)

    def truncate(self, first: RaftIndex) -> None:
        """Drop `first` and everything behind it; `first` must be in (base, last]."""
        self._cut_tail(first)
        self._put(RecordKind.TRUNCATE, fmt.TRUNCATE_PAYLOAD.pack(first))

    def reset(self, index: RaftIndex, term: RaftTerm) -> None:
        """Restart the log behind a snapshot with this last entry."""
        self._begin_behind(index, term)
        self._put(RecordKind.BASE, fmt.BASE_PAYLOAD.pack(index, term))

    def set_state(self, term: RaftTerm, vote: BrokerId | None) -> None:
        if term < self.term:
            raise InvariantError(f"term {term} after {self.term}")
        if (term, vote) == (self.term, self.vote):
            return
        self.term, self.vote = term, vote
        self._put(RecordKind.STATE, self._state_payload())

    def note_peer(self, peer: BrokerId, directory_id: DirectoryId) -> None:
        """Record the directory of a voter: the one it showed first, or the one that the quorum's log names."""
        self.peers[peer] = directory_id
        self._put(RecordKind.PEER, fmt.PEER_PAYLOAD.pack(peer, directory_id))

    def _state_payload(self) -> bytes:
        return fmt.STATE_PAYLOAD.pack(self.term, _NO_VOTE if self.vote is None else self.vote)

    @property
    def is_sealed(self) -> bool:
        """Its last record states that everything before it is durable."""
        return self._sealed

    def seal(self) -> bool:
        """Record that everything before is durable, if it is and no record states it yet. True: a sync is needed."""
        if self._sealed or self.durable < self.written:
            return False
        self._put(RecordKind.SEAL, b"")
        self._sealed = True
        return True

    def _put(self, kind: RecordKind, payload: bytes) -> None:
        record = fmt.encode(kind, self._end, self._durable_end, payload)
        self._buffer.append(record)
        self._end += len(record)
        self.written += 1
        self._sealed = False
        if self._since is not None:
            self._since.append((kind, payload))

    # Durability.

    def flush(self) -> None:
        """Write the changes to the page cache. StorageError."""
        if not self._buffer:
            return
        data, self._buffer = b"".join(self._buffer), []
        try:
            self._file.pwritev((data,), self._flushed)
        except OSError as error:
            raise self._failed("write", error) from error
        self._flushed += len(data)

    async def sync(self) -> None:
        """Make all changes before the call durable. StorageError stops the node."""
        self.flush()
        written, end = self.written, self._end
        try:
            await self._file.sync()
        except OSError as error:
            raise self._failed("sync", error) from error
        self.durable, self._durable_end = written, end

    async def compact(self, base_index: RaftIndex) -> None:
        """Drop the entries below `base_index`, which becomes the base; a durable snapshot must cover it.

        Does nothing if the base is there already. StorageError stops the node.
        """
        if base_index <= self.base.index:
            return
        try:
            await self._rewrite(base_index)
        except OSError as error:
            raise self._failed("compaction", error) from error

    async def _rewrite(self, base_index: RaftIndex) -> None:
        self.flush()
        self._since = []
        image = self._image(base_index)
        file = self._fs.open(f"{self._path}.new", create=True)
        file.truncate(0)
        file.pwritev((image,), 0)
        written = self.written
        await file.sync()
        self._switch(file, len(image), base_index)
        await self._fs.sync_dir(_directory_of(self._path))
        self.durable = max(self.durable, written)

    def _image(self, base_index: RaftIndex) -> bytes:
        """The content of the new file: the current state, from the new base on."""
        base = self.entry(base_index)
        records = [
            (RecordKind.FILE, fmt.FILE_PAYLOAD.pack(FORMAT_VERSION, self._directory_id)),
            (RecordKind.BASE, fmt.BASE_PAYLOAD.pack(base.index, base.term)),
            (RecordKind.STATE, self._state_payload()),
            *((RecordKind.PEER, fmt.PEER_PAYLOAD.pack(peer, self.peers[peer])) for peer in sorted(self.peers)),
            *(
                (RecordKind.ENTRY, fmt.ENTRY_PAYLOAD.pack(entry.index, entry.term) + entry.data)
                for entry in self._entries[base_index - self.base.index + 1 :]
            ),
        ]
        return _encode_all(records, 0, 0)

    def _switch(self, file: File, synced: int, base_index: RaftIndex) -> None:
        """Add the changes made meanwhile to the new file, and rename it over the old one.

        The added changes are not synced. None of them has been acknowledged, since no sync has ended since the image
        was made.
        """
        changes, self._since = self._since or [], None
        added = _encode_all(changes, synced, synced)
        self._buffer.clear()
        file.pwritev((added,), synced)
        self._fs.rename(f"{self._path}.new", self._path)
        self._file.close()
        self._file = file
        self._durable_end = synced
        self._end = self._flushed = synced + len(added)
        self._sealed = False  # the image has no seal
        if self.base.index < base_index:  # else a snapshot has been installed meanwhile
            self._cut_head(base_index)

    def _failed(self, what: str, error: OSError) -> StorageError:
        return StorageError(f"{self._path}: {what} failed: {error}", path=self._path, errno=error.errno)

    def close(self) -> None:
        self._file.close()


def _encode_all(records: Sequence[tuple[RecordKind, bytes]], position: int, durable: int) -> bytes:
    encoded = []
    for kind, payload in records:
        encoded.append(fmt.encode(kind, position, durable, payload))
        position += len(encoded[-1])
    return b"".join(encoded)


def _check_beginning(
    records: Sequence[fmt.JournalRecord], path: str, directory_id: DirectoryId | None, remedy: str
) -> DirectoryId:
    """The directory the file belongs to. The file has at least its first two records: they were synced at creation."""
    if [record.kind for record in records[:2]] != [RecordKind.FILE, RecordKind.BASE]:
        raise DamagedFileError(path, 0, "does not begin with the record of a journal file", remedy)
    version, found = _unpack(fmt.FILE_PAYLOAD, records[0].payload)
    if version != FORMAT_VERSION:
        raise UnsupportedVersionError(f"{path}: format version {version}; this release reads {FORMAT_VERSION}")
    if directory_id is not None and found != directory_id:
        raise DamagedFileError(path, 0, f"belongs to directory {found.hex()}, not to {directory_id.hex()}", remedy)
    return DirectoryId(found)


def _unpack(layout: struct.Struct, payload: bytes) -> tuple[Any, ...]:
    if len(payload) != layout.size:
        raise ValueError(f"{len(payload)} bytes of payload instead of {layout.size}")
    return layout.unpack(payload)


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]
