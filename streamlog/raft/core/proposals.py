"""Callers that wait for their command: bounded in number and bytes, and answered exactly once.

    queued       submitted, not in the log yet    lost leadership: not carried out, NotControllerError
    waiting      in the log, not applied yet      lost leadership: OutcomeUnknownError
    answered     applied, and the caller was told

The queue and the table of who waits for which index are PySyncObj's. It never tells those who wait when it loses its
leadership; we do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from streamlog.errors import (
    InvalidRequestError,
    MessageTooLargeError,
    NotControllerError,
    OutcomeUnknownError,
    StreamlogError,
    ThrottledError,
)
from streamlog.raft.core.library import SUCCESS, Library, RaftRole
from streamlog.raft.core.voter_set_history import VoterSetHistory
from streamlog.raft.port import CLIENT_ID_BYTES_MAX, SEQUENCE_MAX, Applied
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.entries import COMMAND
from streamlog.raft.settings import QuorumSettings

Answer: TypeAlias = Callable[[Applied | StreamlogError], None]
"""Called once. Must not raise."""


class Proposal:
    """One of them, with its command (library.Caller): the leader need not decode what it has encoded."""

    __slots__ = ("_answer", "_proposals", "client_id", "command", "sequence")

    def __init__(self, proposals: Proposals, command: bytes, client_id: str, sequence: int, answer: Answer) -> None:
        self.command = command
        self.client_id = client_id
        self.sequence = sequence
        self._proposals = proposals
        self._answer = answer

    def __call__(self, outcome: Any, reason: int, /) -> None:
        """The library calls it when it refuses, all others with a reason of success and an outcome that tells."""
        self._proposals.settled(self)
        self._answer(outcome if reason == SUCCESS else NotControllerError(f"PySyncObj refused the command: {reason}"))


class Proposals:
    """Owned by the core."""

    def __init__(self, raft: Library, membership: VoterSetHistory, settings: QuorumSettings) -> None:
        self._raft = raft
        self._membership = membership
        self._settings = settings
        self._count = 0  # callers that wait, queued or in the log; <= proposals_max
        self._bytes = 0  # of their commands; <= proposals_bytes_max

    def submit(self, command: bytes, client_id: str, sequence: int, answer: Answer) -> None:
        """Queue it. Raises instead where it can be refused at once; `answer` is not called then."""
        self._check(command, client_id, sequence)
        if self._raft.role != RaftRole.LEADER:
            raise self._membership.not_controller(self._raft.leader_id)
        settings = self._settings
        if self._count >= settings.proposals_max or self._bytes + len(command) > settings.proposals_bytes_max:
            raise ThrottledError(
                f"{self._count} commands of {self._bytes} bytes wait for the quorum; "
                f"at most {settings.proposals_max} and {settings.proposals_bytes_max} bytes",
                limit=settings.proposals_max,
            )
        self._count += 1
        self._bytes += len(command)
        proposal = Proposal(self, command, client_id, sequence, answer)
        self._raft.submit_entry(COMMAND + wire.encode_command(command, client_id, sequence), proposal)

    def settled(self, proposal: Proposal) -> None:
        """It waits no longer."""
        self._count -= 1
        self._bytes -= len(proposal.command)

    def _check(self, command: bytes, client_id: str, sequence: int) -> None:
        limit = self._settings.command_bytes_max
        if len(command) > limit:
            raise MessageTooLargeError(f"a command of {len(command)} bytes; at most {limit}", limit=limit)
        if len(client_id.encode()) > CLIENT_ID_BYTES_MAX:
            raise InvalidRequestError(
                f"client_id has more than {CLIENT_ID_BYTES_MAX} bytes", field="client_id", limit=CLIENT_ID_BYTES_MAX
            )
        if not 0 <= sequence <= SEQUENCE_MAX:
            raise InvalidRequestError(f"sequence {sequence}", field="sequence", limit=SEQUENCE_MAX)

    def end_term(self) -> None:
        """The leadership is lost: tell everybody who waits."""
        raft = self._raft
        waiting = [caller for callers in raft.waiting.values() for _, caller in callers]
        raft.waiting.clear()
        for caller in waiting:
            caller(OutcomeUnknownError("the leadership was lost before the command was committed"), SUCCESS)
        for caller in raft.drop_commands():
            caller(self._membership.not_controller(raft.leader_id), SUCCESS)
