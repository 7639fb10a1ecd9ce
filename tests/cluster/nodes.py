"""How a node and the clients of a simulated cluster are made: what production makes, on simulated ports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.consumer.async_consumer import AsyncConsumer
from streamlog.client.consumer.start_positions import EARLIEST
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.client.producer.batches.producer_batch import RecordFuture
from streamlog.config import Loaded, PropertiesFile, load_node
from streamlog.errors import (
    BrokerNotAvailableError,
    InvalidReplicationFactorError,
    NotControllerError,
    OutcomeUnknownError,
    QuorumUnavailableError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import MetadataVersion
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.node import Node
from streamlog.ports import Ports

from .checking.plain_reader import PlainReader
from .clients.workload import Polled, Reader, Sender
from .plan import Plan

PORT: Final = 9092
RETRY_S: Final = 0.1
POLL_S: Final = 1.0
NOT_YET: Final = (
    BrokerNotAvailableError,
    InvalidReplicationFactorError,
    NotControllerError,
    OutcomeUnknownError,
    QuorumUnavailableError,
    RequestTimedOutError,
)
"""What a cluster that is starting says to a client that creates a topic."""


def properties(plan: Plan, name: str) -> dict[str, str]:
    """What a node's server.properties say."""
    first = plan.nodes[: plan.voters]
    named = plan.may_vote if name in plan.may_vote and name not in first else first  # it waits to be added
    voters = [f"{host.removeprefix('n')}@{address(host)}" for host in named]
    return {
        "node.id": name.removeprefix("n"),
        "listeners": f"PLAINTEXT://{address(name)}",
        "allow.plaintext.public.listeners": "true",
        "log.dirs": ",".join(plan.log_dirs),
        "controller.quorum.voters": ",".join(voters),
        **plan.settings,
    }


def address(name: str) -> str:
    return f"{name}:{PORT}"


def load(plan: Plan, name: str) -> Loaded:
    lines = "".join(f"{key}={value}\n" for key, value in properties(plan, name).items())
    return load_node(PropertiesFile("server.properties", lines))


def make_node(loaded: Loaded, ports: Ports, metadata_version_max: MetadataVersion = METADATA_VERSION_MAX) -> Node:
    return Node(loaded, ports, metadata_version_max)


def bootstrap(plan: Plan) -> str:
    return ",".join(address(name) for name in plan.nodes)


async def make_admin(plan: Plan, ports: Ports) -> AsyncAdmin:
    """Its calls give up soon, as everything here is quick."""
    settings = {
        "bootstrap.servers": bootstrap(plan),
        "default.api.timeout.ms": "10000",
        "request.timeout.ms": "2000",
        "retry.backoff.max.ms": "300",
    }
    return await AsyncAdmin(settings, ports=ports).start()


async def create_topics(plan: Plan, ports: Ports) -> None:
    """As soon as enough nodes are there. Tried again until then, as a user at a terminal would."""
    admin = await make_admin(plan, ports)
    for topic in plan.topics:
        configs = {"min.insync.replicas": str(topic.min_insync_replicas), **topic.configs}
        while True:
            try:
                await admin.create_topic(topic.name, topic.partitions, topic.replication_factor, configs=configs)
            except TopicAlreadyExistsError:
                break
            except NOT_YET:
                await asyncio.sleep(RETRY_S)
            else:
                break
    await admin.close()


class ProducerSender:
    """The client library's producer as a `workload.Sender`."""

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer

    async def send(self, partition: TopicPartition, key: bytes | None, value: bytes) -> Awaitable[Offset]:
        await self._producer.wait_until_room()
        return _offset(self._producer.send(partition.topic, value, key=key, partition=partition.partition))

    async def close(self) -> None:
        await self._producer.close()


async def _offset(sent: RecordFuture) -> Offset:
    return (await sent).offset


async def make_sender(plan: Plan, ports: Ports, *, patient: bool = False) -> Sender:
    """`patient`: does not give up before anybody asks how long it took."""
    settings = {"bootstrap.servers": bootstrap(plan), **plan.load.producer}
    if patient:
        settings |= {"delivery.timeout.ms": "120000", "linger.ms": "0"}
    return ProducerSender(await AsyncProducer(settings, ports=ports).start())


class ConsumerReader:
    """The client library's consumer as a `workload.Reader`."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer

    async def poll(self) -> Sequence[Polled]:
        records = await self._consumer.poll(timeout_s=POLL_S)
        return [Polled(TopicPartition(r.topic, PartitionId(r.partition)), r.offset, r.value) for r in records]

    async def close(self) -> None:
        await self._consumer.close()


async def make_reader(plan: Plan, ports: Ports, partitions: Sequence[TopicPartition]) -> Reader:
    settings = {"bootstrap.servers": bootstrap(plan), "auto.offset.reset": "earliest", **plan.load.consumer}
    consumer = await AsyncConsumer(settings, ports=ports).start()
    while True:
        try:
            await consumer.assign(partitions, start=EARLIEST)
        except UnknownTopicOrPartitionError:  # the node that it asks is slow to know the new topics
            await asyncio.sleep(RETRY_S)
        else:
            return ConsumerReader(consumer)


def make_plain_reader(plan: Plan, ports: Ports, partitions: Sequence[TopicPartition]) -> Reader:
    return PlainReader(ports, [address(name) for name in plan.nodes], partitions)
