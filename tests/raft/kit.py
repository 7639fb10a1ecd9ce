"""What the quorum's tests have in common: a node with a server, a cluster in virtual time."""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from streamlog.errors import NotControllerError, OutcomeUnknownError, QuorumUnavailableError
from streamlog.model import BrokerId
from streamlog.ports.bundle import Ports
from streamlog.raft.core.syncobj import HardenedSyncObj
from streamlog.raft.node import QuorumConfig, RaftNode
from streamlog.raft.open_storage import Owner
from streamlog.raft.port import Applied
from streamlog.raft.runner import Runner
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import Voter, VoterSet
from streamlog.sim.world import Host, World

from .registers import Registers

PORT = 9092
DIRECTORY = "/data/quorum"


def voter(node_id: int) -> Voter:
    return Voter(node_id=BrokerId(node_id), address=f"n{node_id}:{PORT}")


def voters(*node_ids: int) -> VoterSet:
    return VoterSet.of(map(voter, node_ids))


class Member:
    """A process of one member: the node and the server in front of it."""

    def __init__(
        self,
        node_id: int,
        bootstrap: VoterSet,
        ports: Ports,
        settings: QuorumSettings,
        machine: Registers | None = None,
        *,
        address: str | None = None,
    ) -> None:
        """`address`: advertised; None: where it listens."""
        self.node_id = node_id
        self.machine = machine or Registers()
        self._ports = ports
        owner = Owner(cluster_id="test", node_id=BrokerId(node_id), voters=bootstrap)
        advertised = address or f"n{node_id}:{PORT}"
        config = QuorumConfig(owner=owner, directory=DIRECTORY, address=advertised, settings=settings)
        self.raft = RaftNode(config, self.machine, ports)

    async def run(self) -> None:
        server = await self._ports.network.listen(
            f"n{self.node_id}:{PORT}", unary={}, streaming=self.raft.streaming_handlers()
        )
        try:
            await self.raft.run()
        finally:
            await server.close()

    @property
    def is_up(self) -> bool:
        return self.raft._running is not None

    @property
    def runner(self) -> Runner:
        assert self.raft._running is not None
        return self.raft._running

    @property
    def core(self) -> HardenedSyncObj:
        return self.runner.core


class Cluster(Struct):
    """Members of one quorum on the hosts of a world."""

    world: World
    size: int = 3
    settings: QuorumSettings = field(default_factory=QuorumSettings)

    def host(self, node_id: int) -> Host:
        return self.world.host(f"n{node_id}")

    def start(self, *node_ids: int, bootstrap: VoterSet | None = None, address: str | None = None) -> None:
        """Boot these; all of them when none is named."""
        for node_id in node_ids or range(1, self.size + 1):
            first = voters(*range(1, self.size + 1)) if bootstrap is None else bootstrap

            def make(ports: Ports, node_id: int = node_id, first: VoterSet = first) -> Member:
                return Member(node_id, first, ports, self.settings, address=address)

            self.host(node_id).start(make)

    def member(self, node_id: int) -> Member:
        node = self.host(node_id).node
        assert isinstance(node, Member)
        return node

    def member_on(self, host: Host) -> Member | None:
        """Of a dead process too; None where its quorum was not up."""
        node = host.node
        return node if isinstance(node, Member) and node.is_up else None

    def members(self) -> list[Member]:
        """Those whose quorum is up."""
        members = [self.member_on(host) for host in self.world.hosts.values() if host.alive]
        return [member for member in members if member is not None]

    def leader(self) -> Member | None:
        """Who leads the highest term."""
        leaders = [member for member in self.members() if member.raft.leadership().is_ready]
        return max(leaders, key=lambda member: member.raft.leadership().term, default=None)

    async def wait_for_leader(self, *, other_than: int | None = None, within_s: float = 10.0) -> Member:
        async with asyncio.timeout(within_s):
            while True:
                leader = self.leader()
                if leader is not None and leader.node_id != other_than:
                    return leader
                await asyncio.sleep(0.01)

    async def put(self, text: str, *, client_id: str = "", sequence: int = 0, within_s: float = 10.0) -> Applied:
        """Propose at the leader, and again, with the same id, until it is carried out."""
        async with asyncio.timeout(within_s):
            while True:
                leader = await self.wait_for_leader()
                try:
                    return await self.call(
                        leader, leader.raft.propose(text.encode(), client_id=client_id, sequence=sequence)
                    )
                except (NotControllerError, OutcomeUnknownError, QuorumUnavailableError):
                    await asyncio.sleep(0.02)

    async def call(self, member: Member, request):  # type: ignore[no-untyped-def]
        """Make a request as the member's own process; OutcomeUnknownError when that dies meanwhile."""
        host = self.host(member.node_id)
        assert host.process is not None
        death = asyncio.get_running_loop().create_future()
        host.process.on_death(lambda: None if death.done() else death.set_result(None))
        task = host.spawn(request)
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise OutcomeUnknownError("the process died")
        death.cancel()
        return task.result()

    async def settle(self, index: int | None = None, *, within_s: float = 10.0) -> None:
        """Wait until all members that run have applied what the leader has, or up to `index`."""
        async with asyncio.timeout(within_s):
            while True:
                wanted = index or max((member.raft.applied_index for member in self.members()), default=0)
                if all(member.raft.applied_index >= wanted for member in self.members()):
                    return
                await asyncio.sleep(0.02)
