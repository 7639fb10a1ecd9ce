"""One seed: a cluster, its clients and its faults; then all is healed, and everything must come together."""

from __future__ import annotations

import asyncio
import errno
import random
import zlib
from collections import Counter
from dataclasses import dataclass, field

from streamlog.errors import StorageError, StreamlogError
from streamlog.model import BrokerId
from streamlog.ports.bundle import Ports
from streamlog.raft.entries import EntryKind
from streamlog.raft.library import Role
from streamlog.raft.messages import AppendReply, Message, VoteReply, VoteRequest
from streamlog.raft.voters import Voter
from streamlog.sim import Order, SimDisk, SimError, SimLoop, run
from streamlog.sim.world import TIMER_JITTER_S, Host, World

from ..kit import Cluster, Member, voters
from . import history
from .plan import FAULTS_S, LEADER, Fault, Kind, Plan, make_plan
from .truth import Promise, Truth, WatchedRegisters
from .workload import Changer, Client

CLIENTS = 2
HEALING_S = 12.0
"""After the last fault all must be well within this time."""
KEEPALIVE_S = 0.8
CONNECT_S = 0.3
"""Shorter than in the real world, as everything here is."""
OUTBOX_MAX = 5_000
MARGIN_S = 0.25
"""Beyond the longest silence that may be, after which a leader must have noticed that it is alone."""


