"""PySyncObj as released, as the nodes of the same simulation: same faults, same clients, same demands in the end.

It is given the best of worlds: its disk loses nothing and takes no time (journal, term, vote and snapshot outlive any
crash), its messages come in order and are never repeated, nothing is retried, nothing read. What is left are the
faults of its core. Messages and snapshots are pickles, as it makes them.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from typing import Any

import pysyncobj.syncobj as library
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import MemoryJournal
from pysyncobj.transport import Transport

from streamlog.errors import NotControllerError, OutcomeUnknownError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.ports import CallInfo, Random, RpcError, Stream
from streamlog.ports.bundle import Ports
from streamlog.raft.core import library as window
from streamlog.raft.port import Applied, Leadership
from streamlog.raft.voters import VoterSet
from streamlog.sim import SimLoop
from streamlog.sim.world import Host

from ..kit import PORT, Member, voters
from ..library.plain_lab import LabNode
from .plan import Kind, Plan
from .rules import Rules
from .run import Simulation
from .truth import Truth, WatchedRegisters

METHOD = "/test.Untouched/Exchange"
TICK_S = 0.02


class UntouchedTransport(Transport):  # type: ignore[misc]  # the library has no types
    """A queue to each peer that is connected; what is queued when a stream breaks is dropped."""

    def __init__(self, obj: SyncObj, me: LabNode, others: list[LabNode]) -> None:
        super().__init__(obj, me, others)
        self.queues: dict[str, tuple[deque[bytes], asyncio.Event]] = {}

    def addNode(self, node: LabNode) -> None:
        pass

    def dropNode(self, node: LabNode) -> None:
        pass

    def send(self, node: LabNode, message: Any) -> bool:
        if node.id not in self.queues:
            return False
        queue, filled = self.queues[node.id]
        queue.append(pickle.dumps(message))
        filled.set()
        return True


class Disk:
    """What outlives a process."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.snapshot: bytes | None = None


class UntouchedObj(SyncObj):  # type: ignore[misc]  # the library has no types
    """Its core, with its own journal; a command is the text that the machine gets."""

    def __init__(
        self,
        node_id: int,
        peers: list[int],
        machine: WatchedRegisters,
        disk: Disk,
        random: Random,
        batch_bytes: int,
    ) -> None:
        conf = SyncObjConf(
            appendEntriesBatchSizeBytes=batch_bytes,
            autoTick=False,
            raftMinTimeout=0.3,
            raftMaxTimeout=0.6,
            appendEntriesPeriod=0.09,
            leaderFallbackTimeout=0.6,
            useFork=False,
            logCompactionMinEntries=10**9,
            logCompactionMinTime=10**9,
        )
        self._machine = machine
        self._disk = disk
        self._random = random
        create, library.createJournal = library.createJournal, lambda path: disk.journal
        try:
            others = [LabNode(str(peer)) for peer in peers]
            super().__init__(LabNode(str(node_id)), others, conf, transportClass=UntouchedTransport)
        finally:
            library.createJournal = create
        self.saved = machine.picture()  # not there while it was made, hence part of its snapshots
        if disk.snapshot is not None:
            self._SyncObj__serializer._Serializer__inMemorySerializedData = disk.snapshot
            self._SyncObj__loadDumpFile(clearJournal=False)

    def _SyncObj__generateRaftTimeout(self) -> float:
        return self._random.uniform(0.3, 0.6)  # as it does, but from the seed

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        super()._SyncObj__loadDumpFile(clearJournal)
        self._machine.install(RaftIndex(self.raftLastApplied), self.saved)

    def doTick(self, timeToWait: float = 0.0) -> None:
        super().doTick(timeToWait)
        self._disk.snapshot = self._SyncObj__serializer._Serializer__inMemorySerializedData

    def _SyncObj__doApplyCommand(self, command: bytes) -> RaftIndex | None:
        if command[0] != library._COMMAND_TYPE.REGULAR:
            return None
        index = RaftIndex(self.raftLastApplied + 1)
        self._machine.apply(index, pickle.loads(command[1:])[1][0].encode())
        self.saved = self._machine.picture()
        return index


class UntouchedRaft:
    """As much of the port as the simulation asks for."""

    def __init__(self, obj: UntouchedObj, bootstrap: VoterSet) -> None:
        self._obj = obj
        self._bootstrap = bootstrap
        self.woken = asyncio.Event()

    async def propose(self, command: bytes, *, client_id: str = "", sequence: int = 0) -> Applied:
        if not self._obj._isLeader():
            raise NotControllerError("not the leader")
        future: asyncio.Future[RaftIndex] = asyncio.get_running_loop().create_future()

        def settle(index: RaftIndex | None, reason: int) -> None:
            if not future.done() and reason == library.FAIL_REASON.SUCCESS and index is not None:
                future.set_result(index)
            elif not future.done():
                future.set_exception(OutcomeUnknownError(f"reason {reason}"))

        self._obj._applyCommand(pickle.dumps((0, (command.decode(),))), settle, library._COMMAND_TYPE.REGULAR)
        self.woken.set()
        return Applied(index=await future, result=b"")

    def leadership(self) -> Leadership:
        leader = self._obj._getLeader()
        leads = self._obj._isLeader()
        return Leadership(
            term=RaftTerm(self._obj.raftCurrentTerm),
            leader=None if leader is None else BrokerId(int(leader.id)),
            address=None,
            is_self=leads,
            is_ready=leads,
        )

    @property
    def applied_index(self) -> RaftIndex:
        return RaftIndex(self._obj.raftLastApplied)

    def voters(self) -> VoterSet:
        return self._bootstrap

    def want_snapshot(self) -> None:
        self._obj.forceLogCompaction()

    async def transfer_leadership(self) -> None:
        pass


