"""Elections: the roles of a node and their transitions.

    from         on                                                       to
    follower     no message from a leader for an election timeout         follower, requesting pre-votes
    follower     pre-votes of a majority; or TimeoutNow from the leader   candidate, of the next term
    no voter     no message from a leader for an election timeout         without a leader, so that it observes
    follower     the stream from the leader broke                         follower, requesting pre-votes soon
    follower     started, no leader known yet, reaches a majority         follower, requesting pre-votes soon
    candidate    votes of a majority                                      leader
    candidate    an election timeout                                      follower, requesting pre-votes
    leader       no majority has answered for an election timeout         follower
    any          a message of a higher term, from a node that may lead    follower of that term
    candidate    an append or a snapshot of its own term                  follower of its sender

Pre-vote (thesis, 9.6): a node first asks whether it would win. A pre-vote changes no state at any node, so a node that
is isolated, or was removed, does not depose a leader that the others follow. A pre-vote is refused by a leader, by a
node that received a message from a leader within the shortest election timeout, and by a node with a more up-to-date
log.

When a leader's streams break, all followers request pre-votes within a tenth of a second. Two that campaign at the same
time split the votes, which costs an election timeout. So a node that grants a pre-vote delays its own campaign by
`leader_lost_backoff_ms`; and of two nodes that ask at the same time, with equal logs, the one with the smaller id
yields, unless the other has been refused already (perhaps by a node that still followed the leader). Both rules last
for that delay only, so a failed campaign blocks no other; neither is needed for safety.

The real vote is PySyncObj's: it grants one vote per term, to a log at least as up to date, and persists it. It counts
every reply it gets, so only the first one of each voter in this term is passed to it (docs/decisions).

A vote is granted to a node that may lead: a voter of the set in effect, or of a newer set that this node knows of,
since its own set may be the older one (thesis, 4.1; voter_set_history). From any other node (a voter that lost its
disk, one that was removed, a stranger) the term is not adopted and the vote is refused. Only voters are counted. Term
and vote are in the journal before the message that depends on them; the outbox holds it until they are durable.

A node that knows that it lost its disk grants no vote (`lost_vote`): a candidate that had not met it before would count
it.
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
    """Owned by the core, which passes it time and messages. `role`, `term` and `leader` of the core change only here
    and in PySyncObj's own vote handling.
    """

    def __init__(self, raft: Library, voter_sets: VoterSetHistory, settings: QuorumSettings) -> None:
        self._raft = raft
        self._voter_sets = voter_sets
        self._shortest_s = settings.election_timeout_min_ms / 1000
        self._lost_backoff_s = settings.leader_lost_backoff_ms / 1000
        self._settings = settings
        self._patience_s = 0.0  # what the leader's announced heartbeat interval adds to the timeouts
        self._leader_seen_at = NEVER  # when a leader's message was last accepted; NEVER once its stream broke
        self.followed_at = raft.now()  # likewise, but kept when the stream breaks; initially the start of the node
        self._pre_vote_term: RaftTerm | None = None  # of the open pre-vote
        self._pre_vote_at = NEVER  # when it was opened, until the first refusal
        self._granted: set[BrokerId] = set()  # who granted it
        self._voted: set[BrokerId] = set()  # who has voted for us in this term
        self._met_leader = False  # since this process started
        if voter_sets.is_alone:
            raft.election_deadline = raft.now()  # there is no other node to wait for

    # Time.

    def on_time(self, now: float) -> None:
        """Start an election if one is due. A node that is not a voter only stops following a leader that is silent."""
        if self._raft.role == RaftRole.LEADER or now < self._raft.election_deadline:
            return
        if not self._voter_sets.is_voter:
            self._raft.leader = None
            return
        self._patience_s = 0.0  # it has been waited for
        self._restart_timer()
        if self._voter_sets.is_alone:
            self._campaign()
        elif self._raft.connected:
            self._request_pre_votes()

    def next_deadline(self) -> float | None:
        """When `on_time` may have something to do on a node that does not lead; None: never."""
        waits = self._voter_sets.is_voter or self._raft.leader is not None
        return self._raft.election_deadline if waits else None

    def _restart_timer(self) -> None:
        timeout_s = self._raft.draw_election_timeout_s() + self._patience_s
        self._raft.election_deadline = self._raft.now() + timeout_s

    # Pre-vote.

    def _request_pre_votes(self) -> None:
        raft = self._raft
        raft.leader = None
        raft.set_role(RaftRole.FOLLOWER)
        self._pre_vote_term, self._pre_vote_at = RaftTerm(raft.term + 1), raft.now()
        self._granted = {raft.me.id}
        last = raft.log.last
        for peer in sorted(raft.others, key=_by_id):
            request = PreVoteRequest(
                term=self._pre_vote_term,
                last_index=last.index,
                last_term=last.term,
                named=self._voter_sets.names_this_node,
            )
            raft.send(peer, request)

    def on_pre_vote_request(self, peer: Peer, request: PreVoteRequest) -> None:
        raft = self._raft
        silence_s = raft.now() - self._leader_seen_at
        has_leader = raft.role == RaftRole.LEADER or silence_s < self._shortest_s + self._patience_s
        wins = self._may_vote_for(peer) and self._is_up_to_date(request) and not self._goes_first(peer, request)
        granted = request.term > raft.term and not has_leader and wins
        if granted:
            raft.election_deadline = max(raft.election_deadline, raft.now() + self._lost_backoff_s)
        raft.send(peer, PreVoteReply(asked_term=request.term, term=raft.term, granted=granted))

    def _may_vote_for(self, peer: Peer) -> bool:
        return self._voter_sets.may_lead(peer.id) and not self._voter_sets.lost_vote

    def _goes_first(self, peer: Peer, request: PreVoteRequest) -> bool:
        """Whether this node has just requested pre-votes for the same term, and the peer should yield."""
        raft, last = self._raft, self._raft.log.last
        equal = (request.last_term, request.last_index, request.term) == (last.term, last.index, self._pre_vote_term)
        return equal and raft.me.id > peer.id and raft.now() < self._pre_vote_at + self._lost_backoff_s

    def _is_up_to_date(self, request: PreVoteRequest | VoteRequest) -> bool:
        last = self._raft.log.last
        return (request.last_term, request.last_index) >= (last.term, last.index)

    def on_pre_vote_reply(self, peer: Peer, reply: PreVoteReply) -> None:
        if reply.term > self._raft.term:
            self.step_down(reply.term)
        elif reply.asked_term != self._pre_vote_term or not self._voter_sets.counts(peer.id):
            return
        elif not reply.granted:
            self._pre_vote_at = NEVER
        else:
            self._granted.add(peer.id)
            if len(self._granted) >= self._voter_sets.majority:
                self._campaign()

    # Votes.

    def _campaign(self) -> None:
        raft = self._raft
        self._close_pre_vote()
        self._restart_timer()
        if raft.term >= TERM_MAX:
            return  # unreachable without forged terms
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
                named=self._voter_sets.names_this_node,
            )
            raft.send(peer, request)
        if self._voter_sets.is_alone:
            raft.become_leader()

    def on_vote_request(self, peer: Peer, request: VoteRequest) -> None:
        raft = self._raft
        if request.term < raft.term:
            raft.send(peer, VoteReply(term=raft.term, granted=False))
            return
        if not self._may_vote_for(peer):
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
        if reply.granted and fresh and self._voter_sets.counts(peer.id):
            self._voted.add(peer.id)
            raft.give_message(peer, {"type": "response_vote", "term": reply.term})

    def on_vote_lost(self) -> None:
        """This node has learned that it has no vote: a campaign ends."""
        if self._pre_vote_term is not None or self._raft.role != RaftRole.FOLLOWER:
            self.step_down(self._raft.term)

    def on_timeout_now(self, peer: Peer, message: TimeoutNow) -> None:
        """Leadership transfer: no pre-vote, since the others still follow the leader."""
        raft = self._raft
        if message.term == raft.term and raft.leader == peer and self._voter_sets.is_voter:
            self._campaign()

    # Following.

    def check_only_leader(self, peer: Peer, term: RaftTerm) -> None:
        """A term has one leader. CorruptMessageError for a second one."""
        raft = self._raft
        if term == raft.term and raft.leader is not None and raft.leader != peer:
            raise CorruptMessageError(f"node {peer.id} claims to lead term {term}, but node {raft.leader.id} leads it")

    def follow(self, peer: Peer, term: RaftTerm, *, next_within_ms: int = 0) -> None:
        """Accept `peer` as the leader of `term`, which is not below ours, and its announced heartbeat interval. The
        caller has checked that no other node leads this term (`check_only_leader`).
        """
        raft, settings = self._raft, self._settings
        announced_ms = min(next_within_ms, settings.idle_heartbeat_ms)
        self._patience_s = max(0, announced_ms - settings.heartbeat_ms) / 1000
        if term > raft.term:
            raft.set_term(term, None)
        raft.set_role(RaftRole.FOLLOWER)
        raft.leader = peer
        self._met_leader = True
        self._leader_seen_at = self.followed_at = raft.now()
        self._close_pre_vote()
        self._restart_timer()

    def step_down(self, term: RaftTerm) -> None:
        """Become follower, in `term` if it is higher."""
        raft = self._raft
        if term > raft.term:
            raft.set_term(term, None)
        raft.set_role(RaftRole.FOLLOWER)
        raft.leader = None
        self._close_pre_vote()
        self._restart_timer()

    def on_connected(self) -> None:
        """A stream is up. A node that has just started and knows no leader requests pre-votes as soon as it reaches a
        majority: when a whole cluster starts there is no leader to wait for.
        """
        raft = self._raft
        fresh = raft.role == RaftRole.FOLLOWER and raft.leader is None and not self._met_leader
        if fresh and 1 + len(raft.connected) >= self._voter_sets.majority:
            self._campaign_soon()

    def on_stream_lost(self, peer: Peer) -> None:
        """A follower that loses the stream from its leader soon requests pre-votes: the others may have lost it too."""
        raft = self._raft
        if raft.role == RaftRole.FOLLOWER and raft.leader == peer:
            self._leader_seen_at = NEVER
            self._campaign_soon()

    def _campaign_soon(self) -> None:
        raft = self._raft
        soon = raft.now() + raft.random.uniform(0.0, self._lost_backoff_s)
        raft.election_deadline = min(raft.election_deadline, soon)

    def _close_pre_vote(self) -> None:
        self._pre_vote_term = None
        self._granted = set()


def _by_id(peer: Peer) -> int:
    return peer.id
