"""Each hardening switched off, one at a time: the simulation must find it.

A mutant patches a class for the length of a `with`. `test_mutants.py` says which of them random search
seldom reaches, and what finds those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.core import syncobj, voter_changes, voter_set_history
from streamlog.raft.core.applying import Applier
from streamlog.raft.core.elections import Elections
from streamlog.raft.core.follower_append import FollowerAppend
from streamlog.raft.core.library import CommandCallback, Library, Peer, RaftRole
from streamlog.raft.core.outbox import Outbox
from streamlog.raft.core.proposals import Proposals
from streamlog.raft.core.read_barriers import Barriers
from streamlog.raft.core.replication import Replication
from streamlog.raft.core.sessions import Sessions
from streamlog.raft.core.snapshots import Snapshots
from streamlog.raft.protocol.entries import LogEntry
from streamlog.raft.protocol.messages import AppendReply, AppendRequest, SnapshotReply, VoteReply
from streamlog.raft.storage import snapshot_store
from streamlog.raft.storage.journal import Journal
from streamlog.raft.storage.memory_log import MemoryLog


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    with mock.patch.object(owner, name, value):
        yield


# Durability.


def no_sync() -> Any:
    """The journal says that it has synced."""

    async def sync(self: Journal) -> None:
        self.flush()
        self.durable, self._durable_end = self.written, self._end

    return patched(Journal, "sync", sync)


def promises_do_not_wait() -> Any:
    """Votes and acknowledgements leave before the sync."""
    release = Outbox.release
    return patched(Outbox, "release", lambda self, durable: release(self, 1 << 60))


def leader_counts_unsynced() -> Any:
    """The leader counts itself for what it has written."""
    held_by = Replication._held_by

    def mutant(self: Replication, node_id: BrokerId) -> RaftIndex:
        return self._raft.log.last.index if node_id == self._raft.me.id else held_by(self, node_id)

    return patched(Replication, "_held_by", mutant)


def heartbeats_vouch_for_the_unsynced() -> Any:
    """The reply to a heartbeat acknowledges the whole log, and does not wait for its sync."""
    reply = FollowerAppend._reply

    def mutant(self: FollowerAppend, peer: Peer, request: AppendRequest, *, matched: bool, next_index: int) -> None:
        if request.entries or not matched:
            reply(self, peer, request, matched=matched, next_index=next_index)
            return
        with patched(MemoryLog, "number_at", lambda self, index: 0):
            equal = max(self._raft.log.base.index, request.prev_index)
            reply(self, peer, request, matched=True, next_index=equal + 1)

    return patched(FollowerAppend, "_reply", mutant)


def answers_do_not_wait() -> Any:
    """What vouches for entries leaves before their sync; votes wait."""
    return patched(MemoryLog, "number_at", lambda self, index: 0)


def vote_is_not_written() -> Any:
    """Term and vote are kept in memory only."""

    def set_state(self: Journal, term: RaftTerm, vote: BrokerId | None) -> None:
        self.term, self.vote = term, vote

    return patched(Journal, "set_state", set_state)


def no_directory_sync() -> Any:
    """A compaction's rename is not made durable."""
    rewrite = Journal._rewrite

    async def mutant(self: Journal, base_index: RaftIndex) -> None:
        fs = self._fs

        class Careless:
            def __getattr__(self, name: str) -> Any:
                return getattr(fs, name)

            async def sync_dir(self, directory: str) -> None:
                pass

        self._fs = Careless()
        try:
            await rewrite(self, base_index)
        finally:
            self._fs = fs

    return patched(Journal, "_rewrite", mutant)


# Elections.


def votes_counted_twice() -> Any:
    """Each answer counts, from whomever and however often (T4)."""

    def mutant(self: Elections, peer: Peer, reply: VoteReply) -> None:
        if reply.granted:
            self._raft.give_message(peer, {"type": "response_vote", "term": reply.term})
            if self._raft.role == RaftRole.CANDIDATE:
                self._raft.give_message(peer, {"type": "response_vote", "term": reply.term})

    return patched(Elections, "on_vote_reply", mutant)


def strangers_count() -> Any:
    """A vote or an acknowledgement counts whatever directory it comes from."""

    def counts(self: voter_set_history.VoterSetHistory, peer: BrokerId) -> bool:
        return self.voters.get(peer) is not None

    return patched(voter_set_history.VoterSetHistory, "counts", counts)


