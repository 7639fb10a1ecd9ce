"""A program that reaches the nodes' ports and is not a node (FAULTS "Hostile peers"): what it sends, and a client that
sends it.

It has read the metadata, so it knows ids and epochs, and says nothing that it could be believed: messages of the quorum
(tests/raft/hostile), of a follower that has more than its leader, of a leader that does not lead, of a coordinator with
epochs that cannot be, and of nodes in registrations that are stale. Each is refused or ignored, and changes nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from google.protobuf.message import Message

from streamlog.api.pb import common_pb2, controller_pb2, coordination_pb2, replication_pb2
from streamlog.errors import StreamlogError
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.records import Broker, Partition
from streamlog.ports import Channel, Network, RpcError

from ...raft.protocol.hostile import forge

ANSWER_S: Final = 0.5
FAR: Final = 1 << 40
"""An offset, an epoch or an index that nothing in a run has."""
EXTREMES: Final = ((1 << 64) - 1, (1 << 63) - 1, 1 << 62, FAR)
REPLICATE: Final = "/streamlog.internal.v1.Replication/Replicate"
CALLS_MAX: Final = 4


class Hostile:
    """One visit. `image`: what the program knows of the cluster."""

    def __init__(self, network: Network, image: MetadataImage, rng: random.Random) -> None:
        self._network = network
        self._image = image
        self._rng = rng

    async def visit(self, target: str, other: str) -> None:
        """Send a few messages to the node at `target`, some in the name of that at `other`."""
        as_voter = other if self._rng.random() < 0.5 else None
        await forge(self._network, target, as_voter, self._rng, cluster_id=self._image.cluster_id)
        channel = self._network.connect(target)
        try:
            for method, request in self._rng.sample(self.calls(), CALLS_MAX):
                await _call(channel, method, request)
            await _follow(channel, self.stream())
        finally:
            await channel.close()

    def calls(self) -> list[tuple[str, Message]]:
        topic, partition_id, partition = self._partition()
        broker = self._rng.choice(list(self._image.brokers.values()))
        stale = self._rng.choice((0, max(0, broker.epoch - 1), broker.epoch + 1, *EXTREMES))
        node_id = broker.broker_id
        key = controller_pb2.PartitionKey(topic_id=topic.topic_id, partition=partition_id)
        return [
            *(("Coordination/WriteMarkers", request) for request in self._markers(topic, partition_id)),
            (
                "Controller/Heartbeat",
                controller_pb2.HeartbeatRequest(node_id=node_id, broker_epoch=stale, want_fence=True),
            ),
            (
                "Controller/ReportOfflineReplicas",
                controller_pb2.ReportOfflineReplicasRequest(node_id=node_id, broker_epoch=stale, partitions=[key]),
            ),
            (
                "Controller/ResignLeadership",
                controller_pb2.ResignLeadershipRequest(
                    node_id=node_id, broker_epoch=stale, partition=key, leader_epoch=partition.leader_epoch
                ),
            ),
            ("Controller/Suspect", controller_pb2.SuspectRequest(node_id=node_id, broker_epoch=stale)),
            *(("Controller/AlterPartition", request) for request in self._proposals(key, partition, broker, stale)),
            *(("Replication/FetchRange", request) for request in self._ranges(topic, partition_id)),
            (
                "Replication/DescribeReplicas",
                replication_pb2.DescribeReplicasRequest(cluster_id="other", partitions=[key]),
            ),
            ("Controller/CreateInternalTopic", controller_pb2.CreateInternalTopicRequest(name="__false")),
        ]

    def _partition(self) -> tuple[Topic, int, Partition]:
        topic = self._rng.choice(list(self._image.topics.values()))
        partition_id = self._rng.randrange(len(topic.partitions))
        return topic, partition_id, topic.partitions[partition_id]

    def _markers(self, topic: Topic, partition_id: int) -> list[coordination_pb2.WriteMarkersRequest]:
        """Of no transaction: epochs that cannot be, and a partition that does not exist."""
        there = common_pb2.TopicPartition(topic=topic.name, partition=partition_id)
        nowhere = common_pb2.TopicPartition(topic=topic.name, partition=10_000)
        kind = coordination_pb2.Marker
        return [
            coordination_pb2.WriteMarkersRequest(markers=[marker])
            for marker in (
                kind(producer_id=1, producer_epoch=40_000, commit=True, partitions=[there]),
                kind(producer_id=1, producer_epoch=-5, partitions=[there]),
                kind(producer_id=-1, producer_epoch=1, partitions=[there]),
                kind(producer_id=1, producer_epoch=1, coordinator_epoch=-7, partitions=[there]),
                kind(producer_id=FAR, producer_epoch=1, commit=True, partitions=[nowhere]),
            )
        ]

    def _proposals(
        self, key: controller_pb2.PartitionKey, partition: Partition, broker: Broker, stale: int
    ) -> list[controller_pb2.AlterPartitionRequest]:
        """ISRs that no leader proposes: of another node, of a stale registration, in another epoch, of strangers."""
        epochs = {one.broker_id: one.epoch for one in self._image.brokers.values()}
        everyone = [
            controller_pb2.IsrMember(node_id=one, broker_epoch=epochs.get(one, 0)) for one in partition.replicas
        ]
        leader = partition.leader if partition.leader >= 0 else broker.broker_id
        not_leading = next((one for one in epochs if one != leader), broker.broker_id)

        def proposal(
            node_id: int, broker_epoch: int, isr: Sequence[controller_pb2.IsrMember], *, later: int = 0
        ) -> controller_pb2.AlterPartitionRequest:
            one = controller_pb2.IsrProposal(
                partition=key,
                leader_epoch=partition.leader_epoch + later,
                partition_epoch=partition.partition_epoch,
                isr=isr,
            )
            return controller_pb2.AlterPartitionRequest(node_id=node_id, broker_epoch=broker_epoch, proposals=[one])

        strangers = [controller_pb2.IsrMember(node_id=77, broker_epoch=1)]
        return [
            proposal(not_leading, epochs[not_leading], everyone),
            proposal(leader, epochs.get(leader, 0) + 1, everyone),
            proposal(leader, stale if stale != epochs.get(leader) else FAR, everyone[:1]),
            proposal(leader, epochs.get(leader, 0), everyone, later=1),
            proposal(leader, epochs.get(leader, 0), strangers),
            proposal(leader, epochs.get(leader, 0), []),
        ]

    def _ranges(self, topic: Topic, partition_id: int) -> list[replication_pb2.FetchRangeRequest]:
        kind = replication_pb2.FetchRangeRequest
        far = self._rng.choice(EXTREMES)
        return [
            kind(topic_id=topic.topic_id, partition=partition_id, start_offset=far, end_offset=far, max_bytes=1 << 30),
            kind(topic_id=topic.topic_id, partition=partition_id, start_offset=5, end_offset=1, max_bytes=1),
            kind(topic_id=bytes(16), partition=1 << 31, start_offset=0, end_offset=far, max_bytes=0),
        ]

    def stream(self) -> list[replication_pb2.ReplicateRequest]:
        """Of a follower: with an id and an epoch that are right, it has what no leader has given it."""
        kind = replication_pb2.ReplicateRequest
        topic, partition_id, partition = self._partition()
        follower = self._rng.choice(list(self._image.brokers.values()))
        right = self._rng.random() < 0.5
        hello = replication_pb2.ReplicaHello(
            cluster_id=self._image.cluster_id,
            node_id=follower.broker_id if right else self._rng.choice((77, follower.broker_id)),
            broker_epoch=follower.epoch if right else self._rng.choice(EXTREMES),
            leader_id=max(0, partition.leader),
        )
        far = self._rng.choice(EXTREMES)
        follow = replication_pb2.Follow(
            slot=1,
            topic_id=topic.topic_id,
            partition=partition_id,
            leader_epoch=partition.leader_epoch,
            fetch_offset=far,
            last_epoch=partition.leader_epoch,
            log_end_offset=far,
        )
        position = replication_pb2.Position(slot=1, log_end_offset=far)
        unknown = replication_pb2.Position(slot=9, log_end_offset=1)
        follows = [kind(follow=[follow]), kind(positions=[position]), kind(positions=[unknown])]
        return [kind(hello=hello), *self._rng.sample(follows, 2)]


async def _call(channel: Channel, method: str, request: Message) -> None:
    try:
        await channel.unary(f"/streamlog.internal.v1.{method}", request.SerializeToString(), timeout_s=ANSWER_S)
    except (RpcError, StreamlogError):
        pass


async def _follow(channel: Channel, messages: Sequence[Message]) -> None:
    try:
        async with asyncio.timeout(ANSWER_S), channel.stream(REPLICATE) as stream:
            for message in messages:
                await stream.send(message.SerializeToString())
            while await stream.recv() is not None:
                pass
    except (RpcError, StreamlogError, TimeoutError):
        pass
