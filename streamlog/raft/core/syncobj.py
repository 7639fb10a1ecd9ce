"""The core: PySyncObj's SyncObj with its unsafe parts overridden. Synchronous; no blocking disk access, no streams.

Its input is messages, connects and disconnects, and the time, followed by a turn. A message is accepted from a node
that may lead (voter_set_history) and within bounds; one that contradicts this node's state raises CorruptMessageError
and changes nothing. A turn, in this order:

    1. an election, if one is due; a leader without a majority steps down
    2. leader: commands into the log; the commit index advances; the next step of a change of voters
    3. some committed entries are applied, and their callers answered
    4. leader: confirmed reads pass; messages to the peers
    5. the journal's changes are written to the page cache

Its output is in the outbox, which the node releases as changes become durable. Each part has a module; this one
combines them and redirects the library's own calls to them:

    __onMessageReceived   reached by votes only, checked and counted once (elections)
    __sendAppendEntries   replaced by replication: windows, no busy loop while a snapshot is made
    __onBecomeLeader      unchanged, then replication begins its term
    __setState            unchanged; when a leader loses its role, pending callers are answered
    __doApplyCommand, __applyLogEntries, __tryLogCompaction, __loadDumpFile, __doChangeCluster, _onTick
                          not reached: replaced by applying, snapshots, voter_changes, turn
"""

from __future__ import annotations

from typing import Any, Final, assert_never

from streamlog.errors import CorruptMessageError, InvariantError
from streamlog.model import BrokerId, RaftTerm
from streamlog.ports import Clock, Probe, Random
from streamlog.raft.core.applying import AppliedListener, Applier
from streamlog.raft.core.elections import Elections
from streamlog.raft.core.follower_append import FollowerAppend
from streamlog.raft.core.library import CommandCallback, Library, Peer, RaftRole, on_own_clock
from streamlog.raft.core.outbox import Outbox
from streamlog.raft.core.proposals import Proposals
from streamlog.raft.core.read_barriers import Barriers
from streamlog.raft.core.replication import Replication
from streamlog.raft.core.snapshots import Snapshots
from streamlog.raft.core.voter_changes import VoterChanges
from streamlog.raft.core.voter_set_history import VoterSetHistory
from streamlog.raft.port import StateMachine
from streamlog.raft.protocol.bounds import INDEX_JUMP_MAX, TERM_JUMP_MAX
from streamlog.raft.protocol.entries import NO_OP
from streamlog.raft.protocol.messages import (
    AppendReply,
    AppendRequest,
    Message,
    PreVoteReply,
    PreVoteRequest,
    SnapshotReply,
    SnapshotRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
    VotersNotice,
)
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.storage.journal import Journal
from streamlog.raft.storage.snapshot_store import SnapshotStore
from streamlog.raft.voters import DirectoryId

REMINDER_S: Final = 60.0