def lost_disks_are_elected() -> Any:
    """A vote is given to a voter that has lost its disk."""
    may_lead = voter_set_history.VoterSetHistory.may_lead

    def mutant(self: voter_set_history.VoterSetHistory, peer: BrokerId) -> bool:
        return self.voters.get(peer) is not None or may_lead(self, peer)

    return patched(voter_set_history.VoterSetHistory, "may_lead", mutant)


def strangers_may_lead() -> Any:
    """Terms, votes and entries are taken from anybody."""
    return patched(voter_set_history.VoterSetHistory, "may_lead", lambda self, peer: True)


def absurd_jumps_are_taken() -> Any:
    """A voter's term is taken, however far above our own it is."""
    return patched(syncobj.HardenedSyncObj, "_check_jumps", lambda self, message: None)


def votes_for_any_log() -> Any:
    """A vote is given to a candidate that lacks entries."""

    def on_vote_request(self: Elections, peer: Peer, request: Any) -> None:
        last = self._raft.log.last
        self._raft.give_message(
            peer,
            {
                "type": "request_vote",
                "term": request.term,
                "last_log_index": max(request.last_index, last.index),
                "last_log_term": max(request.last_term, last.term),
            },
        )

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patched(Elections, "on_vote_request", on_vote_request),
            patched(Elections, "_is_up_to_date", lambda self, request: True),
        ):
            yield

    return both()


# Append and commit.


def library_append() -> Any:
    """The follower cuts behind prev, whatever is there (T3)."""

    def take(self: FollowerAppend, request: AppendRequest) -> RaftIndex:
        log = self._raft.log
        if log.last.index > request.prev_index >= log.base.index:
            log.truncate(RaftIndex(request.prev_index + 1))
            self._voter_sets.truncated(RaftIndex(request.prev_index + 1))
        for entry in request.entries:
            if entry.index > log.last.index:
                self._append(entry)
        return max(log.base.index, RaftIndex(request.prev_index + len(request.entries)))

    return patched(FollowerAppend, "_take", take)


def no_conflict_check() -> Any:
    """prev is not compared."""

    def refusal(self: FollowerAppend, request: AppendRequest) -> int | None:
        last = self._raft.log.last.index
        return last + 1 if request.prev_index > last else None

    return patched(FollowerAppend, "_refusal", refusal)


def commit_beyond_the_message() -> Any:
    """The leader's commit index is taken as far as the own log goes, matching or not (T1)."""
    on_request = FollowerAppend.on_request

    def mutant(self: FollowerAppend, peer: Peer, request: AppendRequest) -> None:
        on_request(self, peer, request)
        if request.term >= self._raft.term:
            commit = min(request.commit_index, self._raft.log.last.index)
            self._raft.commit_index = max(self._raft.commit_index, RaftIndex(commit))

    return patched(FollowerAppend, "on_request", mutant)


def acknowledgements_of_any_term() -> Any:
    """An answer counts for a leader of a later term (T2)."""
    answering = Replication._answering

    def mutant(self: Replication, peer: Peer, reply: AppendReply | SnapshotReply) -> Any:
        if reply.term < self._raft.term and self._raft.role == RaftRole.LEADER:
            return self._peers.get(peer.id)
        return answering(self, peer, reply)

    return patched(Replication, "_answering", mutant)


def commits_entries_of_older_terms() -> Any:
    """Thesis, Figure 3.7."""

    def advance_commit(self: Replication) -> None:
        held = sorted(self._held_by_voters(), reverse=True)
        index = held[self._voter_sets.majority - 1]
        if index > self._raft.commit_index:
            self._raft.commit_index = index

    return patched(Replication, "advance_commit", advance_commit)


def snapshot_vouches_for_the_tail() -> Any:
    """An installed snapshot keeps whatever tail there is."""

    def install(self: Snapshots, content: Any, picture: Any) -> None:
        raft, head = self._raft, content.head
        if head.last_index <= raft.last_applied:
            return
        if raft.log.last.index < head.last_index:
            raft.log.reset(head.last_index, head.last_term)
            self._voter_sets.reset(head.voters_index, head.voters)
        raft.last_applied = head.last_index
        raft.commit_index = max(raft.commit_index, head.last_index)
        self._applier.restore(head.last_index, content.sessions, picture)

    return patched(Snapshots, "install", install)


# Clients.


