"""What a queue of a partition lets its leader have at a time."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.client.connection.metadata import Leader
from streamlog.client.producer.batches.partition_queue import PartitionQueue, QueueRules
from streamlog.client.producer.batches.producer_batch import ProducerBatch
from streamlog.client.producer.batches.wire_batch import Encoding, ProducerIdAndEpoch, WireBatch
from streamlog.errors import MessageTooLargeError, NetworkError, RequestTimedOutError, StreamlogError
from streamlog.model import BrokerId, LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.records import decode_batch

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


MERGING = QueueRules(linger_s=0, in_flight_max=IN_FLIGHT, wire_bytes_max=100_000, idempotent=True)


def cut_in_the_middle() -> tuple[PartitionQueue, list[ProducerBatch]]:
    """A queue with three batches of ten records, to be retried in halves."""
    queue = begun(MERGING, epoch=0)
    batches = [ProducerBatch(PARTITION, 10_000, asyncio.get_running_loop()) for _ in range(3)]
    for name, batch in zip(b"XYZ", batches, strict=True):
        batch.add_timestamp(0, 5)
        batch.values += [b"%c%d" % (name, index) for index in range(10)]
        batch.close()
        queue.batches.append(batch)
    whole = taken(queue)
    assert whole is not None
    assert queue.retry_in_halves(whole, MessageTooLargeError("max.message.bytes"))
    return queue, batches


def values_of(wire: WireBatch) -> list[bytes | None]:
    return [record.value for record in decode_batch(wire.encode(Encoding()))]


@pytest.mark.parametrize("outcome", ["dropped", "success", "error"])
async def test_a_half_keeps_its_records_where_the_other_ends_after_they_have_expired(outcome: str) -> None:
    queue, (x, y, z) = cut_in_the_middle()
    first = None if outcome == "dropped" else taken(queue)
    for expired in (x, y):
        expired.fail(RequestTimedOutError("delivery.timeout.ms"))
    queue.drop_done()
    if first is not None:
        error: StreamlogError = NetworkError("broken")
        (queue.succeeded if outcome == "success" else queue.failed)(first)
        first.succeed(Offset(85), -1) if outcome == "success" else first.fail(error)
    second = taken(queue)
    assert second is not None
    assert values_of(second) == [*(b"Y%d" % index for index in range(5, 10)), *(b"Z%d" % index for index in range(10))]
    queue.succeeded(second)
    second.succeed(Offset(100), -1)
    assert z.outcome(0).offset == 105
    assert not any(batch.values for batch in (x, y, z))
