"""Committed entries go into the state machine, in order, each once.

`last_applied` moves only after the entry is applied, and before anybody is told: whoever is told sees it, and nothing
that a listener does can bring the entry back. An exception of the state machine, or an entry of a kind that this
version does not know, ends the node: the others do the same with the same entry, or did not have the fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

from streamlog.errors import InvariantError, OutcomeUnknownError, UnsupportedVersionError
from streamlog.model import RaftIndex
from streamlog.raft.core.library import SUCCESS, Caller, Library
from streamlog.raft.core.sessions import Sessions
from streamlog.raft.port import RESULT_BYTES_MAX, Applied, StateMachine
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.entries import EntryKind, LogEntry
from streamlog.raft.protocol.stored import Session
from streamlog.raft.settings import QuorumSettings

Outcome: TypeAlias = Applied | OutcomeUnknownError | None
"""What an entry came to: None for the kinds that nobody proposes."""


class AppliedListener(Protocol):
    """Told what has happened to the state. Must not raise."""

    def on_applied(self, index: RaftIndex, command: bytes | None) -> None:
        """The entry at `index` was applied; `command` if it was one, and was carried out."""
        ...

    def on_restored(self, index: RaftIndex) -> None:
        """A snapshot replaced the state by that after `index`."""
        ...


class Applier:
    """Owned by the core; owns the state machine and the sessions."""

    def __init__(
        self, raft: Library, machine: StateMachine[Any], settings: QuorumSettings, listener: AppliedListener
    ) -> None:
        self._raft = raft
        self._machine = machine
        self._entries_max = settings.apply_entries_max
        self._listener = listener
        self.sessions = Sessions()

    def apply_committed(self) -> bool:
        """Apply some of what is committed; True when there is more."""
        raft = self._raft
        until = min(raft.commit_index, raft.last_applied + self._entries_max)
        while raft.last_applied < until:
            entry = raft.log.entry(raft.last_applied + 1)
            caller = self._caller_of(entry)
            outcome, command = self._apply(entry, caller)
            raft.last_applied = entry.index
            self._listener.on_applied(entry.index, command)
            if caller is not None:
                caller(outcome, SUCCESS)
        return raft.last_applied < raft.commit_index

    def _caller_of(self, entry: LogEntry) -> Caller | None:
        for term, caller in self._raft.waiting.pop(entry.index, ()):  # one at most
            if term != entry.term:  # callers of older terms were told when that leadership ended
                raise InvariantError(f"entry {entry.index} of term {entry.term} answers a caller of term {term}")
            return caller
        return None

    def restore(self, index: RaftIndex, sessions: Iterable[Session], picture: Any) -> None:
        """The state is that of a snapshot now."""
        self.sessions.load(sessions)
        self._machine.install(index, picture)
        self._listener.on_restored(index)

    def _apply(self, entry: LogEntry, caller: Caller | None) -> tuple[Outcome, bytes | None]:
        """(outcome, the command if it was carried out)."""
        match entry.kind:
            case EntryKind.COMMAND:
                if caller is None:
                    return self._apply_command(entry.index, *wire.decode_command(entry.payload))
                return self._apply_command(entry.index, caller.command, caller.client_id, caller.sequence)
            case EntryKind.NO_OP | EntryKind.VOTERS:
                return None, None
            case unknown:
                raise UnsupportedVersionError(
                    f"entry {entry.index} of the metadata log is of kind {unknown}: a newer version wrote it; "
                    "upgrade this node"
                )

    def _apply_command(
        self, index: RaftIndex, command: bytes, client_id: str, sequence: int
    ) -> tuple[Outcome, bytes | None]:
        if client_id:
            try:
                known = self.sessions.answer_to(client_id, sequence)
            except LookupError:
                return OutcomeUnknownError(f"sequence {sequence} of {client_id} is too old to be remembered"), None
            if known is not None:
                return known, None
        result = self._machine.apply(index, command)
        if len(result) > RESULT_BYTES_MAX:
            raise InvariantError(f"command {index} has a result of {len(result)} bytes")
        if client_id:
            return self.sessions.remember(client_id, sequence, index, result), command
        return Applied(index=index, result=result), command
