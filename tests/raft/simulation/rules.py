"""Rules of the hardened core that are checked when something happens, not by what comes of it in the end."""

from __future__ import annotations

from typing import Final, Protocol

from streamlog.model import BrokerId
from streamlog.raft.core.library import RaftRole
from streamlog.raft.protocol.entries import EntryKind
from streamlog.raft.protocol.messages import AppendReply, Message, VoteReply, VoteRequest
from streamlog.raft.voters import Voter
from streamlog.sim.world import Host

from ..kit import Member
from ..protocol.hostile import FORGED_TERM
from .truth import Promise, Truth

OUTBOX_MAX: Final = 5_000


class Members(Protocol):
    """Who is in the quorum, and on which host: of the quorum alone (`kit.Cluster`), or of whole nodes."""

    def host(self, node_id: int) -> Host: ...

    def member_on(self, host: Host) -> Member | None:
        """Whose quorum is up there."""
        ...

    def member(self, node_id: int) -> Member: ...

    def members(self) -> list[Member]: ...


class Rules:
    """Inspects the members: at their events, at each fault and at the end."""

    def __init__(self, cluster: Members) -> None:
        self._cluster = cluster
        self.truth = Truth(self._majority_has)

    def on_event(self, host: Host, event: str, fields: dict[str, object]) -> None:
        """An event of a member's probe."""
        member = self._cluster.member_on(host)
        if member is None:
            return
        core = member.core
        if event == "became_leader":
            self.truth.leads(host.name, core.term)
            self._check_votes(member)
        elif event == "quorum_up":
            self.truth.came_up(host.name, core.log.term, core.log.vote, core.log.between(0, len(core.log)))
            self._listen_to(member)
        elif event == "quorum_voters" and core.role == RaftRole.LEADER:
            self._check_change(member)

    def check_now(self) -> None:
        """What holds at any moment."""
        logs = []
        for member in self._cluster.members():
            journal = member.core.log
            logs.append((member.node_id, journal.between(0, len(journal))))
            self._check_member(member)
        self.truth.compare_logs(logs)
        self._compare_sessions()

    def promise_of(self, member: Member) -> Promise:
        """What it has durably, before it goes down."""
        journal = member.core.log
        index = journal.durable_index
        index_term = journal.term_at(index) or 0
        if journal.durable == journal.written:
            return Promise(journal.term, journal.vote, index, index_term)
        return Promise(0, None, index, index_term)  # term and vote may be of a change that no one was promised

    def _listen_to(self, member: Member) -> None:
        """Record what it sends to others, as it leaves."""
        outbox, log = member.runner._outbox, member.core.log
        deliver, host = outbox._deliver, f"n{member.node_id}"

        def overheard(peer: BrokerId, message: Message) -> None:
            match message:
                case VoteRequest(term=term):
                    self.truth.reported(host, Promise(term, member.node_id, 0, 0))
                case VoteReply(term=term, granted=True):
                    self.truth.reported(host, Promise(term, peer, 0, 0))
                    self.truth.voted(member.node_id, peer, term)
                case AppendReply(term=term, matched=True, next_index=end):
                    self.truth.reported(host, Promise(term, None, end - 1, log.term_at(end - 1) or 0))
            deliver(peer, message)

        outbox._deliver = overheard

    def _check_votes(self, member: Member) -> None:
        """It leads: a majority of its voters has voted for it, each with the directory named in the set."""
        core = member.core
        voted = self.truth.voters_of(member.node_id, core.term)
        counted = [v for v in core.voter_sets.voters if v.node_id in voted and self._is_directory_of(v)]
        if len(counted) < core.voter_sets.majority:
            self.truth.wrong(f"node {member.node_id} leads term {core.term} with the votes of {sorted(voted)}")

    def _is_directory_of(self, voter: Voter) -> bool:
        member = self._cluster.member_on(self._cluster.host(voter.node_id))
        return member is None or voter.is_directory(member.core.log.directory_id)

    def _check_change(self, member: Member) -> None:
        """A leader has put other voters into its log (thesis, 4.1, with the correction of 2015)."""
        core = member.core
        own = core.no_op_index
        if own is None or own > core.commit_index:
            self.truth.wrong(f"node {member.node_id} changes the voters before it has committed an entry of its term")
        log = core.log.between(0, len(core.log))
        pending = [e.index for e in log if e.kind == EntryKind.VOTERS and e.index > core.commit_index]
        if len([index for index in pending if own is None or index > own]) > 1:
            self.truth.wrong(f"node {member.node_id} changes the voters at {pending}, none of them committed")

    def _majority_has(self, node_id: int, index: int) -> bool:
        """Whether a majority has entry `index` of this node on stable storage: of one of the sets that it knows of.

        A follower may know of later voters than those by whom the leader committed the entry.
        """
        core = self._cluster.member(node_id).core
        term = core.log.term_at(index)
        return any(
            sum(self._has_had(v, index, term) for v in voters) >= voters.majority
            for _, voters in core.voter_sets._history
        )

    def _has_had(self, voter: Voter, index: int, term: int | None) -> bool:
        lost_index = self.truth.lost_index_of(f"n{voter.node_id}")
        return lost_index >= index or (self._is_directory_of(voter) and self._holds(voter.node_id, index, term))

    def _holds(self, node_id: int, index: int, term: int | None) -> bool:
        host = self._cluster.host(node_id)
        member = self._cluster.member_on(host)
        if not host.alive or member is None:
            return self.truth.durable_index_of(host.name) >= index
        log = member.core.log
        return log.base.index >= index or (log.durable_index >= index and log.term_at(index) == term)

    def _check_member(self, member: Member) -> None:
        core, runner = member.core, member.runner
        if core.term >= FORGED_TERM:
            self.truth.wrong(f"node {member.node_id} has taken term {core.term} from a program that is no node")
        if runner._outbox.count() > OUTBOX_MAX:
            self.truth.wrong(f"node {member.node_id} has {runner._outbox.count()} messages waiting")
        if runner.callers and core.role != RaftRole.LEADER:
            self.truth.wrong(f"node {member.node_id} lets {runner.callers} callers wait, and does not lead")
        log = core.log.between(1, len(core.log))
        latest = next((e for e in reversed(log) if e.kind == EntryKind.VOTERS), None)
        if latest is not None and core.voter_sets.index != latest.index:
            self.truth.wrong(f"node {member.node_id} does not go by the voters of entry {latest.index}")

    def _compare_sessions(self) -> None:
        """Equal index, equal memory of the clients."""
        seen: dict[int, tuple[int, object]] = {}
        for member in self._cluster.members():
            core = member.core
            clients = [(name, client.answers) for name, client in core.applier.sessions._clients.items()]
            node_id, first = seen.setdefault(core.last_applied, (member.node_id, clients))
            if clients != first:
                self.truth.wrong(f"nodes {node_id} and {member.node_id} remember other clients at {core.last_applied}")
