"""What a leader knows of one peer: how far it has the log, what is under way to it, when it was heard.

    matched < next: entries [matched + 1, next) have been sent and not answered, or answered by a refusal

A peer is *probed* until it has accepted a message: one at a time, so that a refusal costs one round trip and not a
window full of messages that it refuses as well. `next` stands meanwhile: a heartbeat that follows a probe asks about
the same place. Then it is sent to ahead of its answers, up to a window.
"""

from __future__ import annotations

from streamlog.model import RaftIndex
from streamlog.raft.core.library import Peer
from streamlog.raft.storage.snapshot_store import SnapshotReader


class Progress:
    """One leader's view of one peer, in one term. Forgotten when the leadership ends."""

    __slots__ = (
        "asked_at",
        "due_at",
        "heard_at",
        "heard_round",
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
        self.probe_round = 0  # of the probe that is out; 0: none is
        self.heard_at = now
        self.asked_at = now  # when it began to owe an answer, or the last heartbeat, which waits for no disk, was sent
        self.heard_round = 0  # the latest of the leader's messages that it has answered
        self.due_at = float("-inf")  # when it must hear from the leader again: as the last message to it announced
        self.sent_commit = RaftIndex(0)  # the commit index that it was told
        self.snapshot: SnapshotTransfer | None = None  # while it is sent one

    def restart(self) -> None:
        """What was under way is lost with the stream."""
        self.next_index = RaftIndex(self.matched + 1) if self.matched else self.next_index
        self.probing = True
        self.probe_round = 0
        self.due_at = float("-inf")
        self.drop_snapshot()

    def forget(self) -> None:
        """It is somebody else now, or has to prove that it is not."""
        self.matched = RaftIndex(0)

    def heard(self, round_: int, now: float) -> None:
        self.heard_at = now
        self.heard_round = max(self.heard_round, round_)

    def accepted(self, next_index: RaftIndex) -> None:
        """The peer has all below `next_index`."""
        self.matched = max(self.matched, RaftIndex(next_index - 1))
        self.next_index = max(self.next_index, next_index)
        if self.probing:
            self.probing = False
            self.probe_round = 0

    def refused(self, round_: int, hint: RaftIndex) -> None:
        """The peer wants to be sent from `hint` on. A refusal of what was sent before the last one says nothing new."""
        if self.probing and round_ < self.probe_round:
            return
        self.next_index = max(RaftIndex(self.matched + 1), min(hint, self.next_index))
        self.probing = True
        self.probe_round = 0

    @property
    def is_answered(self) -> bool:
        """Nothing is under way to it."""
        return self.next_index == self.matched + 1 and self.probe_round == 0

    @property
    def may_probe(self) -> bool:
        return not self.probing or self.probe_round == 0

    def drop_snapshot(self) -> None:
        if self.snapshot is not None:
            self.snapshot.reader.close()
            self.snapshot = None


class SnapshotTransfer:
    """A snapshot on its way: one chunk under way at a time."""

    __slots__ = ("offset", "reader", "sent_at")

    def __init__(self, reader: SnapshotReader) -> None:
        self.reader = reader
        self.offset = 0  # of the chunk to send, or under way
        self.sent_at: float | None = None  # when the chunk that is under way was sent