@dataclass(slots=True)
class Report:
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
        self.world.fabric.connect_s = CONNECT_S
        self.world.listeners.append(self._on_event)
        self.truth = Truth(self._majority_has)
        self.cluster = Cluster(self.world, plan.size, plan.settings)
        self.stats: Counter[str] = Counter()
        self._nodes = range(1, plan.size + plan.spares + 1)
        self._clients = [
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
            len(self._nodes),
            self._wipe if plan.wipes else None,
        )

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
        member = host.node
        if not isinstance(member, Member) or not member.is_up:
            return
        core = member.core
        if event == "became_leader":
            self.truth.leads(host.name, core.term)
            self._check_votes(member)
        elif event == "quorum_up":
            self.truth.came_up(host.name, core.log.term, core.log.vote, core.log.between(0, len(core.log)))
            self._listen_to(member)
        elif event == "quorum_voters" and core.role == Role.LEADER:
            self._check_change(member)

    def _listen_to(self, member: Member) -> None:
        """Hear what it tells others, as it leaves."""
        outbox, log = member.raft._running._outbox, member.core.log
        deliver, host = outbox._deliver, f"n{member.node_id}"

        def overheard(peer: BrokerId, message: Message) -> None:
            match message:
                case VoteRequest(term=term):
                    self.truth.told(host, Promise(term, member.node_id, 0, 0))
                case VoteReply(term=term, granted=True):
                    self.truth.told(host, Promise(term, peer, 0, 0))
                    self.truth.voted(member.node_id, peer, term)
                case AppendReply(term=term, matched=True, next_index=end):
                    self.truth.told(host, Promise(term, None, end - 1, log.term_at(end - 1) or 0))
            deliver(peer, message)

        outbox._deliver = overheard

    # Rules that are checked when something happens.

    def _check_votes(self, member: Member) -> None:
        """It leads: a majority of its voters has told it so, each from the directory that is meant."""
        core = member.core
        voted = self.truth.voters_of(member.node_id, core.term)
        counted = [v for v in core.membership.voters if v.node_id in voted and self._is_directory_of(v)]
        if len(counted) < core.membership.majority:
            self.truth.wrong(f"node {member.node_id} leads term {core.term} with the votes of {sorted(voted)}")

    def _is_directory_of(self, voter: Voter) -> bool:
        node = self.cluster.host(voter.node_id).node
        if not isinstance(node, Member) or not node.is_up:
            return True
        return voter.is_directory(node.core.log.directory_id)

    def _check_change(self, member: Member) -> None:
        """A leader has put other voters into its log (thesis, 4.1, with the correction of 2015)."""
        core = member.core
        own = core.no_op_index
        if own is None or own > core.commit_index:
            self.truth.wrong(f"node {member.node_id} changes the voters before it has committed an entry of its term")
        log = core.log.between(0, len(core.log))
        pending = [e.index for e in log if e.kind == EntryKind.VOTERS and e.index > core.commit_index]
        if len([index for index in pending if index > own]) > 1:
            self.truth.wrong(f"node {member.node_id} changes the voters at {pending}, none of them committed")

    def _majority_has(self, node_id: int, index: int) -> bool:
        """Whether a majority has entry `index` of this node on stable storage: of one of the sets that it knows of.

        A follower may know of later voters than those by whom the leader committed the entry.
        """
        core = self.cluster.member(node_id).core
        term = core.log.term_at(index)
        return any(
            sum(self._is_directory_of(v) and self._holds(v.node_id, index, term) for v in voters) >= voters.majority
            for _, voters in core.membership._history
        )

    def _holds(self, node_id: int, index: int, term: int | None) -> bool:
        host = self.cluster.host(node_id)
        node = host.node
        if not host.alive or not isinstance(node, Member) or not node.is_up:
            return self.truth.durable_index_of(host.name) >= index
        log = node.core.log
        return log.base.index >= index or (log.durable_index >= index and log.term_at(index) == term)

    def crash(self, node_id: int, *, power: bool) -> None:
        host = self.cluster.host(node_id)
        if not host.alive:
            return
        self.look_at_tasks()
        member = host.node
        if isinstance(member, Member) and member.is_up:
            journal = member.core.log
            index = journal.durable_index
            if journal.durable == journal.written:  # else term and vote are of a change that was not promised yet
                promise = Promise(journal.term, journal.vote, index, journal.term_at(index) or 0)
            else:
                promise = Promise(0, None, index, journal.term_at(index) or 0)
            self.truth.went_down(host.name, promise)
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
        host.power_cut()

    def check_now(self) -> None:
        self.look_at_tasks()
        logs = []
        for member in self.cluster.members():
            journal = member.core.log
            logs.append((member.node_id, journal.between(0, len(journal))))
            self._check_member(member)
        self.truth.compare_logs(logs)
        self._compare_sessions()

    def _check_member(self, member: Member) -> None:
        core, runner = member.core, member.raft._running
        if runner._outbox.count() > OUTBOX_MAX:
            self.truth.wrong(f"node {member.node_id} has {runner._outbox.count()} messages waiting")
        if runner.callers and core.role != Role.LEADER:
            self.truth.wrong(f"node {member.node_id} lets {runner.callers} callers wait, and does not lead")
        log = core.log.between(1, len(core.log))
        latest = next((e for e in reversed(log) if e.kind == EntryKind.VOTERS), None)
        if latest is not None and core.membership.index != latest.index:
            self.truth.wrong(f"node {member.node_id} does not go by the voters of entry {latest.index}")

    def _compare_sessions(self) -> None:
        """Equal index, equal memory of the clients."""
        seen: dict[int, tuple[int, object]] = {}
        for member in self.cluster.members():
            core = member.core
            clients = [(name, client.answers) for name, client in core.applier.sessions._clients.items()]
            node_id, first = seen.setdefault(core.last_applied, (member.node_id, clients))
            if clients != first:
                self.truth.wrong(f"nodes {node_id} and {member.node_id} remember other clients at {core.last_applied}")

    # Faults.

    async def nemesis(self) -> None:
        async with asyncio.TaskGroup() as group:
            for fault in self.plan.faults:
                await asyncio.sleep(max(0.0, fault.at_s - self.loop.now))
                self.check_now()
                if fault.kind not in self.LEFT_OUT:
                    group.create_task(self._strike(fault))

    def _target(self, fault: Fault) -> int:
        if fault.target != LEADER:
            return fault.target
        leader = self.cluster.leader()
        return fault.other if leader is None else leader.node_id

    async def _strike(self, fault: Fault) -> None:
        target = self._target(fault)
        other = fault.other if fault.other != target else target % len(self._nodes) + 1
        host, fabric = self.cluster.host(target), self.world.fabric
        self.stats[fault.kind.name.lower()] += 1
        match fault.kind:
            case Kind.CRASH | Kind.POWER_CUT:
                self.crash(target, power=fault.kind is Kind.POWER_CUT)
                await asyncio.sleep(fault.lasts_s)
                self.start(target)
            case Kind.BLACKOUT:
                await self._black_out(fault)
            case Kind.ONE_WAY_CUT:
                await self._cut([(f"n{target}", f"n{other}")], fault.lasts_s)
            case Kind.ISOLATE:
                others = [node_id for node_id in self._nodes if node_id != target]
                ways = [(f"n{target}", f"n{o}") for o in others], [(f"n{o}", f"n{target}") for o in others]
                await self._cut(ways[0] if fault.amount < 0.3 else [*ways[0], *ways[1]], fault.lasts_s)
            case Kind.RESET:
                fabric.reset(f"n{target}", f"n{other}")
            case Kind.SLOW_NETWORK:
                fabric.slow = 1 + 20 * fault.amount
                await asyncio.sleep(fault.lasts_s)
                fabric.slow = 1.0
            case Kind.SLOW_DISK:
                host.disk.faults.slow = 1 + 100 * fault.amount
                await asyncio.sleep(fault.lasts_s)
                host.disk.faults.slow = 1.0
            case Kind.DISK_ERROR:
                host.disk.faults.sync_errors = 1
                await asyncio.sleep(fault.lasts_s)
                host.disk.faults.sync_errors = 0
                self.look_at_tasks()
                self.start(target)
            case Kind.PAUSE:
                host.pause()
                await asyncio.sleep(fault.lasts_s)
                host.resume()
            case Kind.SNAPSHOT:
                for member in self.cluster.members():
                    if fault.amount < 0.5 or member.node_id == target:
                        member.raft.want_snapshot()
            case Kind.CLOCK_JUMP:
                host.clock.jump_ms += int((fault.amount - 0.5) * 7_200_000)
            case Kind.TRANSFER:
                await self._transfer()
            case Kind.DEPOSE:
                await self._depose(target)

    async def _depose(self, node_id: int) -> None:
        """A leader that hears nobody may answer reads for as long as nobody else is elected, and soon not at all."""
        host = self.cluster.host(node_id)
        leader = self.cluster.leader()
        if leader is None or leader.node_id != node_id:
            return
        term, until = leader.core.term, self.loop.now + self.plan.settings.patience_max_ms / 1000 + MARGIN_S
        others = [f"n{other}" for other in self._nodes if other != node_id]
        links = [(host.name, other) for other in others] + [(other, host.name) for other in others]
        for source, target in links:
            self.world.fabric.block(source, target)
        since = self.loop.now
        await self._clients[0].read_from(leader, until)
        undisturbed = all(self.world.fabric.blocked.get(link) == since for link in links)
        runs = host.node is leader and leader.is_up and host.process is not None
        runs = runs and host.process.alive and not host.process.paused
        if undisturbed and runs and leader.core.role == Role.LEADER and leader.core.term == term:
            self.truth.wrong(f"node {node_id} leads on, {self.loop.now - since:.2f} s after it was cut off")
        self.world.fabric.heal(links)

    async def _transfer(self) -> None:
        leader = self.cluster.leader()
        if leader is not None:
            try:
                await self.cluster.call(leader, leader.raft.transfer_leadership())
            except StreamlogError:
                pass  # it has lost its leadership, or its life, meanwhile

    async def _cut(self, links: list[tuple[str, str]], lasts_s: float) -> None:
        for source, target in links:
            self.world.fabric.block(source, target)
        await asyncio.sleep(lasts_s)
        self.world.fabric.heal(links)

    async def _black_out(self, fault: Fault) -> None:
        rng = random.Random(f"{self.plan.seed}/{fault.at_s}")
        for node_id in self._nodes:
            self.crash(node_id, power=True)
        for node_id in rng.sample(list(self._nodes), len(self._nodes)):
            await asyncio.sleep(rng.uniform(0.0, fault.lasts_s / 2))
            self.start(node_id)

    def _wipe(self, node_id: int) -> None:
        """It goes down, and comes back with an empty disk under its old name."""
        self.stats["wiped"] += 1
        self.crash(node_id, power=True)
        host = self.cluster.host(node_id)
        self.truth.forget(host.name)
        host.disk = SimDisk(self.world.stream(f"disk/{host.name}/2"))
        self.start(node_id)

    # The run.

    async def run(self) -> None:
        for node_id in self._nodes:
            self.start(node_id)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nemesis())
            for client in self._clients:
                group.create_task(client.run(FAULTS_S))
            if self.plan.changes_voters:
                group.create_task(self._changer.run(FAULTS_S))
        self.check_now()
        self.heal()
        await self._come_together()
        self.check_now()
        operations = [operation for client in self._clients for operation in client.operations]
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
        for node_id in self._nodes:
            self.cluster.host(node_id).resume()
            self.start(node_id)

    async def _come_together(self) -> None:
        """A leader, a write by each client, all nodes that vote with the same state: within HEALING_S."""
        try:
            async with asyncio.timeout(HEALING_S):
                await self._changer.until_replaced()
                for client in self._clients:
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
