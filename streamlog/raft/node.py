"""RaftNode: one voter of the quorum, as used by the rest of the node. Its tasks are in runner.py.

Lifecycle: created -> `run` opens the files -> up -> stopped, or failed. Fail-stop: a disk error, a corrupt file, an
exception of the state machine or a broken invariant ends `run` with that exception, and pending callers get an error.
Everything acknowledged is durable at all times, so there is nothing to save at the end; `stop` only seals the journal,
which saves the next start some work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from streamlog.errors import QuorumUnavailableError, Status
from streamlog.metrics.histogram import Histogram
from streamlog.model import BrokerId, RaftIndex
from streamlog.ports import CallInfo, RpcError, Stream, StreamHandler
from streamlog.ports.bundle import Ports
from streamlog.raft import observers, transport
from streamlog.raft.core.library import RaftRole
from streamlog.raft.observers import ObserverHub
from streamlog.raft.open_storage import Owner, Storage, open_storage
from streamlog.raft.port import Applied, Leadership, Quorum, StateMachine
from streamlog.raft.runner import Runner
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import Voter, VoterSet


class QuorumConfig(Struct, frozen=True, kw_only=True):
    owner: Owner
    directory: str  # created if missing
    address: str  # of this node, as it is advertised to others: the settings may name an old one
    settings: QuorumSettings = field(default_factory=QuorumSettings)


class RaftNode:
    """Implements port.Quorum. `run` is called once; before it is up and after it has ended, requests are refused."""

    def __init__(self, config: QuorumConfig, machine: StateMachine[Any], ports: Ports) -> None:
        self._config = config
        self._machine = machine
        self._ports = ports
        self._hub = ObserverHub(
            machine,
            ports.workers,
            self.voters,
            self._quorum_silence_s,
            cluster_id=config.owner.cluster_id,
            settings=config.settings,
        )
        self._running: Runner | None = None
        self._stopping = asyncio.Event()
        self._up = asyncio.Event()

    async def run(self) -> None:
        """Run until `stop`, or an error that stops the node."""
        config, ports = self._config, self._ports
        storage = await open_storage(ports.fs, ports.workers, ports.random, config.directory, config.owner)
        try:
            self._running = running = await self._start(storage)
            self._up.set()
            await running.run(self._stopping)
        finally:
            self._running = None
            storage.close()

    async def _start(self, storage: Storage) -> Runner:
        config = self._config
        running = Runner(storage, self._machine, self._hub, self._ports, config.settings, config.address)
        if storage.snapshot is not None:
            picture = await self._ports.workers.run(self._machine.decode, storage.snapshot.machine)
            running.core.snapshots.install(storage.snapshot, picture)
        return running

    def stop(self) -> None:
        """End `run` cleanly. Transfer the leadership first (`transfer_leadership`)."""
        self._stopping.set()

    async def wait_until_up(self) -> None:
        """Wait until the files are open and the node takes part."""
        await self._up.wait()

    # For the node's one server.

    def streaming_handlers(self) -> Mapping[str, StreamHandler]:
        return {transport.METHOD: self._serve_peer, observers.METHOD: self._serve_observer}

    async def _serve_peer(self, stream: Stream, info: CallInfo) -> None:
        if self._running is None:
            raise RpcError(Status.UNAVAILABLE, "this node's quorum member is not running")
        await self._running.transport.serve(stream, info)

    async def _serve_observer(self, stream: Stream, info: CallInfo) -> None:
        if self._running is None:
            raise RpcError(Status.UNAVAILABLE, "this node's quorum member is not running")
        await self._hub.serve(stream, info)

    def _quorum_silence_s(self) -> float:
        return float("inf") if self._running is None else self._running.core.quorum_silence_s()

    # The port.

    async def propose(self, command: bytes, *, client_id: str = "", sequence: int = 0) -> Applied:
        running = self._need_running()
        return await running.ask(lambda done: running.core.proposals.submit(command, client_id, sequence, done))

    def submit(self, command: bytes) -> asyncio.Future[Applied]:
        running = self._need_running()
        return running.begin(lambda done: running.core.proposals.submit(command, "", 0, done))

    async def read_barrier(self) -> RaftIndex:
        running = self._need_running()
        return await running.ask(running.core.barriers.ask)

    async def add_voter(self, voter: Voter) -> RaftIndex:
        running = self._need_running()
        return await running.ask(lambda done: running.core.voter_changes.add(voter, done))

    async def remove_voter(self, node_id: BrokerId) -> RaftIndex:
        running = self._need_running()
        return await running.ask(lambda done: running.core.voter_changes.remove(node_id, done))

    async def replace_voter(self, node_id: BrokerId, voter: Voter) -> RaftIndex:
        running = self._need_running()
        return await running.ask(lambda done: running.core.voter_changes.replace(node_id, voter, done))

    async def transfer_leadership(self) -> None:
        running = self._need_running()
        core = running.core
        if core.role != RaftRole.LEADER:
            raise core.voter_sets.not_controller(core.leader_id)
        core.hand_over()
        running.wake()

    def leadership(self) -> Leadership:
        return self._need_running().leadership

    async def watch_leadership(self) -> AsyncIterator[Leadership]:
        running = self._need_running()
        while True:
            seen, changed = running.leadership, running.leadership_changed
            yield seen
            await changed.wait()
            if self._running is not running:
                return

    @property
    def applied_index(self) -> RaftIndex:
        return self._need_running().core.last_applied

    def voters(self) -> VoterSet:
        return self._need_running().core.voter_sets.voters

    def logged_voters(self) -> VoterSet:
        """The voters in effect by the log or a snapshot, or, before there is one, those that this node received at its
        first start: unlike those of its settings they do not include it. Empty while only the settings are known, or
        before the member runs.
        """
        if self._running is None:
            return VoterSet()
        sets, node_id = self._running.core.voter_sets, self._config.owner.node_id
        return sets.voters if sets.index > 0 or sets.voters.get(node_id) is None else VoterSet()

    def held(self) -> Mapping[BrokerId, RaftIndex]:
        core = self._need_running().core
        return core.replication.held() if core.role == RaftRole.LEADER else {}

    def commit_latency_s(self) -> Histogram:
        """Of the commands that this node has committed as leader, since its start."""
        return self._need_running().core.proposals.commit_latency_s

    def without_vote(self) -> Collection[BrokerId]:
        return self._need_running().core.without_vote()

    def want_snapshot(self) -> None:
        """Take a snapshot even if none is due."""
        running = self._need_running()
        running.core.snapshots.want()
        running.wake()

    def _need_running(self) -> Runner:
        if self._running is None:
            raise QuorumUnavailableError("this node's quorum member is not running")
        return self._running


if TYPE_CHECKING:
    _IMPLEMENTS: type[Quorum] = RaftNode
