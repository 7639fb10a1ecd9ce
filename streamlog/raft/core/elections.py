"""Who leads: the roles of a node, and all that moves it from one to another.

    from         on                                                     to
    follower     no leader heard for an election time-out               follower, asking for pre-votes
    follower     pre-votes of a majority; or the leader hands over      candidate, of the next term
    follower     the stream from the leader broke                       follower, asking for pre-votes soon
    follower     started, has heard no leader yet, reaches a majority   follower, asking for pre-votes soon
    candidate    votes of a majority                                    leader
    candidate    an election time-out                                   follower, asking for pre-votes
    leader       no majority has answered for an election time-out      follower
    any          a message of a higher term, of one who may lead        follower of that term
    candidate    an append or a snapshot of its own term                follower of its sender

Pre-vote (thesis, 9.6): a node asks first whether it would win. Asking changes no state at anybody, so a node that hears
nobody, or that was removed, does not depose a leader that the others hear. A vote in a pre-vote is refused by a leader,
by who has heard a leader within the shortest election time-out, and by who has a more up-to-date log.

When a leader's streams break, all followers ask within a tenth of a second. Two that campaign at the same time share
the votes, and an election time-out is lost. So whoever grants a pre-vote gives the asker a moment before it asks for
itself; and of two that ask at the same time, with equal logs, the one with the smaller id gives way, unless the other
has been refused already: by one that still heard the leader, maybe. Both last for the moment alone, so that nobody is
held up by one whose election comes to nothing; neither matters for safety.

The real vote is PySyncObj's: it grants one vote a term, to a log at least as up to date, and writes it down. It counts
any answer it gets; so only the first one of each voter of this term reaches it (docs/decisions).

A vote is given to who may lead: a voter of the set in effect, or of a newer one that this node has heard of, for its
own view may be the older one (thesis, 4.1; membership). Of anybody else the term is not taken, and the vote refused: of
a voter that has lost its disk, of one that was voted out, of a stranger. Only voters are counted. Term and vote are in
the journal before the message that tells of them; the outbox holds it back until they are durable.
"""

from __future__ import annotations

from streamlog.errors import CorruptMessageError
from streamlog.model import BrokerId, RaftTerm
from streamlog.raft.core.library import Library, Peer, RaftRole
from streamlog.raft.core.voter_set_history import VoterSetHistory
from streamlog.raft.protocol.bounds import TERM_MAX
from streamlog.raft.protocol.messages import PreVoteReply, PreVoteRequest, TimeoutNow, VoteReply, VoteRequest
from streamlog.raft.settings import QuorumSettings

NEVER = float("-inf")


