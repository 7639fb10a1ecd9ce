"""A leader replicates its log to its peers, tracks their progress, and advances the commit index (thesis, 3.5 and 3.6).

Peers are the other voters, and the learner, if there is one: a node that catches up before it gets a vote. Each is sent
entries in a pipeline within a window of bytes and entries; a heartbeat when nothing was sent for its interval; a
snapshot in chunks when the entries it needs are no longer in the log. When nothing has been committed for a while,
heartbeats become less frequent: each message announces the interval to the next. (A message cost about 0.3 ms of CPU at
either end when this was measured; ten a second to each peer would be most of an idle node's CPU.) When one heartbeat is
due, those due soon are sent with it, so the node wakes once for all of them.

A reply to entries waits for the peer's disk, a reply to a heartbeat does not (follower_append). So a peer with
unanswered messages is sent a heartbeat when it has not answered for an interval: a leader loses its majority by
silence, not because the disks are busy.

An entry is committed when a majority of the voters has it on stable storage, and an entry of the leader's own term at
or above it (thesis, 3.6.2 and Figure 3.7). The leader counts itself for what its journal has synced; its messages do
not wait for that sync (thesis, 10.2.1). It does not count itself once it has removed itself from the voters (4.2.2).

Every message has a number (`round`), which the reply returns: once a majority has answered a round, no other leader
had been elected when it was sent, which a linearizable read depends on (read_barriers).
"""

from __future__ import annotations

from collections.abc import Iterable

from streamlog.errors import CorruptMessageError
from streamlog.model import BrokerId, RaftIndex
from streamlog.raft.core.elections import NEVER, Elections
from streamlog.raft.core.library import Library, Peer, RaftRole
from streamlog.raft.core.progress import Progress, SnapshotTransfer
from streamlog.raft.core.voter_set_history import VoterSetHistory
from streamlog.raft.protocol.messages import AppendReply, AppendRequest, SnapshotReply, SnapshotRequest
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.storage.snapshot_store import SnapshotStore
from streamlog.raft.voters import Voter


