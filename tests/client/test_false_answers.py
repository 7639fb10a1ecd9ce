"""Whatever a node answers, a user of the client gets a result or an error of streamlog."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
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
from streamlog.ports import Ports
from tests.fuzz.known import Known
from tests.fuzz.messages import Maker
from tests.node.kit import Nodes, run_story
from tests.support.changed_answers import ChangedNetwork

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


class FalseNode:
    """What it answers has values in it that no node sends, or is another message of that kind."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def at(self, address: str) -> FalseNode:
        """At every address."""
        return self

    async def unary(self, method: str, call: Callable[[], Awaitable[bytes]]) -> bytes:
        return self.message(method, await call())

    def message(self, method: str, message: bytes) -> bytes:
        if self._rng.random() >= SHARE:
            return message
        service, _, name = method[1:].rpartition("/")
        kind = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name].output_type
        false: Any = message_factory.GetMessageClass(kind)()
        maker = Maker(self._rng, KNOWN, hostile=True)
        if self._rng.random() < 0.4:
            maker.fill(false, 0)
        else:
            false.ParseFromString(message)
            for _ in range(self._rng.randint(1, 3)):
                maker.perturb(false)
        return bytes(false.SerializeToString())


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
                node = FalseNode(random.Random(f"{number}/{at}"))
                found = replace(ports, network=ChangedNetwork(ports.network, node.at))
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
