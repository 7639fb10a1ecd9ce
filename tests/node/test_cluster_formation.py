"""The search for the cluster's id, where another program is at a node's address."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from streamlog.api.pb import identification_pb2 as pb
from streamlog.controller.identity import identify
from streamlog.errors import BrokerNotAvailableError
from streamlog.model import BrokerId
from streamlog.node.cluster_formation import ClusterFormation
from streamlog.ports import Network
from streamlog.sim import SimLoop, run
from streamlog.sim.world import World


class OtherProgram:
    """As a Network and its Channel: it gives the same answer to each call, at once."""

    def __init__(self, answer: pb.IdentifyResponse) -> None:
        self.answer = answer
        self.calls = 0

    def connect(self, address: str) -> OtherProgram:
        return self

    async def unary(
        self, method: str, request: bytes, *, timeout_s: float, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        self.calls += 1
        await asyncio.sleep(0)
        return self.answer.SerializeToString()

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("cluster_id", ["x" * 65, "\u00e9" * 20, "a\nb", "x" * 10_000])
async def test_a_cluster_id_that_no_node_has_is_not_taken(cluster_id: str) -> None:
    program = OtherProgram(pb.IdentifyResponse(node_id=1, cluster_id=cluster_id))
    with pytest.raises(BrokerNotAvailableError, match="its cluster id is none"):
        await identify(cast(Network, program), "n1:9092", timeout_s=1.0)


def test_one_that_has_no_cluster_and_does_not_wait_is_not_called_without_pause() -> None:
    program = OtherProgram(pb.IdentifyResponse(node_id=1))

    async def main(loop: SimLoop) -> None:
        world = World(loop, 1)
        ports = world.host("n4").boot()
        formation = ClusterFormation(
            BrokerId(4), network=cast(Network, program), random=ports.random, probe=cast(Any, lambda *_, **__: None)
        )
        searching = asyncio.ensure_future(formation.as_observer(["n1:9092"]))
        await asyncio.sleep(10)
        searching.cancel()
        await asyncio.wait([searching])
        world.stop()

    run(main, seed=1)
    assert 20 < program.calls < 100
