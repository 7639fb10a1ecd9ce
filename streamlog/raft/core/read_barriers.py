"""Linearizable reads without a write: the read-index method (thesis, 6.4).

    asked       the leader has not committed an entry of its own term yet: its commit index may be an old one
    confirming  the commit index is noted; a majority must answer a message that was sent after that
    applying    so nobody else had been elected when the index was noted; wait until it is applied
    passed

Callers that come while one round is being confirmed wait for the next and share it.
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
"""Called once, with the index applied, or why there is none. Must not raise."""


class Barriers:
    """Owned by the core; volatile, of one term."""

    def __init__(self, raft: Library, membership: VoterSetHistory, replication: Replication) -> None:
        self._raft = raft
        self._membership = membership
        self._replication = replication
        self._asked: list[Passed] = []
        self._confirming: list[Passed] = []
        self._round = 0  # that must be answered for those who are confirming
        self._index = RaftIndex(0)  # noted for them
        self._applying: list[tuple[RaftIndex, Passed]] = []  # by rising index

    def ask(self, passed: Passed) -> None:
        """NotControllerError at once where this node does not lead."""
        if self._raft.role != RaftRole.LEADER:
            raise self._membership.not_controller(self._raft.leader_id)
        self._asked.append(passed)

    def begin_round(self) -> None:
        """Before messages are sent: note the commit index for who has asked."""
        own = self._raft.no_op_index
        if self._asked and not self._confirming and own is not None and own <= self._raft.commit_index:
            self._confirming, self._asked = self._asked, []
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
        """The leadership is lost: whoever waits has read nothing."""
        waiting = [*(passed for _, passed in self._applying), *self._confirming, *self._asked]
        self._applying, self._confirming, self._asked = [], [], []
        for passed in waiting:
            passed(NotControllerError("the leadership was lost before the read was confirmed"))
