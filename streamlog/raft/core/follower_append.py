"""A follower takes the leader's entries (thesis, 3.5), and tells how far it agrees.

    the message's term is below ours           told so; nothing else happens
    prev lies before our base                  what it overlaps is committed, hence equal: begin behind the base
    prev lies beyond our end                   refused: send from our end on
    our entry at prev is of another term       refused: send from the begin of that term on
    else                                       cut at the first conflict, if there is one; append what is new; accepted

An accepted message vouches for what the leader has up to its last entry: so far the logs are equal, so far the commit
index may go, and so far the reply promises to have it. What lies behind is not touched: an entry that does not conflict
may have been acknowledged, and the message may be an old one. (PySyncObj cuts behind prev, whatever is there: with FIFO
links, one reconnect and one dead leader it loses acknowledged commands.)

A reply leaves when the term and the last entry that it vouches for are on stable storage. The reply to a message with
entries vouches for those, and so waits for their sync. The reply to a heartbeat vouches only for what is durable by
then, and so leaves at once: it tells that the follower lives, however slow its disk is. It may overtake replies that
wait. That is safe, for each reply is true by itself:

- It bears the leader's term, which the follower has durably: it can take nothing from a leader of an older term any
  more, not even after a crash. A leader counts replies of its own term alone.
- The follower's log agreed with the leader's up to prev, hence up to everything at or below it, when the reply was
  made. Within the term that stays so: a cut is made at a conflict with the leader's log, and the leader's only grows.
- The journal is written in the order of the changes. Once the change that brought an entry is durable, so are all that
  the log up to it was made of, and no later record takes it away, by the point before.

So "durable and equal up to here" stays true from the moment when it is said for as long as the term lasts, and the
leader takes the maximum of what it hears (progress): the order of the replies does not matter. What is lost with a
stream is vouched for by the replies to what is sent on the next one.

A conflict at or below the commit index cannot be: a committed entry would be lost. Whoever sends it is no leader, or
has lost what it knew: the message is refused whole, before anything is taken from it, and its sender is dropped and
named (CorruptMessageError, see runner). This node is what it was, and goes on with the others.
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
    """Has no state of its own: the log and the commit index of the core are changed here while it follows."""

    def __init__(self, raft: Library, elections: Elections, membership: VoterSetHistory) -> None:
        self._raft = raft
        self._elections = elections
        self._membership = membership

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
        vouched = self._take(request)
        self._raft.commit_index = max(self._raft.commit_index, RaftIndex(min(request.commit_index, vouched)))
        if not request.entries:
            vouched = min(vouched, self._raft.log.durable_index)
        self._reply(peer, request, matched=True, next_index=vouched + 1)

    def _check_agrees_with_the_committed(self, request: AppendRequest) -> None:
        """CorruptMessageError. Nothing has changed yet."""
        log, commit_index = self._raft.log, self._raft.commit_index
        if request.prev_index > commit_index:
            return
        claimed = [(request.prev_index, request.prev_term)]
        claimed += [(entry.index, entry.term) for entry in request.entries[: commit_index - request.prev_index]]
        for index, claim in claimed:
            term = log.term_at(index)
            if term is not None and term != claim:
                raise CorruptMessageError(f"entry {index} is committed here with term {term}, the sender has {claim}")

    def _refusal(self, request: AppendRequest) -> int | None:
        """From where the leader had better send; None when the logs agree at prev."""
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
        """Bring the log to agree with the message; the last index that it vouches for."""
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
        """Our entry of that index, and all behind it, is not the leader's."""
        index, commit_index = conflicting.index, self._raft.commit_index
        if index <= commit_index:
            raise InvariantError(f"entry {index} is to be cut, and the commit index is {commit_index}")
        self._raft.log.truncate(index)
        self._membership.truncated(index)

    def _append(self, entry: LogEntry) -> None:
        self._raft.log.append(entry)
        self._membership.appended(entry)

    def _reply(self, peer: Peer, request: AppendRequest, *, matched: bool, next_index: int) -> None:
        reply = AppendReply(
            term=self._raft.term, round=request.round, matched=matched, next_index=RaftIndex(next_index)
        )
        self._raft.send(peer, reply)
