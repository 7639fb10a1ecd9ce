"""One seed: a cluster, its clients and its faults; then all is healed, and everything must come together."""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections import Counter

from msgspec import Struct, field

from streamlog.errors import StorageError, StreamlogError
from streamlog.ports.bundle import Ports
from streamlog.sim import Order, SimDisk, SimError, SimLoop, run
from streamlog.sim.world import TIMER_JITTER_S, Host, World

from ..kit import Cluster, Member, voters
from . import history
from .nemesis import Nemesis
from .plan import FAULTS_S, Kind, Plan, make_plan
from .rules import Rules
from .truth import WatchedRegisters
from .workload import Changer, Client

CLIENTS = 2
HEALING_S = 12.0
"""After the last fault all must be well within this time."""
KEEPALIVE_S = 0.8
CONNECT_S = 0.3
"""Shorter than in the real world, as everything here is."""


class Report(Struct):
    seed: int
    problems: list[str] = field(default_factory=list)
    stats: Counter[str] = field(default_factory=Counter)
    fingerprint: int = 0  # equal in every process: what makes a seed a reproduction

    @property
    def ok(self) -> bool:
        return not self.problems


class Simulation:
    RETRIES = True  # clients ask again under the same id
    WRITES = 0.65  # share of their operations
    LEFT_OUT: frozenset[Kind] = frozenset()  # faults that are not made

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.world = World(loop, f"raft/{plan.seed}")
        self.world.fabric.keepalive_s = KEEPALIVE_S
        self.world.fabric.server_keepalive_s = 3 * KEEPALIVE_S
        self.world.fabric.connect_s = CONNECT_S
        self.world.listeners.append(self._on_event)
        self.cluster = Cluster(self.world, plan.size, plan.settings)
        self.rules = self.make_rules()
        self.truth = self.rules.truth
        self.stats: Counter[str] = Counter()
        self.nodes = range(1, plan.size + plan.spares + 1)
        self.clients = [
            Client(
                f"c{n}",
                self.cluster,
                self.world.stream(f"client/{n}"),
                lambda: loop.now,
                self.truth,
                writes=self.WRITES,
                retries=self.RETRIES,
            )
            for n in range(CLIENTS)
        ]
        self._changer = Changer(
            self.cluster,
            self.world.stream("changer"),
            lambda: loop.now,
            len(self.nodes),
            self._wipe if plan.wipes else None,
        )

    def make_rules(self) -> Rules:
        return Rules(self.cluster)

    # Nodes.

    def start(self, node_id: int) -> None:
        host = self.cluster.host(node_id)
        if host.alive:
            return
        host.disk.faults.slow = 1.0
        first = voters(*range(1, self.plan.size + 1))

        def make(ports: Ports) -> Member:
            return Member(node_id, first, ports, self.plan.settings, WatchedRegisters(node_id, self.truth))

        host.start(make)

    def _on_event(self, host: Host, event: str, fields: dict[str, object]) -> None:
        self.stats[event] += 1
        self.rules.on_event(host, event, fields)

    def crash(self, node_id: int, *, power: bool) -> None:
        host = self.cluster.host(node_id)
        if not host.alive:
            return
        self.look_at_tasks()
        member = host.node
        if isinstance(member, Member) and member.is_up:
            self.truth.went_down(host.name, self.rules.promise_of(member))
        (host.power_cut if power else host.crash)()

    def look_at_tasks(self) -> None:
        """A node that ended by itself is a problem, unless its disk had failed."""
        for host in self.world.hosts.values():
            task = host.task
            if host.alive and task is not None and task.done() and not task.cancelled():
                error = task.exception()
                if isinstance(error, StorageError) and error.details["errno"] == errno.EIO:
                    self.crash_failed(host)
                else:
                    self.truth.wrong(f"{host.name} ended with {error!r}")

    def crash_failed(self, host: Host) -> None:
        """Its disk has failed, and it stopped, as it must."""
        self.stats["stopped by its disk"] += 1
        self.truth.went_down(host.name)
        host.power_cut()

    def check_now(self) -> None:
        self.look_at_tasks()
        self.rules.check_now()

    def _wipe(self, node_id: int) -> None:
        """It goes down, and comes back with an empty disk under its old name."""
        self.stats["wiped"] += 1
        self.crash(node_id, power=True)
        host = self.cluster.host(node_id)
        self.truth.lost_disk(host.name)
        host.disk = SimDisk(self.world.stream(f"disk/{host.name}/2"))
        self.start(node_id)

    # The run.

    async def run(self) -> None:
        for node_id in self.nodes:
            self.start(node_id)
        async with asyncio.TaskGroup() as group:
            group.create_task(Nemesis(self).run())
            for client in self.clients:
                group.create_task(client.run(FAULTS_S))
            if self.plan.changes_voters:
                group.create_task(self._changer.run(FAULTS_S))
        self.check_now()
        self.heal()
        await self._come_together()
        self.check_now()
        operations = [operation for client in self.clients for operation in client.operations]
        self.truth.check_acknowledged(operations)
        for problem in history.violations(operations):
            self.truth.wrong(f"not linearizable: {problem}")
        self.stats["operations"] += len(operations)
        self.stats["completed"] += sum(operation.completed < history.NEVER for operation in operations)
        self.stats["voter changes"] += self._changer.done
        self.world.stop()

    def heal(self) -> None:
        self.world.fabric.heal()
        self.world.fabric.slow = 1.0
        for node_id in self.nodes:
            self.cluster.host(node_id).resume()
            self.start(node_id)

    async def _come_together(self) -> None:
        """A leader, a write by each client, all nodes that vote with the same state: within HEALING_S."""
        try:
            async with asyncio.timeout(HEALING_S):
                await self._changer.until_replaced()
                for client in self.clients:
                    while (await client.one()).completed == history.NEVER:
                        pass
                while not self._is_one():  # noqa: ASYNC110  the nodes do not know that they are watched
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self.look_at_tasks()
            states = [(m.node_id, str(m.raft.leadership()), m.raft.applied_index) for m in self.cluster.members()]
            self.truth.wrong(f"did not come together: {states}")

    def _is_one(self) -> bool:
        leader = self.cluster.leader()
        if leader is None:
            return False
        ids = [v.node_id for v in leader.raft.voters()]
        following = [member for member in self.cluster.members() if member.node_id in ids]
        states = [(member.machine.count, member.machine.digest) for member in following]
        return len(following) == len(ids) and all(state == states[0] for state in states)


def simulate(seed: int, plan: Plan | None = None, kind: type[Simulation] = Simulation) -> Report:
    """Run one seed. Problems are reported, not raised."""
    plan = plan or make_plan(seed)
    report = Report(seed)
    box: list[Simulation] = []

    async def main(loop: SimLoop) -> None:
        box.append(kind(plan, loop))
        await box[0].run()

    try:
        run(
            main,
            seed=f"raft/{seed}",
            order=Order.FIFO if plan.fifo else Order.SHUFFLE,
            until_s=FAULTS_S + HEALING_S + 30,
            jitter_s=TIMER_JITTER_S,
            strict=False,
        )
    except (SimError, TimeoutError, StreamlogError) as error:
        report.problems.append(f"the simulation ended with {error!r}")
    simulation = box[0]
    report.problems += simulation.truth.problems
    report.stats = simulation.stats
    report.stats["callbacks"] = simulation.loop.steps
    report.stats["virtual ms"] = int(simulation.loop.now * 1000)
    facts = (simulation.loop.steps, simulation.loop.now, sorted(simulation.truth.commands.items()))
    report.fingerprint = zlib.crc32(repr(facts).encode())
    return report
