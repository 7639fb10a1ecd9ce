"""Transactions of the real client on whole nodes, of which some die at bad moments (SEMANTICS 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from streamlog.client import EARLIEST, AsyncAdmin, AsyncConsumer, AsyncProducer
from streamlog.client.admin.transaction_values import TransactionState
from streamlog.errors import (
    InvalidTransactionStateError,
    ProducerFencedError,
    StreamlogError,
    TransactionAbortableError,
    UnknownProducerIdError,
)
from streamlog.groups.placement import partition_of
from streamlog.model import Acks, PartitionId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.node.data_plane import DataPlane
from streamlog.ports import Ports
from streamlog.records.header import TRANSACTIONAL_BIT
from streamlog.services.batches.transaction_verification import Verifier
from streamlog.services.transactions.markers import LocalMarkers
from streamlog.transactions.lifecycle import AddPartitions
from tests.node.calls import Calls, until_done
from tests.node.kit import Nodes, run_story
from tests.storage.batches import batch

SERVERS = "n1:9092,n2:9092,n3:9092"


class Scene:
    """Three nodes, topics `in` and `out` of three partitions each, and a client's machine."""

    def __init__(self, nodes: Nodes, ports: Ports) -> None:
        self.nodes = nodes
        self.ports = ports

    def producer(self, name: str = "x", **settings: Any) -> AsyncProducer:
        return AsyncProducer(bootstrap_servers=SERVERS, transactional_id=name, ports=self.ports, **settings)

    async def committed(self, topic: str = "out", quiet_s: float = 1.0) -> list[bytes]:
        """Everything that a reader of committed records gets until no record arrives for a while."""
        return await self.read(topic, quiet_s, "read_committed")

    async def read(self, topic: str, quiet_s: float, isolation: str) -> list[bytes]:
        found: list[bytes] = []
        consumer = AsyncConsumer(bootstrap_servers=SERVERS, isolation_level=isolation, ports=self.ports)
        async with consumer:
            await consumer.assign([TopicPartition(topic, PartitionId(n)) for n in range(3)], start=EARLIEST)
            while records := await consumer.poll(timeout_s=quiet_s):
                found += [record.value or b"" for record in records]
        return found

    def leader_of(self, topic: str, partition: int) -> int:
        image = self.nodes.alive()[0].view.image
        return int(image.require_topic(topic).partitions[PartitionId(partition)].leader)

    def coordinator_of(self, name: str = "x") -> int:
        return self.leader_of("__transaction_state", partition_of(name, 50))

    def plane_of(self, node_id: int) -> DataPlane:
        plane = self.nodes.node(node_id)._plane
        assert plane is not None
        return plane

    def markers_of(self, node_id: int) -> LocalMarkers:
        """What writes markers on that node."""
        return self.plane_of(node_id)._local_markers


def play(story: Callable[[Scene], Awaitable[None]], seed: int = 1, **static: str) -> Nodes:
    async def prepared(nodes: Nodes) -> None:
        nodes.start(**static)
        await nodes.ready()
        host = nodes.world.host("client")
        scene = Scene(nodes, host.boot())

        async def work() -> None:
            calls = Calls(scene.ports.network)
            for topic in ("in", "out"):
                await until_done(partial(calls.create_topic, "n2:9092", topic, 3))
            await calls.close()
            await story(scene)

        await host.spawn(work())

    return run_story(prepared, seed=seed)


async def write(scene: Scene, producer: AsyncProducer, *values: bytes) -> None:
    for number, value in enumerate(values):
        producer.send("out", value, partition=number % 3)


def test_a_block_that_ends_commits_and_one_that_raises_aborts() -> None:
    async def story(scene: Scene) -> None:
        async with scene.producer() as producer:
            with pytest.raises(InvalidTransactionStateError, match="only in an open transaction"):
                producer.send("out", b"outside")
            async with producer.transaction():
                await write(scene, producer, b"1", b"2", b"3", b"4")

            async def failing() -> None:
                async with producer.transaction():
                    await write(scene, producer, b"no", b"no", b"no")
                    await producer.flush()
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await failing()
            async with producer.transaction():
                pass
            async with producer.transaction():
                producer.send("out", b"5")
        assert sorted(await scene.committed()) == [b"1", b"2", b"3", b"4", b"5"]
        assert b"no" in await scene.read("out", 1.0, "read_uncommitted")

    play(story)


