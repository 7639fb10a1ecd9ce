"""Calls of Batches.Fetch."""

from __future__ import annotations

from typing import Any

from streamlog.api.pb import batches_pb2 as pb
from tests.services.world import BATCHES, Cluster


async def fetch(cluster: Cluster, *parts: pb.FetchPartition, **settings: Any) -> list[pb.FetchedPartition]:
    partitions = parts or (pb.FetchPartition(topic="t"),)
    request = pb.FetchRequest(settings=pb.FetchSettings(**settings), partitions=partitions)
    return list((await cluster.call(BATCHES + "Fetch", request, pb.FetchResponse)).partitions)
