"""Nodes in the simulated world with real views, replicas and services, and clients that send raw messages.

The controller is a function: commands are decided and applied at once, on every node. Only nodes that are named run;
the others are registered and alive, and hold replicas that are not simulated. The test reports for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from google.protobuf import empty_pb2
from google.protobuf.message import Message
from msgspec import Struct, field, structs
from msgspec.structs import replace

from streamlog.api.errors import from_rpc
from streamlog.api.pb import admin_pb2, batches_pb2, common_pb2
from streamlog.api.service import stream_handlers, unary_handlers
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.producer_id_blocks import ProducerIdBlocks
from streamlog.broker.table.replicas import Replicas
from streamlog.config import Operation, Scope, changed_value, check_together
from streamlog.controller.link import FORWARDED
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.errors import NotControllerError, StreamlogError
from streamlog.metadata.cluster import AllocateProducerIds
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.controller import Command
from streamlog.metadata.decision import ControllerContext
from streamlog.metadata.partitions.leaders import ElectLeaders
from streamlog.metadata.records import PartitionChangeRecord
from streamlog.metadata.topics.creation import CreateInternalTopic
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, Offset, PartitionId, ProducerId, RaftIndex, RaftTerm, TopicId
from streamlog.ports import CallInfo, Channel, Ports, RpcError, Stream, UnaryHandler
from streamlog.raft.port import Leadership
from streamlog.raft.voters import Voter, VoterSet
from streamlog.services.access.authorizer import Authorizer
from streamlog.services.all_services import NodeParts, all_services
from streamlog.services.common.client_bounds import ClientBounds
from streamlog.services.common.forwarding import Peers
from streamlog.services.quotas.limits import QuotaLimits
from streamlog.services.quotas.shares import QuotaShares
from streamlog.services.transactions.markers import LocalMarkers, MarkerLinks
from streamlog.sim import Order, SimLoop, World, run
from streamlog.storage.directories.directories import LogDirectories
from tests.broker.rig import FakeController, FakeIsrChanges, FakeLinks
from tests.metadata.rig import Rig
from tests.storage.batches import batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

T = TypeVar("T")
Response = TypeVar("Response", bound=Message)

CLUSTER = "cluster-of-tests"  # as tests.metadata.rig names it
BATCHES = "/streamlog.v1.Batches/"
ADMIN = "/streamlog.v1.Admin/"


class FakeQuorum(Struct):
    """Voter 1 leads for ever."""

    voter_set: VoterSet = field(default_factory=lambda: VoterSet.of([Voter(node_id=BrokerId(1), address="node1:9092")]))
    leads: bool = True
    applied_index: RaftIndex = field(default=RaftIndex(77))
    empty: tuple[BrokerId, ...] = ()
    observes: bool = False

    def leadership(self) -> Leadership:
        return Leadership(
            term=RaftTerm(0 if self.observes else 4),
            leader=BrokerId(1),
            address="node1:9092",
            is_self=self.leads,
            is_ready=self.leads,
        )

    def voters(self) -> VoterSet:
        return self.voter_set

    def held(self) -> Mapping[BrokerId, RaftIndex]:
        return {voter.node_id: self.applied_index for voter in self.voter_set} if self.leads else {}

    @property
    def knows_votes(self) -> bool:
        return not self.observes

    def without_vote(self) -> Collection[BrokerId]:
        return () if self.observes else self.empty

    async def add_voter(self, voter: Voter) -> RaftIndex:
        self._check()
        self.voter_set = self.voter_set.with_added(voter)
        return self.applied_index

    async def remove_voter(self, node_id: BrokerId) -> RaftIndex:
        self._check()
        self.voter_set = self.voter_set.with_removed(node_id)
        return self.applied_index

    async def replace_voter(self, node_id: BrokerId, voter: Voter) -> RaftIndex:
        self._check()
        self.voter_set = self.voter_set.with_removed(node_id).with_added(voter)
        return self.applied_index

    def _check(self) -> None:
        if not self.leads:
            raise NotControllerError("node 1 leads the quorum", leader=1)


class RealRules:
    """The settings that topics and nodes really have."""

    def changed_value(self, scope: Scope, name: str, operation: Operation, given: str, old: str | None) -> str | None:
        return changed_value(scope, name, operation, given, old)

    def check_together(self, scope: Scope, values: Mapping[str, str]) -> None:
        check_together(scope, values)


class RealRig(Rig):
    @property
    def context(self) -> ControllerContext:
        return replace(super().context, configs=RealRules())


class SmallNode:
    """One node of the cluster: everything real but the quorum and the links between nodes."""

    def __init__(self, cluster: Cluster, node_id: int, static: dict[str, str], ports: Ports) -> None:
        self.node_id = BrokerId(node_id)
        self.cluster = cluster
        self.ports = ports
        self.static = {"node.id": str(node_id), **static}
        self.view = MetadataView()
        self.links, self.isr = FakeLinks(), FakeIsrChanges()
        self.quorum = FakeQuorum(leads=node_id == 1)
        self.serving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.passed_on: list[str] = []  # methods that went to the controller

    async def run(self) -> None:
        for index, command in self.cluster.rig.log:
            self.view.machine.apply(index, command)
        self.view.set_controller(BrokerId(1), "node1:9092")
        self.configs = NodeConfigs(self.static, self.node_id, self.view)
        directories = await LogDirectories.open(
            self.ports.fs,
            ["/data"],
            clock=self.ports.clock,
            random=self.ports.random,
            probe=self.ports.probe,
            node_id=self.node_id,
            cluster_id=CLUSTER,
        )
        self.replicas = Replicas(
            self.node_id, directories, self.view, self.configs, self.links, self.isr, FakeController(), self.ports
        )
        await self.replicas.open()
        groups = GroupCoordinator(self.replicas, self.view, self.configs, self.ports.clock, self.ports.probe)
        peers, producer_ids = Peers(self.view, self.ports.network), ProducerIdBlocks(self)
        local_markers = LocalMarkers(self.replicas, groups)
        markers = MarkerLinks(self.node_id, local_markers, peers)
        limits = QuotaLimits(self.view, self.ports.clock, window_num=11, window_s=1)
        quotas = QuotaShares(self.node_id, self.view, limits, peers, self.ports.clock)
        transactions = TransactionCoordinator(self.replicas, self.view, self.configs, producer_ids, markers, self.ports)
        services = all_services(
            NodeParts(
                node_id=self.node_id,
                release="0.0.0",
                ports=self.ports,
                view=self.view,
                configs=self.configs,
                bounds=ClientBounds.of(self.configs.node),
                traffic=self.replicas.traffic,
                partitions=self.replicas,
                disks=self.replicas,
                deleting=self.replicas,
                controller=self,
                link=self,
                quorum=self.quorum,
                producer_ids=producer_ids,
                groups=groups,
                transactions=transactions,
                local_markers=local_markers,
                internal_topics=self,
                authorizer=Authorizer(self.view, enabled=False),
                peers=peers,
                quotas=quotas,
            )
        )
        self.handlers = unary_handlers(services)
        await self.ports.network.listen(
            f"node{self.node_id}:9092", unary=self.handlers, streaming=stream_handlers(services)
        )
        self.serving.set_result(None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.replicas.run())
            tasks.create_task(groups.run())
            tasks.create_task(transactions.run())

    # What stands for the controller and the way there.

    async def submit(self, command: Command) -> Any:
        if self.node_id != 1:
            raise NotControllerError("node 1 is the controller", leader=1)
        return await self.cluster.decide(command)

    async def forward(self, method: str, request: bytes, timeout_s: float) -> bytes:
        self.passed_on.append(method)
        channel = self.ports.network.connect("node1:9092")
        try:
            answer = await channel.unary(method, request, timeout_s=timeout_s, metadata={FORWARDED: "1"})
        except RpcError as error:
            raise from_rpc(error) from None
        finally:
            await channel.close()
        await self.view.wait_until_applied(self.cluster.rig.image.index)
        return answer

    async def catch_up(self, timeout_s: float) -> None:
        await self.view.wait_until_applied(self.cluster.rig.image.index)

    async def create_internal_topic(self, name: str) -> TopicId:
        await self.cluster.decide(CreateInternalTopic(name=name))
        return self.view.image.require_topic(name).topic_id

    async def allocate_producer_ids(self) -> tuple[ProducerId, int]:
        broker = self.view.image.brokers[self.node_id]
        block = await self.cluster.decide(
            AllocateProducerIds(broker_id=self.node_id, broker_epoch=BrokerEpoch(broker.epoch))
        )
        return block.first, block.count

    def leader(self, topic: str = "t", partition: int = 0) -> LeaderReplica:
        return self.replicas.leader(topic, None, PartitionId(partition))


class Cluster:
    def __init__(self, loop: SimLoop, seed: int | str = 0) -> None:
        self.loop = loop
        self.world = World(loop, seed)
        self.rig = RealRig()
        self.nodes: dict[int, SmallNode] = {}
        self._client = self.world.host("client").boot()
        self._channels: dict[int, Channel] = {}

    async def start(self, *running: int, registered: Sequence[int] = (1, 2, 3), **static: str) -> None:
        self.rig.start_all(*registered)
        options = {name.replace("_", "."): value for name, value in static.items()}
        for node_id in running or (1,):
            host = self.world.host(f"node{node_id}")

            def factory(ports: Ports, node_id: int = node_id) -> SmallNode:
                return SmallNode(self, node_id, options, ports)

            self.nodes[node_id] = host.start(factory)
        for node in self.nodes.values():
            await node.serving

    @property
    def node(self) -> SmallNode:
        return self.nodes[1]

    async def on(self, call: Callable[[], T], node: int = 1) -> T:
        """A plain call inside a node's process."""

        async def calling() -> T:
            return call()

        return await self.world.host(f"node{node}").spawn(calling())

    async def decide(self, command: Command) -> Any:
        """By the controller, and applied everywhere."""
        if isinstance(command, ElectLeaders):  # as the controller's shell does (streamlog.controller.recovery)
            command = structs.replace(command, answers=self.rig.equal_answers())
        response = self.rig.do(command)
        await self.spread()
        return response

    async def spread(self) -> None:
        """What the rig has committed, to all nodes."""
        for node_id in self.nodes:
            await self.on(partial(self._apply, node_id), node_id)

    def _apply(self, node_id: int) -> None:
        view = self.nodes[node_id].view
        for index, data in self.rig.log:
            if index > view.image.index:
                view.machine.apply(index, data)

    async def move_leader(self, leader: int, name: str = "t", partition: int = 0) -> None:
        key = self.rig.key(name, partition)
        self.rig.commit([PartitionChangeRecord(topic_id=key[0], partition_id=key[1], leader=BrokerId(leader))])
        await self.spread()

    async def raise_leader_epoch(self, name: str = "t", partition: int = 0) -> None:
        """The same leader again."""
        await self.move_leader(self.rig.partition(name, partition).leader, name, partition)
        await self.until_led(name, partition + 1)

    # -- clients

    def channel(self, node: int = 1) -> Channel:
        if node not in self._channels:
            self._channels[node] = self._client.network.connect(f"node{node}:9092")
        return self._channels[node]

    async def call(
        self, method: str, request: Message, response_type: type[Response], *, node: int = 1, timeout_s: float = 60
    ) -> Response:
        """StreamlogError as the node raised it; RpcError."""
        coro = self._call(method, request.SerializeToString(), response_type, node, timeout_s)
        return await self.world.host("client").spawn(coro)

    async def call_raw(self, method: str, request: bytes, *, node: int = 1, timeout_s: float = 60) -> None:
        """Of bytes, whose response does not matter. As `call`."""
        await self.world.host("client").spawn(self._call(method, request, empty_pb2.Empty, node, timeout_s))

    async def _call(
        self, method: str, request: bytes, response_type: type[Response], node: int, timeout_s: float
    ) -> Response:
        try:
            data = await self.channel(node).unary(method, request, timeout_s=timeout_s)
        except RpcError as error:
            raise from_rpc(error) from None
        return response_type.FromString(data)

    @asynccontextmanager
    async def stream(self, method: str, response_type: type[Response], node: int = 1) -> AsyncIterator[Calls[Response]]:
        async with self.channel(node).stream(method) as stream:
            yield Calls(stream, response_type)

    async def create(
        self, name: str = "t", partitions: int = 1, replicas: Sequence[int] = (1,), **configs: str
    ) -> None:
        """The first of `replicas` leads."""
        assignment = admin_pb2.ReplicaAssignment(replicas=replicas)
        topic = admin_pb2.NewTopic(
            name=name,
            assignments=[assignment] * partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        request = admin_pb2.CreateTopicsRequest(topics=[topic])
        response = await self.call(ADMIN + "CreateTopics", request, admin_pb2.CreateTopicsResponse)
        assert not response.results[0].HasField("error"), response
        await self.until_led(name, partitions)

    async def delete(self, name: str) -> None:
        request = admin_pb2.DeleteTopicsRequest(topics=[name])
        response = await self.call(ADMIN + "DeleteTopics", request, admin_pb2.DeleteTopicsResponse)
        assert not response.results[0].HasField("error"), response

    async def grow(self, name: str, count: int) -> None:
        request = admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.TopicGrowth(topic=name, partition_count=count)])
        response = await self.call(ADMIN + "CreatePartitions", request, admin_pb2.CreatePartitionsResponse)
        assert not response.results[0].HasField("error"), response
        await self.until_led(name, count)

    async def until_logged(self, leader: LeaderReplica, end: int) -> None:
        while leader.log_end_offset < end:  # noqa: ASYNC110  virtual time
            await asyncio.sleep(0.01)

    async def create_internal(self, name: str) -> None:
        await self.decide(CreateInternalTopic(name=name))

    async def forwarded(self, handler: UnaryHandler, method: str, request: Message, node: int) -> bytes:
        """As another node passes a call on. StreamlogError."""
        info = CallInfo(method=method, peer="node3:1", metadata={FORWARDED: "1"})

        async def calling() -> bytes:
            try:
                return await handler(request.SerializeToString(), info)
            except RpcError as error:
                raise from_rpc(error) from None

        return await self.world.host(f"node{node}").spawn(calling())

    async def copy_to_follower(self, follower: int, name: str) -> None:
        """All that the leader, node 1, has to a follower that runs; and its report back."""
        leader = self.node.leader(name)
        data = await self.world.host("node1").spawn(leader.log.read(Offset(0), 1 << 20))
        end, node = leader.log_end_offset, self.nodes[follower]
        await self.on(lambda: node.links.following[0].on_batches(data, end, Offset(0)), follower)
        await asyncio.sleep(1)
        await self.follow(follower, end, name)

    async def until_led(self, name: str, partitions: int) -> None:
        """Until the running nodes have taken their leaderships."""
        topic = self.rig.topic(name)
        for index in range(partitions):
            leader = topic.partitions[index].leader
            while leader in self.nodes:
                try:
                    self.nodes[leader].leader(name, index)
                    break
                except StreamlogError:
                    await asyncio.sleep(0.001)  # virtual time

    async def follow(self, follower: int, end: int, name: str = "t", partition: int = 0) -> None:
        """A follower reports what it has on stable storage."""
        leader = self.node.leader(name, partition)
        await self.on(lambda: leader.on_position(BrokerId(follower), Offset(end)))

    async def produce(
        self,
        *values: bytes,
        acks: common_pb2.Acks.ValueType = common_pb2.ACKS_ALL,
        partition: int = 0,
        node: int = 1,
        **fields: Any,
    ) -> batches_pb2.ProduceResult:
        data = fields.pop("batches", None)
        part = batches_pb2.PartitionBatches(
            topic=fields.pop("topic", "t"),
            partition=partition,
            batches=batch(values) if data is None else data,
            **{key: fields.pop(key) for key in ("leader_epoch", "topic_id") if key in fields},
        )
        request = batches_pb2.ProduceRequest(acks=acks, partitions=[part], **fields)
        response = await self.call(BATCHES + "Produce", request, batches_pb2.ProduceResponse, node=node)
        return response.results[0]

    async def produce_at(self, node: int | None, *values: bytes, **fields: Any) -> None:
        """Done; `node`: the leader, None: node 1."""
        result = await self.produce(*values, node=node or 1, **fields)
        assert not result.HasField("error"), result


class Calls(Generic[Response]):
    """A stream of messages."""

    def __init__(self, stream: Stream, response_type: type[Response]) -> None:
        self._stream = stream
        self._type = response_type

    async def send(self, message: Message) -> None:
        await self._stream.send(message.SerializeToString())

    async def recv(self) -> Response | None:
        """None at the end. StreamlogError, RpcError."""
        try:
            data = await self._stream.recv()
        except RpcError as error:
            raise from_rpc(error) from None
        return None if data is None else self._type.FromString(data)

    async def done_sending(self) -> None:
        await self._stream.done_sending()


def simulate(main: Callable[[Cluster], Coroutine[Any, Any, T]], seed: int = 0, order: Order = Order.SHUFFLE) -> T:
    """Run a story of one cluster."""

    async def story(loop: SimLoop) -> T:
        cluster = Cluster(loop, seed)
        result = await main(cluster)
        cluster.world.stop()
        return result

    return run(story, seed=seed, order=order)
