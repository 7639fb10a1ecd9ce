"""The data planes of several nodes in the simulated world: real logs, real streams, real decisions of the controller.

What is not there is the quorum: commands are decided at once, and reach each node after a while, in order. A node that
is `cut` receives nothing from them and cannot send requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from streamlog.api.service import stream_handlers, unary_handlers
from streamlog.broker.following.follower_links import FollowerLinks
from streamlog.broker.leading.isr_changes import IsrChanges
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.leading.replication_service import ReplicationService
from streamlog.broker.table.replicas import Replicas
from streamlog.broker.throttle import UNLIMITED, Throttle
from streamlog.errors import OutcomeUnknownError, StreamlogError, UnknownTopicOrPartitionError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.controller import Command
from streamlog.metadata.decision import BrokerSessionTimer
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.isr import AlterPartition, IsrProposal, IsrResult, ReportOfflineReplicas
from streamlog.metadata.partitions.leaders import ResignLeadership
from streamlog.metadata.partitions.recovery import PartitionAnswers, RecoverPartitions, to_query
from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.metadata.records import Partition
from streamlog.metadata.view import MetadataView
from streamlog.model import Acks, BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.ports.bundle import Ports
from streamlog.records import decode_batch, scan_headers
from streamlog.sim import SimLoop
from streamlog.sim import run as run_simulation
from streamlog.sim.world import Host, World
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.log.log import Log
from tests.broker.rig import append_to
from tests.metadata.rig import CLUSTER
from tests.metadata.rig import Rig as Controller
from tests.storage.batches import batch

LAG_MAX_MS = 1_000
P0 = PartitionId(0)


class DataNode:
    """One process: logs, partition table, streams."""

    def __init__(self, cluster: Cluster, node_id: int, ports: Ports, *, leader_rate: int, follower_rate: int) -> None:
        self.cluster = cluster
        self.me = BrokerId(node_id)
        self.ports = ports
        self.view = MetadataView()
        self.epoch: BrokerEpoch | None = None
        self.suspected: list[BrokerId] = []
        static = {
            "node.id": str(node_id),
            "replica.lag.time.max.ms": str(cluster.lag_max_ms),
            "log.flush.interval.messages": "1",
            "log.index.size.max.bytes": "4096",
        }
        self.configs = NodeConfigs(static, self.me, self.view)
        self.isr = IsrChanges(self, self.view, self.me, clock=ports.clock, random=ports.random, probe=ports.probe)
        self.leader_throttle = Throttle(ports.clock, leader_rate)
        self.links = FollowerLinks(
            self.me,
            CLUSTER,
            self.view,
            broker_epoch=lambda: self.epoch,
            throttle=Throttle(ports.clock, follower_rate),
            on_broken=self.suspected.append,
            network=ports.network,
            clock=ports.clock,
            random=ports.random,
            probe=ports.probe,
        )
        self.directories: LogDirectories | None = None  # while it is up
        self.replicas: Replicas | None = None  # while it is up

    async def run(self) -> None:
        ports = self.ports
        directories = await LogDirectories.open(
            ports.fs,
            ["/data"],
            clock=ports.clock,
            random=ports.random,
            probe=ports.probe,
            node_id=self.me,
            cluster_id=CLUSTER,
        )
        replicas = Replicas(self.me, directories, self.view, self.configs, self.links, self.isr, self, ports)
        await replicas.open()
        self.service = ReplicationService(
            self.me,
            CLUSTER,
            self.view,
            replicas,
            self.isr,
            throttle=self.leader_throttle,
            fetch_bytes_max=lambda: 1 << 20,
            broker_epoch=lambda: self.epoch,
            on_broken=self.suspected.append,
            clock=ports.clock,
            probe=ports.probe,
        )
        await ports.network.listen(
            f"node{self.me}:9092",
            unary=unary_handlers([self.service.service()]),
            streaming=stream_handlers([self.service.service()]),
        )
        self.epoch = self.cluster.register(self.me)
        await self.view.wait_until(lambda image: image.index >= (self.epoch or 0))
        self.directories, self.replicas = directories, replicas
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(replicas.run())
            tasks.create_task(self.links.run())
            tasks.create_task(self.isr.run(replicas.leaders))
            tasks.create_task(self._heartbeat())

    async def _heartbeat(self) -> None:
        await asyncio.sleep(0.05)
        self.cluster.heartbeat(self.me)

    def log(self, partition: int = 0, topic: str = "t") -> Log:
        found = (
            None if self.directories is None else self.directories.get(TopicPartition(topic, PartitionId(partition)))
        )
        if found is None:
            raise UnknownTopicOrPartitionError("there is no log yet")
        return found

    def leader(self, partition: int = 0, topic: str = "t") -> LeaderReplica:
        if self.replicas is None:
            raise UnknownTopicOrPartitionError("the node is starting")
        return self.replicas.leader(topic, None, PartitionId(partition))

    # What it asks of the controller.

    async def alter_partition(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult]:
        assert self.epoch is not None
        results: Sequence[IsrResult] = await self.cluster.ask(
            self.me, AlterPartition(broker_id=self.me, broker_epoch=self.epoch, proposals=tuple(proposals))
        )
        return results

    async def report_offline_replicas(self, partitions: Sequence[PartitionKey]) -> None:
        assert self.epoch is not None
        await self.cluster.ask(
            self.me, ReportOfflineReplicas(broker_id=self.me, broker_epoch=self.epoch, partitions=tuple(partitions))
        )

    async def resign_leadership(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> None:
        assert self.epoch is not None
        await self.cluster.ask(
            self.me,
            ResignLeadership(broker_id=self.me, broker_epoch=self.epoch, key=key, leader_epoch=leader_epoch),
        )


class Cluster:
    def __init__(self, world: World, *, leader_rate: int = UNLIMITED, follower_rate: int = UNLIMITED) -> None:
        self.world = world
        self.lag_max_ms = LAG_MAX_MS
        self.leader_rate = leader_rate
        self.follower_rate = follower_rate
        self.controller = Controller()
        self.random = world.stream("quorum")
        self.nodes: dict[int, DataNode] = {}
        self.cut: dict[int, bool] = {}
        self.loses_answers = 0.0  # share of the requests that are carried out without an answer
        self.events: list[tuple[str, str, dict[str, object]]] = []
        self.acknowledged: dict[bytes, tuple[int, int]] = {}  # value -> partition, offset
        self._applied: dict[DataNode, int] = {}  # how many commands
        world.listeners.append(lambda host, event, fields: self.events.append((host.name, event, fields)))

    # -- nodes

    def host(self, node_id: int) -> Host:
        return self.world.host(f"node{node_id}")

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:

            def make(ports: Ports, node_id: int = node_id) -> DataNode:
                return DataNode(self, node_id, ports, leader_rate=self.leader_rate, follower_rate=self.follower_rate)

            node = self.nodes[node_id] = self.host(node_id).start(make)
            self._applied[node] = 0
            self._deliver_later(node)

    def probed(self, event: str) -> list[dict[str, object]]:
        return [fields for _, name, fields in self.events if name == event]

    # -- the quorum

    def do(self, command: Callable[[Controller], object]) -> None:
        """Something that the controller decides."""
        command(self.controller)
        self.publish()

    def publish(self) -> None:
        for node in self.nodes.values():
            self._deliver_later(node)

    def _deliver_later(self, node: DataNode) -> None:
        host = self.host(node.me)
        if host.process is None or not host.alive or self.nodes[node.me] is not node:
            return
        delay_s = self.random.uniform(0.001, 0.02)
        self.world.loop.call_later(
            delay_s, self._deliver, node, len(self.controller.log), context=host.process.context()
        )

    def _deliver(self, node: DataNode, count: int) -> None:
        if self.cut.get(node.me):
            return
        while self._applied[node] < count:
            index, command = self.controller.log[self._applied[node]]
            self._applied[node] += 1
            node.view.machine.apply(index, command)

    def register(self, node_id: int) -> BrokerEpoch:
        """Never after a clean stop: nodes here are killed. Its session has lapsed by then."""
        session = BrokerSessionTimer(BrokerId(node_id))
        if session in self.controller.timers:
            self.controller.fire(session)
        broker = self.controller.register(node_id, clean=False)
        self.publish()
        return broker.epoch

    def heartbeat(self, node_id: int) -> None:
        if not self.cut.get(node_id):
            self.controller.heartbeat(node_id)
            self.recover()
            self.publish()

    def recover(self) -> None:
        """The controller asks the live nodes about partitions without a leader."""
        answers = []
        for key, broker_ids in to_query(self.controller.image):
            states = tuple(state for b in broker_ids if (state := self._state_of(b, key)) is not None)
            leader_epoch = self.controller.image.partition(key).leader_epoch
            answers.append(PartitionAnswers(key=key, leader_epoch=leader_epoch, states=states))
        if answers:
            self.controller.do(RecoverPartitions(answers=tuple(answers)))

    def _state_of(self, broker_id: BrokerId, key: PartitionKey) -> ReplicaState | None:
        node = self.nodes.get(broker_id)
        if node is None or node.replicas is None or node.epoch is None or not self.host(broker_id).alive:
            return None
        return node.replicas.replica_state(key, node.epoch)

    def fence(self, node_id: int) -> None:
        self.controller.fence(node_id)
        self.recover()
        self.publish()

    async def ask(self, node_id: int, command: Command) -> Any:
        await asyncio.sleep(self.random.uniform(0.001, 0.01))
        if self.cut.get(node_id):
            await asyncio.sleep(0.5)
            raise OutcomeUnknownError("no answer")
        response = self.controller.do(command)
        self.publish()
        await asyncio.sleep(self.random.uniform(0.001, 0.01))
        if self.random.random() < self.loses_answers:
            raise OutcomeUnknownError("no answer")
        return response

    def partition(self, partition: int = 0, topic: str = "t") -> Partition:
        return self.controller.partition(topic, partition)

    # -- work

    async def until(self, condition: Callable[[], bool], *, within_s: float = 20.0) -> None:
        """Virtual time."""
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110  virtual time
                await asyncio.sleep(0.01)

    async def produce(self, *values: bytes, partition: int = 0) -> Offset:
        """To the present leader, acks=all, until acknowledged. Errors as they come; TimeoutError after 5 s."""
        leader = self.partition(partition).leader
        host, node = self.host(leader), self.nodes.get(leader)
        if node is None or node.replicas is None or not host.alive:
            raise OutcomeUnknownError("there is no leader")

        async def producing() -> Offset:
            replica = node.leader(partition)
            appended = append_to(replica, batch(values), Acks.ALL)
            await replica.wait_for(appended)
            return appended.first_offset

        task = host.spawn(producing())
        async with asyncio.timeout(5):
            while not task.done():
                if not host.alive or self.nodes[leader] is not node:
                    raise OutcomeUnknownError("the leader has died")
                await asyncio.sleep(0.002)
        first = task.result()
        for i, value in enumerate(values):
            self.acknowledged[value] = (partition, first + i)
        return first

    async def ready(self, *node_ids: int) -> None:
        """All are unfenced, and know it."""
        await self.until(
            lambda: all(
                self.nodes[n].replicas is not None
                and not self.controller.broker(n).fenced
                and self._applied[self.nodes[n]] == len(self.controller.log)
                for n in node_ids
            )
        )

    # -- what has come of it

    def values(self, node_id: int, partition: int = 0) -> list[tuple[int, bytes | None]]:
        """(offset, value) of all that stands in the log of this node, read from its files."""
        log = self.nodes[node_id].log(partition)
        found: list[tuple[int, bytes | None]] = []
        for segment in log.segments:
            data = segment.file.pread(segment.size_bytes, 0)
            for position, _ in scan_headers(data, 0, len(data)):
                found += [(r.offset, r.value) for r in decode_batch(data, position) if r.offset >= log.log_start_offset]
        return found

    def check(self, partitions: int = 1) -> None:
        """Replicas are the same, and nothing acknowledged is lost (FAULTS I1, I8)."""
        for partition in range(partitions):
            logs = [self.values(node_id, partition) for node_id in self.partition(partition).replicas]
            assert all(log == logs[0] for log in logs), f"partition {partition}: replicas differ"
            stands = dict(logs[0])
            for value, (of, offset) in self.acknowledged.items():
                assert of != partition or stands.get(offset) == value, (
                    f"partition {partition}: {value!r} is not at {offset}"
                )

    async def settled(self, partitions: int = 1) -> None:
        """All replicas in sync, and at the end."""

        await self.until(lambda: all(map(self._is_settled, range(partitions))), within_s=60.0)

    def _is_settled(self, partition: int) -> bool:
        state = self.partition(partition)
        if state.leader < 0 or sorted(state.isr) != sorted(state.replicas):
            return False
        try:
            end = self.nodes[state.leader].leader(partition).high_watermark
            return all(self.nodes[b].log(partition).log_end_offset == end for b in state.replicas)
        except StreamlogError:  # not yet
            return False


def play(
    story: Callable[[Cluster], Awaitable[None]],
    *,
    seed: int | str = 1,
    leader_rate: int = UNLIMITED,
    follower_rate: int = UNLIMITED,
) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, seed)
        cluster = Cluster(world, leader_rate=leader_rate, follower_rate=follower_rate)
        try:
            await story(cluster)
            for node_id in cluster.nodes:
                task = cluster.host(node_id).task
                if cluster.host(node_id).alive and task is not None and task.done():
                    task.result()  # a node that ended raises its error
        finally:
            world.stop()

    run_simulation(main, seed=seed)
