"""A leader's view of one peer: how far its log matches, what is in flight, when it last answered.

    matched < next: entries [matched + 1, next) have been sent and not acknowledged, or were rejected

A peer is *probed* until it has accepted a message: one at a time, so that a rejection costs one round trip and not a
window of messages that are rejected as well. `next` does not move meanwhile: a heartbeat after a probe refers to the
same index. Then entries are pipelined, up to a window.
"""

from __future__ import annotations

from streamlog.model import RaftIndex
from streamlog.raft.core.library import Peer
from streamlog.raft.storage.snapshot_store import SnapshotReader


class Progress:
    """For one peer in one term; dropped when the leadership ends."""

    __slots__ = (
        "answered_at",
        "answered_round",
        "asked_at",
        "due_at",
        "matched",
        "next_index",
        "peer",
        "probe_round",
        "probing",
        "sent_commit",
        "snapshot",
    )

    def __init__(self, peer: Peer, *, next_index: RaftIndex, now: float) -> None:
        self.peer = peer
        self.matched = RaftIndex(0)  # the peer holds durably what the leader has up to here; falls by `forget` alone
        self.next_index = next_index
        self.probing = True
        self.probe_round = 0  # of the probe in flight; 0: none
        self.answered_at = now
        self.asked_at = now  # when the first unanswered message, or the last heartbeat (which waits for no disk), left
        self.answered_round = 0  # the latest message of the leader that it has answered
        self.due_at = float("-inf")  # when the next message is due, as the last one announced
        self.sent_commit = RaftIndex(0)  # the commit index sent to it last
        self.snapshot: SnapshotTransfer | None = None  # while one is being sent

    def restart(self) -> None:
        """Messages in flight are lost with the stream."""
        self.next_index = RaftIndex(self.matched + 1) if self.matched else self.next_index
        self.probing = True
        self.probe_round = 0
        self.due_at = float("-inf")
        self.drop_snapshot()

    def forget(self) -> None:
        """Its log may be another one now: nothing counts as matched."""
        self.matched = RaftIndex(0)

    def answered(self, round_: int, now: float) -> None:
        self.answered_at = now
        self.answered_round = max(self.answered_round, round_)

    def accepted(self, next_index: RaftIndex) -> None:
        """The peer has acknowledged everything below `next_index`."""
        self.matched = max(self.matched, RaftIndex(next_index - 1))
        self.next_index = max(self.next_index, next_index)
        if self.probing:
            self.probing = False
            self.probe_round = 0

    def refused(self, round_: int, hint: RaftIndex) -> None:
        """The peer requests entries from `hint` on. A rejection of a message before the current probe is ignored."""
        if self.probing and round_ < self.probe_round:
            return
        self.next_index = max(RaftIndex(self.matched + 1), min(hint, self.next_index))
        self.probing = True
        self.probe_round = 0

    @property
    def is_answered(self) -> bool:
        """Nothing is in flight."""
        return self.next_index == self.matched + 1 and self.probe_round == 0

    @property
    def may_probe(self) -> bool:
        return not self.probing or self.probe_round == 0

    def drop_snapshot(self) -> None:
        if self.snapshot is not None:
            self.snapshot.reader.close()
            self.snapshot = None


class SnapshotTransfer:
    """A snapshot being sent: one chunk in flight at a time."""

    __slots__ = ("offset", "reader", "sent_at")

    def __init__(self, reader: SnapshotReader) -> None:
        self.reader = reader
        self.offset = 0  # of the chunk to send, or in flight
        self.sent_at: float | None = None  # when the chunk in flight was sent
