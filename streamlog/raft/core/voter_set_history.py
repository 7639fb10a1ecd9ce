"""Which voters are in effect: those of the latest VOTERS entry in the log, committed or not (thesis, 4.1).

A history of (index, set), oldest first: the first one is from the snapshot or the bootstrap, the others from the log.
Truncating the log truncates the history.

A peer counts (its votes, its acknowledgements) if it is a voter *and* its Hello shows the directory that the set names.
If the set names none yet (it is from the settings), it is the directory that the peer showed when this node first met
it, as recorded in the journal. So a voter that lost its disk helps to elect no node that knew it before, not even one
with an empty log. Nor is it elected by a node that knew it: it believes to be a voter, since it only has the settings
(`may_lead`).

Two voters that only have the settings, one of which lost its disk before the other met it, do not know of the loss, and
are a majority of three. A voter that has the set of the log sends it to them (VotersNotice): the directories that it
names replace those that were shown first. So the one that lost its disk learns that it has no vote (`lost_vote`): it
neither campaigns nor grants votes until a log, or a later notice, names its directory. It is the same with a voter of
the settings that the set of the log does not name at all (NO_DIRECTORY): where a quorum of one is to grow to three, the
two new ones are a majority by their settings, and would be a second quorum.

Any program that reaches the port may connect (transport), so a term, a vote or a log is only accepted from a node that
may lead:

    a voter of the set in effect, with its directory
    a node named as a voter (VotersNotice) by such a voter, or by another that may lead: our set may be the older one
    the leader that this node follows, in its own term: it leads until its own removal is committed
    any node that names itself, if our set is empty: this node waits to be added and has no state to lose

The thesis (4.1) accepts a leader and a candidate from outside the set, so that a server that lags behind stays
available. The notices achieve that: a voter without the entry that adds node 4 learns of node 4 from another old voter,
since any majority of the new set either contains an old voter that has the entry, or can do without the entry. A notice
changes no term and no log, and is kept in memory only.

If all of a node's voters were replaced while it was down, no voter it knows can name the new ones. It logs that (core)
and does not accept them, since they could be any program. It must be restored like a node that lost its disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streamlog.errors import InvariantError, NotControllerError
from streamlog.model import BrokerId, RaftIndex
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.entries import EntryKind, LogEntry
from streamlog.raft.protocol.messages import VotersNotice
from streamlog.raft.storage.journal import Journal
from streamlog.raft.voters import DIRECTORY_ID_BYTES, UNKNOWN_DIRECTORY, DirectoryId, Voter, VoterSet

NO_DIRECTORY: Final = DirectoryId(bytes(DIRECTORY_ID_BYTES))
"""No node shows it."""


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
        self._notices: dict[BrokerId, VotersNotice] = {}  # the latest of each peer, while it may matter
        self._noticed_index = RaftIndex(0)  # of the latest notice whose directories were taken over
        self._on_change: Callable[[], None] = lambda: None

    def on_change(self, call: Callable[[], None]) -> None:
        """Call it whenever the voters in effect change."""
        self._on_change = call

    @property
    def voters(self) -> VoterSet:
        return self._history[-1][1]

    @property
    def index(self) -> RaftIndex:
        """The index of the entry that set the voters in effect; 0: the bootstrap."""
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
        """This node is the only voter."""
        return self.is_voter and len(self.voters) == 1

    def not_controller(self, leader: BrokerId | None) -> NotControllerError:
        """The answer to a request for the leader."""
        voter = None if leader is None else self.voters.get(leader)
        where = "no leader is known" if leader is None else f"node {voter or leader} does"
        address = None if voter is None else voter.address
        return NotControllerError(f"this node does not lead the quorum; {where}", leader=leader, address=address)

    # Peers.

    def shown(self, peer: BrokerId, directory_id: DirectoryId) -> bool:
        """Record the directory in a peer's Hello. True if it differs from the one before."""
        before = self._shown.get(peer, directory_id)
        self._shown[peer] = directory_id
        voter = self.voters.get(peer)
        if voter is not None and voter.directory_id == UNKNOWN_DIRECTORY and peer not in self._journal.peers:
            self._journal.note_peer(peer, directory_id)
        return before != directory_id

    def directory_of(self, peer: BrokerId) -> DirectoryId | None:
        """The directory it showed last."""
        return self._shown.get(peer)

    def counts(self, peer: BrokerId) -> bool:
        voter, shown = self.voters.get(peer), self._shown.get(peer)
        if voter is None or shown is None:
            return False
        return shown == (voter.directory_id or self._journal.peers.get(peer, shown))

    @property
    def names_this_node(self) -> bool:
        """The set in effect names the directory of this node, so it is not from the settings."""
        voter = self.voters.get(self._node_id)
        return voter is not None and voter.directory_id == self._shown[self._node_id]

    @property
    def lost_vote(self) -> bool:
        """This node only has the settings, and the quorum's log names another directory, or does not name it: it lost
        its disk, or waits to be added.
        """
        voter = self.voters.get(self._node_id)
        return voter is not None and voter.directory_id == UNKNOWN_DIRECTORY and not self.counts(self._node_id)

    @property
    def without_vote(self) -> tuple[BrokerId, ...]:
        """Voters that do not count, since they show another directory than the set names. Not this node where it waits
        to be added.
        """
        return tuple(
            voter.node_id
            for voter in self.voters
            if self._shown.get(voter.node_id) is not None
            and not self.counts(voter.node_id)
            and not (self.index == 0 and self._journal.peers.get(voter.node_id) == NO_DIRECTORY)
        )

    # Which nodes may lead.

    @property
    def notice(self) -> VotersNotice:
        """The notice that this node sends to its peers."""
        return VotersNotice(index=self.index, voters=self.voters)

    def noticed(self, peer: BrokerId, notice: VotersNotice) -> None:
        """Only connected peers send notices, so their number is bounded by links and voters."""
        self._notices[peer] = notice
        if notice.index > max(self.index, self._noticed_index) and self.may_lead(peer):
            self._noticed_index = notice.index  # each index once: a peer causes few writes
            self._take_directories(notice.voters)

    def _take_directories(self, named: VoterSet) -> None:
        """Of the voters whose directories our set does not know, this node included. They are in the log of the quorum,
        while what was shown to this node first may be the directory of a voter that had lost its disk by then.
        """
        for voter in self.voters:
            other = named.get(voter.node_id)
            if voter.directory_id != UNKNOWN_DIRECTORY:
                continue
            if other is None and (voter.node_id != self._node_id or self.index > 0):
                continue  # a voter that was removed still introduces those that replaced it
            directory_id = NO_DIRECTORY if other is None else other.directory_id
            known = self._journal.peers.get(voter.node_id, self._shown.get(voter.node_id))
            if directory_id not in (UNKNOWN_DIRECTORY, known):
                self._journal.note_peer(voter.node_id, directory_id)

    def forget_notice(self, peer: BrokerId) -> None:
        """The link is closed. A voter's notice is kept: it may have failed after sending it."""
        if not self.counts(peer):
            self._notices.pop(peer, None)

    def may_lead(self, peer: BrokerId) -> bool:
        """Whether terms, votes and entries are accepted from it (see the module's docstring)."""
        if self.counts(peer) or self._is_introduced(peer):
            return True
        return not self.voters.voters and peer in self._notices and self._names(self._notices[peer], peer)

    def _is_introduced(self, peer: BrokerId) -> bool:
        """Named by our voters, or by nodes that these have introduced, and so on."""
        remaining = set(self._notices)
        trusted = {who for who in remaining if self.counts(who)}
        while trusted:
            remaining -= trusted
            if any(self._names(self._notices[voter], peer) for voter in trusted):
                return True
            trusted = {who for who in remaining if any(self._names(self._notices[voter], who) for voter in trusted)}
        return False

    def _names(self, notice: VotersNotice, peer: BrokerId) -> bool:
        """Named with the directory that it shows: a set from the settings, without directories, names no node."""
        voter = notice.voters.get(peer)
        return voter is not None and voter.directory_id == self._shown.get(peer)

    # The log.

    def appended(self, entry: LogEntry) -> None:
        """Called for every entry appended to the log."""
        if entry.kind == EntryKind.VOTERS:
            self._history.append((entry.index, wire.decode_voters(entry.payload)))
            self._on_change()

    def truncated(self, first: RaftIndex) -> None:
        """The log was truncated: `first` and everything behind it are removed."""
        changed = False
        while self._history[-1][0] >= first:
            if len(self._history) == 1:
                raise InvariantError(f"the log is truncated at {first}, below the voters of the snapshot")
            self._history.pop()
            changed = True
        if changed:
            self._on_change()

    def reset(self, index: RaftIndex, voters: VoterSet) -> None:
        """A snapshot replaced the log."""
        self._history = [(index, voters)]
        self._on_change()

    def at(self, index: RaftIndex) -> tuple[RaftIndex, VoterSet]:
        """(index of the entry, voters) in effect as of `index`, which is not below the first of the history."""
        return next((where, voters) for where, voters in reversed(self._history) if where <= index)

    def leaving(self, commit_index: RaftIndex) -> tuple[Voter, ...]:
        """Voters whose removal is in the log and not committed."""
        if self.index <= commit_index or len(self._history) == 1:
            return ()
        return tuple(voter for voter in self.at(commit_index)[1] if self.voters.get(voter.node_id) is None)

    def forget_before(self, index: RaftIndex) -> None:
        """A snapshot covers `index`: sets replaced by then are not needed again."""
        keep = self.at(index)[0]
        self._history = [(where, voters) for where, voters in self._history if where >= keep]
