"""ActiveController: the controller in the view as the leadership of the quorum moves from node to node."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import cast

from streamlog.controller.active import ActiveController
from streamlog.controller.identity import PROBE_RETRY_S, PROBE_TIMEOUT_S
from streamlog.errors import (
    OutcomeUnknownError,
    QuorumUnavailableError,
    Status,
    StreamlogError,
    TopicAlreadyExistsError,
)
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, RaftTerm
from streamlog.ports import Network, NoListenerError, RpcError
from streamlog.raft.port import Leadership, Quorum
from streamlog.sim import SimLoop, run
from streamlog.sim.clock import SimClock

from .kit import CLUSTER, LineQuorum, heartbeat_of, registration, topic
from .scripted_network import ScriptedNetwork

SELF, OTHER = BrokerId(1), BrokerId(2)


class ChangingQuorum(LineQuorum):
    """Reports the leadership it is given."""

    def __init__(self, view: MetadataView) -> None:
        super().__init__(view)
        self._now = self.led_by(None, 0)
        self._news: asyncio.Queue[Leadership] = asyncio.Queue(16)

    def led_by(self, leader: BrokerId | None, term: int) -> Leadership:
        address = None if leader is None else f"n{leader}:9092"
        is_self = leader == SELF
        return Leadership(term=RaftTerm(term), leader=leader, address=address, is_self=is_self, is_ready=is_self)

    async def notify(self, leader: BrokerId | None, term: int) -> None:
        """Returns when all have done what they do about it."""
        self.term, self.lost = RaftTerm(term), leader != SELF
        self._now = self.led_by(leader, term)
        await self._news.put(self._now)
        await asyncio.sleep(1)

    def leadership(self) -> Leadership:
        return self._now

    async def watch_leadership(self) -> AsyncIterator[Leadership]:
        while True:
            yield await self._news.get()


def silent(method: str, request: bytes) -> bytes:
    raise RpcError(Status.DEADLINE_EXCEEDED, "no answer, which proves nothing")


def refused(method: str, request: bytes) -> bytes:
    raise NoListenerError(Status.UNAVAILABLE, "connection refused")


def silent_network() -> ScriptedNetwork:
    network = ScriptedNetwork()
    network.nodes["n1:9092"] = silent
    return network


def controller(quorum: LineQuorum, loop: SimLoop, network: ScriptedNetwork | None = None) -> ActiveController:
    return ActiveController(
        SELF,
        CLUSTER,
        quorum=cast(Quorum, quorum),  # the part of it that a controller uses
        view=quorum.view,
        configs=NodeConfigs({"node.id": "1"}, SELF, quorum.view),
        network=cast(Network, network or silent_network()),
        random=random.Random(1),
        clock=SimClock(loop),
        probe=lambda event, /, **fields: None,
    )


def controllers_after(*leaders: BrokerId | None) -> list[BrokerId | None]:
    """Whom the view names as the controller after each of these, one a term."""
    seen = []

    async def main(loop: SimLoop) -> None:
        view = MetadataView()
        quorum = ChangingQuorum(view)
        active = controller(quorum, loop)
        running = asyncio.create_task(active.run())
        for term, leader in enumerate(leaders, 1):
            await quorum.notify(leader, term)
            seen.append(view.controller)
            assert active.is_active == (leader == SELF)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    run(main)
    return seen


def test_it_names_whoever_leads() -> None:
    assert controllers_after(None, SELF, None, OTHER, SELF) == [None, SELF, None, OTHER, SELF]


def test_a_leader_that_was_paused_names_its_successor() -> None:
    """It learns of the other one first, and of its own end only by that (kill rounds: none until the next change)."""
    assert controllers_after(SELF, OTHER) == [SELF, OTHER]


def test_what_is_in_flight_is_applied_before_it_decides_again_in_the_same_term() -> None:
    """A leader that is removed as a voter leads on, without an address (seed 1001107 of the cluster). Its next
    controller term decided without a command in flight, both were committed, and each node that applied the second one
    stopped.
    """
    answers: list[str | None] = []

    async def main(loop: SimLoop) -> None:
        quorum = ChangingQuorum(MetadataView())
        active = controller(quorum, loop)
        running = asyncio.create_task(active.run())
        await quorum.notify(SELF, 1)
        await active.submit(registration())
        await active.submit(heartbeat_of(quorum.view))
        quorum.held = True
        first = asyncio.create_task(active.submit(topic("t")))
        await asyncio.sleep(1)
        await quorum.notify(SELF, 1)
        assert quorum.in_flight == 2, "the topic, and what is to be applied behind it"
        second = asyncio.create_task(active.submit(topic("t")))
        await asyncio.sleep(1)
        quorum.held = False
        quorum.release()
        for asked in (first, second):
            try:
                [created] = await asked
                answers.append(None if created.error is None else created.error.code)
            except StreamlogError as error:
                answers.append(error.code)
        assert quorum.view.image.topic_named("t") is not None
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    run(main)
    assert answers == [OutcomeUnknownError.code, TopicAlreadyExistsError.code]


def test_concurrent_suspicions_share_the_outcome_of_one_probe() -> None:
    """Each waited for the others' and then for its own: five seconds for five callers of a node that is silent."""

    async def main(loop: SimLoop) -> None:
        quorum, network = ChangingQuorum(MetadataView()), silent_network()
        network.nodes["n2:9092"] = silent
        active = controller(quorum, loop, network)
        running = asyncio.create_task(active.run())
        await quorum.notify(SELF, 1)
        await active.submit(registration(1, 2))
        await active.submit(heartbeat_of(quorum.view, 2))
        epoch = quorum.view.image.brokers[OTHER].epoch
        begin = loop.now
        found = await asyncio.gather(*(active.suspect(OTHER, epoch) for _ in range(5)))
        assert found == [False] * 5
        assert loop.now - begin <= PROBE_TIMEOUT_S + PROBE_RETRY_S
        first, second = (asyncio.create_task(active.suspect(OTHER, epoch)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        network.nodes["n2:9092"] = refused
        assert await second, "it probes where the first has no outcome"
        running.cancel()
        await asyncio.wait([running])

    run(main)


class StoppingQuorum(ChangingQuorum):
    """Stops in one step, as RaftNode: commands in flight end, watchers end, and nothing is answered any more."""

    def __init__(self, view: MetadataView) -> None:
        super().__init__(view)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()
        self.lose()

    def leadership(self) -> Leadership:
        if self._stopped.is_set():
            raise QuorumUnavailableError("this node's quorum member is not running")
        return super().leadership()

    async def watch_leadership(self) -> AsyncIterator[Leadership]:
        yield await self._news.get()
        await self._stopped.wait()


def test_a_quorum_that_stops_while_it_leads_ends_the_controller() -> None:
    """A command in flight ends with an error in the step in which the controller is cancelled: the task group keeps the
    error and forgets the cancellation. The controller then asked who leads, and its node ended with status 1.
    """

    async def main(loop: SimLoop) -> None:
        quorum = StoppingQuorum(MetadataView())
        quorum.held = True  # the controller waits for its first command
        running = asyncio.create_task(controller(quorum, loop).run())
        await quorum.notify(SELF, 1)
        assert quorum.in_flight
        quorum.stop()
        async with asyncio.timeout(10):
            await running

    run(main)
