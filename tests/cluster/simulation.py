"""A cluster, its clients and its faults, from the first start to the last look: the phases of `plan`.

Everything that must hold and does not is reported to the watch; nothing is raised.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from streamlog.config import Loaded
from streamlog.coordinator.shard_log import CONTRADICTS
from streamlog.errors import CorruptMessageError
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.records import ConfigTarget, ConfigTargetType, MetadataVersion
from streamlog.model import BrokerId, Offset, PartitionId, TopicPartition
from streamlog.node import Node
from streamlog.ports import Ports
from streamlog.sim import SimLoop
from streamlog.sim.history import OperationHistory, Row
from streamlog.sim.nemesis import Nemesis, Strike
from streamlog.sim.process import Process
from streamlog.sim.world import Host, World

from .checking.checks import Evidence, Violation, violations
from .checking.replicas import Replica, read_replica
from .checking.watch import Watch, undisturbed
from .clients.crew import Crew
from .clients.operators import SETTING
from .clients.workload import slow_or_unanswered
from .nodes import load, make_node
from .plan import (
    BEGIN_S,
    CLIENTS,
    CONTROLLER,
    END_S,
    FAULTS_END_S,
    FOLLOWER,
    HEAL_S,
    LEADER,
    LOAD_END_S,
    PLAIN,
    Plan,
)
from .quorum import Quorum
from .special.election_by_hand import ElectionByHand
from .special.special_faults import is_damaged
from .special.special_strikes import SpecialStrikes

T = TypeVar("T")

START_S: Final = 15.0
"""Until there are nodes and topics, on the slowest disks."""
AFTER_HEAL_S: Final = 10.0
"""I19: by then all is written to again after everything was healed."""
PAIRS: Final = 8
PAIR_WITHIN_S: Final = 0.5
SILENCE_S: Final = 0.3
"""I19 in a calm cluster: pairs of requests that meet, then silence, in which nothing hides a lost wake-up."""
QUIET_S: Final = 10.0
"""Within so long all replicas are equal once no client writes."""
READ_S: Final = 10.0
LAST: Final = "last"
"""The reader that reads everything when all is quiet."""


class Simulation:
    def __init__(self, plan: Plan, loop: SimLoop, *, with_story: bool = False) -> None:
        self.plan = plan
        self.loop = loop
        self.world = World(loop, f"cluster/{plan.seed}")
        self.history = OperationHistory(lambda: loop.now)
        self.watch = Watch(compacted=plan.compacted)
        self.quorum = Quorum(self.world)
        self.stats: Counter[str] = Counter()
        self.story: list[str] = []
        self.deaths: list[tuple[float, str]] = []
        self.crew = self.crew_of(plan)
        self._late_s = 0.0  # behind the plan
        self._with_story = with_story
        self._digest = 0
        self.special = SpecialStrikes(plan, self.world, self.watch, self.stats, image=self.image, note=self.note)
        self._releases: dict[str, MetadataVersion] = {}  # by node: the highest metadata.version that it supports
        self._loaded: dict[str, Loaded] = {}  # by node: reading the settings costs more than the start of a node
        self.world.listeners.append(self._on_event)
        self.nemesis = Nemesis(
            self.world,
            plan.nodes,
            self._start,
            hardware=plan.hardware,
            find=self._find,
            before_death=self._dies,
            of_the_program=self.special.strike,
            may_lose_disk=self._may_lose_disk,
        )

    def crew_of(self, plan: Plan) -> Crew:
        """Who works with the cluster."""
        return Crew(plan, self.world, self.history, self.watch)

    # Nodes.

    def _start(self, name: str) -> None:
        self.note(f"{name} starts")
        if name not in self._loaded:
            self._loaded[name] = load(self.plan, name)
        make = partial(make_node, self._loaded[name], metadata_version_max=self._release(name))

        def made(ports: Ports) -> Node:
            return make(replace(ports, network=self.special.network_of(name, ports.network)))

        self.world.host(name).start(made)

    def _release(self, name: str) -> MetadataVersion:
        """The highest metadata.version that the node supports when it starts now."""
        upgrade = self.plan.upgrade
        is_new = upgrade is None or upgrade.is_new(name, self.loop.now - self._late_s)
        self._releases[name] = METADATA_VERSION_MAX if upgrade is None or is_new else upgrade.level
        return self._releases[name]

    def _dies(self, strike: Strike) -> None:
        host = strike.host
        self.note(f"{host.process} {'loses power' if strike.power else 'is killed'}")
        assert host.process is not None
        if host.alive:
            self.deaths.append((self.loop.now, host.name))
            self.watch.dies(host.process, host.disk)
            self.quorum.dies(host)
        if strike.disk_lost:
            self.note(f"{host.name} loses its disk")
            self.watch.disk_lost(host.name)
            self.quorum.lost_disk(host)
            self.stats["disks lost"] += 1

    def _may_lose_disk(self, name: str) -> bool:
        may = self.quorum.misses_disk_of(name)
        if not may:
            self.note(f"{name} keeps its disk: the quorum would not notice its loss, or not survive it")
        return may

    def _on_event(self, host: Host, event: str, fields: dict[str, object]) -> None:
        self.stats[event] += 1
        text = f"{host.process} {event} {sorted(fields.items())}"
        self._digest = zlib.crc32(f"{self.loop.now} {text}".encode(), self._digest)
        self.note(text)
        self.quorum.on_event(host, event, fields)
        if event == "coordinator_failed" and CONTRADICTS in str(fields["reason"]):
            self.watch.wrong("I14", f"{host.process}: {fields['reason']}")
        if event == "fenced" and host.name in self.plan.untouched:
            self.watch.wrong("I19", f"{host.process} is fenced at t={self.loop.now:.3f}, and no fault concerns it")

    def note(self, text: str) -> None:
        if self._with_story:
            self.story.append(f"{self.loop.now:9.3f}  {text}")

    def living(self) -> Iterator[Host]:
        """Hosts of nodes whose process runs."""
        for name in self.plan.nodes:
            host = self.world.host(name)
            if host.alive and host.node is not None:
                yield host

    def image(self) -> MetadataImage | None:
        """The newest that any node has."""
        images = [self.quorum.image(host) for host in self.living()]
        return max((image for image in images if image is not None), key=lambda image: image.index, default=None)

    def _find(self, role: str) -> str | None:
        if role == CONTROLLER:
            return self.quorum.leader()
        image = self.image()
        topic = None if image is None else image.topic_named(PLAIN)
        partition = None if topic is None else topic.partitions[0]
        if partition is None or partition.leader < 0:
            return None
        followers = [broker for broker in partition.isr if broker != partition.leader]
        match role:
            case _ if role == LEADER:
                return f"n{partition.leader}"
            case _ if role == FOLLOWER and followers:
                return f"n{followers[0]}"
        return None

    # The run.

    async def run(self) -> None:
        self.nemesis.start_all()
        await self._create_topics()
        await self.crew.begin()
        await self._strike()
        await self._until(HEAL_S)
        self.note("all is healed")
        self.nemesis.heal()
        self.special.heal()
        self.crew.stop_operating()
        if is_damaged(self.plan.faults) and self._leaderless():
            by_hand = ElectionByHand(self.crew, self.watch, self.stats, leaderless=self._leaderless, cut=self._is_cut)
            async with asyncio.TaskGroup() as tasks:
                electing = tasks.create_task(by_hand.run())
                await self._comes_back()
                electing.cancel()
        else:
            await self._comes_back()
        await self._until(LOAD_END_S)
        await self.crew.end()
        await self._calm()
        if is_damaged(self.plan.faults):
            await self._read_all("before the repair")  # what no reader has met yet is served right, or repaired
            await self.special.repair(self.crew)
        await self._quiet()
        await self._read_all(LAST)
        await self._until(END_S)
        self._look_at_the_end()
        self.special.check_visits()
        self.world.stop()

    async def _until(self, at_s: float) -> None:
        """A time of the plan."""
        await asyncio.sleep(max(0.0, self._late_s + at_s - self.loop.now))

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _create_topics(self) -> None:
        await self.crew.create_topics()
        self.note("topics are created")
        if self.loop.now > START_S:
            self.watch.wrong("I19", f"topics were created at {self.loop.now:.1f} s only, without a fault")
        self._late_s = max(0.0, self.loop.now - BEGIN_S)

    async def _strike(self) -> None:
        for fault in sorted(self.plan.faults, key=lambda fault: fault.at):
            await self._until(fault.at)
            self.quorum.check_now()
            self._check_releases()
            self.note(f"fault: {fault!r}")
            self.nemesis.strike(fault)
        await self._until(FAULTS_END_S)

    async def _comes_back(self) -> None:
        """I19: within AFTER_HEAL_S every partition takes records again, from a producer that knows of no fault."""
        host, crew, since = CLIENTS[0], self.crew, self.loop.now
        producer = await crew.producer("healed", host, patient=True)
        rows = [await crew.on(host, producer.send(target, 0)) for target in crew.targets]
        await crew.on(host, producer.until_answered())
        for row in slow_or_unanswered(rows, AFTER_HEAL_S):
            self.watch.wrong("I19", f"after the heal at {since:.1f}: {_fate(row)}")
        await crew.on(host, producer.close())

    def _leaderless(self) -> frozenset[TopicPartition]:
        """By the latest metadata of all nodes."""
        image = self.image()
        if image is None:
            return frozenset()
        partitions = {target.partition for target in self.crew.targets}
        return frozenset(
            one
            for one in partitions
            if (topic := image.topic_named(one.topic)) is not None and topic.partitions[one.partition].leader < 0
        )

    def _is_cut(self, node: BrokerId, partition: TopicPartition) -> bool:
        host = self.world.host(f"n{node}")
        return any(log.incomplete for log, _ in self.watch.replicas(_process_of(host)) if log.partition == partition)

    async def _calm(self) -> None:
        """I19: pairs of requests some ms apart, then silence: no other request hides a wake-up that was lost."""
        host, crew, rng = CLIENTS[0], self.crew, self.world.stream("calm")
        pair = [await crew.producer(f"calm{number}", host, patient=True) for number in range(2)]
        rows: list[Row] = []
        fenced = self.stats["fenced"]
        for number in range(PAIRS):
            target = crew.targets[number % len(crew.targets)]
            for producer in pair:
                rows.append(await crew.on(host, producer.send(target, 0)))
                await asyncio.sleep(rng.uniform(0, 0.005))
            await asyncio.sleep(SILENCE_S)
        for producer in pair:
            await crew.on(host, producer.until_answered())
            await crew.on(host, producer.close())
        warm = len(crew.targets) * len(pair)  # the first ones find the leader, and get a producer id
        # It was not calm where a node was fenced: with a slow disk a voter is removed seconds after that was asked for,
        # and its session, short in some seeds, ends before it follows the metadata as an observer.
        within_s = PAIR_WITHIN_S if self.stats["fenced"] == fenced else AFTER_HEAL_S
        slow = slow_or_unanswered(rows[warm:], within_s)
        if slow:
            self.watch.wrong("I19", f"{len(slow)} of {len(rows)} in a calm cluster, such as {_fate(slow[0])}")

    async def _quiet(self) -> None:
        """Until all replicas have the same, which I8 then looks at; not for ever."""
        deadline = self.loop.now + QUIET_S
        while self.loop.now < deadline and not self._is_quiet():
            await self._pause(0.1)

    def _is_quiet(self) -> bool:
        if not self.quorum.has_one_image(self.living()):
            return False
        wanted = {
            target.partition: self.plan.topic(target.partition.topic).replication_factor for target in self.crew.targets
        }
        ends = self._replica_ends()
        return all(
            len(ends.get(partition, ())) == count and len({offset for pair in ends[partition] for offset in pair}) == 1
            for partition, count in wanted.items()
        )

    def _replica_ends(self) -> dict[TopicPartition, list[tuple[Offset, Offset]]]:
        """End and high watermark of each replica on nodes that live."""
        ends: dict[TopicPartition, list[tuple[Offset, Offset]]] = {}
        for host in self.living():
            for log, high_watermark in self.watch.replicas(_process_of(host)):
                ends.setdefault(log.partition, []).append((log.log_end_offset, high_watermark))
        return ends

    async def _read_all(self, reader: str) -> None:
        """I7: from the beginning of each partition to its end."""
        host, crew = CLIENTS[1], self.crew
        consumer = crew.plain_consumer(reader, host, [target.partition for target in crew.targets])
        ends = {
            log.partition: high_watermark
            for node in self.living()
            for log, high_watermark in self.watch.replicas(_process_of(node))
            if crew.deleter is None or log.log_start_offset < high_watermark  # else all of it was to be deleted
        }
        for target in crew.targets:
            if target.keyed:  # what was there last may have been compacted away
                ends.pop(target.partition, None)
        try:
            async with asyncio.timeout(READ_S):
                await crew.on(host, consumer.read_until(ends.items()))
        except TimeoutError:
            self.watch.wrong("I7", f"reader {reader!r} has come to {consumer.positions}, the ends are {ends}")
        await crew.on(host, consumer.close())

    def _check_releases(self) -> None:
        """I24: an earlier release would stop at metadata that it does not know."""
        for host in self.living():
            image, supported = self.quorum.image(host), self._releases[host.name]
            if image is not None and image.metadata_version > supported:
                self.watch.wrong(
                    "I24", f"{host.process} supports metadata.version {supported}, it has {image.metadata_version}"
                )

    # The end.

    def _replicas(self) -> list[Replica]:
        found = []
        for host in self.living():
            with undisturbed(host.disk):
                for log, high_watermark in self.watch.replicas(_process_of(host)):
                    try:
                        found.append(read_replica(BrokerId(int(host.name.removeprefix("n"))), log, high_watermark))
                    except CorruptMessageError as error:
                        self.watch.wrong("I8", f"{log.partition} on {host.name} is damaged: {error}")
        return found

    def _look_at_the_end(self) -> None:
        self.quorum.check_now()
        self.quorum.compare_images(self.living())
        self._check_releases()
        image, supported = self.image(), min(self._releases.values())
        if image is not None and image.metadata_version != supported:
            self.watch.wrong(
                "I24", f"metadata.version is {image.metadata_version} in the end, all nodes support {supported}"
            )
        if not self.quorum.has_one_image(self.living()):
            indexes = {host.name: image.index for host in self.living() if (image := self.quorum.image(host))}
            self.watch.wrong("metadata", f"in a calm cluster nodes lag behind others: {indexes}")
        leader = self.quorum.leader()
        for host in self.living():
            named = _controller_named_by(host)
            if named != leader:
                self.watch.wrong("controller", f"{host.name} names {named}, and it is {leader}")
        for stop in self.nemesis.bad_stops:
            self.watch.wrong("stop", stop)
        if self.crew.tuner is not None:
            for problem in self.crew.tuner.problems({host.name: self._setting(host) for host in self.living()}):
                self.watch.wrong("I12", problem)
        replicas = self._replicas()
        for topic in self.plan.topics:
            for number in range(topic.partitions):
                partition = TopicPartition(topic.name, PartitionId(number))
                holders = [replica.broker for replica in replicas if replica.partition == partition]
                if len(holders) != topic.replication_factor:
                    self.watch.wrong("I8", f"{partition} has replicas on {holders} alone")
        evidence = Evidence(
            history=self.history,
            replicas=replicas,
            final_readers=frozenset({LAST}),
            compacted=self.plan.compacted,
            deletions=None if self.crew.deleter is None else self.crew.deleter.deletions,
        )
        self.watch.violations += violations(evidence)
        self.watch.violations += [Violation("I13", problem) for problem in self.quorum.truth.problems]

    def _setting(self, host: Host) -> str:
        """What the tuner wrote, as this node has it."""
        image = self.quorum.image(host)
        return "" if image is None else image.config(ConfigTarget(ConfigTargetType.TOPIC, PLAIN)).get(SETTING, "")

    def fingerprint(self) -> int:
        rows = [(row.value, row.outcome.value, row.offset, row.completed) for row in self.history.rows]
        dice = (self.loop.random.random(), self.world.fabric.rng.random())
        return zlib.crc32(repr((self._digest, self.loop.steps, self.loop.now, dice, rows)).encode())


def _fate(row: Row) -> str:
    took = "never" if row.completed is None else f"after {row.completed - row.invoked:.2f} s"
    return f"{row.partition} {row.outcome.value} {took} {row.error}"


def _controller_named_by(host: Host) -> str | None:
    """To its clients."""
    assert isinstance(host.node, Node)
    controller = host.node.view.controller
    return None if controller is None else f"n{controller}"


def _process_of(host: Host) -> Process:
    assert host.process is not None
    return host.process
