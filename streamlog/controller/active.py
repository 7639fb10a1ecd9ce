"""ActiveController: decides for the cluster while its node leads the quorum. One a voter.

    waiting --leadership is ready--> controller term --leadership lost, or another term--> waiting

Ready means that all that was committed before is applied here, so the image is the truth (controller_term.py says how it goes
on from there). `run` lives as long as the node does.

A suspicion (a stream to a node broke) is no proof. The controller takes a second look at the node's own address: where
that refuses, or another process answers, the node is fenced at once; where it is silent, its session decides. The same
look lets a node that was killed and comes back register at once, in the place of its dead self. Whoever takes over
looks at all nodes: its predecessor is likely to be dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.config import Config, node_settings
from streamlog.controller.clocks import QuorumClocks
from streamlog.controller.controller_term import ControllerTerm
from streamlog.controller.identity import is_gone
from streamlog.controller.recovery import UncleanRecovery
from streamlog.controller.settings import controller_settings
from streamlog.errors import (
    DuplicateBrokerIdError,
    NotControllerError,
    QuorumUnavailableError,
    StaleBrokerEpochError,
    StreamlogError,
    TopicAlreadyExistsError,
)
from streamlog.metadata.brokers.liveness import BrokerHeartbeat, FenceBroker, HeartbeatResponse
from streamlog.metadata.brokers.registration import RegisterBroker
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.controller import Command
from streamlog.metadata.decision import ControllerContext
from streamlog.metadata.partitions.leaders import ElectLeaders
from streamlog.metadata.records import Broker
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.creation import CreateInternalTopic
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, RaftIndex, TopicId
from streamlog.ports import Clock, Network, Probe, Random
from streamlog.raft.port import Leadership, Quorum

RETRY_S: Final = 0.1
"""Before the controller takes over anew in the same term: the quorum refused a command."""


class RegistrationResponse(Struct, frozen=True, kw_only=True):
    """The node is registered, and fenced."""

    broker_epoch: BrokerEpoch
    session_timeout_ms: int


class ActiveController:
    def __init__(
        self,
        node_id: BrokerId,
        cluster_id: str,
        *,
        quorum: Quorum,
        view: MetadataView,
        configs: NodeConfigs,
        network: Network,
        random: Random,
        clock: Clock,
        probe: Probe,
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._view = view
        self._configs = configs
        self._network = network
        self._random = random
        self._clock = clock
        self._clocks = QuorumClocks(clock, 0)  # of the current controller term
        self._probe = probe
        self._current_term: ControllerTerm | None = None
        self.recovery = UncleanRecovery(
            view=view, network=network, context_of=self._context_of, submit=self._submit, probe=probe
        )
        self._resolved: tuple[Config, ControllerSettings] | None = None  # what the settings were made of
        self._looking: dict[tuple[BrokerId, BrokerEpoch], asyncio.Event] = {}  # second looks that go on; set at the end

    @property
    def is_active(self) -> bool:
        return self._current_term is not None and not self._current_term.is_over

    @property
    def hears_leader(self) -> bool:
        """Whether this node's part of the quorum knows who leads; if not, the node may still meet the controller."""
        try:
            return self._quorum.leadership().leader is not None
        except QuorumUnavailableError:
            return False

    async def run(self) -> None:
        """As long as the quorum runs. An InvariantError of a decision ends the node."""
        ruling: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            async for leadership in self._quorum.watch_leadership():
                if ruling is not None:  # its last word is that this node is the controller no more
                    ruling.cancel()
                    await asyncio.wait([ruling])
                if not leadership.is_self:
                    self._view.set_controller(leadership.leader, leadership.address)
                ruling = tasks.create_task(self._rule(leadership)) if leadership.is_ready else None
            if ruling is not None:
                ruling.cancel()

    async def _rule(self, leadership: Leadership) -> None:
        """Controller terms within one Raft term: more than one where the quorum refuses a command and goes on."""
        while self._is_still(leadership):
            self._current_term = ControllerTerm(
                leadership.term,
                self._cluster_id,
                quorum=self._quorum,
                view=self._view,
                context_of=self._context_of,
                probe=self._probe,
            )
            self._clocks = QuorumClocks(self._clock, self._random.getrandbits(53) or 1)
            self._view.set_controller(self._node_id, leadership.address)
            try:
                await self._run_term(self._current_term)
            except* StreamlogError as errors:
                self._probe("controller_inactive", term=leadership.term, reason=str(errors.exceptions[0]))
            finally:
                self._current_term = None
                self._view.set_controller(None, None)
            await asyncio.sleep(RETRY_S)

    def _is_still(self, leadership: Leadership) -> bool:
        """Asked before each controller term, since a cancellation that meets the error of a controller term is lost in its task group."""
        now = self._quorum.leadership()
        return now.is_ready and now.term == leadership.term

    async def _run_term(self, term: ControllerTerm) -> None:
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look_around())
            recovering = tasks.create_task(self.recovery.run())
            try:
                await term.run()
            finally:
                looking.cancel()
                recovering.cancel()

    def _context_of(self, sessions: Collection[BrokerId]) -> ControllerContext:
        config = self._configs.node
        if self._resolved is None or self._resolved[0] is not config:
            self._resolved = config, controller_settings(config)
        return ControllerContext(
            settings=self._resolved[1], configs=self._configs, random=self._random, sessions=sessions
        )

    async def submit(self, command: Command) -> Any:
        """The decision's response, once it is committed and applied here.

        NotControllerError (`leader`, `address`), ThrottledError: not carried out. OutcomeUnknownError: the leadership
        was lost meanwhile. And what the decision refuses.
        """
        self._active_term()
        if isinstance(command, ElectLeaders):
            command = await self.recovery.answers_for(command)
        return await self._submit(command)

    async def _submit(self, command: Command) -> Any:
        return await self._active_term().ask(command)

    async def heartbeat(self, command: BrokerHeartbeat) -> HeartbeatResponse:
        """As `submit`, and the node's clock is compared with the others'."""
        response: HeartbeatResponse = await self.submit(command)
        self._clocks.hear(command.broker_id, command.clock)
        live = frozenset(broker.broker_id for broker in self._view.image.brokers.values() if not broker.fenced)
        skew_max_ms = self._configs.node[node_settings.CLOCK_SKEW_MAX_MS]
        return replace(response, clock=self._clocks.answer(live, skew_max_ms))

    async def register(self, command: RegisterBroker) -> RegistrationResponse:
        """As RegisterBroker, but the session of an incarnation that is gone stands in nobody's way."""
        try:
            await self.submit(command)
        except DuplicateBrokerIdError:
            existing = self._view.image.brokers.get(command.broker_id)
            if existing is None or not await self.suspect(existing.broker_id, existing.epoch):
                raise
            await self.submit(command)
        broker = self._view.image.require_broker(command.broker_id)
        if broker.incarnation_id != command.incarnation_id:
            raise DuplicateBrokerIdError(
                f"node {command.broker_id} has registered as another process meanwhile", field="broker_id"
            )
        return RegistrationResponse(
            broker_epoch=broker.epoch, session_timeout_ms=self._context_of(()).settings.session_timeout_ms
        )

    async def read_index(self) -> RaftIndex:
        """Of the newest command that anybody, anywhere, can have been told of (a linearizable read).
        NotControllerError.
        """
        self._active_term()
        await self._quorum.read_barrier()
        return self._view.image.index

    async def suspect(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Take a second look at a node, and fence it where it is gone: True, once that is committed.

        Those who suspect the same node at the same time share the look. NotControllerError, OutcomeUnknownError.
        """
        self._active_term()
        key = (broker_id, broker_epoch)
        while key in self._looking:
            await self._looking[key].wait()
        broker = self._view.image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            return False
        if broker.fenced:
            return True
        over = self._looking[key] = asyncio.Event()
        try:
            return await self._look_again(broker)
        finally:
            del self._looking[key]
            over.set()

    async def _look_around(self) -> None:
        """At all nodes that are not fenced, at the same time: those that are silent take as long as they take."""
        unfenced = [broker for broker in self._view.image.brokers.values() if not broker.fenced]
        looks = [self.suspect(broker.broker_id, broker.epoch) for broker in unfenced]
        for outcome in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, StreamlogError):
                raise outcome

    async def _look_again(self, broker: Broker) -> bool:
        if not await is_gone(self._network, broker):
            return False
        self._probe("broker_gone", broker=broker.broker_id, epoch=broker.epoch)
        try:
            await self.submit(FenceBroker(broker_id=broker.broker_id, broker_epoch=broker.epoch))
        except StaleBrokerEpochError:
            return False  # it has registered again while we looked
        return True

    async def create_internal_topic(self, name: str) -> TopicId:
        """Its id, whoever made it. InvalidTopicError, InvalidReplicationFactorError."""
        try:
            await self.submit(CreateInternalTopic(name=name))
        except TopicAlreadyExistsError:
            pass
        return self._view.image.require_topic(name).topic_id

    def _active_term(self) -> ControllerTerm:
        if self._current_term is None:
            known = self._view.controller
            raise NotControllerError(
                f"node {self._node_id} is not the active controller, "
                + ("nobody is now" if known is None else f"node {known} is"),
                leader=known,
                address=self._view.controller_address,
            )
        return self._current_term
