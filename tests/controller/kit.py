"""A controller on a quorum of one line: commands are committed in their order, when the test says so."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import Any, cast

from streamlog.controller.controller_term import ControllerTerm
from streamlog.errors import NotControllerError, OutcomeUnknownError
from streamlog.metadata.brokers.liveness import BrokerHeartbeat
from streamlog.metadata.brokers.registration import RegisterBroker
from streamlog.metadata.decision import ControllerContext
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import MetadataVersion
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.creation import CreatableTopic, CreateTopics
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.port import Applied, Leadership, Quorum
from tests.metadata.rig import TestConfigs

CLUSTER = "cluster-of-tests"
SETTINGS = ControllerSettings(session_timeout_ms=3_000)


class LineQuorum:
    """The part of the quorum that a controller term uses. `held`: commits wait for `release`."""

    def __init__(self, view: MetadataView) -> None:
        self.view = view
        self.index = 0
        self.commands: list[bytes] = []  # in the order of the log
        self.held = False
        self.term = RaftTerm(1)
        self.lost = False
        self._waiting: deque[tuple[bytes, asyncio.Future[Applied]]] = deque()

    def submit(self, command: bytes) -> asyncio.Future[Applied]:
        if self.lost:
            raise NotControllerError("lost")
        done: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, done))
        if not self.held:
            asyncio.get_running_loop().call_soon(self.release)
        return done

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def release(self, count: int | None = None) -> None:
        """Commit and apply so many of those that wait; all of them."""
        for _ in range(len(self._waiting) if count is None else count):
            command, done = self._waiting.popleft()
            self.index += 1
            self.commands.append(command)
            self.view.machine.apply(RaftIndex(self.index), command)
            if not done.cancelled():  # by a controller term that has ended
                done.set_result(Applied(index=RaftIndex(self.index), result=b""))

    def lose(self) -> None:
        """Another one leads: what waits may or may not be in its log."""
        self.lost = True
        for _, done in self._waiting:
            if not done.cancelled():
                done.set_exception(OutcomeUnknownError("lost"))
        self._waiting.clear()

    def leadership(self) -> Leadership:
        return Leadership(term=self.term, leader=BrokerId(1), address="n1:9092", is_self=True, is_ready=not self.lost)

    async def watch_leadership(self) -> AsyncIterator[Leadership]:
        yield self.leadership()


class Rule:
    """A reign that runs as long as the block."""

    def __init__(self) -> None:
        self.view = MetadataView()
        self._random = random.Random(1)
        self.quorum = LineQuorum(self.view)
        self.events: list[str] = []
        self.sessions: Collection[BrokerId] = ()
        self.term = self.another()
        self._running: asyncio.Task[None] | None = None

    def another(self) -> ControllerTerm:
        return ControllerTerm(
            self.quorum.term,
            CLUSTER,
            quorum=cast(Quorum, self.quorum),  # the part of it that a controller term uses
            view=self.view,
            context_of=self.context_of,
            probe=self.probe,
        )

    def context_of(self, sessions: Collection[BrokerId]) -> ControllerContext:
        self.sessions = sessions
        return ControllerContext(settings=SETTINGS, configs=TestConfigs(), random=self._random, sessions=sessions)

    def probe(self, event: str, /, **fields: object) -> None:
        self.events.append(event)

    async def __aenter__(self) -> Rule:
        self._running = asyncio.create_task(self.term.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait([self._running])

    async def ended(self) -> BaseException | None:
        assert self._running is not None
        await asyncio.wait([self._running])
        return self._running.exception()

    def ask(self, command: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.term.ask(command))


def registration(incarnation: int = 1, node: int = 1) -> RegisterBroker:
    return RegisterBroker(
        cluster_id=CLUSTER,
        broker_id=BrokerId(node),
        incarnation_id=bytes([incarnation]) * 16,
        host=f"n{node}",
        port=9092,
        metadata_version_min=MetadataVersion(1),
        metadata_version_max=METADATA_VERSION_MAX,
        directory_ids=(bytes([node]) * 16,),
    )


def heartbeat_of(view: MetadataView, node: int = 1) -> BrokerHeartbeat:
    epoch = view.image.brokers[BrokerId(node)].epoch
    return BrokerHeartbeat(broker_id=BrokerId(node), broker_epoch=epoch, applied_index=view.image.index)


def topic(name: str) -> CreateTopics:
    return CreateTopics(topics=(CreatableTopic(name=name),))