class Elections:
    """Owned by the core, which tells it time and messages. `role`, `term`, `leader` of the core change here alone,
    but for PySyncObj's own vote and what follows from it.
    """

    def __init__(self, raft: Library, membership: VoterSetHistory, settings: QuorumSettings) -> None:
        self._raft = raft
        self._membership = membership
        self._shortest_s = settings.election_timeout_min_ms / 1000
        self._lost_backoff_s = settings.leader_lost_backoff_ms / 1000  # the moment, too
        self._settings = settings
        self._patience_s = 0.0  # what the leader's announced silence adds to the time-outs
        self._heard_at = NEVER  # when a leader's message was last accepted, or NEVER to doubt it
        self.followed_at = raft.now()  # likewise, but it is not doubted; or when the node started
        self._asked_term: RaftTerm | None = None  # of the pre-vote that is open
        self._asked_at = NEVER  # when it was opened, while nobody has refused it
        self._granted: set[BrokerId] = set()  # who would vote for us in it
        self._voted: set[BrokerId] = set()  # who has voted for us in this term
        self._met_leader = False  # in this life of the process
        if membership.is_alone:
            raft.election_deadline = raft.now()  # there is nobody to wait for

    # Time.

    def on_time(self, now: float) -> None:
        """Start an election if one is due."""
        if self._raft.role == RaftRole.LEADER or now < self._raft.election_deadline or not self._membership.is_voter:
            return
        self._patience_s = 0.0  # it has been shown
        self._restart_timer()
        if self._membership.is_alone:
            self._campaign()
        elif self._raft.connected:
            self._ask_for_pre_votes()

    def next_deadline(self) -> float | None:
        """When `on_time` may have something to do, unless it leads; None: never, by itself."""
        return self._raft.election_deadline if self._membership.is_voter else None

    def _restart_timer(self) -> None:
        timeout_s = self._raft.draw_election_timeout_s() + self._patience_s
        self._raft.election_deadline = self._raft.now() + timeout_s

    # Pre-vote.

    def _ask_for_pre_votes(self) -> None:
        raft = self._raft
        raft.leader = None
        raft.set_role(RaftRole.FOLLOWER)
        self._asked_term, self._asked_at = RaftTerm(raft.term + 1), raft.now()
        self._granted = {raft.me.id}
        last = raft.log.last
        for peer in sorted(raft.others, key=_by_id):
            request = PreVoteRequest(
                term=self._asked_term,
                last_index=last.index,
                last_term=last.term,
                named=self._membership.names_this_node,
            )
            raft.send(peer, request)

    def on_pre_vote_request(self, peer: Peer, request: PreVoteRequest) -> None:
        raft = self._raft
        silence_s = raft.now() - self._heard_at
        hears_leader = raft.role == RaftRole.LEADER or silence_s < self._shortest_s + self._patience_s
        wins = (
            self._membership.may_lead(peer.id) and self._is_up_to_date(request) and not self._goes_first(peer, request)
        )
        granted = request.term > raft.term and not hears_leader and wins
        if granted:
            raft.election_deadline = max(raft.election_deadline, raft.now() + self._lost_backoff_s)
        raft.send(peer, PreVoteReply(asked_term=request.term, term=raft.term, granted=granted))

    def _goes_first(self, peer: Peer, request: PreVoteRequest) -> bool:
        """Whether this node has just asked for the same term, and may expect the peer to grant it."""
        raft, last = self._raft, self._raft.log.last
        equal = (request.last_term, request.last_index, request.term) == (last.term, last.index, self._asked_term)
        return equal and raft.me.id > peer.id and raft.now() < self._asked_at + self._lost_backoff_s

    def _is_up_to_date(self, request: PreVoteRequest | VoteRequest) -> bool:
        last = self._raft.log.last
        return (request.last_term, request.last_index) >= (last.term, last.index)

    def on_pre_vote_reply(self, peer: Peer, reply: PreVoteReply) -> None:
        if reply.term > self._raft.term:
            self.step_down(reply.term)
        elif reply.asked_term != self._asked_term or not self._membership.counts(peer.id):
            return
        elif not reply.granted:
            self._asked_at = NEVER
        else:
            self._granted.add(peer.id)
            if len(self._granted) >= self._membership.majority:
                self._campaign()

    # Votes.

    def _campaign(self) -> None:
        raft = self._raft
        self._close_pre_vote()
        self._restart_timer()
        if raft.term >= TERM_MAX:
            return  # no election in an honest quorum gets here
        raft.leader = None
        raft.set_role(RaftRole.CANDIDATE)
        raft.set_term(RaftTerm(raft.term + 1), raft.me.id)
        raft.votes, self._voted = 1, {raft.me.id}
        last = raft.log.last
        for peer in sorted(raft.others, key=_by_id):
            request = VoteRequest(
                term=raft.term,
                last_index=last.index,
                last_term=last.term,
                named=self._membership.names_this_node,
            )
            raft.send(peer, request)
        if self._membership.is_alone:
            raft.become_leader()

    def on_vote_request(self, peer: Peer, request: VoteRequest) -> None:
        raft = self._raft
        if request.term < raft.term:
            raft.send(peer, VoteReply(term=raft.term, granted=False))
            return
        if not self._membership.may_lead(peer.id):
            raft.send(peer, VoteReply(term=raft.term, granted=False))
            return
        raft.give_message(
            peer,
            {
                "type": "request_vote",
                "term": request.term,
                "last_log_index": request.last_index,
                "last_log_term": request.last_term,
            },
        )

    def on_vote_reply(self, peer: Peer, reply: VoteReply) -> None:
        raft = self._raft
        if reply.term > raft.term:
            self.step_down(reply.term)
            return
        fresh = reply.term == raft.term and raft.role == RaftRole.CANDIDATE and peer.id not in self._voted
        if reply.granted and fresh and self._membership.counts(peer.id):
            self._voted.add(peer.id)
            raft.give_message(peer, {"type": "response_vote", "term": reply.term})

    def on_timeout_now(self, peer: Peer, message: TimeoutNow) -> None:
        """The leader hands over: no pre-vote, for the others still hear it."""
        raft = self._raft
        if message.term == raft.term and raft.leader == peer and self._membership.is_voter:
            self._campaign()

    # Following.

    def check_only_leader(self, peer: Peer, term: RaftTerm) -> None:
        """A term has one leader. CorruptMessageError for a second one: this node has seen the first elected."""
        raft = self._raft
        if term == raft.term and raft.leader is not None and raft.leader != peer:
            raise CorruptMessageError(
                f"node {peer.id} says that it leads term {term}, which node {raft.leader.id} leads"
            )

    def follow(self, peer: Peer, term: RaftTerm, *, next_within_ms: int = 0) -> None:
        """Accept `peer` as the leader of `term`, which is not below ours, and which may be silent for so long. Who else
        leads this term was asked before (`check_only_leader`).
        """
        raft, settings = self._raft, self._settings
        announced_ms = min(next_within_ms, settings.idle_heartbeat_ms)
        self._patience_s = max(0, announced_ms - settings.heartbeat_ms) / 1000
        if term > raft.term:
            raft.set_term(term, None)
        raft.set_role(RaftRole.FOLLOWER)
        raft.leader = peer
        self._met_leader = True
        self._heard_at = self.followed_at = raft.now()
        self._close_pre_vote()
        self._restart_timer()

    def step_down(self, term: RaftTerm) -> None:
        """To follower, of `term` if that is the higher one."""
        raft = self._raft
        if term > raft.term:
            raft.set_term(term, None)
        raft.set_role(RaftRole.FOLLOWER)
        raft.leader = None
        self._close_pre_vote()
        self._restart_timer()

    def on_connected(self) -> None:
        """A stream is up. Who has just started, and met no leader, asks as soon as there is a majority to ask: when a
        whole cluster starts, nobody leads, and time-outs would be waited for in vain.
        """
        raft = self._raft
        fresh = raft.role == RaftRole.FOLLOWER and raft.leader is None and not self._met_leader
        if fresh and 1 + len(raft.connected) >= self._membership.majority:
            self._ask_soon()

    def on_stream_lost(self, peer: Peer) -> None:
        """A follower that loses the stream from its leader asks soon whether the others have lost it too."""
        raft = self._raft
        if raft.role == RaftRole.FOLLOWER and raft.leader == peer:
            self._heard_at = NEVER
            self._ask_soon()

    def _ask_soon(self) -> None:
        raft = self._raft
        soon = raft.now() + raft.random.uniform(0.0, self._lost_backoff_s)
        raft.election_deadline = min(raft.election_deadline, soon)

    def _close_pre_vote(self) -> None:
        self._asked_term = None
        self._granted = set()


def _by_id(peer: Peer) -> int:
    return peer.id