@pytest.mark.parametrize("prepares", [False, True], ids=["commit", "hand_over"])
def test_what_is_sent_while_the_end_waits_for_records_is_refused(prepares: bool) -> None:
    async def story(scene: Scene) -> None:
        async with scene.producer(buffer_memory=300_000, max_request_size=200_000) as producer:
            refused: list[str] = []

            def send_more(_sent: object) -> None:
                with pytest.raises(InvalidTransactionStateError) as raised:
                    producer.send("out", b"late", partition=1)
                refused.append(str(raised.value))

            await producer.begin_transaction()
            producer.send("out", b"1", partition=0).add_done_callback(send_more)
            if prepares:
                await producer.hand_over_transaction()
            await producer.commit_transaction()
            assert len(refused) == 1
            assert "ends when its records are written" in refused[0]
            await producer.begin_transaction()
            producer.send("out", b"x", partition=1)
            many = asyncio.ensure_future(producer.send_many("out", [b"x"] * 80_000, partition=0))
            await asyncio.sleep(0)  # it waits for space then
            await (producer.hand_over_transaction() if prepares else producer.commit_transaction())
            with pytest.raises(InvalidTransactionStateError):
                await many
            if prepares:
                await producer.abort_transaction()
            async with producer.transaction():
                producer.send("out", b"2", partition=2)
        values = await scene.committed()
        assert {value for value in values if value != b"x"} == {b"1", b"2"}
        assert values.count(b"x") < 80_000

    play(story)


def test_transactions_in_a_row_have_the_next_one_opened_with_the_end() -> None:
    """Leaders ask the coordinator in the first two. A pause takes back what is not used; nothing is lost by it."""
    asked: list[ProducerEpoch] = []
    add = Verifier.add

    async def counting(self: Verifier, command: AddPartitions) -> None:
        asked.append(command.producer_epoch)
        await add(self, command)

    async def story(scene: Scene) -> None:
        async def in_a_row(producer: AsyncProducer, values: range) -> None:
            for value in values:
                async with producer.transaction():
                    await write(scene, producer, *[b"%d" % value] * 3)
                    await producer.send_offsets({TopicPartition("in", PartitionId(0)): value}, "g")

        async with scene.producer() as producer, AsyncAdmin(bootstrap_servers=SERVERS, ports=scene.ports) as admin:
            await in_a_row(producer, range(6))
            assert set(asked) == {0, 1}
            (ahead,) = (await admin.list_transactions()).transactions
            assert ahead.state in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT)
            await asyncio.sleep(3.0)
            (closed,) = (await admin.list_transactions()).transactions
            assert closed.state is TransactionState.COMPLETE_COMMIT
            await in_a_row(producer, range(6, 10))
            assert set(asked) == {0, 1, 6, 7}
            assert (await admin.list_group_offsets("g"))[TopicPartition("in", PartitionId(0))].offset == 9
        found = await scene.committed()
        assert sorted(found) == sorted([b"%d" % value for value in range(10)] * 3)

    with patch.object(Verifier, "add", counting):
        play(story)


@pytest.mark.parametrize("who", ["coordinator", "leader"])
def test_what_is_opened_ahead_outlives_those_who_know_of_it(who: str) -> None:
    async def story(scene: Scene) -> None:
        async with scene.producer() as producer:
            for value in range(6):
                if value == 4:
                    node = scene.coordinator_of() if who == "coordinator" else scene.leader_of("out", 0)
                    scene.nodes.host(node).crash()
                async with producer.transaction():
                    await write(scene, producer, *[b"%d" % value] * 3)
        assert sorted(await scene.committed()) == sorted([b"%d" % value for value in range(6)] * 3)

    play(story)


def test_a_record_that_cannot_be_written_leaves_abort_and_the_next_transaction() -> None:
    async def story(scene: Scene) -> None:
        async with scene.producer(max_block_ms=2_000) as producer:

            async def failing() -> None:
                async with producer.transaction():
                    producer.send("out", b"no")
                    producer.send("nowhere", b"no")

            with pytest.raises(TransactionAbortableError, match="UNKNOWN_TOPIC"):
                await failing()
            async with producer.transaction():
                producer.send("out", b"yes")
        assert await scene.committed() == [b"yes"]

    play(story)


