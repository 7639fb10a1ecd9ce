"""The typed window on PySyncObj 0.3.17: its private state by name, its clock, and how it sends.

Every `_SyncObj__x` that this package uses is named here (`PRIVATE` lists them), so a test detects when another release
of the library renames one. The other modules only use `Library`.

The library gets no access to the outside: no thread (`autoTick` off), no file (no journal and no dump file in its
configuration; our journal replaces its own), no socket (the transport only passes messages to us), no pickle.

Its clock is the module global `pysyncobj.syncobj.monotonicTime`, which it calls to set deadlines. Nodes with different
clocks share a process in simulation, so the global is replaced once, when this module is imported, by a function that
reads the current node's clock from a context variable. `on_own_clock` sets the variable for the duration of a call. Its
default is the real clock, so an unmodified SyncObj in the same process still works.
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


class CommandCallback(Protocol):
    """The library's callback for one command."""

    command: bytes
    client_id: str
    sequence: int

    def __call__(self, outcome: Any, reason: int, /) -> None:
        """Called once with (outcome, SUCCESS) or (None, another reason). Must not raise."""


def on_own_clock(method: Callable[Concatenate[L, P], T]) -> Callable[Concatenate[L, P], T]:
    """Wrap a public method of the core, so that the library uses this node's clock."""

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
    """A node in the library's terms. It keeps peers in sets, whose order must not depend on PYTHONHASHSEED."""

    id: BrokerId

    def __init__(self, node_id: BrokerId) -> None:
        super().__init__(node_id)

    def __hash__(self) -> int:
        return self.id

    def __str__(self) -> str:
        return str(self.id)


PRIVATE: Final[list[str]] = []
"""The private names of the library that are used here, without the `_SyncObj__`."""


def _private(name: str) -> Any:
    """A private attribute of the library under our name and type."""
    PRIVATE.append(name)
    theirs = f"_SyncObj__{name}"
    return property(attrgetter(theirs), lambda self, value: setattr(self, theirs, value))


class LibraryLog:
    """The journal under the interface of the library's log: its only view of what is durable."""

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
        """Not persisted: the leader sends the commit index."""


class LibraryTransport(Transport):  # type: ignore[misc]  # the library has no types
    """Receives what the library sends. Incoming messages are passed to the library directly."""

    def __init__(self, send: Callable[[Peer, LibraryMessage], None]) -> None:
        super().__init__(None, None, [])
        self._send = send

    def send(self, node: Peer, message: LibraryMessage) -> bool:
        self._send(node, message)
        return True


class Library(SyncObj):  # type: ignore[misc]  # the library has no types
    """SyncObj on our journal and clock, with unchanged behaviour."""

    role: int = _private("raftState")
    term: RaftTerm = _private("raftCurrentTerm")
    leader: Peer | None = _private("raftLeader")
    votes: int = _private("votesCount")
    vote: BrokerId | None = _private("votedForNodeId")
    election_deadline: float = _private("raftElectionDeadline")
    commit_index: RaftIndex = _private("raftCommitIndex")
    last_applied: RaftIndex = _private("raftLastApplied")
    others: set[Peer] = _private("otherNodes")  # the voters except this node
    connected: set[Peer] = _private("connectedNodes")
    no_op_index: RaftIndex | None = _private("noopIDx")  # of the leader's own first entry
    waiting: dict[int, list[tuple[int, CommandCallback]]] = _private("commandsWaitingCommit")  # index -> (term, caller)
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
        # A journal's last entry may be of a newer term than its last vote record: not each term has a vote.
        self.term = max(journal.term, journal.last.term)
        self.vote = journal.vote if self.term == journal.term else None
        # The state machine is empty. Where the journal begins later, a snapshot is installed first (node).
        self.commit_index = self.last_applied = FIRST_INDEX

    def __dir__(self) -> Iterable[str]:
        """The library searches all attributes for @replicated methods: hide ours, which are not initialized yet."""
        return super().__dir__() if "me" in self.__dict__ else ()

    def peer(self, node_id: BrokerId) -> Peer:
        """The library's object for a node, cached because creating one is expensive."""
        known = self._peers.get(node_id)
        if known is None:
            known = self._peers[node_id] = Peer(node_id)
        return known

    @property
    def leader_id(self) -> BrokerId | None:
        return None if self.leader is None else self.leader.id

    # Calls into the library.

    def set_term(self, term: RaftTerm, vote: BrokerId | None) -> None:
        self._set_current_term(term, vote)

    def set_role(self, role: RaftRole) -> None:
        self._set_state(role)

    def become_leader(self) -> None:
        self._on_become_leader()

    def give_message(self, peer: Peer, message: LibraryMessage) -> None:
        self._on_message_received(peer, message)

    def take_commands(self) -> None:
        """Leader: move submitted commands into the log and their callers to `waiting`."""
        self._checkCommandsToApply()

    def drop_commands(self) -> list[CommandCallback]:
        """Empty the queue of submitted commands; their callers."""
        callers = []
        while True:
            try:
                callers.append(self._commands.get_nowait()[1])
            except queue.Empty:
                return callers

    # Calls from the library.

    def send(self, peer: Peer, message: Message) -> None:
        """Put a message into the outbox. Implemented by the subclass."""
        raise NotImplementedError

    def on_library_send(self, peer: Peer, message: LibraryMessage) -> None:
        """The library sends granted votes; everything else is sent by us."""
        if message["type"] != "response_vote":
            raise InvariantError(f"PySyncObj sends {message['type']}")
        self.send(peer, VoteReply(term=message["term"], granted=True))

    def draw_election_timeout_s(self) -> float:
        return self.random.uniform(*self._election_timeout_s)

    _SyncObj__generateRaftTimeout = draw_election_timeout_s  # instead of the module `random`

    def _onTick(self, timeToWait: float = 0.0) -> None:
        raise InvariantError("the library's own tick must not run")


def _configuration(settings: QuorumSettings) -> SyncObjConf:
    """The library's timeouts are not used but validated, so they stay at their defaults."""
    return SyncObjConf(
        autoTick=False,
        useFork=False,
        dynamicMembershipChange=False,  # voter_changes replaces it
        commandsWaitLeader=False,
        commandsQueueSize=settings.proposals_max,
    )
