"""The typed window on PySyncObj 0.3.17: its private state by name, its clock, and how it sends.

Every `_SyncObj__x` that this package touches is named here (`PRIVATE` lists them), so that a test finds out when
another release of the library has renamed one. What is made of it is in the other modules; they see `Library` alone.

The library is told nothing about the world: no thread (`autoTick` off), no file (no journal and no dump file in its
configuration; our journal takes the place of its own), no socket (the transport only hands messages to us), no pickle.

Its clock is the module global `pysyncobj.syncobj.monotonicTime`, which it calls to set deadlines. Nodes with different
clocks share a process in simulation, so the global is replaced, once, when this module is imported: by a function that
asks a context variable for the clock of the node at work. `on_own_clock` sets it for the length of a call. Without it
the variable gives the real clock, so the untouched library works as ever beside us.
"""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from enum import IntEnum
from operator import attrgetter
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj import syncobj as _library
from pysyncobj.config import FAIL_REASON
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from streamlog.errors import InvariantError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.ports import Random
from streamlog.raft.protocol.entries import FIRST_INDEX, LogEntry
from streamlog.raft.protocol.messages import Message, VoteReply
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.storage.journal import Journal

T = TypeVar("T")
P = ParamSpec("P")
L = TypeVar("L", bound="Library")

Now: TypeAlias = Callable[[], float]
LibraryMessage: TypeAlias = dict[str, Any]

SUCCESS: Final[int] = FAIL_REASON.SUCCESS

_NOW: Final[ContextVar[Now]] = ContextVar("streamlog_raft_now", default=_library.monotonicTime)


def _now_of_the_node_at_work() -> float:
    return _NOW.get()()


_library.monotonicTime = _now_of_the_node_at_work


class Caller(Protocol):
    """Whoever waits for a command; the library's callback for it."""

    command: bytes
    client_id: str
    sequence: int

    def __call__(self, outcome: Any, reason: int, /) -> None:
        """Called once with (outcome, SUCCESS) or (None, another reason). Must not raise."""


def on_own_clock(method: Callable[Concatenate[L, P], T]) -> Callable[Concatenate[L, P], T]:
    """Wrap an entry into the core, so that the library takes the time from this node's clock."""

    def entered(self: L, /, *args: P.args, **kwargs: P.kwargs) -> T:
        token = _NOW.set(self.now)
        try:
            return method(self, *args, **kwargs)
        finally:
            _NOW.reset(token)

    functools.update_wrapper(entered, method)
    return entered


class RaftRole(IntEnum):
    """The library's numbers."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


class Peer(Node):  # type: ignore[misc]  # the library has no types
    """A node as the library sees it. It keeps peers in sets: their order must not depend on PYTHONHASHSEED."""

    id: BrokerId

    def __init__(self, node_id: BrokerId) -> None:
        super().__init__(node_id)

    def __hash__(self) -> int:
        return self.id

    def __str__(self) -> str:
        return str(self.id)


PRIVATE: Final[list[str]] = []
"""What we touch of the library's private parts, as they are called there after `__`."""


def _private(name: str) -> Any:
    """An attribute of the library under a name and a type of ours."""
    PRIVATE.append(name)
    theirs = f"_SyncObj__{name}"
    return property(attrgetter(theirs), lambda self, value: setattr(self, theirs, value))


