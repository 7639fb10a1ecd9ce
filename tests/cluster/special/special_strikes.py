"""Carries out the faults that need the formats of a node (`special_faults`): damage, hostile peers, false answers; and
repairs what damage has left.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from streamlog.client.admin.values import PartitionRepairs
from streamlog.errors import BrokerNotAvailableError, StreamlogError
from streamlog.metadata.image.image import MetadataImage
from streamlog.model import TopicPartition
from streamlog.ports import Network
from streamlog.sim.faults import Fault, FaultKind
from streamlog.sim.world import Host, World
from tests.support.changed_answers import ChangedNetwork

from ..checking.watch import Watch, undisturbed
from ..clients.crew import Crew
from ..nodes import address
from ..plan import Plan
from .false_answers import FalseAnswers, FalseNode
from .harm import harm_to_files, harm_to_logs
from .hostile_peer import Hostile

HOST: Final = "hostile"
"""The host of hostile peers."""
UNFENCED_WITHIN_S: Final = 10.0
"""After the heal: such a node leaves the removed voter when it has received nothing for its session of 3 s and more."""
PAUSE_S: Final = 0.2


class SpecialStrikes:
    def __init__(
        self,
        plan: Plan,
        world: World,
        watch: Watch,
        stats: Counter[str],
        *,
        image: Callable[[], MetadataImage | None],
        note: Callable[[str], None],
    ) -> None:
        self._topics = frozenset(topic.name for topic in plan.topics if not topic.compacted)
        self._world = world
        self._watch = watch
        self._stats = stats
        self._image = image
        self._note = note
        self._visits: list[asyncio.Task[None]] = []  # of hostile peers
        self._may_be_false = any(fault.kind is FaultKind.FALSE_ANSWERS for fault in plan.faults)
        self._false_answers = FalseAnswers(lambda: world.loop.now)

    def network_of(self, name: str, network: Network) -> Network:
        """A node's, by which it receives false answers."""
        if not self._may_be_false:
            return network
        rng = self._world.stream(f"false answers/{name}")
        return ChangedNetwork(network, lambda address: FalseNode(address, self._false_answers, rng))

    def heal(self) -> None:
        self._false_answers.end()
        self._stats["false answers"] += self._false_answers.given

    def strike(self, fault: Fault, host: Host) -> None:
        rng = random.Random(f"{self._world.seed}/{fault.kind.name}/{fault.at}")
        if fault.kind is FaultKind.HOSTILE:
            self._send_hostile(fault, rng)
        elif fault.kind is FaultKind.FALSE_ANSWERS:
            self._false_answers.begin(address(fault.target), fault.lasts)
        else:
            self._damage(host, rng)

    def _damage(self, host: Host, rng: random.Random) -> None:
        assert host.process is not None

        def bearable(partition: TopicPartition) -> bool:
            return partition.topic in self._topics and self._has_another_copy(partition, host.name)

        with undisturbed(host.disk):
            if host.alive:
                logs = [log for log, _ in self._watch.replicas(host.process)]
                harm = harm_to_logs(rng, logs, bearable)
            else:
                harm = harm_to_files(rng, host.disk, bearable)
        if harm is None:
            return
        self._stats["damages"] += 1
        self._note(f"{host.name}: {harm.what} at {harm.position} of {harm.path}")
        host.disk.damage(harm.path, harm.position, harm.data)
        self._watch.damaged(host.name, harm.partition)

    def _has_another_copy(self, partition: TopicPartition, name: str) -> bool:
        """In sync, on another node that runs: without one there is nothing to repair from, and it takes an operator."""
        image = self._image()
        topic = None if image is None else image.topic_named(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return False
        others = (f"n{b}" for b in topic.partitions[partition.partition].isr)
        return any(other != name and self._world.host(other).alive for other in others)

    def _send_hostile(self, fault: Fault, rng: random.Random) -> None:
        image, host = self._image(), self._world.host(HOST)
        if image is None or not image.brokers or not image.topics:
            return
        if not host.alive:
            host.boot()
        hostile = Hostile(host.ports.network, image, rng)
        self._visits.append(host.spawn(hostile.visit(address(fault.target), address(fault.other))))

    def check_visits(self) -> None:
        """Raises what a hostile peer has failed with: then it has sent nothing, and proves nothing."""
        for visit in self._visits:
            visit.result()

    async def repair(self, crew: Crew) -> None:
        """What has not been read is found, and what is found is repaired, by an operator's command."""
        for target in crew.targets:
            if target.partition.topic not in self._topics:
                continue
            try:
                repairs = await self._repaired(crew, target.partition)
            except StreamlogError as error:
                self._watch.wrong("repair", f"{target.partition}: {error!r}")
                continue
            for replica in repairs.replicas:
                left = [damage for damage in replica.damages if damage.repaired_from is None]
                if left or replica.error is not None:
                    self._watch.wrong("repair", f"{target.partition} at {replica.node_id}: {left} {replica.error!r}")
                self._stats["damages repaired by command"] += len(replica.damages)

    async def _repaired(self, crew: Crew, partition: TopicPartition) -> PartitionRepairs:
        """Once all nodes are there: a node that followed a voter which was removed meanwhile is fenced for a time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + UNFENCED_WITHIN_S
        while True:
            repairs = await crew.repair(partition)
            absent = any(isinstance(replica.error, BrokerNotAvailableError) for replica in repairs.replicas)
            if not absent or loop.time() >= deadline_s:
                return repairs
            await asyncio.sleep(PAUSE_S)
