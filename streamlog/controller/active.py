"""ActiveController: decides for the cluster while its node leads the quorum. One per voter.

    waiting --leadership is ready--> controller term --leadership lost, or another term--> waiting

Ready: everything committed in earlier terms is applied here, so the image is current. `run` ends with the node.

A broken stream to a node is a suspicion, not a proof. The controller probes the node's own address: if the connection
is refused or another process answers, the node is fenced at once; if there is no answer, its session decides. The same
probe lets a killed node that restarts register at once instead of waiting for its old session. A new controller probes
all nodes, since the previous controller's node probably failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.config import Config
from streamlog.config.settings import node_settings
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
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.partitions.leaders import ElectLeaders
from streamlog.metadata.records import Broker, MetadataVersion
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.creation import CreateInternalTopic
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, RaftIndex, RaftTerm, TopicId
from streamlog.ports import Clock, Network, Probe, Random
from streamlog.raft.port import Leadership, Quorum

RETRY_S: Final = 0.1
"""Before the controller takes over again in the same term, after the quorum refused a command."""


class RegistrationResponse(Struct, frozen=True, kw_only=True):
    """The node is registered; it is still fenced."""

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
        metadata_version_max: MetadataVersion = METADATA_VERSION_MAX,
    ) -> None:
        """`metadata_version_max`: the level that a cluster without any gets."""
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
        self._metadata_version_max = metadata_version_max
        self._current_term: ControllerTerm | None = None
        self._last_term: RaftTerm | None = None  # of the controller term that was started last
        self.recovery = UncleanRecovery(
            view=view, network=network, context_of=self._context_of, submit=self._submit, probe=probe
        )
        self._resolved: tuple[Config, ControllerSettings] | None = None  # the settings, and the config they are from
        self._probing: dict[tuple[BrokerId, BrokerEpoch], asyncio.Future[bool]] = {}  # probes in progress

    @property
    def is_active(self) -> bool:
        return self._current_term is not None and not self._current_term.has_ended

    @property
    def knows_leader(self) -> bool:
        """Whether this node's Raft state names a leader. If not, the node may still reach the controller."""
        try:
            return self._quorum.leadership().leader is not None
        except QuorumUnavailableError:
            return False

    async def run(self) -> None:
        """Run until the quorum stops. An InvariantError of a decision stops the node."""
        leading: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            async for leadership in self._quorum.watch_leadership():
                if leading is not None:  # at its end it resets the view's controller, so wait for it
                    leading.cancel()
                    await asyncio.wait([leading])
                if not leadership.is_self:
                    self._view.set_controller(leadership.leader, leadership.address)
                leading = tasks.create_task(self._lead(leadership)) if leadership.is_ready else None
            if leading is not None:
                leading.cancel()

    async def _lead(self, leadership: Leadership) -> None:
        """Run controller terms within one Raft term: several if the quorum refuses a command without an election.
        Another `_lead` of the same Raft term follows where this node's address as a voter has changed.
        """
        while self._is_still(leadership):
            self._current_term = ControllerTerm(
                leadership.term,
                self._cluster_id,
                quorum=self._quorum,
                view=self._view,
                context_of=self._context_of,
                probe=self._probe,
                metadata_version_max=self._metadata_version_max,
                resumes=self._last_term == leadership.term,
            )
            self._last_term = leadership.term
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
        """Checked before each controller term: a cancellation that coincides with an error is lost in a task group.
        False once the quorum has stopped.
        """
        try:
            now = self._quorum.leadership()
        except QuorumUnavailableError:
            return False
        return now.is_ready and now.term == leadership.term

    async def _run_term(self, term: ControllerTerm) -> None:
        async with asyncio.TaskGroup() as tasks:
            probing = tasks.create_task(self._probe_all())
            recovering = tasks.create_task(self.recovery.run())
            try:
                await term.run()
            finally:
                probing.cancel()
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
        was lost meanwhile. Errors of the decision itself.
        """
        self._active_term()
        if isinstance(command, ElectLeaders):
            command = await self.recovery.answers_for(command)
        return await self._submit(command)

    async def _submit(self, command: Command) -> Any:
        return await self._active_term().ask(command)

    async def heartbeat(self, command: BrokerHeartbeat) -> HeartbeatResponse:
        """Like `submit`; also compares the node's clock with the other nodes', and says what is in force."""
        response: HeartbeatResponse = await self.submit(command)
        self._clocks.report(command.broker_id, command.clock)
        live = frozenset(broker.broker_id for broker in self._view.image.brokers.values() if not broker.fenced)
        skew_max_ms = self._configs.node[node_settings.CLOCK_SKEW_MAX_MS]
        answer = self._clocks.answer(live, skew_max_ms)
        return replace(response, clock=answer, metadata_index=self._view.image.index)

    async def register(self, command: RegisterBroker) -> RegistrationResponse:
        """Submit RegisterBroker; the unexpired session of an incarnation that is gone does not block it."""
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
        """An index at or above every command acknowledged so far (a linearizable read). NotControllerError."""
        self._active_term()
        await self._quorum.read_barrier()
        return self._view.image.index

    async def suspect(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Probe a node and fence it if its process is gone: True once that is committed.

        Concurrent callers share one probe of a node. NotControllerError, OutcomeUnknownError.
        """
        self._active_term()
        key = (broker_id, broker_epoch)
        while (probing := self._probing.get(key)) is not None:
            await asyncio.wait([probing])
            if not probing.cancelled():
                return probing.result()
        broker = self._view.image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            return False
        if broker.fenced:
            return True
        done = self._probing[key] = asyncio.get_running_loop().create_future()
        try:
            gone = await self._fence_if_gone(broker)
            done.set_result(gone)
            return gone
        finally:
            del self._probing[key]
            done.cancel()  # if there is no outcome: the next caller probes

    async def _probe_all(self) -> None:
        """Probe all unfenced nodes concurrently."""
        unfenced = [broker for broker in self._view.image.brokers.values() if not broker.fenced]
        probes = [self.suspect(broker.broker_id, broker.epoch) for broker in unfenced]
        for outcome in await asyncio.gather(*probes, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, StreamlogError):
                raise outcome

    async def _fence_if_gone(self, broker: Broker) -> bool:
        if not await is_gone(self._network, broker):
            return False
        self._probe("broker_gone", broker=broker.broker_id, epoch=broker.epoch)
        try:
            await self.submit(FenceBroker(broker_id=broker.broker_id, broker_epoch=broker.epoch))
        except StaleBrokerEpochError:
            return False  # it registered again meanwhile
        return True

    async def create_internal_topic(self, name: str) -> TopicId:
        """The topic's id, also if it exists already. InvalidTopicError, InvalidReplicationFactorError."""
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
                + ("and no other is known" if known is None else f"node {known} is"),
                leader=known,
                address=self._view.controller_address,
            )
        return self._current_term