def test_of_two_with_one_name_the_older_is_fenced_whatever_it_does() -> None:
    async def story(scene: Scene) -> None:
        async with scene.producer() as older, scene.producer() as newer:

            async def zombie() -> None:
                async with older.transaction():
                    await write(scene, older, b"zombie")
                    await older.flush()
                    async with newer.transaction():
                        await write(scene, newer, b"mine")
                    await write(scene, older, b"more of it")

            with pytest.raises(ProducerFencedError):
                await zombie()
            with pytest.raises(ProducerFencedError):
                await older.begin_transaction()
            async with newer.transaction():
                await write(scene, newer, b"again")
        assert await scene.committed() == [b"mine", b"again"]

    play(story)


@pytest.mark.parametrize("seed", range(3))
def test_the_coordinator_dies_between_the_decision_and_the_markers(seed: int) -> None:
    async def story(scene: Scene) -> None:
        async with scene.producer() as producer:
            async with producer.transaction():
                await write(scene, producer, b"0")
            coordinator = scene.coordinator_of()
            async with producer.transaction():
                await write(scene, producer, b"1", b"2", b"3")
                await producer.flush()
                # Its markers reach no leader: only the decision is left of it.
                for other in (1, 2, 3):
                    scene.markers_of(other)._partitions = Nowhere()
            assert await scene.committed(quiet_s=0.5) == [b"0"]
            scene.nodes.host(coordinator).crash()
            for other in (1, 2, 3):
                if other != coordinator:
                    scene.markers_of(other)._partitions = scene.plane_of(other).replicas
            async with producer.transaction():
                await write(scene, producer, b"4")
        assert sorted(await scene.committed(quiet_s=4)) == [b"0", b"1", b"2", b"3", b"4"]

    play(story, seed)


class Nowhere:
    def leader(self, *_: object) -> Any:
        raise StreamlogError("no node leads it")


def test_the_leader_of_a_partition_moves_while_the_transaction_is_open() -> None:
    async def story(scene: Scene) -> None:
        async with scene.producer() as producer:
            async with producer.transaction():
                await write(scene, producer, b"1", b"2", b"3")
                await producer.flush()
                former = scene.leader_of("out", 0)
                scene.nodes.host(former).crash()
                await write(scene, producer, b"4", b"5", b"6")
            async with producer.transaction():
                await write(scene, producer, b"7", b"8", b"9")
        assert sorted(await scene.committed(quiet_s=4)) == [b"%d" % n for n in range(1, 10)]

    play(story)


def test_a_transaction_left_open_is_aborted_in_time_and_readers_go_on() -> None:
    async def story(scene: Scene) -> None:
        left = scene.producer(transaction_timeout_ms=4_000)
        await left.start()
        await left.begin_transaction()
        await write(scene, left, b"left", b"left")
        await left.flush()
        async with scene.producer("y") as producer, producer.transaction():
            await write(scene, producer, b"1", b"2", b"3")
        assert sorted(await scene.committed(quiet_s=0.5)) in ([b"3"], [])
        await asyncio.sleep(5)
        assert sorted(await scene.committed()) == [b"1", b"2", b"3"]
        with pytest.raises(TransactionAbortableError):
            await left.commit_transaction()
        await left.abort_transaction()
        await left.begin_transaction()
        await write(scene, left, b"4")
        await left.commit_transaction()
        await left.close()
        assert sorted(await scene.committed()) == [b"1", b"2", b"3", b"4"]

    play(story)


def test_what_was_prepared_is_completed_after_a_crash() -> None:
    async def story(scene: Scene) -> None:
        first = scene.producer(transaction_two_phase_commit_enable=True)
        await first.start()
        async with first.transaction():
            await write(scene, first, b"1", b"2")
            prepared = await first.prepare_transaction()
        await first.close(timeout_s=0)
        await asyncio.sleep(200)
        async with scene.producer(transaction_two_phase_commit_enable=True) as second:
            assert await second.resume_transaction() == prepared
            with pytest.raises(InvalidTransactionStateError):
                second.send("out", b"not now")
            await second.commit_transaction()
            async with second.transaction():
                await write(scene, second, b"3")
        assert sorted(await scene.committed()) == [b"1", b"2", b"3"]

    play(story, transaction_two_phase_commit_enable="true")


