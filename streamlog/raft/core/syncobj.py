"""The core: PySyncObj's SyncObj with what is unsafe in it overridden. Synchronous; knows no disk that waits, no stream.

It is told of messages, streams that come and go, and time, and is turned. A message is taken from who may lead
(membership) and if its numbers can be (bounds); one that contradicts what this node knows is a CorruptMessageError, and
has changed nothing. A turn does, in this order:

    1. an election, if one is due; a leader without a majority steps down
    2. leader: commands into the log; what a majority has is committed; the next step of a change of voters
    3. some of what is committed is applied, and its callers are answered
    4. leader: reads that are confirmed pass; messages to the peers
    5. the journal's changes go to the page cache

What it wants to say is in the outbox, from where the node lets it go as the disk permits. Each part has a module; here
they are put together, and the library's own calls are led to them:

    __onMessageReceived   votes alone reach it, checked and counted once (elections)
    __sendAppendEntries   replication: windows, no spinning while a snapshot is made
    __onBecomeLeader      as it is, then replication begins its term
    __setState            as it is; a leader that becomes anything else first tells all who wait
    __doApplyCommand, __applyLogEntries, __tryLogCompaction, __loadDumpFile, __doChangeCluster, _onTick
                          not reached: applying, snapshots, membership, turn
"""

from __future__ import annotations

from typing import Any, Final, assert_never

