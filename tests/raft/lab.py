"""Two laboratories with the same handles: the untouched PySyncObj, and the hardened core. Nothing happens by itself.

Messages lie in FIFO queues between nodes until they are delivered; time stands until it is moved; a node does what it
does in a tick. Elections happen on demand. So one script can show what the one does and the other does not.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pysyncobj.syncobj as library
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from streamlog.model import BrokerId, RaftIndex
from streamlog.ports import no_probe
from streamlog.raft import library as window
from streamlog.raft.journal import Journal
from streamlog.raft.library import Role
from streamlog.raft.membership import Membership
from streamlog.raft.outbox import Outbox
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.snapshot_store import SnapshotStore
from streamlog.raft.syncobj import HardenedSyncObj
from streamlog.raft.voters import DirectoryId, VoterSet

from .instant_disk import InstantFiles, InstantWorkers, at_once
from .kit import Registers, voter

FAR = 1e9


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


class Lab:
    """What both have. Nodes are 1 to `size`; `answers` collects what callers are told, by command."""

    def __init__(self, size: int) -> None:
        self.ids = list(range(1, size + 1))
        self.clock = Clock()
        self.queues: dict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self.cut: set[tuple[int, int]] = set()
        self.answers: dict[str, list[Any]] = defaultdict(list)

    def post(self, source: int, target: int, message: Any) -> bool:
        if (source, target) in self.cut:
            return False
        self.queues[source, target].append(message)
        return True

    def deliver(self, source: int, target: int, count: int = 1 << 30) -> int:
        queue, done = self.queues[source, target], 0
        while queue and done < count:
            self.hand(source, target, queue.popleft())
            done += 1
        return done

    def flush(self) -> None:
        """Deliver until nothing is under way."""
        while any(self.deliver(*link) for link in sorted(self.queues)):
            pass

    def run(self, rounds: int = 4, *nodes: int) -> None:
        for _ in range(rounds):
            self.clock.now += 0.2
            for node in nodes or self.ids:
                self.tick(node)
            self.flush()

    def partition(self, ones: list[int], others: list[int]) -> None:
        for one in ones:
            for other in others:
                for link in ((one, other), (other, one)):
                    self.cut.add(link)
                    self.queues[link].clear()
                    self.disconnect(*link)

    def heal(self) -> None:
        cut, self.cut = sorted(self.cut), set()
        for link in cut:
            self.connect(*link)

    # Of the implementation.

    def hand(self, source: int, target: int, message: Any) -> None:
        raise NotImplementedError

    def tick(self, node: int) -> None:
        raise NotImplementedError

    def connect(self, node: int, peer: int) -> None:
        raise NotImplementedError

    def disconnect(self, node: int, peer: int) -> None:
        raise NotImplementedError

    def submit(self, node: int, text: str) -> None:
        raise NotImplementedError

    def elect(self, node: int, *among: int) -> None:
        raise NotImplementedError

    def state(self, node: int) -> list[str]:
        """Commands applied, in order."""
        raise NotImplementedError

    def log(self, node: int) -> list[tuple[int, int]]:
        """(index, term) of the entries."""
        raise NotImplementedError

    def term(self, node: int) -> int:
        raise NotImplementedError

    def leads(self, node: int) -> bool:
        raise NotImplementedError

    def compact(self, node: int) -> None:
        raise NotImplementedError

    def succeeded(self, text: str) -> bool:
        """Somebody was told that this command was carried out."""
        raise NotImplementedError


class LabNode(Node):  # type: ignore[misc]  # the library has no types
    """The library keeps nodes in sets: scripts must not depend on PYTHONHASHSEED."""

    def __hash__(self) -> int:
        return int(self.id)


class PlainTransport(Transport):  # type: ignore[misc]  # the library has no types
    """The library's transport, onto the lab's queues."""

    lab: PlainLab

    def __init__(self, obj: SyncObj, me: Node, others: list[Node]) -> None:
        super().__init__(obj, me, others)
        self.node_id = int(me.id)
        self.lab.transports[self.node_id] = self

    def addNode(self, node: Node) -> None:
        pass

    def dropNode(self, node: Node) -> None:
        pass

    def send(self, node: Node, message: Any) -> bool:
        self.lab.clock.now += 5e-5  # else the library's send loop never ends while it makes a snapshot
        return self.lab.post(self.node_id, int(node.id), message)


class PlainNode(SyncObj):  # type: ignore[misc]  # the library has no types
    """A list that the library replicates as its manual says."""

    def __init__(self, me: Node, others: list[Node], conf: SyncObjConf, transport: type[PlainTransport]) -> None:
        super().__init__(me, others, conf, transportClass=transport)
        self.items: list[str] = []

    @replicated  # type: ignore[untyped-decorator]  # the library has no types
    def put(self, item: str) -> str:
        if item == "!":
            raise ValueError("a command that no state machine survives")
        self.items.append(item)
        return item


class PlainLab(Lab):
    """PySyncObj as released."""

    def __init__(self, size: int = 3, **conf: Any) -> None:
        super().__init__(size)
        self.transports: dict[int, PlainTransport] = {}
        self.nodes: dict[int, PlainNode] = {}
        self._conf = conf
        for node in self.ids:
            self.start(node)
        for node in self.ids:
            for peer in self.ids:
                if node != peer:
                    self.connect(node, peer)

    @contextmanager
    def _own_time(self) -> Iterator[None]:
        token = window._NOW.set(self.clock.monotonic)
        try:
            yield
        finally:
            window._NOW.reset(token)

    def start(self, node: int) -> PlainNode:
        transport = type("LabTransport", (PlainTransport,), {"lab": self})
        conf = {
            "autoTick": False,
            "raftMinTimeout": 1,
            "raftMaxTimeout": 2,
            "leaderFallbackTimeout": FAR,
            "connectionTimeout": 5,
            "useFork": False,
            "logCompactionMinEntries": 10**9,
            "logCompactionMinTime": 10**9,
        }
        own = {key: value(node) if callable(value) else value for key, value in self._conf.items()}
        others = [LabNode(str(peer)) for peer in self.ids if peer != node]
        with self._own_time():
            self.nodes[node] = PlainNode(LabNode(str(node)), others, SyncObjConf(**{**conf, **own}), transport)
        self.set(node, "raftElectionDeadline", FAR)
        return self.nodes[node]

    def get(self, node: int, name: str) -> Any:
        return getattr(self.nodes[node], f"_SyncObj__{name}")

    def set(self, node: int, name: str, value: Any) -> None:
        setattr(self.nodes[node], f"_SyncObj__{name}", value)

    def hand(self, source: int, target: int, message: Any) -> None:
        with self._own_time():
            self.transports[target]._onMessageReceived(LabNode(str(source)), message)
        self.set(target, "raftElectionDeadline", FAR)

    def tick(self, node: int) -> None:
        with self._own_time():
            self.nodes[node].doTick(0)
        self.set(node, "raftElectionDeadline", FAR)

    def connect(self, node: int, peer: int) -> None:
        self.transports[node]._onNodeConnected(LabNode(str(peer)))

    def disconnect(self, node: int, peer: int) -> None:
        self.transports[node]._onNodeDisconnected(LabNode(str(peer)))

    def submit(self, node: int, text: str) -> None:
        self.nodes[node].put(text, callback=lambda result, reason: self.answers[text].append(reason))

    def elect(self, node: int, *among: int) -> None:
        self.campaign(node)
        self.flush()
        self.run(3, *among)
        assert self.nodes[node]._isLeader()

    def campaign(self, node: int) -> None:
        self.set(node, "raftElectionDeadline", 0)
        self.tick(node)

    def state(self, node: int) -> list[str]:
        return list(self.nodes[node].items)

    def log(self, node: int) -> list[tuple[int, int]]:
        return [(index, term) for _, index, term in self.get(node, "raftLog")[:]]

    def term(self, node: int) -> int:
        return int(self.nodes[node].raftCurrentTerm)

    def leads(self, node: int) -> bool:
        return bool(self.nodes[node]._isLeader())

    def compact(self, node: int) -> None:
        self.nodes[node].forceLogCompaction()

    def succeeded(self, text: str) -> bool:
        return library.FAIL_REASON.SUCCESS in self.answers[text]


class ListMachine(Registers):
    """Registers that remember the order of what was applied, snapshots included."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[str] = []

    def apply(self, index: RaftIndex, command: bytes) -> bytes:
        if command == b"!":
            raise ValueError("a command that no state machine survives")
        self.items.append(command.decode())
        return command

    def picture(self) -> Any:
        return tuple(self.items)

    def encode(self, picture: Any) -> Iterator[bytes]:
        yield "\n".join(picture).encode()

    def decode(self, pieces: Any) -> Any:
        return tuple(b"".join(pieces).decode().split("\n"))

    def install(self, index: RaftIndex, picture: Any) -> None:
        self.items = list(picture)