@pytest.mark.parametrize("seed", range(3))
def test_consume_transform_produce_is_exact_while_processors_and_nodes_die(seed: int) -> None:
    count = 60

    async def process(scene: Scene) -> None:
        """Takes over where the one before was: reads the group's place, and goes on until it is stopped."""
        partition = TopicPartition("in", PartitionId(0))
        consumer = AsyncConsumer(
            bootstrap_servers=SERVERS,
            group_id="g",
            enable_auto_commit=False,
            ports=scene.ports,
            isolation_level="read_committed",
        )
        async with scene.producer("processor") as producer, consumer:
            await producer.begin_transaction()  # fences the one before, so that its offsets are settled
            await producer.abort_transaction()
            place = (await consumer.committed([partition]))[partition]
            await consumer.assign([partition], start=EARLIEST)
            consumer.seek(partition, 0 if place is None else place.offset)
            while True:
                records = await consumer.poll(timeout_s=0.2, max_records=7)
                if not records:
                    continue
                async with producer.transaction():
                    for record in records:
                        producer.send("out", b"<" + (record.value or b"") + b">", partition=record.offset % 3)
                    await producer.send_offsets({partition: records[-1].offset + 1}, "g")

    async def story(scene: Scene) -> None:
        async with AsyncProducer(bootstrap_servers=SERVERS, ports=scene.ports) as source:
            for number in range(count):
                source.send("in", b"%d" % number, partition=0)
        expected = sorted(b"<%d>" % number for number in range(count))
        for death in range(6):
            task = asyncio.ensure_future(process(scene))
            await asyncio.sleep(0.3 + 0.17 * ((seed + death) % 4))
            if death in (2, 4):
                name = scene.coordinator_of("processor") if death == 2 else scene.leader_of("out", seed % 3)
                host = scene.nodes.host(name)
                host.crash()
                await asyncio.sleep(1)
                scene.nodes.start(name)
                await asyncio.sleep(4)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or isinstance(task.exception(), StreamlogError), task.exception()
        task = asyncio.ensure_future(process(scene))
        async with asyncio.timeout(60):
            while sorted(await scene.committed(quiet_s=2)) != expected:
                assert not task.done(), task.result()
                found = await scene.committed(quiet_s=2)
                assert len(found) == len(set(found))
        task.cancel()
        await asyncio.wait([task])

    play(story, seed)


def test_operators_see_abort_and_find_what_hangs() -> None:
    async def story(scene: Scene) -> None:
        producer = scene.producer()
        await producer.start()
        await producer.begin_transaction()
        await write(scene, producer, b"1", b"2")
        await producer.flush()
        await hang(scene)
        async with AsyncAdmin(bootstrap_servers=SERVERS, ports=scene.ports) as admin:
            (listed,) = (await admin.list_transactions(states=[TransactionState.ONGOING])).transactions
            assert (listed.transactional_id, int(listed.coordinator)) == ("x", scene.coordinator_of())
            known, unknown = await admin.describe_transactions(["x", "unknown"])
            assert isinstance(unknown.error, UnknownProducerIdError)
            assert known.partitions == tuple(TopicPartition("out", PartitionId(n)) for n in range(2))
            found = await admin.find_hanging_transactions(["out"], open_for_ms=0, all_open=True)
            assert [(one.transactional_id, one.hanging) for one in found.transactions] == [
                ("x", False),
                ("x", False),
                (None, True),
            ]
            assert not (await admin.find_hanging_transactions()).transactions, "nothing is open for that long"
            await admin.abort_transaction("x")
            with pytest.raises(InvalidTransactionStateError):
                await admin.abort_transaction("x")
            (hanging,) = (await admin.find_hanging_transactions(open_for_ms=0)).transactions
            await admin.abort_hanging_transaction(hanging.partition, hanging.producer_id)
            with pytest.raises(InvalidTransactionStateError):
                await admin.abort_hanging_transaction(hanging.partition, hanging.producer_id)
            assert not (await admin.find_hanging_transactions(open_for_ms=0, all_open=True)).transactions
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.close(timeout_s=0)
        assert await scene.committed() == []

    play(story)


async def hang(scene: Scene) -> None:
    """A batch of a producer that no coordinator knows, in partition 2."""
    node_id = scene.leader_of("out", 2)
    replica = scene.plane_of(node_id).replicas.leader("out", None, PartitionId(2))
    now_ms = scene.nodes.node(node_id)._ports.clock.wall_ms()
    data = batch([b"?"], producer=(4_000, 0, 0), attributes=TRANSACTIONAL_BIT, timestamp=now_ms)

    async def append() -> None:
        with replica.appends.verifications.begin(ProducerId(4_000), ProducerEpoch(0)) as guard:
            await replica.wait_for(replica.appends.append_encoded(data, Acks.ALL, guard))

    await scene.nodes.as_node(node_id, append())
