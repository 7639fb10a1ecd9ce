"""The laboratory of the untouched PySyncObj."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pysyncobj.syncobj as library
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from streamlog.raft.core import library as window

from .lab import FAR, Lab


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