class UntouchedMember(Member):
    """A process of one member: ticks, and a stream to each peer for what it sends."""

    def __init__(self, node_id: int, plan: Plan, ports: Ports, truth: Truth, disk: Disk) -> None:
        size = plan.size
        self._batch_bytes = plan.settings.append_bytes_max
        self.node_id = node_id
        self.machine = self._registers = WatchedRegisters(node_id, truth)
        self._ports = ports
        self._peers = [peer for peer in range(1, size + 1) if peer != node_id]
        self._bootstrap = voters(*range(1, size + 1))
        self._disk = disk
        self._truth = truth
        self._inbound: dict[str, int] = {}
        self._obj: UntouchedObj | None = None

    @property
    def is_up(self) -> bool:
        return self._obj is not None

    async def run(self) -> None:
        window._NOW.set(self._ports.clock.monotonic)  # for all tasks that begin here
        self._obj = UntouchedObj(
            self.node_id, self._peers, self._registers, self._disk, self._ports.random, self._batch_bytes
        )
        self._untouched = UntouchedRaft(self._obj, self._bootstrap)
        self.raft = self._untouched  # type: ignore[assignment]  # as much as is asked for
        await self._ports.network.listen(f"n{self.node_id}:{PORT}", unary={}, streaming={METHOD: self._serve})
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick())
            for peer in self._peers:
                group.create_task(self._dial(peer))

    async def _tick(self) -> None:
        assert self._obj is not None
        while True:
            self._untouched.woken.clear()
            self._obj.doTick(0)
            if self._obj._isLeader():
                self._truth.leads(f"n{self.node_id}", self._obj.raftCurrentTerm)
            try:
                async with asyncio.timeout(TICK_S):
                    await self._untouched.woken.wait()
            except TimeoutError:
                pass

    async def _dial(self, peer: int) -> None:
        assert self._obj is not None
        transport, channel = self._obj._SyncObj__transport, self._ports.network.connect(f"n{peer}:{PORT}")
        while True:
            try:
                async with channel.stream(METHOD) as stream:
                    await stream.send(str(self.node_id).encode())
                    queue: deque[bytes] = deque()
                    filled = asyncio.Event()
                    transport.queues[str(peer)] = queue, filled
                    transport._onNodeConnected(LabNode(str(peer)))
                    while True:
                        while queue:
                            await stream.send(queue.popleft())
                        filled.clear()
                        await filled.wait()
            except RpcError:
                pass
            finally:
                if transport.queues.pop(str(peer), None) is not None:
                    transport._onNodeDisconnected(LabNode(str(peer)))
            await asyncio.sleep(0.05)

    async def _serve(self, stream: Stream, info: CallInfo) -> None:
        assert self._obj is not None
        window._NOW.set(self._ports.clock.monotonic)
        peer = (await stream.recv() or b"").decode()
        mine = self._inbound[peer] = self._inbound.get(peer, 0) + 1
        while (data := await stream.recv()) is not None and self._inbound[peer] == mine:
            self._obj._SyncObj__transport._onMessageReceived(LabNode(peer), pickle.loads(data))
            self._untouched.woken.set()


class NoRules(Rules):
    """Those that look into our core do not apply; what all nodes must agree on does (truth)."""

    def on_event(self, host: Host, event: str, fields: dict[str, object]) -> None:
        pass

    def check_now(self) -> None:
        pass

    def _majority_has(self, node_id: int, index: int) -> bool:
        return True


class UntouchedSimulation(Simulation):
    RETRIES = False
    WRITES = 1.0
    LEFT_OUT = frozenset({Kind.TRANSFER, Kind.DEPOSE, Kind.DISK_ERROR})

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(plan, loop)
        self._disks = {node_id: Disk() for node_id in self.nodes}

    def start(self, node_id: int) -> None:
        host = self.cluster.host(node_id)
        if not host.alive:
            plan, truth, disk = self.plan, self.truth, self._disks[node_id]
            host.start(lambda ports: UntouchedMember(node_id, plan, ports, truth, disk))

    def crash(self, node_id: int, *, power: bool) -> None:
        host = self.cluster.host(node_id)
        if host.alive:
            self.look_at_tasks()
            (host.power_cut if power else host.crash)()

    def make_rules(self) -> Rules:
        return NoRules(self.cluster)
