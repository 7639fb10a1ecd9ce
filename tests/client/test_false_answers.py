"""Whatever a node answers, a user of the client gets a result or an error of streamlog."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from msgspec.structs import replace

from streamlog.access.quotas import QuotaEntity, QuotaFilter
from streamlog.client import EARLIEST, AsyncAdmin, AsyncConsumer, AsyncProducer
from streamlog.client.admin import values
from streamlog.client.consumer.offset_finder import Bound
from streamlog.client.transactions.transaction_manager import PreparedTransaction
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition
from streamlog.ports import Channel, Network, Ports, Server, Stream, StreamHandler, UnaryHandler
from tests.fuzz.known import Known
from tests.fuzz.messages import Maker
from tests.node.kit import Nodes, run_story

AT: Final = TopicPartition("t", PartitionId(0))
TOPIC: Final = values.ConfigResource.topic("t")
KNOWN: Final = Known(cluster_id="c", node_ids=(1, 2), topics={"t": bytes(16)}, groups=("g",))
SHARE: Final = 0.5
"""Of the answers: false ones alone would end each call at the first."""
TIMES: Final = 20
ENDS_S: Final = 60.0
"""Of virtual time: several times as long as any of the timeouts."""
SERVER: Final = "n1:9092"
SETTINGS: Final = {"request.timeout.ms": "2000", "default.api.timeout.ms": "5000"}
PRODUCING: Final = {"request.timeout.ms": "2000", "delivery.timeout.ms": "5000", "max.block.ms": "5000"}

ADMIN: Final[tuple[Callable[[AsyncAdmin], Awaitable[object]], ...]] = (
    lambda admin: admin.abort_hanging_transaction(AT, 5),
    lambda admin: admin.abort_transaction("x"),
    lambda admin: admin.add_voter(3, address="node3:9092"),
    lambda admin: admin.alter_broker_loggers(1, {"streamlog.raft": values.LoggerLevel.WARN}),
    lambda admin: admin.alter_client_quotas({QuotaEntity(user="u"): {"producer_byte_rate": 1.0}}),
    lambda admin: admin.alter_group_offsets("g", {AT: 5}),
    lambda admin: admin.alter_partition_reassignments([values.Reassignment(at=AT, replicas=[1])]),
    lambda admin: admin.alter_replica_log_dirs({values.ReplicaOnNode("t", 0, 1): "/data"}),
    lambda admin: admin.cancel_drain(1),
    lambda admin: admin.create_partitions([values.TopicGrowth(topic="t", partition_count=3)]),
    lambda admin: admin.create_topic("t", 1, 1),
    lambda admin: admin.create_user("u", "long enough 1"),
    lambda admin: admin.delete_group_offsets("g", [AT]),
    lambda admin: admin.delete_groups(["g"]),
    lambda admin: admin.delete_records({AT: Bound.LATEST}),
    lambda admin: admin.delete_topic("gone"),
    lambda admin: admin.delete_user("u"),
    lambda admin: admin.describe_acls(),
    lambda admin: admin.describe_broker_loggers(1),
    lambda admin: admin.describe_client_quotas(QuotaFilter()),
    lambda admin: admin.describe_cluster(),
    lambda admin: admin.describe_configs([TOPIC]),
    lambda admin: admin.describe_group("g"),
    lambda admin: admin.describe_log_dirs(),
    lambda admin: admin.describe_node(),
    lambda admin: admin.describe_topic("t"),
    lambda admin: admin.describe_transactions(["x"]),
    lambda admin: admin.digest_replicas("t", 0),
    lambda admin: admin.drain_node(1),
    lambda admin: admin.drain_progress(1),
    lambda admin: admin.elect_leaders([AT]),
    lambda admin: admin.end_prepared_transaction("x", PreparedTransaction(1, 1), commit=True),
    lambda admin: admin.find_hanging_transactions(["t"]),
    lambda admin: admin.group_lag("g"),
    lambda admin: admin.grow_topic("t", 3),
    lambda admin: admin.list_group_offsets("g"),
    lambda admin: admin.list_groups(),
    lambda admin: admin.list_offsets({AT: Bound.LATEST}),
    lambda admin: admin.list_partition_reassignments([AT]),
    lambda admin: admin.list_topics(),
    lambda admin: admin.list_transactions(),
    lambda admin: admin.list_users(),
    lambda admin: admin.preview_unclean_election([AT]),
    lambda admin: admin.remove_voter(2),
    lambda admin: admin.repair_replicas("t", 0),
    lambda admin: admin.rotate_user("u", "long enough 1"),
    lambda admin: admin.unregister_node(2),
    lambda admin: admin.update_metadata_version(),
)


async def produce(ports: Ports) -> None:
    async with AsyncProducer(PRODUCING, bootstrap_servers=SERVER, ports=ports) as producer:
        await asyncio.gather(*(producer.send("t", b"value", partition=0) for _ in range(3)))


async def produce_in_transactions(ports: Ports) -> None:
    async with AsyncProducer(PRODUCING, bootstrap_servers=SERVER, transactional_id="x", ports=ports) as producer:
        for _ in range(3):
            async with producer.transaction():
                producer.send("t", b"value", partition=0)
                await producer.send_offsets({AT: 1}, "g")


async def read_all(ports: Ports) -> None:
    async with AsyncConsumer(SETTINGS, bootstrap_servers=SERVER, ports=ports) as consumer:
        await consumer.assign([AT], start=EARLIEST)
        for _ in range(3):
            await consumer.poll(timeout_s=1.0)


async def read_in_group(ports: Ports) -> None:
    settings = {**SETTINGS, "group.id": "g", "auto.offset.reset": "earliest"}
    async with AsyncConsumer(settings, bootstrap_servers=SERVER, ports=ports) as consumer:
        consumer.subscribe(["t"])
        for _ in range(3):
            await consumer.poll(timeout_s=1.0)
        await consumer.commit()


USES: Final[tuple[Callable[[Ports], Awaitable[None]], ...]] = (
    produce,
    produce_in_transactions,
    read_all,
    read_in_group,
)


class FalseNetwork:
    """A client's network. What nodes answer has values in it that no node sends, or is another message of that kind."""

    def __init__(self, network: Network, rng: random.Random) -> None:
        self._network = network
        self._rng = rng

    def connect(self, address: str) -> Channel:
        return _FalseChannel(self._network.connect(address), self._rng)

    async def listen(
        self,
        address: str,
        *,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
        listener: str = "",
    ) -> Server:
        raise NotImplementedError


