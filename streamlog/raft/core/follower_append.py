"""AppendEntries at a follower (thesis, 3.5).

    the message's term is below ours           rejected, with our term
    prev is before our base                    the overlap is committed, hence equal: continue behind the base
    prev is beyond our end                     rejected: send from our end on
    our entry at prev has another term         rejected: send from the first entry of that term on
    else                                       truncate at the first conflict, if any; append the new entries; accepted

After an accepted message the logs are equal up to its last entry: the commit index may advance so far, and the reply
acknowledges so far. Entries behind it are not touched: without a conflict they may have been acknowledged, and the
message may be an old one. (PySyncObj truncates behind prev unconditionally: with FIFO links, one reconnect and one
failed leader it loses acknowledged commands.)

A reply leaves when the term and the last entry it acknowledges are on stable storage. The reply to a message with
entries acknowledges those, so it waits for their sync. The reply to a heartbeat acknowledges only what is durable
already, so it leaves at once: the leader sees that the follower runs, however slow its disk is. It may overtake waiting
replies. That is safe, because each reply holds by itself:

- It carries the leader's term, which is durable at the follower: the follower accepts nothing from a leader of an older
  term any more, not even after a crash. A leader counts replies of its own term only.
- When the reply was made, the follower's log matched the leader's up to prev and everything below. Within the term
  that remains so: truncation happens at a conflict with the leader's log, which only grows.
- The journal is written in the order of the changes. Once the change that added an entry is durable, so are all changes
  below it, and by the previous point no later record removes it.

So "durable and equal up to here" remains true for the rest of the term, and the leader takes the maximum (progress):
the order of the replies does not matter. Acknowledgements lost with a stream are covered by the replies on the next
one.

A conflict at or below the commit index is impossible in an intact quorum. The sender is no leader, or lost its log: the
message is rejected before any change, and the sender is disconnected and logged (CorruptMessageError, see runner).
"""

from __future__ import annotations

from streamlog.errors import CorruptMessageError, InvariantError
from streamlog.model import RaftIndex
from streamlog.raft.core.elections import Elections
from streamlog.raft.core.library import Library, Peer
from streamlog.raft.core.voter_set_history import VoterSetHistory
from streamlog.raft.protocol.entries import LogEntry
from streamlog.raft.protocol.messages import AppendReply, AppendRequest


class FollowerAppend:
    """Stateless: changes the log and the commit index of the core while the node follows."""

    def __init__(self, raft: Library, elections: Elections, voter_sets: VoterSetHistory) -> None:
        self._raft = raft
        self._elections = elections
        self._voter_sets = voter_sets

    def on_request(self, peer: Peer, request: AppendRequest) -> None:
        if request.term < self._raft.term:
            self._reply(peer, request, matched=False, next_index=self._raft.log.last.index + 1)
            return
        self._elections.check_only_leader(peer, request.term)
        self._check_agrees_with_the_committed(request)
        self._elections.follow(peer, request.term, next_within_ms=request.next_within_ms)
        hint = self._refusal(request)
        if hint is not None:
            self._reply(peer, request, matched=False, next_index=hint)
            return
        match_index = self._take(request)
        self._raft.commit_index = max(self._raft.commit_index, RaftIndex(min(request.commit_index, match_index)))
        if not request.entries:
            match_index = min(match_index, self._raft.log.durable_index)
        self._reply(peer, request, matched=True, next_index=match_index + 1)

    def _check_agrees_with_the_committed(self, request: AppendRequest) -> None:
        """CorruptMessageError, before anything has changed."""
        log, commit_index = self._raft.log, self._raft.commit_index
        if request.prev_index > commit_index:
            return
        claimed = [(request.prev_index, request.prev_term)]
        claimed += [(entry.index, entry.term) for entry in request.entries[: commit_index - request.prev_index]]
        for index, claim in claimed:
            term = log.term_at(index)
            if term is not None and term != claim:
                raise CorruptMessageError(
                    f"entry {index} is committed here with term {term}, the sender has it with term {claim}"
                )

    def _refusal(self, request: AppendRequest) -> int | None:
        """The index to send from instead; None when the logs match at prev."""
        log, prev = self._raft.log, request.prev_index
        if prev > log.last.index:
            return log.last.index + 1
        term = log.term_at(prev)
        if prev <= self._raft.commit_index:
            return None
        if term == request.prev_term:
            return None
        while prev > self._raft.commit_index + 1 and log.term_at(prev - 1) == term:
            prev = RaftIndex(prev - 1)
        return prev

    def _take(self, request: AppendRequest) -> RaftIndex:
        """Make the log match the message; the index up to which it matches the leader's."""
        log = self._raft.log
        for place, entry in enumerate(request.entries):
            if entry.index > log.last.index:
                for new in request.entries[place:]:
                    self._append(new)
                break
            if entry.index > log.base.index and log.term_at(entry.index) != entry.term:
                self._cut(entry)
                self._append(entry)
        return max(log.base.index, RaftIndex(request.prev_index + len(request.entries)))

    def _cut(self, conflicting: LogEntry) -> None:
        """Truncate from the entry at that index on: it is not the leader's."""
        index, commit_index = conflicting.index, self._raft.commit_index
        if index <= commit_index:
            raise InvariantError(f"entry {index} is to be truncated, but the commit index is {commit_index}")
        self._raft.log.truncate(index)
        self._voter_sets.truncated(index)

    def _append(self, entry: LogEntry) -> None:
        self._raft.log.append(entry)
        self._voter_sets.appended(entry)

    def _reply(self, peer: Peer, request: AppendRequest, *, matched: bool, next_index: int) -> None:
        reply = AppendReply(
            term=self._raft.term, round=request.round, matched=matched, next_index=RaftIndex(next_index)
        )
        self._raft.send(peer, reply)
