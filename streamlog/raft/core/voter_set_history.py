"""Which voters are in effect: those of the latest VOTERS entry in the log, committed or not (thesis, 4.1).

A history of (index, set), oldest first: the first one is that of the snapshot or of the bootstrap, the others follow
the log. Cutting the log's tail cuts the history; so an entry that did not survive has never been.

A peer counts (its votes, its acknowledgements) if it is a voter *and* the directory that it showed in its Hello is the
one that the set names. While the set does not know one yet (it is from the settings), it is the one that the peer
showed when this node first met it, which the journal remembers. So a voter that lost its disk helps nobody to be
elected who ever knew it before, not even one that has none of the log. Nor is it elected itself by one that knew it:
it takes itself for a voter, for it has nothing but the settings to go by (`may_lead`).

Any program that reaches the port may link (transport), so a term, a vote or a log is taken only from who may lead:

    a voter of the set in effect, with its directory
    who such a voter, or anybody who may lead, names as a voter (VotersNotice): our set may be the older one
    the leader that this node follows, in its own term: it leads until its own removal is committed
    anybody who names itself, to a node whose set is empty: it waits to be added, and has nothing to lose

The thesis (4.1) takes a leader and a candidate from outside the set, so that a server that lags behind stays available.
The notices are for that: a voter that has not got the entry that lets node 4 vote hears of node 4 from another old
voter, for a majority of the new set, without which nothing can be decided, has an old one that has got it, or else does
without the entry. A notice moves no term and no log; it is kept in memory alone.

A node all of whose voters were replaced while it was down knows nobody who could name the new ones. It says so (core),
and does not believe them: they could be anybody. It is brought back as one that has lost its disk.
"""

from __future__ import annotations

from collections.abc import Callable

from streamlog.errors import InvariantError, NotControllerError
from streamlog.model import BrokerId, RaftIndex
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.entries import EntryKind, LogEntry
from streamlog.raft.protocol.messages import VotersNotice
from streamlog.raft.storage.journal import Journal
from streamlog.raft.voters import UNKNOWN_DIRECTORY, DirectoryId, Voter, VoterSet


