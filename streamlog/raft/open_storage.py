"""Opening the directory of a voter: its files are checked together, or refused.

    identity    journal     snapshot                   meaning
    no          no          no                         first start: create the journal, then the identity
    no          unused      no                         an interrupted first start: create both again
    no          used        any                        refused: the identity is lost
    yes         no          any                        refused: votes and acknowledged entries are lost
    yes         yes         no, journal from index 1   complete
    yes         yes         no, journal from later     refused: the snapshot is lost
    yes         yes         older than the journal     refused: entries between the two are lost
    yes         yes         inside the journal         complete
    yes         yes         beyond the journal         a snapshot was installed, the journal not yet reset: done now

Refused means a DamagedFileError that names file and position and says how to restore the node from the others. A node
never starts empty if it once had state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from msgspec import Struct

from streamlog.errors import DamagedFileError, LogDirectoryLockedError, StorageError
from streamlog.model import BrokerId, RaftIndex
from streamlog.ports import DirectoryLock, FileSystem, Random, Workers
from streamlog.raft.core.voter_set_history import VoterSetHistory
from streamlog.raft.protocol.bounds import INDEX_MAX, TERM_MAX
from streamlog.raft.protocol.entries import FIRST_INDEX
from streamlog.raft.protocol.stored import QuorumIdentity
from streamlog.raft.storage import identity as identities
from streamlog.raft.storage.journal import Journal
from streamlog.raft.storage.journal_format import OVERHEAD_BYTES
from streamlog.raft.storage.snapshot_file import SnapshotContent
from streamlog.raft.storage.snapshot_store import SnapshotStore
from streamlog.raft.voters import VoterSet

JOURNAL: Final = "journal"
IDENTITY: Final = "identity"
LOCK: Final = ".lock"
_UNUSED_JOURNAL_BYTES_MAX: Final = 4 * OVERHEAD_BYTES
"""A journal with nothing after its first two records is shorter."""


class Owner(Struct, frozen=True, kw_only=True):
    """The starting node, as configured."""

    cluster_id: str
    node_id: BrokerId
    voters: VoterSet  # for the first start: `controller.quorum.voters`, or those of a quorum that runs already


class Storage(Struct, frozen=True, kw_only=True):
    identity: QuorumIdentity
    journal: Journal  # durable as it stands
    store: SnapshotStore
    snapshot: SnapshotContent | None  # covers the journal's base; the initial state
    lock: DirectoryLock  # excludes other processes from the directory

    def close(self) -> None:
        self.journal.close()
        self.lock.release()

    def voter_sets(self) -> VoterSetHistory:
        """The voters of snapshot or bootstrap, then those of the journal."""
        identity, base, base_index = self.identity, self.identity.bootstrap, RaftIndex(0)
        if self.snapshot is not None:
            base, base_index = self.snapshot.head.voters, self.snapshot.head.voters_index
        history = VoterSetHistory(identity.node_id, identity.directory_id, base, base_index, self.journal)
        for entry in self.journal.between(1, len(self.journal)):
            if entry.index > base_index:
                history.appended(entry)
        return history


def remedy_for(node_id: BrokerId, directory: str) -> str:
    """How to restore a node that refuses to start."""
    return (
        f"this node may have lost votes and acknowledged entries. Restore it from the other voters: remove voter "
        f"{node_id} from the quorum, move {directory} away, start the node, add voter {node_id} again"
    )


def begun_in(fs: FileSystem, directory: str, node_id: BrokerId) -> str | None:
    """The cluster id in the identity of `directory`; None: there is none, so the next start there is the first.

    DamagedFileError, UnsupportedVersionError; InconsistentClusterError if it is of another node; StorageError if the
    disk fails.
    """
    path = f"{directory}/{IDENTITY}"
    with _disk_errors(directory):
        if not fs.exists(path):
            return None
        identity = identities.read_identity(fs, path, remedy=remedy_for(node_id, directory))
    identities.check_owner(identity, path, cluster_id=identity.cluster_id, node_id=node_id)
    return identity.cluster_id


async def open_storage(fs: FileSystem, workers: Workers, random: Random, directory: str, owner: Owner) -> Storage:
    """Open or create `directory`.

    DamagedFileError, UnsupportedVersionError, InconsistentClusterError, LogDirectoryLockedError; StorageError if the
    disk fails.
    """
    with _disk_errors(directory), ExitStack() as refused:
        lock = _lock(fs, directory)
        refused.callback(lock.release)
        storage = await _open_locked(fs, workers, random, directory, owner, lock)
        refused.pop_all()
    return storage


async def begin_storage(fs: FileSystem, random: Random, directory: str, owner: Owner) -> None:
    """Create what is missing for a first start; a begun one is left alone.

    DamagedFileError, LogDirectoryLockedError; StorageError if the disk fails.
    """
    with _disk_errors(directory), ExitStack() as done:
        done.callback(_lock(fs, directory).release)
        if not fs.exists(f"{directory}/{IDENTITY}"):
            await _begin(fs, random, directory, owner, remedy_for(owner.node_id, directory))


def _lock(fs: FileSystem, directory: str) -> DirectoryLock:
    fs.mkdir(directory, parents=True)
    return fs.lock(f"{directory}/{LOCK}")


@contextmanager
def _disk_errors(directory: str) -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise LogDirectoryLockedError(f"{directory} is in use by another process", path=directory) from None
    except OSError as error:
        raise StorageError(f"{directory}: {error}", path=directory, errno=error.errno) from error


async def _open_locked(
    fs: FileSystem, workers: Workers, random: Random, directory: str, owner: Owner, lock: DirectoryLock
) -> Storage:
    remedy = remedy_for(owner.node_id, directory)
    journal_path, identity_path = f"{directory}/{JOURNAL}", f"{directory}/{IDENTITY}"
    store = SnapshotStore(fs, workers, directory, remedy=remedy)
    if not fs.exists(identity_path):
        await _begin(fs, random, directory, owner, remedy)
    identity = identities.read_identity(fs, identity_path, remedy=remedy)
    identities.check_owner(identity, identity_path, cluster_id=owner.cluster_id, node_id=owner.node_id)
    if not fs.exists(journal_path):
        raise DamagedFileError(journal_path, 0, "is missing, but this node had one", remedy)
    journal = await Journal.open(fs, journal_path, identity.directory_id, remedy=remedy)
    if max(journal.term, journal.last.term) > TERM_MAX or journal.last.index > INDEX_MAX:
        raise DamagedFileError(
            journal_path,
            0,
            f"has term {journal.term} and ends at entry {journal.last.index} of term {journal.last.term}: no quorum "
            "reaches these numbers, so a forged message was accepted (older releases did that)",
            remedy,
        )
    snapshot = await store.load()
    _check_together(journal, snapshot, store.path, remedy)
    if snapshot is not None:
        await _reset_to(journal, snapshot)
    return Storage(identity=identity, journal=journal, store=store, snapshot=snapshot, lock=lock)


async def _begin(fs: FileSystem, random: Random, directory: str, owner: Owner, remedy: str) -> None:
    """A first start. The identity is written last: if it exists, the rest must."""
    await _make_names_durable(fs, directory)
    path = f"{directory}/{JOURNAL}"
    if fs.exists(path) and not await _is_unused(fs, path, remedy):
        raise DamagedFileError(f"{directory}/{IDENTITY}", 0, "is missing, but this node had one", remedy)
    directory_id = identities.draw_directory_id(random)
    journal = await Journal.create(fs, path, directory_id)
    journal.close()
    identity = QuorumIdentity(
        cluster_id=owner.cluster_id, node_id=owner.node_id, directory_id=directory_id, bootstrap=owner.voters
    )
    await identities.write_identity(fs, f"{directory}/{IDENTITY}", identity)


async def _make_names_durable(fs: FileSystem, directory: str) -> None:
    """Sync all parent directories: any of them may have been created just now, or just before a crash."""
    while directory:
        directory = directory.rpartition("/")[0]
        try:
            await fs.sync_dir(directory or "/")
        except PermissionError:
            return  # a directory that this user may not read was not created by this user


async def _is_unused(fs: FileSystem, path: str, remedy: str) -> bool:
    """Whether no vote and no entry depends on the journal. An incomplete journal is unused."""
    file = fs.open_readonly(path)
    size = file.size()
    file.close()
    if size <= _UNUSED_JOURNAL_BYTES_MAX:
        return True
    journal = await Journal.open(fs, path, None, remedy=remedy)
    journal.close()
    return journal.is_unused


def _check_together(journal: Journal, snapshot: SnapshotContent | None, path: str, remedy: str) -> None:
    base = journal.base.index
    if snapshot is None and base != FIRST_INDEX:
        raise DamagedFileError(path, 0, f"is missing, but the journal begins at entry {base}", remedy)
    if snapshot is not None and snapshot.head.last_index < base:
        covered = snapshot.head.last_index
        raise DamagedFileError(path, 0, f"ends at entry {covered}, but the journal begins at {base}", remedy)


async def _reset_to(journal: Journal, snapshot: SnapshotContent) -> None:
    """If the journal does not match the snapshot, the snapshot was installed later: it has the committed entries."""
    head = snapshot.head
    if journal.term_at(head.last_index) != head.last_term:
        journal.reset(head.last_index, head.last_term)
        await journal.sync()
