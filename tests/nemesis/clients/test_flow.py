"""Pauses and the time to the first acknowledgement, by partition."""

from __future__ import annotations

from streamlog.model import Offset, PartitionId, TopicPartition
from tests.nemesis.clients.flow import Flow

ONE, OTHER = (TopicPartition("plain", PartitionId(number)) for number in range(2))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def flow_of(acks: dict[TopicPartition, list[float]]) -> tuple[Flow, Clock]:
    clock = Clock()
    flow = Flow(clock, acks)
    for at, partition in sorted((at, partition) for partition, times in acks.items() for at in times):
        clock.now = at
        flow.acknowledged("p0", partition, Offset(0), 2)
    return flow, clock


def test_the_longest_pause_is_that_of_the_worst_partition() -> None:
    flow, _ = flow_of({ONE: [1.0, 2.0, 3.0, 4.0, 5.0], OTHER: [1.0, 4.5]})
    assert flow.longest_pause(1.0, 5.0) == 3.5


def test_a_pause_reaches_to_the_edges() -> None:
    flow, _ = flow_of({ONE: [5.0]})
    assert flow.longest_pause(0.0, 6.0) == 5.0
    assert flow.longest_pause(10.0, 12.0) == 2.0


async def test_all_partitions_must_be_acknowledged_again() -> None:
    flow, _ = flow_of({ONE: [1.0, 2.5], OTHER: [1.5, 4.0]})
    assert await flow.wait_for_acks(2.0, 10.0) == 2.0


async def test_a_partition_that_never_comes_back() -> None:
    flow, clock = flow_of({ONE: [1.0, 3.0], OTHER: [1.0]})
    clock.now = 20.0
    assert await flow.wait_for_acks(2.0, 10.0) is None
