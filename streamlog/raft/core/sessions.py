"""Client sessions, so that a retried command is applied once (thesis, 6.3).

Part of the replicated state: changed only by applied commands, in the same way on every node, and saved in every
snapshot. A client is a name with rising sequences, several of which may be in flight at once and arrive in any order.
The latest SEQUENCES_MAX answers of each client are kept; an unknown sequence below a dropped one may or may not have
been applied, and is refused. Beyond CLIENTS_MAX the least recently used client is dropped: a command it retries after
that would be applied again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from streamlog.model import RaftIndex
from streamlog.raft.port import Applied
from streamlog.raft.protocol.stored import Session

CLIENTS_MAX: Final = 4096
SEQUENCES_MAX: Final = 128
"""More than any client has in flight: the proposals of one node are bounded far below."""


class Sessions:
    """Owned by the applier. Not durable by itself: rebuilt from snapshot and log."""

    def __init__(self, *, clients_max: int = CLIENTS_MAX, sequences_max: int = SEQUENCES_MAX) -> None:
        self._clients_max = clients_max
        self._sequences_max = sequences_max
        self._clients: dict[str, _Client] = {}  # in the order of their latest command

    def answer_to(self, client_id: str, sequence: int) -> Applied | None:
        """The earlier answer; None for a new command; LookupError for one that is too old to know."""
        client = self._clients.get(client_id)
        if client is None:
            return None
        known = client.answers.get(sequence)
        if known is not None:
            return replace(known, repeated=True)
        if sequence < client.forgotten_end:
            raise LookupError(sequence)
        return None

    def remember(self, client_id: str, sequence: int, index: RaftIndex, result: bytes) -> Applied:
        """Store a new command's answer."""
        client = self._clients.pop(client_id, None) or _Client()
        self._clients[client_id] = client  # at the end: the latest
        answer = client.answers[sequence] = Applied(index=index, result=result)
        if len(client.answers) > self._sequences_max:
            client.forget_oldest()
        if len(self._clients) > self._clients_max:
            del self._clients[next(iter(self._clients))]
        return answer

    def dump(self) -> list[Session]:
        """An immutable value; equal states give equal dumps."""
        return [
            Session(client_id=client_id, forgotten_end=client.forgotten_end, answers=tuple(client.answers.items()))
            for client_id, client in self._clients.items()
        ]

    def load(self, sessions: Iterable[Session]) -> None:
        """Replace all sessions by a dump."""
        self._clients = {session.client_id: _Client(session) for session in sessions}


class _Client:
    __slots__ = ("answers", "forgotten_end")

    def __init__(self, session: Session | None = None) -> None:
        self.forgotten_end = 0 if session is None else session.forgotten_end
        self.answers: dict[int, Applied] = {} if session is None else dict(session.answers)  # oldest first

    def forget_oldest(self) -> None:
        oldest = next(iter(self.answers))
        del self.answers[oldest]
        self.forgotten_end = max(self.forgotten_end, oldest + 1)