class VoterSetHistory:
    """Owned by the core. Not durable by itself: journal and snapshot are."""

    def __init__(
        self,
        node_id: BrokerId,
        directory_id: DirectoryId,
        base: VoterSet,
        base_index: RaftIndex,
        journal: Journal,
    ) -> None:
        self._node_id = node_id
        self._journal = journal
        self._history: list[tuple[RaftIndex, VoterSet]] = [(base_index, base)]  # indexes rise
        self._shown = {node_id: directory_id}  # by peers since the start, and by this node
        self._notices: dict[BrokerId, VotersNotice] = {}  # the latest of each peer, as long as it may matter
        self._on_change: Callable[[], None] = lambda: None

    def on_change(self, call: Callable[[], None]) -> None:
        """Call it whenever other voters come into effect."""
        self._on_change = call

    @property
    def voters(self) -> VoterSet:
        return self._history[-1][1]

    @property
    def index(self) -> RaftIndex:
        """Where in the log the voters in effect were set; 0: the bootstrap."""
        return self._history[-1][0]

    @property
    def majority(self) -> int:
        return self.voters.majority

    @property
    def is_voter(self) -> bool:
        """Whether this node, with this directory, has a vote."""
        return self.counts(self._node_id)

    @property
    def is_alone(self) -> bool:
        """This node decides by itself."""
        return self.is_voter and len(self.voters) == 1

    def not_controller(self, leader: BrokerId | None) -> NotControllerError:
        """What to tell who took this node for the leader."""
        voter = None if leader is None else self.voters.get(leader)
        where = "nobody that it knows of does" if leader is None else f"node {voter or leader} does"
        address = None if voter is None else voter.address
        return NotControllerError(f"this node does not lead the quorum; {where}", leader=leader, address=address)

    # Peers.

    def shown(self, peer: BrokerId, directory_id: DirectoryId) -> bool:
        """Note what a peer's Hello shows. True when it is another directory than before."""
        before = self._shown.get(peer, directory_id)
        self._shown[peer] = directory_id
        voter = self.voters.get(peer)
        if voter is not None and voter.directory_id == UNKNOWN_DIRECTORY and peer not in self._journal.peers:
            self._journal.note_peer(peer, directory_id)
        return before != directory_id

    def directory_of(self, peer: BrokerId) -> DirectoryId | None:
        """What it showed last."""
        return self._shown.get(peer)

    def counts(self, peer: BrokerId) -> bool:
        voter, shown = self.voters.get(peer), self._shown.get(peer)
        if voter is None or shown is None:
            return False
        return shown == (voter.directory_id or self._journal.peers.get(peer, shown))

    @property
    def names_this_node(self) -> bool:
        """The set in effect names the directory of this node: that is not from the settings."""
        voter = self.voters.get(self._node_id)
        return voter is not None and voter.directory_id == self._shown[self._node_id]

    @property
    def lost_vote(self) -> bool:
        """The set in effect names this node's id with another directory: its disk was wiped, or changed."""
        voter = self.voters.get(self._node_id)
        return voter is not None and not voter.is_directory(self._shown[self._node_id])

    @property
    def without_vote(self) -> tuple[BrokerId, ...]:
        """Voters by name that do not count: they show another directory than the one that is named."""
        return tuple(
            voter.node_id
            for voter in self.voters
            if self._shown.get(voter.node_id) is not None and not self.counts(voter.node_id)
        )

    # Who may lead.

    @property
    def notice(self) -> VotersNotice:
        """What this node tells its peers."""
        return VotersNotice(index=self.index, voters=self.voters)

    def noticed(self, peer: BrokerId, notice: VotersNotice) -> None:
        """Of a peer that is linked: so there are no more of them than links, and voters."""
        self._notices[peer] = notice

    def forget_notice(self, peer: BrokerId) -> None:
        """The link is gone. What a voter has said still holds: it may have been its last word."""
        if not self.counts(peer):
            self._notices.pop(peer, None)

    def may_lead(self, peer: BrokerId) -> bool:
        """Whether terms, votes and entries are taken from it (see the head)."""
        if self.counts(peer) or self._is_introduced(peer):
            return True
        return not self.voters.voters and peer in self._notices and self._names(self._notices[peer], peer)

    def _is_introduced(self, peer: BrokerId) -> bool:
        """By our voters, or by those whom they have introduced, and so on."""
        unheard = set(self._notices)
        speakers = {who for who in unheard if self.counts(who)}
        while speakers:
            unheard -= speakers
            if any(self._names(self._notices[speaker], peer) for speaker in speakers):
                return True
            speakers = {who for who in unheard if any(self._names(self._notices[s], who) for s in speakers)}
        return False

    def _names(self, notice: VotersNotice, peer: BrokerId) -> bool:
        """With the directory that it shows: a set from the settings, which knows no directories, names nobody."""
        voter = notice.voters.get(peer)
        return voter is not None and voter.directory_id == self._shown.get(peer)

    # The log.

    def appended(self, entry: LogEntry) -> None:
        """Every entry that comes into the log passes here."""
        if entry.kind == EntryKind.VOTERS:
            self._history.append((entry.index, wire.decode_voters(entry.payload)))
            self._on_change()

    def truncated(self, first: RaftIndex) -> None:
        """`first` and all behind it are gone."""
        changed = False
        while self._history[-1][0] >= first:
            if len(self._history) == 1:
                raise InvariantError(f"the log is cut at {first}, below the voters of the snapshot")
            self._history.pop()
            changed = True
        if changed:
            self._on_change()

    def reset(self, index: RaftIndex, voters: VoterSet) -> None:
        """A snapshot took the place of the log."""
        self._history = [(index, voters)]
        self._on_change()

    def at(self, index: RaftIndex) -> tuple[RaftIndex, VoterSet]:
        """(where set, voters) in effect after the entry at `index`, which is not below the first of the history."""
        return next((where, voters) for where, voters in reversed(self._history) if where <= index)

    def leaving(self, commit_index: RaftIndex) -> tuple[Voter, ...]:
        """Voters whose removal is in the log and not committed."""
        if self.index <= commit_index or len(self._history) == 1:
            return ()
        return tuple(voter for voter in self.at(commit_index)[1] if self.voters.get(voter.node_id) is None)

    def forget_before(self, index: RaftIndex) -> None:
        """A snapshot covers `index`: sets that were replaced by then are not asked for again."""
        keep = self.at(index)[0]
        self._history = [(where, voters) for where, voters in self._history if where >= keep]
