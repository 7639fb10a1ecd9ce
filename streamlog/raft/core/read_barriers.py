"""Linearizable reads without a write: the read-index method (thesis, 6.4).

    requested   until the leader has committed an entry of its own term: before, its commit index may be stale
    confirming  the commit index is recorded; a majority must answer a message sent after that
    applying    no other leader had been elected when the index was recorded; wait until it is applied
    passed

Requests that arrive while one round is being confirmed share the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from streamlog.errors import NotControllerError, StreamlogError
from streamlog.model import RaftIndex
from streamlog.raft.core.library import Library, RaftRole
from streamlog.raft.core.replication import Replication
from streamlog.raft.core.voter_set_history import VoterSetHistory

Passed: TypeAlias = Callable[[RaftIndex | StreamlogError], None]
"""Called once, with the applied index or an error. Must not raise."""


class Barriers:
    """Owned by the core; volatile, of one term."""

    def __init__(self, raft: Library, voter_sets: VoterSetHistory, replication: Replication) -> None:
        self._raft = raft
        self._voter_sets = voter_sets
        self._replication = replication
        self._requested: list[Passed] = []
        self._confirming: list[Passed] = []
        self._round = 0  # the round that confirms them
        self._index = RaftIndex(0)  # recorded for them
        self._applying: list[tuple[RaftIndex, Passed]] = []  # by rising index

    def ask(self, passed: Passed) -> None:
        """NotControllerError at once where this node does not lead."""
        if self._raft.role != RaftRole.LEADER:
            raise self._voter_sets.not_controller(self._raft.leader_id)
        self._requested.append(passed)

    def begin_round(self) -> None:
        """Before messages are sent: record the commit index for the pending requests."""
        own = self._raft.no_op_index
        if self._requested and not self._confirming and own is not None and own <= self._raft.commit_index:
            self._confirming, self._requested = self._requested, []
            self._index = self._raft.commit_index
            self._round = self._replication.begin_round()

    def let_pass(self) -> None:
        """After answers came in and entries were applied."""
        if self._confirming and self._replication.is_confirmed(self._round):
            self._applying += [(self._index, passed) for passed in self._confirming]
            self._confirming = []
        while self._applying and self._applying[0][0] <= self._raft.last_applied:
            _, passed = self._applying.pop(0)
            passed(self._raft.last_applied)

    def end_term(self) -> None:
        """The leadership is lost: pending reads fail."""
        waiting = [*(passed for _, passed in self._applying), *self._confirming, *self._requested]
        self._applying, self._confirming, self._requested = [], [], []
        for passed in waiting:
            passed(NotControllerError("the leadership was lost before the read was confirmed"))