class Quiet:
    """A listener that does not listen."""

    def on_applied(self, index: RaftIndex, command: bytes | None) -> None:
        pass

    def on_restored(self, index: RaftIndex) -> None:
        pass


def directory(node: int) -> DirectoryId:
    return DirectoryId(bytes([node]) * 16)


class OurNode:
    """One hardened core on files in memory. `sync_disk` says when its journal becomes durable."""

    def __init__(self, lab: OurLab, node: int, bootstrap: VoterSet) -> None:
        self.files = InstantFiles()
        self.machine = ListMachine()
        self.journal = at_once(Journal.create(self.files, "/journal", directory(node)))
        self.store = SnapshotStore(self.files, InstantWorkers(), "", remedy="")
        self.membership = Membership(BrokerId(node), directory(node), bootstrap, RaftIndex(0), self.journal)
        self.outbox = Outbox(lambda peer, message: lab.post(node, peer, message) and None)
        self.core = HardenedSyncObj(
            BrokerId(node),
            journal=self.journal,
            membership=self.membership,
            store=self.store,
            outbox=self.outbox,
            machine=self.machine,
            listener=Quiet(),
            settings=lab.settings,
            clock=lab.clock,
            random=random.Random(f"lab/{node}"),
            probe=no_probe,
        )
        self.core.election_deadline = FAR


