"""The laboratory of the hardened core."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from streamlog.model import BrokerId, RaftIndex
from streamlog.ports import no_probe
from streamlog.raft.core.library import RaftRole
from streamlog.raft.core.outbox import Outbox
from streamlog.raft.core.syncobj import HardenedSyncObj
from streamlog.raft.core.voter_set_history import VoterSetHistory
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.storage.journal import Journal
from streamlog.raft.storage.snapshot_file import SnapshotContent
from streamlog.raft.storage.snapshot_store import SnapshotStore
from streamlog.raft.voters import DirectoryId, VoterSet

from ..instant_disk import InstantFiles, InstantWorkers, at_once
from ..kit import voter
from ..registers import Registers
from .lab import FAR, Lab


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


def _forget(_: object) -> None:
    """Whether it was delivered is unknown to the sender."""


class OurNode:
    """One hardened core on files in memory. `sync_disk` says when its journal becomes durable."""

    def __init__(self, lab: OurLab, node: int, bootstrap: VoterSet, disk: DirectoryId) -> None:
        self.files = InstantFiles()
        self.machine = ListMachine()
        self.journal = at_once(Journal.create(self.files, "/journal", disk))
        self.store = SnapshotStore(self.files, InstantWorkers(), "", remedy="")
        self.voter_sets = VoterSetHistory(BrokerId(node), disk, bootstrap, RaftIndex(0), self.journal)
        self.outbox = Outbox(lambda peer, message: _forget(lab.post(node, peer, message)))
        self.core = HardenedSyncObj(
            BrokerId(node),
            journal=self.journal,
            voter_sets=self.voter_sets,
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
        self.bootstrap = bootstrap or VoterSet.of(voter(node) for node in self.ids)
        self.nodes = {node: OurNode(self, node, self.bootstrap, directory(node)) for node in self.ids}
        for node in self.ids:
            for peer in self.ids:
                if node != peer:
                    self.connect(node, peer)
        for node in self.ids:
            self.settle(node)
        self.flush()  # who votes in whose view

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
        if self.core(node).role != RaftRole.LEADER:
            self.core(node).election_deadline = FAR

    def sync_disk(self, node: int) -> None:
        """A slow disk finishes one sync."""
        at_once(self.nodes[node].journal.sync())
        self.nodes[node].outbox.release(self.nodes[node].journal.durable)

    def connect(self, node: int, peer: int) -> None:
        self.core(node).connect(BrokerId(peer), self.nodes[peer].journal.directory_id)

    def lose_disk(self, node: int) -> None:
        """It comes back with an empty one. Heal its links then."""
        self.partition([node], [peer for peer in self.ids if peer != node])
        self.nodes[node] = OurNode(self, node, self.bootstrap, directory(100 + node))

    def disconnect(self, node: int, peer: int) -> None:
        self.core(node).disconnect(BrokerId(peer))
        self.core(node).election_deadline = FAR

    def submit(self, node: int, text: str, *, client_id: str = "", sequence: int = 0) -> None:
        self.core(node).proposals.submit(text.encode(), client_id, sequence, self.answers[text].append)

    def elect(self, node: int, *among: int) -> None:
        """No node has had a leader for long: this one requests pre-votes first."""
        self.clock.now += 10
        self.campaign(node)
        self.flush()
        self.run(3, *among)
        assert self.core(node).role == RaftRole.LEADER

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
        return self.core(node).role == RaftRole.LEADER

    def compact(self, node: int, *, trailing: int = 0) -> None:
        """Take a snapshot and give up the log behind it."""
        parts = self.nodes[node]
        head = at_once(parts.core.snapshots.take(InstantWorkers()))
        at_once(parts.journal.compact(RaftIndex(head.last_index - trailing)))

    def install(self, node: int) -> None:
        """Put in place what has been received, if it is complete."""
        parts = self.nodes[node]
        if parts.store.has_received():

            async def decode(content: SnapshotContent) -> Any:
                return parts.machine.decode(content.machine)

            received = at_once(parts.store.finish_receiving(decode))
            if received is not None:
                parts.core.snapshots.install(*received)
            parts.core.snapshots.answer_sender()
            self.settle(node)

    def succeeded(self, text: str) -> bool:
        return any(not isinstance(answer, Exception) for answer in self.answers[text])