def no_sessions() -> Any:
    """A retried command is applied again."""
    return patched(Sessions, "answer_to", lambda self, client_id, sequence: None)


def sessions_not_in_snapshots() -> Any:
    return patched(Sessions, "dump", lambda self: [])


def reads_without_a_round() -> Any:
    """A leader answers reads because it takes itself for one (T15)."""
    return patched(Replication, "is_confirmed", lambda self, round_: True)


def reads_before_the_own_entry() -> Any:
    """A new leader reads at a commit index that may be an old one."""

    def begin_round(self: Barriers) -> None:
        if self._requested and not self._confirming:
            self._confirming, self._requested = self._requested, []
            self._index = self._raft.commit_index
            self._round = self._replication.begin_round()

    return patched(Barriers, "begin_round", begin_round)


def reads_before_applied() -> Any:
    """A confirmed read does not wait until the state has got so far."""

    def let_pass(self: Barriers) -> None:
        if self._confirming and self._replication.is_confirmed(self._round):
            passing, self._confirming = self._confirming, []
            for passed in passing:
                passed(self._index)

    return patched(Barriers, "let_pass", let_pass)


def answers_before_commit() -> Any:
    """The leader answers when a command is in its own log."""
    take_commands = Library.take_commands

    def mutant(self: Library) -> None:
        take_commands(self)
        if self.role == RaftRole.LEADER:
            self.commit_index = self.log.last.index

    return patched(Library, "take_commands", mutant)


def callers_are_not_answered() -> Any:
    """A leader that steps down forgets who waits (T15b)."""
    return patched(Proposals, "end_term", lambda self: self._raft.waiting.clear())


# Voters.


def changes_overlap() -> Any:
    """A change of voters does not wait for the one before, nor for an entry of the own term (T7)."""
    return patched(voter_changes.VoterChanges, "_may_append", lambda self: True)


def changes_before_the_own_entry() -> Any:
    """Ongaro's correction of 2015 left out."""

    def may_append(self: voter_changes.VoterChanges) -> bool:
        return self._voter_sets.index <= self._raft.commit_index

    return patched(voter_changes.VoterChanges, "_may_append", may_append)


def voters_in_effect_when_committed() -> Any:
    """A new set of voters comes into effect where it is applied, not where it is appended."""
    appended = voter_set_history.VoterSetHistory.appended
    apply = Applier._apply

    def mutant(self: Applier, entry: LogEntry, caller: CommandCallback | None) -> Any:
        raft = self._raft
        assert isinstance(raft, syncobj.HardenedSyncObj)
        if entry.index > raft.voter_sets.index:
            appended(raft.voter_sets, entry)
        return apply(self, entry, caller)

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patched(voter_set_history.VoterSetHistory, "appended", lambda self, entry: None),
            patched(Applier, "_apply", mutant),
        ):
            yield

    return both()


def snapshot_is_not_synced() -> Any:
    """A snapshot is renamed without a sync of its data."""

    async def put_in_place(self: snapshot_store.SnapshotStore, file: Any, path: str) -> None:
        self._fs.rename(path, self._path)
        await self._fs.sync_dir(self._directory)

    return patched(snapshot_store.SnapshotStore, "_put_in_place", put_in_place)


def no_check_of_quorum() -> Any:
    """An isolated leader never steps down."""
    return patched(Replication, "has_quorum", lambda self: True)


MUTANTS: dict[str, Callable[[], Any]] = {
    f.__name__: f
    for f in (
        no_sync,
        promises_do_not_wait,
        leader_counts_unsynced,
        heartbeats_vouch_for_the_unsynced,
        answers_do_not_wait,
        vote_is_not_written,
        no_directory_sync,
        votes_counted_twice,
        strangers_count,
        lost_disks_are_elected,
        strangers_may_lead,
        absurd_jumps_are_taken,
        votes_for_any_log,
        library_append,
        no_conflict_check,
        commit_beyond_the_message,
        acknowledgements_of_any_term,
        commits_entries_of_older_terms,
        snapshot_vouches_for_the_tail,
        no_sessions,
        sessions_not_in_snapshots,
        reads_without_a_round,
        reads_before_the_own_entry,
        reads_before_applied,
        answers_before_commit,
        callers_are_not_answered,
        changes_overlap,
        changes_before_the_own_entry,
        voters_in_effect_when_committed,
        snapshot_is_not_synced,
        no_check_of_quorum,
    )
}
