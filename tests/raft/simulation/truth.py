"""What every node must agree on, checked as it happens (FAULTS: I12, I13).

- one leader a term, with the votes of a majority;
- the entry applied at an index is the same everywhere, indexes are applied in order, equal index means equal state;
- an entry is applied when a majority has it durably, and not before;
- two logs that have an entry of the same index and term are equal up to there;
- what a node has made durable, or reported to others, is there when it comes back: its term, its vote, its entries;
- what was acknowledged is in the common history, once, at its index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from streamlog.model import RaftIndex
from streamlog.raft.protocol.entries import LogEntry

from ..registers import Registers, RegistersPicture
from .history import Operation


class Promise(Struct, frozen=True):
    """What a node had durably when it went down."""

    term: int
    vote: int | None
    index: int
    index_term: int


NOTHING = Promise(0, None, 0, 0)


class Truth:
    def __init__(self, majority_has: Callable[[int, int], bool]) -> None:
        """`majority_has(node, index)`: whether a majority of the voters of `node` has its entry durably."""
        self.problems: list[str] = []
        self._majority_has = majority_has
        self._votes: dict[tuple[int, int], set[int]] = {}  # (term, candidate) -> those that granted it their vote
        self._reported: dict[str, Promise] = {}  # host -> the most that it has reported in this life
        self.commands: dict[int, str] = {}  # index -> command, as the first node applied it
        self._digests: dict[int, bytes] = {}  # index -> state after it
        self._leaders: dict[int, str] = {}  # term -> host
        self._promises: dict[str, Promise] = {}  # host -> of its last life
        self._lost: dict[str, int] = {}  # host -> what it had durably when it lost its disk

    def wrong(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    # Leaders.

    def leads(self, host: str, term: int) -> None:
        first = self._leaders.setdefault(term, host)
        if first != host:
            self.wrong(f"two leaders in term {term}: {first} and {host}")

    def voted(self, voter: int, candidate: int, term: int) -> None:
        """A vote has left."""
        self._votes.setdefault((term, candidate), {candidate}).add(voter)

    def voters_of(self, candidate: int, term: int) -> set[int]:
        return self._votes.get((term, candidate), {candidate})

    # State.

    def applied(self, node: int, index: int, command: str, digest: bytes) -> None:
        if index not in self.commands and not self._majority_has(node, index):
            self.wrong(f"node {node} applies entry {index}, which no majority has durably")
        if self.commands.setdefault(index, command) != command:
            self.wrong(f"entry {index} is {self.commands[index]!r} here, {command!r} at node {node}")
        if self._digests.setdefault(index, digest) != digest:
            self.wrong(f"node {node} has another state after entry {index}")

    def installed(self, node: int, index: int, digest: bytes) -> None:
        """A snapshot: its state is that of the last command at or below its index."""
        known = max((i for i in self._digests if i <= index), default=None)
        expected = b"" if known is None else self._digests[known]
        if digest != expected:
            self.wrong(f"node {node} installed a snapshot at {index} whose state no node has had")

    # Logs.

    def compare_logs(self, logs: Sequence[tuple[int, list[LogEntry]]]) -> None:
        """Log matching (thesis, Figure 3.2), for every two nodes. A base stands for its index and term alone."""
        for place, (node, log) in enumerate(logs):
            for other, log2 in logs[place + 1 :]:
                self._compare(node, log, other, log2)

    def _compare(self, node: int, log: list[LogEntry], other: int, log2: list[LogEntry]) -> None:
        first = max(log[0].index, log2[0].index)
        last = min(log[-1].index, log2[-1].index)
        matched = False
        for index in range(last, first - 1, -1):
            one, two = log[index - log[0].index], log2[index - log2[0].index]
            if one.term == two.term:
                matched = True
                if one.data != two.data and index not in (log[0].index, log2[0].index):
                    self.wrong(f"entry {index} of term {one.term} differs between nodes {node} and {other}")
            elif matched:
                self.wrong(f"logs of nodes {node} and {other} agree behind entry {index}, but not there")

    # Promises.

    def reported(self, host: str, promise: Promise) -> None:
        """A message has left that says so."""
        before = self._reported.get(host, NOTHING)
        term, vote = max((before.term, before.vote), (promise.term, promise.vote), key=lambda pair: pair[0])
        if before.term == promise.term:
            vote = before.vote if promise.vote is None else promise.vote
        place = max((before.index_term, before.index), (promise.index_term, promise.index))
        self._reported[host] = Promise(term, vote, place[1], place[0])

    def went_down(self, host: str, promise: Promise = NOTHING) -> None:
        """`promise`: what it had durably; NOTHING where that is unknown."""
        self.reported(host, promise)
        self._promises[host] = self._reported.pop(host)

    def lost_index_of(self, host: str) -> int:
        return self._lost.get(host, 0)

    def durable_index_of(self, host: str) -> int:
        """Of a node that is down: what it had durably at least. One stopped by its disk had what it reported."""
        return max(self._promises.get(host, NOTHING).index, self._reported.get(host, NOTHING).index)

    def lost_disk(self, host: str) -> None:
        """It has gone down, and its disk is gone. What it had counts: a leader may learn of it later."""
        self._lost[host] = self._promises.pop(host, NOTHING).index
        self._reported.pop(host, None)

    def came_up(self, host: str, term: int, vote: int | None, log: list[LogEntry]) -> None:
        promise = self._promises.pop(host, None)
        if promise is None:
            return
        if term < promise.term:
            self.wrong(f"{host} had term {promise.term} durably, and came back with {term}")
        if term == promise.term and promise.vote is not None and vote != promise.vote:
            self.wrong(f"{host} had voted for {promise.vote} in term {term}, and came back with {vote}")
        place = promise.index - log[0].index
        if place >= len(log) and log[-1].term <= promise.index_term:
            self.wrong(f"{host} had entry {promise.index} durably, and came back with {log[-1].index}")
        elif 0 <= place < len(log) and log[place].term < promise.index_term:
            self.wrong(f"{host} had entry {promise.index} of term {promise.index_term}, now of {log[place].term}")

    # Clients.

    def check_acknowledged(self, operations: Sequence[Operation]) -> None:
        """Each write that was acknowledged stands where it was said to stand; none stands twice."""
        places: dict[str, int] = {}
        for index in sorted(self.commands):
            command = self.commands[index]
            if command in places:
                self.wrong(f"{command!r} was carried out twice, at {places[command]} and at {index}")
            places[command] = index
        for operation in operations:
            command = f"{operation.key}={operation.value}"
            if operation.kind == "write" and operation.index is not None and places.get(command) != operation.index:
                self.wrong(f"{command!r} was acknowledged at {operation.index}, and is at {places.get(command)}")


class WatchedRegisters(Registers):
    """Passes on to the truth what it is given."""

    def __init__(self, node_id: int, truth: Truth) -> None:
        super().__init__()
        self._node_id = node_id
        self._truth = truth
        self._index = 0

    def apply(self, index: RaftIndex, command: bytes) -> bytes:
        if index <= self._index:
            self._truth.wrong(f"node {self._node_id} applies {index} after {self._index}")
        self._index = index
        result = super().apply(index, command)
        self._truth.applied(self._node_id, index, command.decode(), self.digest)
        return result

    def install(self, index: RaftIndex, picture: RegistersPicture) -> None:
        if index < self._index:
            self._truth.wrong(f"node {self._node_id} goes back from {self._index} to a snapshot at {index}")
        self._index = index
        super().install(index, picture)
        self._truth.installed(self._node_id, index, self.digest)
