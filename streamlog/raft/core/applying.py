"""Committed entries are applied to the state machine, in order, each once.

`last_applied` advances after the entry is applied and before listener and caller are notified, so they see it, and an
error of theirs cannot cause the entry to be applied twice. An exception of the state machine, or an entry kind that
this version does not know, stops the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

from streamlog.errors import InvariantError, OutcomeUnknownError, UnsupportedVersionError
from streamlog.model import RaftIndex
from streamlog.raft.core.library import SUCCESS, CommandCallback, Library
from streamlog.raft.core.sessions import Sessions
from streamlog.raft.port import RESULT_BYTES_MAX, Applied, StateMachine
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.entries import EntryKind, LogEntry
from streamlog.raft.protocol.stored import Session
from streamlog.raft.settings import QuorumSettings

Outcome: TypeAlias = Applied | OutcomeUnknownError | None
"""The outcome of an entry: None for kinds that no client proposes."""


class AppliedListener(Protocol):
    """Notified of changes of the state. Must not raise."""

    def on_applied(self, index: RaftIndex, command: bytes | None) -> None:
        """The entry at `index` was applied; `command`: None if it is no command, or a repeated one."""
        ...

    def on_restored(self, index: RaftIndex) -> None:
        """A snapshot replaced the state by the state as of `index`."""
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
        """Apply some committed entries; True when there are more."""
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

    def _caller_of(self, entry: LogEntry) -> CommandCallback | None:
        for term, caller in self._raft.waiting.pop(entry.index, ()):  # one at most
            if term != entry.term:  # callers of older terms were answered when that leadership ended
                raise InvariantError(f"entry {entry.index} of term {entry.term} answers a caller of term {term}")
            return caller
        return None

    def restore(self, index: RaftIndex, sessions: Iterable[Session], picture: Any) -> None:
        """Replace the state by that of a snapshot."""
        self.sessions.load(sessions)
        self._machine.install(index, picture)
        self._listener.on_restored(index)

    def _apply(self, entry: LogEntry, caller: CommandCallback | None) -> tuple[Outcome, bytes | None]:
        """(outcome, the command if it was applied)."""
        match entry.kind:
            case EntryKind.COMMAND:
                if caller is None:
                    return self._apply_command(entry.index, *wire.decode_command(entry.payload))
                return self._apply_command(entry.index, caller.command, caller.client_id, caller.sequence)
            case EntryKind.NO_OP | EntryKind.VOTERS:
                return None, None
            case unknown:
                raise UnsupportedVersionError(
                    f"entry {entry.index} of the metadata log has the unknown kind {unknown}: a newer version wrote "
                    "it; upgrade this node"
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