class _FalseChannel:
    def __init__(self, channel: Channel, rng: random.Random) -> None:
        self._channel = channel
        self._rng = rng

    async def unary(
        self, method: str, request: bytes, *, timeout_s: float, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        answer = await self._channel.unary(method, request, timeout_s=timeout_s, metadata=metadata)
        return _perhaps_false(self._rng, method, answer)

    @asynccontextmanager
    async def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AsyncIterator[Stream]:
        async with self._channel.stream(method, metadata=metadata) as stream:
            yield _FalseStream(stream, method, self._rng)

    async def close(self) -> None:
        await self._channel.close()


class _FalseStream:
    def __init__(self, stream: Stream, method: str, rng: random.Random) -> None:
        self._stream = stream
        self._method = method
        self._rng = rng

    async def send(self, message: bytes) -> None:
        await self._stream.send(message)

    async def recv(self) -> bytes | None:
        message = await self._stream.recv()
        return None if message is None else _perhaps_false(self._rng, self._method, message)

    async def done_sending(self) -> None:
        await self._stream.done_sending()


def _perhaps_false(rng: random.Random, method: str, answer: bytes) -> bytes:
    if rng.random() >= SHARE:
        return answer
    service, _, name = method[1:].rpartition("/")
    kind = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name].output_type
    message: Any = message_factory.GetMessageClass(kind)()
    maker = Maker(rng, KNOWN, hostile=True)
    if rng.random() < 0.4:
        maker.fill(message, 0)
    else:
        message.ParseFromString(answer)
        for _ in range(rng.randint(1, 3)):
            maker.perturb(message)
    return bytes(message.SerializeToString())


def test_a_user_gets_a_result_or_an_error_of_streamlog() -> None:
    uses: list[Callable[[Ports], Awaitable[None]]] = [*USES, *(partial(_administer, call) for call in ADMIN)]

    ends: Counter[bool] = Counter()  # whether with a result

    async def story(nodes: Nodes) -> None:
        nodes.start(offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
        await nodes.ready()
        host = nodes.world.host("client")
        ports = host.boot()
        await host.spawn(_make_topic(ports))
        for number in range(TIMES):
            for at, use in enumerate(uses):
                rng = random.Random(f"{number}/{at}")
                found = replace(ports, network=FalseNetwork(ports.network, rng))
                ends[await host.spawn(_has_result(use, found))] += 1

    run_story(story, voters=1)
    assert ends[True] > TIMES
    assert ends[False] > TIMES


async def _make_topic(ports: Ports) -> None:
    async with AsyncAdmin(SETTINGS, bootstrap_servers=SERVER, ports=ports) as admin:
        await admin.create_topic("t", 1, 1)
    await produce(ports)


async def _administer(call: Callable[[AsyncAdmin], Awaitable[object]], ports: Ports) -> None:
    async with AsyncAdmin(SETTINGS, bootstrap_servers=SERVER, ports=ports) as admin:
        await call(admin)


async def _has_result(use: Callable[[Ports], Awaitable[None]], ports: Ports) -> bool:
    try:
        async with asyncio.timeout(ENDS_S):
            await use(ports)
    except StreamlogError:
        return False
    return True
