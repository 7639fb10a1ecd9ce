"""A cluster of three nodes with one topic."""

from __future__ import annotations

from tests.broker.nodes import Cluster


async def three_nodes(cluster: Cluster, partitions: int = 1) -> None:
    cluster.start(1, 2, 3)
    await cluster.ready(1, 2, 3)
    cluster.do(lambda c: c.create("t", partitions, assignments=((1, 2, 3),) * partitions))
    await cluster.settled(partitions)