from streamlog.errors import CorruptMessageError, InvariantError
from streamlog.model import BrokerId, RaftTerm
from streamlog.ports import Clock, Probe, Random
from streamlog.raft.core.applying import AppliedListener, Applier
from streamlog.raft.core.elections import Elections
from streamlog.raft.core.follower_append import FollowerAppend
from streamlog.raft.core.library import Caller, Library, Peer, RaftRole, on_own_clock
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
        membership: VoterSetHistory,
        store: SnapshotStore,
        outbox: Outbox,
        machine: StateMachine[Any],
        listener: AppliedListener,
        settings: QuorumSettings,
        clock: Clock,
        random: Random,
        probe: Probe,
    ) -> None:
        self.membership = membership
        self._outbox = outbox
        self._probe = probe
        super().__init__(Peer(node_id), journal=journal, now=clock.monotonic, random=random, settings=settings)
        self._without_vote: tuple[BrokerId, ...] = ()  # as it was said last
        self._ignored_at = float("-inf")  # when it was last said that somebody's entries are not taken
        self._term_change = journal.written  # the change by which the term came into the journal
        self.elections = Elections(self, membership, settings)
        self._append = FollowerAppend(self, self.elections, membership)
        self.replication = Replication(self, self.elections, membership, store, settings)
        self.voter_changes = VoterChanges(self, membership, self.replication, settings, probe)
        self.applier = Applier(self, machine, settings, listener)
        self.snapshots = Snapshots(self, self.elections, membership, self.applier, machine, store, settings)
        self.proposals = Proposals(self, membership, settings)
        self.barriers = Barriers(self, membership, self.replication)
        membership.on_change(self._on_voters)
        self._on_voters()

    # What the node tells it.

    @on_own_clock
    def connect(self, node_id: BrokerId, directory_id: DirectoryId) -> None:
        """A stream to this node is up. One that was up before is not any more."""
        peer = self.peer(node_id)
        other = self.membership.shown(node_id, directory_id)
        self._outbox.drop(node_id)
        self.connected.add(peer)
        self.membership.forget_notice(node_id)
        self.replication.on_connected(peer, other_directory=other)
        self.send(peer, self.membership.notice)
        self._say_without_vote()
        self.elections.on_connected()

    @on_own_clock
    def disconnect(self, node_id: BrokerId) -> None:
        peer = self.peer(node_id)
        self._outbox.drop(node_id)
        self.connected.discard(peer)
        self.membership.forget_notice(node_id)
        self.elections.on_stream_lost(peer)

    @on_own_clock
    def receive(self, node_id: BrokerId, message: Message) -> None:
        """CorruptMessageError: the message cannot be. Nothing is taken from it."""
        peer = self.peer(node_id)
        self._check_jumps(message)
        if isinstance(message, VotersNotice):
            self.membership.noticed(node_id, message)
        elif self._may_be_heard(peer, message):
            self._take(peer, message)

    def _check_jumps(self, message: Message) -> None:
        """No honest node is that far ahead of another one (bounds)."""
        term = 0 if isinstance(message, VotersNotice) else message.term
        if term > self.term + TERM_JUMP_MAX:
            raise CorruptMessageError(f"term {term}, and this node is in term {self.term}")
        match message:
            case PreVoteRequest(last_index=index) | VoteRequest(last_index=index) | SnapshotRequest(last_index=index):
                pass
            case AppendRequest(prev_index=prev, commit_index=commit):
                index = max(prev, commit)
            case _:
                return
        if index > self.log.last.index + INDEX_JUMP_MAX:
            raise CorruptMessageError(f"index {index}, and the log of this node ends at {self.log.last.index}")

    def _may_be_heard(self, peer: Peer, message: Message) -> bool:
        """Requests for votes are answered, whoever asks; a request of an older term is, with our own."""
        match message:
            case PreVoteRequest() | VoteRequest():
                return True
            case AppendRequest(term=term) | SnapshotRequest(term=term) if term < self.term:
                return True
        if peer == self.leader and not isinstance(message, VotersNotice) and message.term == self.term:
            return True
        if isinstance(message, AppendReply | SnapshotReply) and self.replication.progress_of(peer.id) is not None:
            # It is sent to: a learner, or a voter whose disk was lost, which does not count and must get the log.
            learner = self.replication.learner
            is_learner = learner is not None and learner.node_id == peer.id
            if is_learner or message.term <= self.term:
                return True
        if self.membership.may_lead(peer.id):
            return True
        if isinstance(message, AppendRequest | SnapshotRequest):
            self._say_ignored(peer, message.term)
        return False

    def _say_ignored(self, peer: Peer, term: RaftTerm) -> None:
        """Now and then: a leader that is none sends ten times a second."""
        if self.now() >= self._ignored_at + REMINDER_S:
            self._ignored_at = self.now()
            self._probe("quorum_leader_ignored", peer=peer.id, term=term, voters=str(self.membership.voters))

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
        """Do what can be done now; True when there is more to do at once."""
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
        if not self.membership.is_voter and self.membership.index <= self.commit_index:
            self.hand_over()
            self.elections.step_down(self.term)

    def next_deadline(self) -> float | None:
        """When a turn has something to do by itself, on the node's clock; None: never."""
        if self.role != RaftRole.LEADER:
            return self.elections.next_deadline()
        change = self.voter_changes.next_deadline()
        deadline = self.replication.next_deadline()
        return deadline if change is None else min(change, deadline)

    def hand_over(self) -> None:
        """Leader: ask the voter that is furthest to campaign."""
        voters = [peer for peer in sorted(self.others, key=lambda peer: peer.id) if peer in self.connected]
        progress = [self.replication.progress_of(peer.id) for peer in voters]
        furthest = max((p for p in progress if p is not None), key=lambda p: p.matched, default=None)
        if furthest is not None:
            self.send(furthest.peer, TimeoutNow(term=self.term))

    def quorum_silence_s(self) -> float:
        """How long ago this node heard from the quorum: a leader hears a majority, and steps down when it does not."""
        return 0.0 if self.role == RaftRole.LEADER else self.now() - self.elections.followed_at

    @property
    def is_ready(self) -> bool:
        """It leads, and has applied an entry of its own term: its state is that of the last leader, or later."""
        return self.role == RaftRole.LEADER and self.no_op_index is not None and self.no_op_index <= self.last_applied

    # What the parts ask for.

    def send(self, peer: Peer, message: Message) -> None:
        match message:
            case VoteRequest() | VoteReply() | SnapshotReply():
                after = self.log.written  # they speak of the term, the vote and the log as they are now
            case AppendReply(matched=True, next_index=end):
                after = max(self._term_change, self.log.number_at(end - 1))  # what it vouches for (append)
            case _:
                after = self._term_change  # a leader counts for itself only what is durable (replication)
        self._outbox.put(peer.id, message, after=after)

    def submit_entry(self, data: bytes, caller: Caller) -> None:
        """Leader: have an entry appended; `caller` is called when it was applied, or when that cannot be told."""
        self._applyCommand(data, caller)

    def _on_voters(self) -> None:
        """Other voters are in effect."""
        self.others = {self.peer(voter.node_id) for voter in self.membership.voters if voter.node_id != self.me.id}
        self._probe("quorum_voters", index=self.membership.index, voters=str(self.membership.voters))
        if self.role == RaftRole.LEADER:
            self.replication.update_peers()
        for peer in sorted(self.connected, key=lambda peer: peer.id):
            self.send(peer, self.membership.notice)
        self._say_without_vote()

    def without_vote(self) -> tuple[BrokerId, ...]:
        """Voters that show another directory than the one that has the vote: of those that are here, and this one."""
        missing = self.membership.without_vote
        return tuple(who for who in missing if who == self.me.id or self.peer(who) in self.connected)

    def _say_without_vote(self) -> None:
        """Each change, at every node: one that lost its disk, and those who see it."""
        now, before, own = self.without_vote(), self._without_vote, self.me.id
        for node_id in now:
            if node_id not in before:
                self._probe("own_vote_missing" if node_id == own else "vote_missing", voter=node_id)
        if own in before and not self.membership.is_voter:
            now = tuple(sorted({*now, own}))  # on the way: the set without the lost directory
        elif own in before and own not in now:
            self._probe("own_vote_back", voter=own)
        self._without_vote = now

    # Where the library calls.

    def _SyncObj__setState(self, role: int) -> None:
        was = self.role
        super()._SyncObj__setState(role)
        if was == RaftRole.LEADER and role != RaftRole.LEADER:
            self._end_term()

    def _end_term(self) -> None:
        """All who wait for this leader are told."""
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
