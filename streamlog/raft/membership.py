"""Which voters are in effect: those of the latest VOTERS entry in the log, committed or not (thesis, 4.1).

A history of (index, set), oldest first: the first one is that of the snapshot or of the bootstrap, the others follow
the log. Cutting the log's tail cuts the history; so an entry that did not survive has never been.

A peer counts (its votes, its acknowledgements) if it is a voter *and* the directory that it showed in its Hello is the
one that the set names. While the set does not know one yet (it is from the settings), it is the one that the peer
showed when this node first met it, which the journal remembers. So a voter that lost its disk helps nobody to be
elected who ever knew it before, not even one that has none of the log. Nor is it elected itself by one that knew it:
it takes itself for a voter, for it has nothing but the settings to go by (`may_be_elected`).
"""

from __future__ import annotations

from collections.abc import Callable

from streamlog.errors import InvariantError, NotControllerError
from streamlog.model import BrokerId, RaftIndex
from streamlog.raft import wire
from streamlog.raft.entries import Entry, EntryKind
from streamlog.raft.journal import Journal
from streamlog.raft.voters import UNKNOWN_DIRECTORY, DirectoryId, VoterSet


class Membership:
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

    def may_be_elected(self, peer: BrokerId, *, named: bool) -> bool:
        """Whether it may be given a vote; `named`: it goes by voters that name its directory.

        If they do they may be newer than ours, and it may have taken the place of what we know by its id. If not, it is
        what its id has always been, or has lost its disk, and with it what a majority may have counted on.
        """
        return named or self.voters.get(peer) is None or self.counts(peer)

    # The log.

    def appended(self, entry: Entry) -> None:
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

    def forget_before(self, index: RaftIndex) -> None:
        """A snapshot covers `index`: sets that were replaced by then are not asked for again."""
        keep = self.at(index)[0]
        self._history = [(where, voters) for where, voters in self._history if where >= keep]