class LibraryLog:
    """The journal under the names by which the library calls it. It gets no other view of what is durable."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def add(self, data: bytes, index: int, term: int) -> None:
        self.journal.append(LogEntry(data, RaftIndex(index), RaftTerm(term)))

    def __len__(self) -> int:
        return len(self.journal)

    @overload
    def __getitem__(self, place: int) -> LogEntry: ...
    @overload
    def __getitem__(self, place: slice) -> list[LogEntry]: ...
    def __getitem__(self, place: int | slice) -> LogEntry | list[LogEntry]:
        if isinstance(place, slice):
            return self.journal.between(*place.indices(len(self.journal))[:2])
        return self.journal.at(place)

    def setCurrentTerm(self, term: int, vote: int | None) -> None:
        self.journal.set_state(RaftTerm(term), None if vote is None else BrokerId(vote))

    def setRaftCommitIndex(self, index: int) -> None:
        """The commit index is learnt again from the leader."""


class LibraryTransport(Transport):  # type: ignore[misc]  # the library has no types
    """Takes what the library sends. What it receives is given to it directly."""

    def __init__(self, send: Callable[[Peer, LibraryMessage], None]) -> None:
        super().__init__(None, None, [])
        self._send = send

    def send(self, node: Peer, message: LibraryMessage) -> bool:
        self._send(node, message)
        return True


class Library(SyncObj):  # type: ignore[misc]  # the library has no types
    """SyncObj on our journal and clock, before any of its behaviour is changed."""

    role: int = _private("raftState")
    term: RaftTerm = _private("raftCurrentTerm")
    leader: Peer | None = _private("raftLeader")
    votes: int = _private("votesCount")
    vote: BrokerId | None = _private("votedForNodeId")
    election_deadline: float = _private("raftElectionDeadline")
    commit_index: RaftIndex = _private("raftCommitIndex")
    last_applied: RaftIndex = _private("raftLastApplied")
    others: set[Peer] = _private("otherNodes")  # voters but this node; kept by membership
    connected: set[Peer] = _private("connectedNodes")
    no_op_index: RaftIndex | None = _private("noopIDx")  # of the leader's own first entry
    waiting: dict[int, list[tuple[int, Caller]]] = _private("commandsWaitingCommit")  # index -> (term, caller)
    _library_log: LibraryLog = _private("raftLog")
    _set_state: Callable[[int], None] = _private("setState")
    _set_current_term: Callable[[RaftTerm, BrokerId | None], None] = _private("setCurrentTerm")
    _on_become_leader: Callable[[], None] = _private("onBecomeLeader")
    _on_message_received: Callable[[Peer, LibraryMessage], None] = _private("onMessageReceived")
    _commands: Any = _private("commandsQueue")

    def __init__(self, me: Peer, *, journal: Journal, now: Now, random: Random, settings: QuorumSettings) -> None:
        self.now = now
        self.random = random
        self.log = journal
        self._election_timeout_s = (settings.election_timeout_min_ms / 1000, settings.election_timeout_max_ms / 1000)
        token = _NOW.set(now)
        try:
            super().__init__(me, [], _configuration(settings), transport=LibraryTransport(self.on_library_send))
        finally:
            _NOW.reset(token)
        self.me = me
        self._peers: dict[BrokerId, Peer] = {}
        self._library_log = LibraryLog(journal)
        # A journal may end in a newer term than the one it has as current: a vote is not written for each.
        self.term = max(journal.term, journal.last.term)
        self.vote = journal.vote if self.term == journal.term else None
        # The state machine is empty. Where the journal begins later, a snapshot is installed first (node).
        self.commit_index = self.last_applied = FIRST_INDEX

    def __dir__(self) -> Iterable[str]:
        """The library looks through all attributes for @replicated methods: there are none, and ours are not made."""
        return super().__dir__() if "me" in self.__dict__ else ()

    def peer(self, node_id: BrokerId) -> Peer:
        """The library's name for a node; made once, for that is dear."""
        known = self._peers.get(node_id)
        if known is None:
            known = self._peers[node_id] = Peer(node_id)
        return known

    @property
    def leader_id(self) -> BrokerId | None:
        return None if self.leader is None else self.leader.id

    # What the library does when asked.

    def set_term(self, term: RaftTerm, vote: BrokerId | None) -> None:
        self._set_current_term(term, vote)

    def set_role(self, role: RaftRole) -> None:
        self._set_state(role)

    def become_leader(self) -> None:
        self._on_become_leader()

    def give_message(self, peer: Peer, message: LibraryMessage) -> None:
        self._on_message_received(peer, message)

    def take_commands(self) -> None:
        """Leader: move what was submitted into the log, a caller each to `waiting`."""
        self._checkCommandsToApply()

    def drop_commands(self) -> list[Caller]:
        """Empty the queue of what was submitted, and return the callers."""
        callers = []
        while True:
            try:
                callers.append(self._commands.get_nowait()[1])
            except queue.Empty:
                return callers

    # What the library asks for.

    def send(self, peer: Peer, message: Message) -> None:
        """Put a message into the outbox. Made by the subclass."""
        raise NotImplementedError

    def on_library_send(self, peer: Peer, message: LibraryMessage) -> None:
        """It grants votes; all else is sent by us."""
        if message["type"] != "response_vote":
            raise InvariantError(f"PySyncObj sends {message['type']}")
        self.send(peer, VoteReply(term=message["term"], granted=True))

    def draw_election_timeout_s(self) -> float:
        return self.random.uniform(*self._election_timeout_s)

    _SyncObj__generateRaftTimeout = draw_election_timeout_s  # instead of the module `random`

    def _onTick(self, timeToWait: float = 0.0) -> None:
        raise InvariantError("the library's own tick must not run")


def _configuration(settings: QuorumSettings) -> SyncObjConf:
    """The library's time-outs are not used; it checks them, so they stay at their defaults."""
    return SyncObjConf(
        autoTick=False,
        useFork=False,
        dynamicMembershipChange=False,  # membership is ours
        commandsWaitLeader=False,
        commandsQueueSize=settings.proposals_max,
    )