class OurLab(Lab):
    """The hardened core. Disks sync at the end of a tick, unless `slow_disks` names the node."""

    def __init__(self, size: int = 3, *, bootstrap: VoterSet | None = None, **settings: Any) -> None:
        super().__init__(size)
        self.settings = QuorumSettings(**{"election_timeout_max_ms": 10**9, "seal_after_ms": 10**9, **settings})
        self.slow_disks: set[int] = set()
        voters = bootstrap or VoterSet.of(voter(node) for node in self.ids)
        self.nodes = {node: OurNode(self, node, voters) for node in self.ids}
        for node in self.ids:
            for peer in self.ids:
                if node != peer:
                    self.connect(node, peer)

    def core(self, node: int) -> HardenedSyncObj:
        return self.nodes[node].core

    def hand(self, source: int, target: int, message: Any) -> None:
        self.core(target).receive(BrokerId(source), message)
        self.settle(target)

    def tick(self, node: int) -> None:
        while self.core(node).turn():
            pass
        self.settle(node)

    def settle(self, node: int) -> None:
        """The disk gets on, and what waited for it leaves."""
        parts = self.nodes[node]
        parts.journal.flush()
        if node not in self.slow_disks:
            at_once(parts.journal.sync())
        parts.outbox.release(parts.journal.durable)
        if self.core(node).role != Role.LEADER:
            self.core(node).election_deadline = FAR

    def sync_disk(self, node: int) -> None:
        """A slow disk finishes one sync."""
        at_once(self.nodes[node].journal.sync())
        self.nodes[node].outbox.release(self.nodes[node].journal.durable)

    def connect(self, node: int, peer: int) -> None:
        self.core(node).connect(BrokerId(peer), directory(peer))

    def disconnect(self, node: int, peer: int) -> None:
        self.core(node).disconnect(BrokerId(peer))
        self.core(node).election_deadline = FAR

    def submit(self, node: int, text: str, *, client_id: str = "", sequence: int = 0) -> None:
        self.core(node).proposals.submit(text.encode(), client_id, sequence, self.answers[text].append)

    def elect(self, node: int, *among: int) -> None:
        """Nobody has heard of a leader for long: this one asks first."""
        self.clock.now += 10
        self.campaign(node)
        self.flush()
        self.run(3, *among)
        assert self.core(node).role == Role.LEADER

    def campaign(self, node: int) -> None:
        self.core(node).election_deadline = 0
        self.tick(node)

    def state(self, node: int) -> list[str]:
        return list(self.nodes[node].machine.items)

    def log(self, node: int) -> list[tuple[int, int]]:
        journal = self.nodes[node].journal
        return [(entry.index, entry.term) for entry in journal.between(0, len(journal))]

    def term(self, node: int) -> int:
        return self.core(node).term

    def leads(self, node: int) -> bool:
        return self.core(node).role == Role.LEADER

    def compact(self, node: int, *, trailing: int = 0) -> None:
        """Take a snapshot and give up the log behind it."""
        parts = self.nodes[node]
        head = at_once(parts.core.snapshots.take(InstantWorkers()))
        at_once(parts.journal.compact(RaftIndex(head.last_index - trailing)))

    def install(self, node: int) -> None:
        """Put in place what has been received, if it is complete."""
        parts = self.nodes[node]
        if parts.store.has_received():
            content = at_once(parts.store.finish_receiving())
            if content is not None:
                parts.core.snapshots.install(content, parts.machine.decode(content.machine))
            parts.core.snapshots.answer_sender()
            self.settle(node)

    def succeeded(self, text: str) -> bool:
        return any(not isinstance(answer, Exception) for answer in self.answers[text])
