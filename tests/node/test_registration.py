"""What keeps a node waiting for its registration, and what stops it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from streamlog.api.errors import TOO_LATE, to_rpc
from streamlog.api.pb import controller_pb2 as pb
from streamlog.controller.link import ControllerLink
from streamlog.errors import (
    ClusterAuthorizationError,
    DuplicateBrokerIdError,
    InconsistentClusterError,
    QuorumUnavailableError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    Status,
    StreamlogError,
)
from streamlog.metadata.brokers.registration import RegisterBroker
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import MetadataVersion
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.node.quorum_clock import QuorumClock
from streamlog.node.registration import FAST_HEARTBEAT_S, REGISTER_RETRY_S, REGISTER_TIMEOUT_S, BrokerRegistration
from streamlog.ports import RpcError
from streamlog.raft.voters import Voter
from streamlog.sim import SimClock, SimLoop, run
from tests.controller.scripted_network import GONE, ScriptedNetwork
from tests.support.leases import held_lease

ME = BrokerId(4)
LATE = to_rpc(RequestTimedOutError("the deadline passed before the call began", **{TOO_LATE: "dropped"}))
CRASHED = RpcError(Status.UNKNOWN, "Unexpected handler error")
DUPLICATE = to_rpc(DuplicateBrokerIdError("node 4 is registered by another process"))
GIVES_UP_MS = 60_000


class Scene:
    """A controller that answers registrations by a script; then it accepts them."""

    def __init__(self, loop: SimLoop, answers: Iterator[RpcError]) -> None:
        self.loop = loop
        self.answers = answers
        self.refused: Iterator[RpcError] = iter([])  # heartbeats
        self.calls = 0
        view = MetadataView()
        network = ScriptedNetwork(a=self._answer)
        link = ControllerLink(
            ME,
            view=view,
            active=None,
            voters=lambda: [Voter(node_id=BrokerId(1), address="a:1")],
            network=network,
            clock=SimClock(loop),
            random=random.Random(1),
        )
        configs = NodeConfigs({"node.id": "4", "initial.broker.registration.timeout.ms": str(GIVES_UP_MS)}, ME, view)
        self.registration = BrokerRegistration(
            RegisterBroker(
                cluster_id="c",
                broker_id=ME,
                incarnation_id=bytes(16),
                host="h",
                port=9092,
                metadata_version_min=MetadataVersion(1),
                metadata_version_max=METADATA_VERSION_MAX,
            ),
            link=link,
            view=view,
            config=lambda: configs.node,
            clock=QuorumClock(SimClock(loop), skew_max_ms=lambda: 1_000, probe=lambda *_, **__: None),
            random=random.Random(1),
            probe=lambda *_, **__: None,
            lease=held_lease(view),
        )

    def _answer(self, method: str, request: bytes) -> bytes:
        self.calls += 1
        if method.endswith("/Heartbeat"):
            raise next(self.refused)
        for error in self.answers:
            raise error
        return pb.RegisterResponse(broker_epoch=7, session_timeout_ms=6_000).SerializeToString()


def until(loop: SimLoop, end_s: float, error: RpcError) -> Iterator[RpcError]:
    while loop.time() < end_s:
        yield error


def play(story: Callable[[SimLoop], Iterator[RpcError]]) -> Scene:
    scenes: list[Scene] = []

    async def main(loop: SimLoop) -> None:
        scenes.append(Scene(loop, story(loop)))
        assert await scenes[0].registration.register() == 7

    run(main)
    return scenes[0]


@pytest.mark.parametrize("error", [GONE, LATE, CRASHED, DUPLICATE], ids=["gone", "late", "crashed", "duplicate"])
def test_trouble_of_the_controller_is_waited_for(error: RpcError) -> None:
    assert play(lambda loop: iter([error, error])).calls == 3


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (GONE, QuorumUnavailableError),
        (LATE, QuorumUnavailableError),
        (CRASHED, QuorumUnavailableError),
        (DUPLICATE, DuplicateBrokerIdError),
    ],
    ids=["gone", "late", "crashed", "duplicate"],
)
def test_a_node_that_starts_gives_up_after_a_time(error: RpcError, raised: type[StreamlogError]) -> None:
    def story(loop: SimLoop) -> Iterator[RpcError]:
        yield from until(loop, 10 * GIVES_UP_MS / 1000, error)

    with pytest.raises(raised):
        play(story)


def test_a_refusal_stops_it_at_once() -> None:
    with pytest.raises(InconsistentClusterError):
        play(lambda loop: iter([to_rpc(InconsistentClusterError("this node is of cluster d"))]))


def test_a_node_that_was_registered_waits_without_end() -> None:
    """It has lost its registration, and then the quorum is lost for half an hour."""

    async def main(loop: SimLoop) -> None:
        scene = Scene(loop, iter([]))
        await scene.registration.register()
        scene.answers = until(loop, 1_800, GONE)
        assert await scene.registration.register() == 7
        assert loop.time() >= 1_800

    run(main)


def test_a_node_that_waits_for_its_next_registration_leaves_at_once() -> None:
    """It leads nothing; it waited for the whole controlled.shutdown.timeout.ms."""

    async def main(loop: SimLoop) -> None:
        scene = Scene(loop, iter([]))
        await scene.registration.register()
        scene.refused = iter([to_rpc(StaleBrokerEpochError("epoch 7 has ended"))])
        scene.answers = until(loop, 1_800, GONE)
        running = asyncio.create_task(scene.registration.run())
        await asyncio.sleep(10)
        begin = loop.now
        assert await scene.registration.shut_down(30)
        assert loop.now - begin <= REGISTER_TIMEOUT_S + REGISTER_RETRY_S
        running.cancel()
        await asyncio.wait([running])

    run(main)


@pytest.mark.parametrize(
    "error", [ClusterAuthorizationError("not for this node"), StaleBrokerEpochError("epoch 7 has ended")]
)
def test_heartbeats_pause_where_each_is_refused_at_once(error: StreamlogError) -> None:
    async def main(loop: SimLoop) -> None:
        scene = Scene(loop, iter([]))
        await scene.registration.register()

        def refused() -> Iterator[RpcError]:
            while True:
                assert scene.calls < 1_000, "they go on without a pause"
                yield to_rpc(error)

        scene.refused = refused()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await scene.registration.run()
        assert 5 <= scene.calls <= 2 * 10 / FAST_HEARTBEAT_S

    run(main)
