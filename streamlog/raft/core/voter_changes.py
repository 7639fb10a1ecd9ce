"""Changes of the voters by the leader, one voter at a time (thesis, 4.1 to 4.3).

    idle --add--> catching up --close to the end--> entry in the log --committed--> idle
    idle --remove--> entry in the log --committed--> idle
    idle --replace--> catching up --> entry without the old --committed--> entry with the new --committed--> idle

A new voter first catches up as a learner: counted at once, it would delay every commit until it has the log. An entry
is appended only when the leader has committed an entry of its own term, and the previous change is committed (Ongaro,
raft-dev, 10 July 2015: without the first, two leaders can change the same set to two that share no majority). It is in
effect from then on, committed or not.

A leader that removes itself leads until that is committed, without counting itself, and then hands over.

The leader makes changes on its own. It records the directories of voters as it learns them, which changes no majority.
If it is the only voter, it records its own address where the set names another one. And it restores the vote of a
voter that lost its disk (KIP-853's remove and add by directory id, in one request). Such a node shows another directory
than the set names and does not count, so every majority consists of the others. It catches up as a learner; then the
others commit the set without the old directory, and then the set with the new one. At no time does a vote count that
the old disk may have granted otherwise. If the old disk comes back, the set does not name it.

A leader that steps down drops the request and answers its caller. An entry already in the log may or may not be
committed later. The entry that removes a voter to replace it names the one to be added (`VoterSet.pending`): if the
leader fails between the two entries, a later one completes the change once that node is connected and has caught up:
else the quorum would stay one voter short.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct

from streamlog.errors import (
    InvalidRequestError,
    NotControllerError,
    OutcomeUnknownError,
    QuorumUnavailableError,
    StreamlogError,
    VoterChangeInProgressError,
)
from streamlog.model import BrokerId, RaftIndex
from streamlog.ports import Probe
from streamlog.raft.core.library import Library, RaftRole
from streamlog.raft.core.replication import Replication
from streamlog.raft.core.voter_set_history import VoterSetHistory
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.entries import VOTERS, LogEntry
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import UNKNOWN_DIRECTORY, Voter, VoterSet

Done: TypeAlias = Callable[[RaftIndex | StreamlogError], None]
"""Called once, with the index of the last entry of the change, or an error. Must not raise."""


RECHECK_S: Final = 0.05


class _Change(Struct, kw_only=True):
    done: Done
    remove: BrokerId | None = None  # the first step; None: none, or done
    add: Voter | None = None  # the second step; None: none, or done
    catching_up_until: float | None = None  # the new voter is a learner; None: it has caught up, or there is none
    entry: RaftIndex | None = None  # in the log and not committed
    begun: bool = False  # an entry of it is in the log


class VoterChanges:
    """One per core; at most one change at a time, within one term."""

    def __init__(
        self,
        raft: Library,
        voter_sets: VoterSetHistory,
        replication: Replication,
        settings: QuorumSettings,
        probe: Probe,
        own_address: str | None,
    ) -> None:
        """`own_address`: as it is advertised."""
        self._raft = raft
        self._voter_sets = voter_sets
        self._replication = replication
        self._settings = settings
        self._change: _Change | None = None
        self._probe = probe
        self._own_address = own_address
        self._empty_since: dict[BrokerId, float] = {}  # voters that show another directory, and linked since when
        self._retry_at = 0.0

    # Requests. Each raises a StreamlogError if it is refused at once.

    def add(self, voter: Voter, done: Done) -> None:
        self._check_idle()
        self._voter_sets.voters.with_added(voter)
        self._begin(_Change(done=done, add=voter))

    def remove(self, node_id: BrokerId, done: Done) -> None:
        self._check_idle()
        self._voter_sets.voters.with_removed(node_id)
        self._begin(_Change(done=done, remove=node_id))

    def replace(self, node_id: BrokerId, voter: Voter, done: Done) -> None:
        self._check_idle()
        if node_id == self._raft.me.id:
            raise InvalidRequestError("the leader cannot replace itself: hand over the leadership first", field="voter")
        voters = self._voter_sets.voters
        voters.with_removed(node_id).with_added(voter)  # raises what either of the two entries would
        voters.with_removed(node_id, pending=voter)
        self._begin(_Change(done=done, remove=node_id, add=voter))

    def _check_idle(self) -> None:
        if self._raft.role != RaftRole.LEADER:
            raise self._voter_sets.not_controller(self._raft.leader_id)
        if self._change is not None:
            raise VoterChangeInProgressError("another change of the voters is in progress; retry when it has finished")

    def _begin(self, change: _Change) -> None:
        self._change = change
        if change.add is not None:
            change.catching_up_until = self._raft.now() + self._settings.catch_up_timeout_ms / 1000
            self._replication.add_learner(change.add)

    # The leader's turn.

    def on_turn(self) -> None:
        """Take the next step of the change, if one is due."""
        change = self._change
        if change is not None and change.catching_up_until is not None:
            self._check_learner(change, change.catching_up_until)
        elif change is not None and change.entry is not None:
            if change.entry <= self._raft.commit_index:
                self._committed(change, change.entry)
        elif self._may_append():
            if change is not None:
                self._put_next(change)
            else:
                self._record_known()
        if change is None:
            self._complete_pending()
            if self._settings.auto_join:
                self._restore_votes()

    def _complete_pending(self) -> None:
        """Start adding the voter for which an earlier leader has removed another one, once it is connected."""
        raft, voter = self._raft, self._voter_sets.voters.pending
        if voter is None or self._change is not None or not self._may_append() or raft.now() < self._retry_at:
            return
        if raft.peer(voter.node_id) in raft.connected:
            self._probe("voter_pending", voter=voter.node_id)
            self._begin(_Change(done=partial(self._restored, voter.node_id), add=voter))

    def _restore_votes(self) -> None:
        """Start restoring the first voter that is connected with an empty disk; after a pending replacement, which the
        entry would forget.
        """
        if self._voter_sets.voters.pending is not None:
            self._empty_since.clear()
            return
        raft, now = self._raft, self._raft.now()
        empty = [who for who in self._voter_sets.without_vote if raft.peer(who) in raft.connected]
        self._empty_since = {who: self._empty_since.get(who, now) for who in empty}
        if self._change is not None or not self._may_append() or now < self._retry_at:
            return
        for who, since in self._empty_since.items():
            voter = self._voter_sets.voters.get(who)
            if voter is not None and now >= since + self._settings.auto_join_delay_ms / 1000:
                self._probe("voter_restoring", voter=who)
                new = Voter(node_id=who, address=voter.address)
                self._begin(_Change(done=partial(self._restored, who), remove=who, add=new))
                return

    def _restored(self, voter: BrokerId, outcome: RaftIndex | StreamlogError) -> None:
        if isinstance(outcome, StreamlogError):
            self._retry_at = self._raft.now() + self._settings.auto_join_retry_ms / 1000
            self._probe("voter_not_restored", voter=voter, reason=str(outcome))
        else:
            self._probe("voter_restored", voter=voter, index=outcome)

    def _check_learner(self, change: _Change, until: float) -> None:
        assert change.add is not None
        if self._has_caught_up(change.add):
            change.catching_up_until = None
        elif self._raft.now() >= until:
            self._finish(
                QuorumUnavailableError(
                    f"node {change.add} did not catch up in time; check that it runs and is reachable",
                    voter=change.add.node_id,
                )
            )

    def _has_caught_up(self, voter: Voter) -> bool:
        progress = self._replication.progress_of(voter.node_id)
        directory_id = self._voter_sets.directory_of(voter.node_id)
        if progress is None or directory_id is None or not voter.is_directory(directory_id):
            return False
        return progress.matched > 0 and progress.matched + self._settings.catch_up_entries >= self._raft.log.last.index

    def _may_append(self) -> bool:
        """An entry of this term is committed (Ongaro's rule), and so is the previous change."""
        raft = self._raft
        own = raft.no_op_index
        return own is not None and own <= raft.commit_index and self._voter_sets.index <= raft.commit_index

    def _put_next(self, change: _Change) -> None:
        if change.remove is not None:
            change.entry = self._put(self._voter_sets.voters.with_removed(change.remove, pending=change.add))
            change.begun = True
        elif change.add is not None:
            directory_id = self._voter_sets.directory_of(change.add.node_id) or UNKNOWN_DIRECTORY
            added = self._voter_sets.voters.with_added(change.add)
            change.entry = self._put(added.with_directory(change.add.node_id, directory_id))
            change.begun = True

    def _put(self, voters: VoterSet) -> RaftIndex:
        raft = self._raft
        entry = LogEntry(VOTERS + wire.encode_voters(voters), RaftIndex(raft.log.last.index + 1), raft.term)
        raft.log.append(entry)
        self._voter_sets.appended(entry)
        return entry.index

    def _committed(self, change: _Change, index: RaftIndex) -> None:
        change.entry = None
        if change.remove is not None:
            change.remove = None
        else:
            change.add = None
        if change.add is None:
            self._finish(index)

    def _record_known(self) -> None:
        """Record the directory of each voter that has shown one unknown to the set; and this node's address if it is
        alone, since the others find it only by the log. With other voters, `replace` is for that.
        """
        voters, address = self._voter_sets.voters, self._own_address
        if address is not None and self._voter_sets.is_alone and voters.voters[0].address != address:
            voters = voters.with_address(self._raft.me.id, address)
        for voter in voters:
            if voter.directory_id != UNKNOWN_DIRECTORY:
                continue
            shown = self._voter_sets.directory_of(voter.node_id)
            if shown is not None and self._voter_sets.counts(voter.node_id):
                voters = voters.with_directory(voter.node_id, shown)
        if voters is not self._voter_sets.voters:
            self._put(voters)

    # The end of a change.

    def _finish(self, outcome: RaftIndex | StreamlogError) -> None:
        change, self._change = self._change, None
        if change is not None:
            self._replication.drop_learner()
            change.done(outcome)

    def end_term(self) -> None:
        """The node no longer leads."""
        self._empty_since.clear()
        if self._change is not None:
            self._finish(
                OutcomeUnknownError("the leadership was lost before the change of the voters was committed")
                if self._change.begun
                else NotControllerError("the leadership was lost before the change of the voters started")
            )

    def next_deadline(self) -> float | None:
        if self._change is not None:
            return self._change.catching_up_until
        if not self._empty_since or not self._settings.auto_join:
            return None
        due = max(self._retry_at, min(self._empty_since.values()) + self._settings.auto_join_delay_ms / 1000)
        return max(due, self._raft.now() + RECHECK_S)  # it may be waiting for a commit
