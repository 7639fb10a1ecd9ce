"""Pending proposals: bounded in number and bytes, each answered exactly once.

    queued       submitted, not in the log yet    lost leadership: not carried out, NotControllerError
    waiting      in the log, not applied yet      lost leadership: OutcomeUnknownError
    answered     applied, and the caller was answered

The queue and the table of callers by index are PySyncObj's. It never answers pending callers when it loses its
leadership; `end_term` does.
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
from streamlog.metrics.histogram import Histogram
from streamlog.raft.core.library import SUCCESS, Library, RaftRole
from streamlog.raft.core.voter_set_history import VoterSetHistory
from streamlog.raft.port import CLIENT_ID_BYTES_MAX, SEQUENCE_MAX, Applied
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.entries import COMMAND
from streamlog.raft.settings import QuorumSettings

Answer: TypeAlias = Callable[[Applied | StreamlogError], None]
"""Called once. Must not raise."""


class Proposal:
    """A library.CommandCallback with its command, so the leader need not decode what it has encoded."""

    __slots__ = ("_answer", "_began_s", "_proposals", "client_id", "command", "sequence")

    def __init__(self, proposals: Proposals, command: bytes, client_id: str, sequence: int, answer: Answer) -> None:
        self.command = command
        self.client_id = client_id
        self.sequence = sequence
        self._proposals = proposals
        self._answer = answer
        self._began_s = proposals.now_s()

    def __call__(self, outcome: Any, reason: int, /) -> None:
        """The library passes the reason of a refusal; our own calls pass SUCCESS and the outcome."""
        self._proposals.settled(self)
        if isinstance(outcome, Applied):
            self._proposals.commit_latency_s.observe(self._proposals.now_s() - self._began_s)
        self._answer(outcome if reason == SUCCESS else NotControllerError(f"PySyncObj refused the command: {reason}"))


class Proposals:
    """Owned by the core."""

    def __init__(self, raft: Library, voter_sets: VoterSetHistory, settings: QuorumSettings) -> None:
        self._raft = raft
        self._voter_sets = voter_sets
        self._settings = settings
        self._count = 0  # pending callers, queued or in the log; <= proposals_max
        self._bytes = 0  # of their commands; <= proposals_bytes_max
        self.commit_latency_s = Histogram()  # from a command's arrival to its commit and application here

    def submit(self, command: bytes, client_id: str, sequence: int, answer: Answer) -> None:
        """Queue a command. If it is refused at once, raises and does not call `answer`."""
        self._check(command, client_id, sequence)
        if self._raft.role != RaftRole.LEADER:
            raise self._voter_sets.not_controller(self._raft.leader_id)
        settings = self._settings
        if self._count >= settings.proposals_max or self._bytes + len(command) > settings.proposals_bytes_max:
            raise ThrottledError(
                f"{self._count} commands of {self._bytes} bytes wait for the quorum; "
                f"the limit is {settings.proposals_max} commands and {settings.proposals_bytes_max} bytes",
                limit=settings.proposals_max,
            )
        self._count += 1
        self._bytes += len(command)
        proposal = Proposal(self, command, client_id, sequence, answer)
        self._raft.submit_entry(COMMAND + wire.encode_command(command, client_id, sequence), proposal)

    def now_s(self) -> float:
        return self._raft.now()

    def settled(self, proposal: Proposal) -> None:
        """It is answered."""
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
        """The leadership is lost: fail all pending proposals."""
        raft = self._raft
        waiting = [caller for callers in raft.waiting.values() for _, caller in callers]
        raft.waiting.clear()
        for caller in waiting:
            caller(OutcomeUnknownError("the leadership was lost before the command was committed"), SUCCESS)
        for caller in raft.drop_commands():
            caller(self._voter_sets.not_controller(raft.leader_id), SUCCESS)