class HardenedSyncObj(Library):
    """Owned by one node and called from its event loop, one call at a time."""

    def __init__(
        self,
        node_id: BrokerId,
        *,
        journal: Journal,
        voter_sets: VoterSetHistory,
        store: SnapshotStore,
        outbox: Outbox,
        machine: StateMachine[Any],
        listener: AppliedListener,
        settings: QuorumSettings,
        clock: Clock,
        random: Random,
        probe: Probe,
        own_address: str | None = None,
    ) -> None:
        """`own_address`: of this node, as it is advertised; None: not known."""
        self.voter_sets = voter_sets
        self._outbox = outbox
        self._probe = probe
        super().__init__(Peer(node_id), journal=journal, now=clock.monotonic, random=random, settings=settings)
        self._without_vote: tuple[BrokerId, ...] = ()  # as logged last
        self._ignored_at = float("-inf")  # when an ignored leader was last logged
        self._term_change = journal.written  # the change by which the term came into the journal
        self.elections = Elections(self, voter_sets, settings)
        self._append = FollowerAppend(self, self.elections, voter_sets)
        self.replication = Replication(self, self.elections, voter_sets, store, settings)
        self.voter_changes = VoterChanges(self, voter_sets, self.replication, settings, probe, own_address)
        self.applier = Applier(self, machine, settings, listener)
        self.snapshots = Snapshots(self, self.elections, voter_sets, self.applier, machine, store, settings)
        self.proposals = Proposals(self, voter_sets, settings)
        self.barriers = Barriers(self, voter_sets, self.replication)
        voter_sets.on_change(self._on_voters)
        self._on_voters()

    # Input from the node.

    @on_own_clock
    def connect(self, node_id: BrokerId, directory_id: DirectoryId) -> None:
        """A stream to this node is up; it replaces an earlier one."""
        peer = self.peer(node_id)
        other = self.voter_sets.shown(node_id, directory_id)
        self._outbox.drop(node_id)
        self.connected.add(peer)
        self.voter_sets.forget_notice(node_id)
        self.replication.on_connected(peer, other_directory=other)
        self.send(peer, self.voter_sets.notice)
        self._log_without_vote()
        self.elections.on_connected()

    @on_own_clock
    def disconnect(self, node_id: BrokerId) -> None:
        peer = self.peer(node_id)
        self._outbox.drop(node_id)
        self.connected.discard(peer)
        self.voter_sets.forget_notice(node_id)
        self.elections.on_stream_lost(peer)

    @on_own_clock
    def receive(self, node_id: BrokerId, message: Message) -> None:
        """CorruptMessageError: the message is impossible, and was dropped whole."""
        peer = self.peer(node_id)
        self._check_jumps(message)
        if isinstance(message, VotersNotice):
            self.voter_sets.noticed(node_id, message)
            self._log_without_vote()
            if self.voter_sets.lost_vote:
                self.elections.on_vote_lost()
        elif self._is_accepted(peer, message):
            self._take(peer, message)

    def _check_jumps(self, message: Message) -> None:
        """No intact node is that far ahead of another one (bounds)."""
        term = 0 if isinstance(message, VotersNotice) else message.term
        if term > self.term + TERM_JUMP_MAX:
            raise CorruptMessageError(f"term {term} is too far ahead: this node is in term {self.term}")
        match message:
            case PreVoteRequest(last_index=index) | VoteRequest(last_index=index) | SnapshotRequest(last_index=index):
                pass
            case AppendRequest(prev_index=prev, commit_index=commit):
                index = max(prev, commit)
            case _:
                return
        if index > self.log.last.index + INDEX_JUMP_MAX:
            raise CorruptMessageError(
                f"index {index} is too far ahead: the log of this node ends at {self.log.last.index}"
            )

    def _is_accepted(self, peer: Peer, message: Message) -> bool:
        """Vote requests are always answered; a request of an older term is answered with our own term."""
        match message:
            case PreVoteRequest() | VoteRequest():
                return True
            case AppendRequest(term=term) | SnapshotRequest(term=term) if term < self.term:
                return True
        if peer == self.leader and not isinstance(message, VotersNotice) and message.term == self.term:
            return True
        if isinstance(message, AppendReply | SnapshotReply) and self.replication.progress_of(peer.id) is not None:
            # A learner, or a voter that lost its disk: it does not count, but is sent the log.
            learner = self.replication.learner
            is_learner = learner is not None and learner.node_id == peer.id
            if is_learner or message.term <= self.term:
                return True
        if self.voter_sets.may_lead(peer.id):
            return True
        if isinstance(message, AppendRequest | SnapshotRequest):
            self._log_ignored(peer, message.term)
        return False

    def _log_ignored(self, peer: Peer, term: RaftTerm) -> None:
        """Rate-limited: such a node may send ten times a second."""
        if self.now() >= self._ignored_at + REMINDER_S:
            self._ignored_at = self.now()
            self._probe("quorum_leader_ignored", peer=peer.id, term=term, voters=str(self.voter_sets.voters))

    def _take(self, peer: Peer, message: Message) -> None:
        match message:
            case VotersNotice():
                pass
            case AppendRequest():
                self._append.on_request(peer, message)
            case AppendReply():
                self.replication.on_append_reply(peer, message)
            case PreVoteRequest():
                self.elections.on_pre_vote_request(peer, message)
            case PreVoteReply():
                self.elections.on_pre_vote_reply(peer, message)
            case VoteRequest():
                self.elections.on_vote_request(peer, message)
            case VoteReply():
                self.elections.on_vote_reply(peer, message)
            case SnapshotRequest():
                self.snapshots.on_request(peer, message)
            case SnapshotReply():
                self.replication.on_snapshot_reply(peer, message)
            case TimeoutNow():
                self.elections.on_timeout_now(peer, message)
            case _:
                assert_never(message)

    @on_own_clock
    def turn(self) -> bool:
        """One turn; True when there is more to do at once."""
        self.elections.on_time(self.now())
        if self.role == RaftRole.LEADER:
            self._lead()
        more = self.applier.apply_committed()
        if self.role == RaftRole.LEADER:
            self.barriers.let_pass()
            self.barriers.begin_round()
            self.replication.send()
            self.barriers.let_pass()
        self.log.flush()
        return more

    def _lead(self) -> None:
        if not self.replication.has_quorum():
            self._probe("quorum_lost", term=self.term)
            self.elections.step_down(self.term)
            return
        self.take_commands()
        self.replication.advance_commit()
        self.voter_changes.on_turn()
        if not self.voter_sets.is_voter and self.voter_sets.index <= self.commit_index:
            self.hand_over()
            self.elections.step_down(self.term)

    def next_deadline(self) -> float | None:
        """When the next turn is due without new input, on the node's clock; None: never."""
        if self.role != RaftRole.LEADER:
            return self.elections.next_deadline()
        change = self.voter_changes.next_deadline()
        deadline = self.replication.next_deadline()
        return deadline if change is None else min(change, deadline)

    def hand_over(self) -> None:
        """Leader: send TimeoutNow to the most up-to-date connected voter."""
        voters = [peer for peer in sorted(self.others, key=lambda peer: peer.id) if peer in self.connected]
        progress = [self.replication.progress_of(peer.id) for peer in voters]
        furthest = max((p for p in progress if p is not None), key=lambda p: p.matched, default=None)
        if furthest is not None:
            self.send(furthest.peer, TimeoutNow(term=self.term))

    def quorum_silence_s(self) -> float:
        """Seconds since the last message from a leader; 0 at the leader, which steps down without a majority."""
        return 0.0 if self.role == RaftRole.LEADER else self.now() - self.elections.followed_at

    @property
    def is_ready(self) -> bool:
        """It leads and has applied an entry of its own term: its state includes all earlier commits."""
        return self.role == RaftRole.LEADER and self.no_op_index is not None and self.no_op_index <= self.last_applied

    # For the parts.

    def send(self, peer: Peer, message: Message) -> None:
        match message:
            case VoteRequest() | VoteReply() | SnapshotReply():
                after = self.log.written  # they depend on the term, the vote and the log as they are now
            case AppendReply(matched=True, next_index=end):
                after = max(self._term_change, self.log.number_at(end - 1))  # what it acknowledges (follower_append)
            case _:
                after = self._term_change  # a leader counts for itself only what is durable (replication)
        self._outbox.put(peer.id, message, after=after)

    def submit_entry(self, data: bytes, caller: CommandCallback) -> None:
        """Leader: queue an entry; `caller` is called when it was applied, or with an unknown outcome."""
        self._applyCommand(data, caller)

    def _on_voters(self) -> None:
        """The voters in effect have changed."""
        self.others = {self.peer(voter.node_id) for voter in self.voter_sets.voters if voter.node_id != self.me.id}
        self._probe("quorum_voters", index=self.voter_sets.index, voters=str(self.voter_sets.voters))
        if self.role == RaftRole.LEADER:
            self.replication.update_peers()
        for peer in sorted(self.connected, key=lambda peer: peer.id):
            self.send(peer, self.voter_sets.notice)
        self._log_without_vote()

    def without_vote(self) -> tuple[BrokerId, ...]:
        """Connected voters, or this node, whose directory is not the one that has the vote."""
        missing = self.voter_sets.without_vote
        return tuple(who for who in missing if who == self.me.id or self.peer(who) in self.connected)

    def _log_without_vote(self) -> None:
        """Log each change, at the node that lost its disk and at all nodes connected to it."""
        now, before, own = self.without_vote(), self._without_vote, self.me.id
        for node_id in now:
            if node_id not in before:
                self._probe("own_vote_missing" if node_id == own else "vote_missing", voter=node_id)
        if own in before and not self.voter_sets.is_voter:
            now = tuple(sorted({*now, own}))  # in progress: the set without the lost directory is in effect
        elif own in before and own not in now:
            self._probe("own_vote_back", voter=own)
        self._without_vote = now

    # Calls from the library.

    def _SyncObj__setState(self, role: int) -> None:
        was = self.role
        super()._SyncObj__setState(role)
        if was == RaftRole.LEADER and role != RaftRole.LEADER:
            self._end_term()

    def _end_term(self) -> None:
        """Answer all pending callers of this leader."""
        self.proposals.end_term()
        self.barriers.end_term()
        self.voter_changes.end_term()
        self.replication.end_term()

    def _SyncObj__setCurrentTerm(self, term: int, vote: int | None) -> None:
        super()._SyncObj__setCurrentTerm(term, vote)
        self._term_change = self.log.written

    def _SyncObj__onBecomeLeader(self) -> None:
        super()._SyncObj__onBecomeLeader()
        self._probe("became_leader", term=self.term, index=self.no_op_index)

    def _SyncObj__sendAppendEntries(self) -> None:
        """The library's last step in becoming leader: the entry of the new term is in the log."""
        if self.log.last.data != NO_OP:
            raise InvariantError("PySyncObj sends entries by itself")
        self.replication.begin_term()
