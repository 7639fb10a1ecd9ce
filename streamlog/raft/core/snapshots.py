"""Taking a snapshot of the state, and installing one that the leader sent.

Taking: state, sessions and voters as of `last_applied` are captured on the event loop, encoded in a worker, written,
synced and renamed; then the journal may be compacted, except for some entries that a slightly late follower may need.

Installing: chunks go into a file. The complete file is checked and renamed into place *first*, then the state is
replaced, then the log: a crash in between leaves a snapshot ahead of the journal, which the next start handles
(open_storage). The tail of the log is kept if it matches the snapshot's last entry; else all of it is discarded. A
snapshot advances the commit index to its own last entry and no further: entries behind it may not be committed.
(PySyncObj lets a deposed leader commit its own tail this way, and forgets the pending callers.)
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
        voter_sets: VoterSetHistory,
        applier: Applier,
        machine: StateMachine[Any],
        store: SnapshotStore,
        settings: QuorumSettings,
    ) -> None:
        self._raft = raft
        self._elections = elections
        self._voter_sets = voter_sets
        self._applier = applier
        self._machine = machine
        self._store = store
        self._settings = settings
        self._wanted = False
        self._received: tuple[Peer, SnapshotRequest] | None = None  # the last chunk, once the snapshot is complete
        self._journal_bytes = raft.log.size_bytes  # after the latest compaction
        self.compact_to = RaftIndex(0)  # the journal may drop the entries below

    # Taking.

    def want(self) -> None:
        """Take one even if none is due."""
        self._wanted = True

    def is_due(self) -> bool:
        """Whether to take one now."""
        covered = self._store.head.last_index if self._store.head is not None else FIRST_INDEX
        new_entries = self._raft.last_applied - covered
        if new_entries <= 0:
            self._wanted = False
            return False
        grown = self._raft.log.size_bytes - self._journal_bytes
        settings = self._settings
        return self._wanted or new_entries >= settings.snapshot_entries or grown >= settings.snapshot_journal_bytes

    async def take(self, workers: Workers) -> SnapshotHead:
        """Write a snapshot of the current state. StorageError stops the node."""
        self._wanted = False
        capture = self._capture()
        pieces = await workers.run(_encode, capture, self._machine)
        await self._store.write(capture.head, pieces)
        self._voter_sets.forget_before(capture.head.last_index)
        self.compact_to = max(self.compact_to, self._keep_behind(capture.head.last_index))
        return capture.head

    def _keep_behind(self, last: RaftIndex) -> RaftIndex:
        """The new base: some entries before the snapshot are kept, but at most half a journal of them."""
        by_bytes = self._raft.log.tail_within(self._settings.snapshot_journal_bytes // 2)
        return min(last, max(RaftIndex(last - self._settings.snapshot_trailing_entries), by_bytes))

    def _capture(self) -> Capture:
        raft = self._raft
        voters_index, voters = self._voter_sets.at(raft.last_applied)
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
                f"a snapshot of {request.size} bytes exceeds the limit of {self._settings.snapshot_bytes_max} bytes"
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
        """CorruptMessageError if the snapshot contradicts what is committed here."""
        term = self._raft.log.term_at(last_index)
        if last_index <= self._raft.commit_index and term is not None and term != last_term:
            raise CorruptMessageError(
                f"the snapshot's last entry {last_index} has term {last_term}, but it is committed with term {term}"
            )

    def install(self, content: SnapshotContent, picture: Any) -> None:
        """Replace the state by the snapshot, which is in place on disk, unless the state is newer by now."""
        raft, head = self._raft, content.head
        if head.last_index <= raft.last_applied:
            return
        if raft.log.term_at(head.last_index) != head.last_term:
            if raft.commit_index >= head.last_index:  # it was checked before it was put in place
                raise InvariantError(f"the snapshot at {head.last_index} contradicts the committed entry there")
            raft.log.reset(head.last_index, head.last_term)
            self._voter_sets.reset(head.voters_index, head.voters)
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
        """Reject the received snapshot; its sender."""
        received, self._received = self._received, None
        return None if received is None else received[0].id

    def answer_sender(self) -> None:
        """Reply to the leader: the snapshot is installed, or must be sent again."""
        if self._received is None:
            return
        (peer, request), self._received = self._received, None
        if request.term == self._raft.term and self._raft.leader == peer:
            installed = self._raft.last_applied >= request.last_index
            self._reply(peer, request, offset=request.size if installed else 0, installed=installed)


def _encode(capture: Capture, machine: StateMachine[Any]) -> list[bytes]:
    """Runs in a worker."""
    return snapshot_file.encode(capture.head, capture.sessions, machine.encode(capture.picture))
