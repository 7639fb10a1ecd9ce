"""What a queue of a partition lets its leader have at a time."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.client.connection.metadata import Leader
from streamlog.client.producer.batches.partition_queue import PartitionQueue, QueueRules
from streamlog.client.producer.batches.producer_batch import ProducerBatch
from streamlog.client.producer.batches.wire_batch import ProducerIdAndEpoch, WireBatch
from streamlog.errors import NetworkError
from streamlog.model import BrokerId, LeaderEpoch, PartitionId, ProducerEpoch, ProducerId, TopicPartition

PARTITION = TopicPartition("t", PartitionId(0))
IN_FLIGHT = 5
RULES = QueueRules(linger_s=0, in_flight_max=IN_FLIGHT, wire_bytes_max=1, idempotent=True)


IN_TRANSACTIONS = QueueRules(linger_s=0, in_flight_max=IN_FLIGHT, wire_bytes_max=1, idempotent=True, transactional=True)


def begun(rules: QueueRules, epoch: int) -> PartitionQueue:
    queue = PartitionQueue(PARTITION, b"t" * 16, rules)
    queue.leader = Leader(broker=BrokerId(1), address="n1:9092", epoch=LeaderEpoch(0))
    queue.begin(ProducerIdAndEpoch(ProducerId(7), ProducerEpoch(epoch)))
    return queue


def fill(queue: PartitionQueue) -> ProducerBatch:
    batch = ProducerBatch(PARTITION, 1, asyncio.get_running_loop())
    batch.values.append(b"x")
    batch.close()
    queue.batches.append(batch)
    return batch


def taken(queue: PartitionQueue) -> WireBatch | None:
    return queue.take(asyncio.get_running_loop().time())


async def sent_at_once(rules: QueueRules, epoch: int) -> list[int]:
    """Sequences of the batches that are sent before the first is answered."""
    queue = begun(rules, epoch)
    for _ in range(IN_FLIGHT + 1):
        fill(queue)
    wires = []
    while (wire := taken(queue)) is not None:
        wires.append(wire)
    return [wire.sequence for wire in wires]


@pytest.mark.parametrize("epoch", [0, 3])
async def test_a_producer_that_its_leader_may_not_know_sends_the_first_batch_alone(epoch: int) -> None:
    """The leader takes any sequence for its first: the second batch could come before it."""
    assert await sent_at_once(RULES, epoch) == [0]


@pytest.mark.parametrize("epoch", [0, 3])
async def test_a_transaction_begins_with_0_or_is_refused_so_nothing_waits(epoch: int) -> None:
    assert await sent_at_once(IN_TRANSACTIONS, epoch) == list(range(IN_FLIGHT))


@pytest.mark.parametrize("answer", ["success", "error"])
async def test_nothing_is_sent_while_the_transaction_before_has_something_in_flight(answer: str) -> None:
    """It was aborted meanwhile: what is numbered behind that would end with it (seed 230 of transactions)."""
    queue = begun(IN_TRANSACTIONS, epoch=6)
    dropped, wire = fill(queue), taken(queue)
    assert wire is not None
    dropped.fail(NetworkError("aborted"))
    queue.drop_done()
    queue.begin(ProducerIdAndEpoch(ProducerId(7), ProducerEpoch(7)))
    fill(queue)
    assert taken(queue) is None
    (queue.succeeded if answer == "success" else queue.failed)(wire)
    following = taken(queue)
    assert following is not None
    assert (following.identity.epoch, following.sequence) == (7, 0)
