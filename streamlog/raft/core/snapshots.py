"""Taking a snapshot of the state, and installing one that the leader sent.

Taking: the picture of state, sessions and voters after `last_applied` is taken on the loop, encoded in a worker,
written, synced and renamed; then the journal may be compacted behind it, but for some entries that a follower who is a
little late may still need.

Installing: chunks go into a file. A complete one is checked and put in place *first*, then the state is replaced, then
the log: a crash between the two leaves a snapshot that is ahead of the journal, which the next start understands
(storage.py). The tail of the log is kept if it agrees with the snapshot's last entry; else all of it is void. A
snapshot moves the commit index to its own last entry, which is committed, and no further: it says nothing of what this
node has behind it. (PySyncObj lets a deposed leader commit its own tail by it, and forgets who waits.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from streamlog.errors import CorruptMessageError, InvariantError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.ports import Workers
from streamlog.raft.core.applying import Applier
from streamlog.raft.core.elections import Elections
from streamlog.raft.core.library import Library, Peer
from streamlog.raft.core.voter_set_history import VoterSetHistory
from streamlog.raft.port import StateMachine
from streamlog.raft.protocol.entries import FIRST_INDEX
from streamlog.raft.protocol.messages import SnapshotReply, SnapshotRequest
from streamlog.raft.protocol.stored import Session, SnapshotHead
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.storage import snapshot_file
from streamlog.raft.storage.snapshot_file import SnapshotContent
from streamlog.raft.storage.snapshot_store import SnapshotStore


class Capture(Struct, frozen=True, kw_only=True):
    """The state at one index, not encoded yet."""

    head: SnapshotHead
    sessions: Sequence[Session]
    picture: Any


class Snapshots:
    """Owned by the core. `take` and `install` are called by one task of the node, one at a time."""

    def __init__(
        self,
        raft: Library,
        elections: Elections,
        membership: VoterSetHistory,
        applier: Applier,
        machine: StateMachine[Any],
        store: SnapshotStore,
        settings: QuorumSettings,
    ) -> None:
        self._raft = raft
        self._elections = elections
        self._membership = membership
        self._applier = applier
        self._machine = machine
        self._store = store
        self._settings = settings
        self._wanted = False
        self._received: tuple[Peer, SnapshotRequest] | None = None  # the last chunk, once the snapshot is complete
        self._journal_bytes = raft.log.size_bytes  # after the latest compaction
        self.compact_to = RaftIndex(0)  # the journal may give up what is below

    # Taking.

    def want(self) -> None:
        """Take one although none is due."""
        self._wanted = True

    def is_due(self) -> bool:
        """Whether to take one now."""
        covered = self._store.head.last_index if self._store.head is not None else FIRST_INDEX
        news = self._raft.last_applied - covered
        if news <= 0:
            self._wanted = False
            return False
        grown = self._raft.log.size_bytes - self._journal_bytes
        return self._wanted or news >= self._settings.snapshot_entries or grown >= self._settings.snapshot_journal_bytes

    async def take(self, workers: Workers) -> SnapshotHead:
        """Write a snapshot of the present state. StorageError is final."""
        self._wanted = False
        capture = self._capture()
        pieces = await workers.run(_encode, capture, self._machine)
        await self._store.write(capture.head, pieces)
        self._membership.forget_before(capture.head.last_index)
        self.compact_to = max(self.compact_to, self._keep_behind(capture.head.last_index))
        return capture.head

    def _keep_behind(self, last: RaftIndex) -> RaftIndex:
        """The new base: some entries behind it may still be wanted, but not more than half a journal of them."""
        by_bytes = self._raft.log.tail_within(self._settings.snapshot_journal_bytes // 2)
        return min(last, max(RaftIndex(last - self._settings.snapshot_trailing_entries), by_bytes))

    def _capture(self) -> Capture:
        raft = self._raft
        voters_index, voters = self._membership.at(raft.last_applied)
        term = raft.log.term_at(raft.last_applied)
        assert term is not None  # what is applied is in the log, or is its base
        return Capture(
            head=SnapshotHead(last_index=raft.last_applied, last_term=term, voters_index=voters_index, voters=voters),
            sessions=self._applier.sessions.dump(),
            picture=self._machine.picture(),
        )

    def compacted(self) -> None:
        """The journal has been compacted."""
        self._journal_bytes = self._raft.log.size_bytes

    # Installing.

    def on_request(self, peer: Peer, request: SnapshotRequest) -> None:
        raft = self._raft
        if request.term < raft.term:
            self._reply(peer, request, offset=0, installed=False)
            return
        self._elections.check_only_leader(peer, request.term)
        if request.size > self._settings.snapshot_bytes_max:
            raise CorruptMessageError(
                f"a snapshot of {request.size} bytes; this node takes {self._settings.snapshot_bytes_max}"
            )
        self._check_agrees(request.last_index, request.last_term)
        self._elections.follow(peer, request.term)
        if request.last_index <= raft.last_applied:
            self._reply(peer, request, offset=request.size, installed=True)
            return
        offset = self._store.receive(request)
        if self._store.has_received():
            self._received = (peer, request)
        if offset is not None:
            self._reply(peer, request, offset=offset, installed=False)

    def _reply(self, peer: Peer, request: SnapshotRequest, *, offset: int, installed: bool) -> None:
        reply = SnapshotReply(
            term=self._raft.term,
            round=request.round,
            last_index=request.last_index,
            offset=offset,
            installed=installed,
        )
        self._raft.send(peer, reply)

    def _check_agrees(self, last_index: RaftIndex, last_term: RaftTerm) -> None:
        """CorruptMessageError for a snapshot of what was not committed."""
        term = self._raft.log.term_at(last_index)
        if last_index <= self._raft.commit_index and term is not None and term != last_term:
            raise CorruptMessageError(
                f"a snapshot at {last_index} of term {last_term}, where term {term} was committed"
            )

    def install(self, content: SnapshotContent, picture: Any) -> None:
        """Replace the state by the snapshot, which is in place on disk, unless it is behind the state by now."""
        raft, head = self._raft, content.head
        if head.last_index <= raft.last_applied:
            return
        if raft.log.term_at(head.last_index) != head.last_term:
            if raft.commit_index >= head.last_index:  # it was checked before it was put in place
                raise InvariantError(f"the snapshot at {head.last_index} is not what was committed there")
            raft.log.reset(head.last_index, head.last_term)
            self._membership.reset(head.voters_index, head.voters)
        raft.last_applied = head.last_index
        raft.commit_index = max(raft.commit_index, head.last_index)
        self._applier.restore(head.last_index, content.sessions, picture)

    def check(self, content: SnapshotContent) -> None:
        """Before it is put in place. CorruptMessageError."""
        head = content.head
        if head.voters_index > head.last_index or head.last_term > self._raft.term:
            raise CorruptMessageError(
                f"a snapshot at {head.last_index} of term {head.last_term} has the voters of entry {head.voters_index}"
            )
        self._check_agrees(head.last_index, head.last_term)

    def refuse(self) -> BrokerId | None:
        """What was received cannot be used. Who sent it."""
        received, self._received = self._received, None
        return None if received is None else received[0].id

    def answer_sender(self) -> None:
        """Tell the leader that its snapshot is in place, or that it must be sent again."""
        if self._received is None:
            return
        (peer, request), self._received = self._received, None
        if request.term == self._raft.term and self._raft.leader == peer:
            installed = self._raft.last_applied >= request.last_index
            self._reply(peer, request, offset=request.size if installed else 0, installed=installed)


def _encode(capture: Capture, machine: StateMachine[Any]) -> list[bytes]:
    """In a worker."""
    return snapshot_file.encode(capture.head, capture.sessions, machine.encode(capture.picture))