class Replication:
    """One per core; its state is reset in each term that the node leads."""

    def __init__(
        self,
        raft: Library,
        elections: Elections,
        voter_sets: VoterSetHistory,
        store: SnapshotStore,
        settings: QuorumSettings,
    ) -> None:
        self._raft = raft
        self._elections = elections
        self._voter_sets = voter_sets
        self._store = store
        self._settings = settings
        self._heartbeat_s = settings.heartbeat_ms / 1000
        self._notice_s = settings.commit_notice_ms / 1000
        self._idle_heartbeat_s = settings.idle_heartbeat_ms / 1000
        self._idle_after_s = settings.idle_after_ms / 1000
        self._patience_s = settings.patience_max_ms / 1000
        self._peers: dict[BrokerId, Progress] = {}  # by rising id
        self._learner: Voter | None = None  # at most one, since voters are changed one at a time
        self._round = 0  # of the latest message; rises over all terms
        self._committed_at = 0.0  # when the commit index last moved
        self._quorum_until = NEVER  # until then it has a majority, even without further replies
        self._interval_s = self._heartbeat_s  # the current longest time between two messages to a peer

    # Term and peers.

    def begin_term(self) -> None:
        """The node has become leader."""
        self._end()
        self.update_peers()
        self._committed_at = self._raft.now()

    def end_term(self) -> None:
        self._end()

    def _end(self) -> None:
        for progress in self._peers.values():
            progress.drop_snapshot()
        self._peers = {}
        self._learner = None

    def update_peers(self) -> None:
        """The voters or the learner have changed."""
        wanted = {peer.id for peer in self._raft.others}
        if self._learner is not None:
            wanted.add(self._learner.node_id)
        for node_id in [node_id for node_id in self._peers if node_id not in wanted]:
            self._peers.pop(node_id).drop_snapshot()
        now, end = self._raft.now(), RaftIndex(self._raft.log.last.index + 1)
        for node_id in sorted(wanted - self._peers.keys()):
            self._peers[node_id] = Progress(self._raft.peer(node_id), next_index=end, now=now)
        self._peers = dict(sorted(self._peers.items()))
        self._quorum_until = NEVER

    def add_learner(self, learner: Voter) -> None:
        """Replicate to this node too; its acknowledgements do not count.

        It may be a voter already that lost its disk or moved: earlier acknowledgements say nothing about its log now.
        """
        self._learner = learner
        self.update_peers()
        progress = self._peers[learner.node_id]
        progress.forget()
        progress.restart()

    def drop_learner(self) -> None:
        self._learner = None
        self.update_peers()

    @property
    def learner(self) -> Voter | None:
        return self._learner

    def progress_of(self, node_id: BrokerId) -> Progress | None:
        return self._peers.get(node_id)

    def on_connected(self, peer: Peer, *, other_directory: bool) -> None:
        progress = self._peers.get(peer.id)
        if progress is not None:
            if other_directory:
                progress.forget()
            progress.restart()

    # Replies.

    def on_append_reply(self, peer: Peer, reply: AppendReply) -> None:
        progress = self._answering(peer, reply)
        if progress is None:
            return
        base = self._raft.log.base.index
        if not reply.matched and reply.next_index <= base and self._store.head is None:
            raise CorruptMessageError(f"a reply that asks for entry {reply.next_index}, but every log begins at {base}")
        progress.answered(reply.round, self._raft.now())
        if progress.snapshot is not None:
            return  # the reply to a heartbeat sent meanwhile: it cannot match yet
        if not reply.matched:
            progress.refused(reply.round, reply.next_index)
        elif reply.next_index <= self._raft.log.last.index + 1:
            progress.accepted(reply.next_index)

    def on_snapshot_reply(self, peer: Peer, reply: SnapshotReply) -> None:
        progress = self._answering(peer, reply)
        if progress is None:
            return
        progress.answered(reply.round, self._raft.now())
        transfer = progress.snapshot
        if transfer is None or reply.last_index != transfer.reader.head.last_index:
            return
        if reply.installed:
            progress.next_index = RaftIndex(transfer.reader.head.last_index + 1)
            progress.drop_snapshot()
            progress.probing, progress.probe_round = True, 0
        else:
            transfer.offset, transfer.sent_at = min(reply.offset, transfer.reader.size), None

    def _answering(self, peer: Peer, reply: AppendReply | SnapshotReply) -> Progress | None:
        """The progress of a peer that replies to us as the leader of this term. CorruptMessageError for a reply to a
        message that was not sent.
        """
        if reply.term > self._raft.term:
            self._elections.step_down(reply.term)
            return None
        if reply.term != self._raft.term or self._raft.role != RaftRole.LEADER:
            return None
        if reply.round > self._round:
            raise CorruptMessageError(f"a reply to round {reply.round}, but the last round sent was {self._round}")
        return self._peers.get(peer.id)

    # Counting.

    def advance_commit(self) -> None:
        """Commit what a majority holds."""
        raft = self._raft
        if raft.commit_index == raft.log.last.index:
            return
        held = sorted(self._held_by_voters(), reverse=True)
        index = held[self._voter_sets.majority - 1]
        if index > raft.commit_index and raft.log.term_at(index) == raft.term:
            raft.commit_index = index
            self._committed_at = raft.now()

    def held(self) -> dict[BrokerId, RaftIndex]:
        """Up to where each voter, the leader included, is known to hold the log durably; 0: no reply yet."""
        return {voter.node_id: self._held_by(voter.node_id) for voter in self._voter_sets.voters}

    def _held_by_voters(self) -> list[RaftIndex]:
        return [self._held_by(voter.node_id) for voter in self._voter_sets.voters]

    def _held_by(self, node_id: BrokerId) -> RaftIndex:
        if node_id == self._raft.me.id:
            return self._raft.log.durable_index if self._voter_sets.is_voter else RaftIndex(0)
        progress = self._peers.get(node_id)
        return progress.matched if progress is not None and self._voter_sets.counts(node_id) else RaftIndex(0)

    def has_quorum(self) -> bool:
        """Whether a majority has answered within the longest permitted silence."""
        now = self._raft.now()
        if now >= self._quorum_until:
            self._quorum_until = self._quorum_lapses_at()
        return now < self._quorum_until

    def _quorum_lapses_at(self) -> float:
        """When the majority is lost, if no further reply arrives."""
        needed = self._voter_sets.majority - self._voter_sets.is_voter
        counted = [p.answered_at for p in self._peers.values() if self._voter_sets.counts(p.peer.id)]
        if needed <= 0:
            return float("inf")
        return sorted(counted, reverse=True)[needed - 1] + self._patience_s if len(counted) >= needed else NEVER

    def is_confirmed(self, round_: int) -> bool:
        """Whether a majority has answered a message of this round or a later one."""
        return self._is_majority(p.peer.id for p in self._peers.values() if p.answered_round >= round_)

    def _is_majority(self, peers: Iterable[BrokerId]) -> bool:
        count = sum(self._voter_sets.counts(node_id) for node_id in peers) + self._voter_sets.is_voter
        return count >= self._voter_sets.majority

    # Sending.

    def begin_round(self) -> int:
        """Make a message to every peer due at once; the number of the first message sent after this call."""
        for progress in self._peers.values():
            progress.due_at = float("-inf")
        return self._round + 1

    def send(self) -> None:
        """Send each peer what fits its window, and what is due."""
        now = self._raft.now()
        self._interval_s = self._heartbeat_s if self._is_busy(now) else self._idle_heartbeat_s
        peers = [progress for progress in self._peers.values() if progress.peer in self._raft.connected]
        is_due = any(progress.due_at <= now for progress in peers)
        for progress in peers:
            self._send_to(progress, now, now + self._interval_s / 2 if is_due else now)

    def _is_busy(self, now: float) -> bool:
        uncommitted = self._raft.commit_index < self._raft.log.last.index
        return uncommitted or self._learner is not None or now < self._committed_at + self._idle_after_s

    def _send_to(self, progress: Progress, now: float, due_until: float) -> None:
        if progress.snapshot is None and progress.next_index <= self._raft.log.base.index:
            self._begin_snapshot(progress)
        if progress.snapshot is not None:
            self._send_chunk(progress, progress.snapshot, now)
        else:
            self._send_entries(progress, now)
        is_due = progress.due_at <= due_until or self._overdue_at(progress) <= now
        if is_due or self._owes_commit(progress, now):
            self._send_append(progress, 0, now)

    def _send_entries(self, progress: Progress, now: float) -> None:
        while progress.next_index <= self._raft.log.last.index and progress.may_probe and self._has_window(progress):
            self._send_append(progress, self._settings.append_bytes_max, now)

    def _has_window(self, progress: Progress) -> bool:
        first = progress.matched + 1
        in_flight = progress.next_index - first
        if progress.probing or not in_flight:
            return True
        return (
            in_flight < self._settings.window_entries
            and self._raft.log.bytes_between(first, progress.next_index) < self._settings.window_bytes
        )

    def _send_append(self, progress: Progress, bytes_max: int, now: float) -> None:
        """Entries up to `bytes_max`, or none (0): a heartbeat."""
        log = self._raft.log
        first = RaftIndex(max(progress.next_index, log.base.index + 1))
        entries = log.batch(first, bytes_max) if bytes_max and first <= log.last.index else []
        prev_term = log.term_at(first - 1)
        assert prev_term is not None  # base <= first - 1 <= last
        self._round += 1
        request = AppendRequest(
            term=self._raft.term,
            round=self._round,
            commit_index=self._raft.commit_index,
            prev_index=RaftIndex(first - 1),
            prev_term=prev_term,
            next_within_ms=round(self._interval_s * 1000),
            entries=tuple(entries),
        )
        self._raft.send(progress.peer, request)
        progress.due_at, progress.sent_commit = now + self._interval_s, self._raft.commit_index
        if not entries or progress.is_answered:
            progress.asked_at = now
        if progress.snapshot is not None:
            return
        if progress.probing:
            progress.next_index, progress.probe_round = first, self._round
        else:
            progress.next_index = RaftIndex(first + len(entries))

    def _overdue_at(self, progress: Progress) -> float:
        """When a peer with unanswered messages is sent a heartbeat."""
        if progress.is_answered:
            return float("inf")
        return max(progress.answered_at, progress.asked_at) + self._heartbeat_s

    def _owes_commit(self, progress: Progress, now: float) -> bool:
        """The follower has not been sent the last commit index, and no entry came along to carry it."""
        return progress.sent_commit < self._raft.commit_index and now >= self._committed_at + self._notice_s

    # Snapshots.

    def _begin_snapshot(self, progress: Progress) -> None:
        progress.snapshot = SnapshotTransfer(self._store.open_reader())

    def _send_chunk(self, progress: Progress, transfer: SnapshotTransfer, now: float) -> None:
        unanswered = transfer.sent_at is not None and now < transfer.sent_at + self._patience_s
        if unanswered or transfer.offset >= transfer.reader.size:
            return
        data = transfer.reader.try_read(transfer.offset, self._settings.snapshot_chunk_bytes)
        if data is None:
            return  # it is being read from the device; the node turns again when it is there
        self._round += 1
        head = transfer.reader.head
        request = SnapshotRequest(
            term=self._raft.term,
            round=self._round,
            last_index=head.last_index,
            last_term=head.last_term,
            size=transfer.reader.size,
            offset=transfer.offset,
            data=data,
        )
        self._raft.send(progress.peer, request)
        transfer.sent_at = now
        progress.due_at = now + self._heartbeat_s

    # Time.

    def next_deadline(self) -> float:
        """When `send` has something to do by itself."""
        deadline = self._raft.now() + self._interval_s
        commit_index = self._raft.commit_index
        for progress in self._peers.values():
            if progress.peer in self._raft.connected:
                deadline = min(deadline, progress.due_at, self._overdue_at(progress))
                if progress.sent_commit < commit_index:
                    deadline = min(deadline, self._committed_at + self._notice_s)
        if self._quorum_until < deadline:  # as computed at the last check: replies may have arrived since
            self._quorum_until = self._quorum_lapses_at()
        return min(deadline, self._quorum_until)
