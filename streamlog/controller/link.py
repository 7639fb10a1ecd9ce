"""ControllerLink: a node's way to the active controller, which may be the node itself.

The view names the controller if the quorum has named it; else a NOT_CONTROLLER answer does; else the voters are tried
in turn. While no controller is reachable, the link waits for a change with growing pauses, and fails at the end of the
call's timeout: QuorumUnavailableError. At a node without a vote, which the quorum does not notify, the link updates the
view: a node that answers is the controller until it refuses or does not answer.

Other programs may listen at a voter's address. What is not a valid answer, or has a status that no controller sends, is
no answer: the next address is tried.

Which calls are retried, and why that is safe if the first attempt was carried out and its response lost:

    Register                an incarnation registers once
    Heartbeat               idempotent
    AlterPartition          not retried if it may have arrived, but OutcomeUnknownError: the partition's leader must
                            distinguish refused from unknown
    ReportOfflineReplicas   they are offline already
    ResignLeadership        the leader epoch has ended already
    AllocateProducerIds     one block of ids remains unused
    CreateInternalTopic     returns the existing topic
    Suspect                 probes again
    ReadIndex               reads again

    Forward                 only if it certainly was not carried out: the node answered that it is not the controller,
                            or was not reachable by a call made just before. Else OutcomeUnknownError: the client must
                            check.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from streamlog.aio.timeouts import timeout
from streamlog.api.convert import controller as convert
from streamlog.api.convert.fields import topic_id
from streamlog.api.errors import from_rpc
from streamlog.api.pb import controller_pb2 as pb
from streamlog.api.pb import identification_pb2
from streamlog.api.responses import Response, parse_response, unusable
from streamlog.controller.active import ActiveController, RegistrationResponse
from streamlog.controller.identity import IDENTIFY
from streamlog.errors import (
    BrokerIdNotRegisteredError,
    BrokerNotAvailableError,
    InvalidRequestError,
    NotControllerError,
    OutcomeUnknownError,
    QuorumUnavailableError,
    Status,
    StreamlogError,
    ThrottledError,
)
from streamlog.metadata.brokers.liveness import BrokerHeartbeat, HeartbeatResponse
from streamlog.metadata.brokers.registration import RegisterBroker
from streamlog.metadata.cluster import AllocateProducerIds, ProducerIdBlock
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.isr import AlterPartition, IsrProposal, IsrResult, ReportOfflineReplicas
from streamlog.metadata.partitions.leaders import ResignLeadership
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, ProducerId, RaftIndex, TopicId
from streamlog.ports import Channel, Clock, Network, Random, RpcError
from streamlog.raft.voters import Voter

FORWARDED: Final = "streamlog-forwarded"
"""Key in the call metadata of a client's call that another node has forwarded: it is not forwarded again."""
SERVICE: Final = "/streamlog.internal.v1.Controller/"
TIMEOUT_S: Final = 10.0
ATTEMPT_S: Final = 1.5
"""Of one attempt: an isolated controller must not use up a call's timeout. Long enough for a probe."""
PAUSE_S: Final = (0.02, 0.5)
"""Between two rounds of attempts: the first, doubled up to the longest."""
REACH_S: Final = 0.5
ASK_S: Final = 2.0
LAG_S: Final = 5.0
"""How long a read waits for a controller that does not answer, and for this node while it lags behind."""
ANSWER_S: Final = 0.5
"""Of a client's timeout, reserved for the way of the response."""
RESPONSE_BYTES_MAX: Final = 4 << 20

_CONTROLLER: Final = "the controller"
_NODE_ID: Final = re.compile(r"[0-9]{1,10}")
_AGAIN: Final = (NotControllerError, OutcomeUnknownError, QuorumUnavailableError, ThrottledError)

T = TypeVar("T")


class ControllerLink:
    """One per node. `close` it at the end."""

    def __init__(
        self,
        node_id: BrokerId,
        *,
        view: MetadataView,
        active: ActiveController | None,
        voters: Callable[[], Iterable[Voter]],
        network: Network,
        clock: Clock,
        random: Random,
    ) -> None:
        """`active`: this node's own, if it is a voter. `voters`: those in effect."""
        self._node_id = node_id
        self._view = view
        self._active = active
        self._voters = voters
        self._network = network
        self._clock = clock
        self._random = random
        self._channels: dict[str, Channel] = {}
        self._hint: Voter | None = None  # the controller named in the last NOT_CONTROLLER
        # Of the node's registration; None: it has none. Set by node.registration.
        self.broker_epoch: BrokerEpoch | None = None

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    # The node's own calls.

    async def register(self, command: RegisterBroker, *, timeout_s: float = TIMEOUT_S) -> RegistrationResponse:
        """DuplicateBrokerIdError, InconsistentClusterError, UnsupportedVersionError, InvalidRequestError."""

        def decode(data: bytes) -> RegistrationResponse:
            answer = _parsed(pb.RegisterResponse, data)
            return RegistrationResponse(
                broker_epoch=BrokerEpoch(answer.broker_epoch), session_timeout_ms=answer.session_timeout_ms
            )

        request = convert.to_register(command).SerializeToString()
        return await self._ask("Register", request, decode, lambda active: active.register(command), timeout_s)

    async def heartbeat(self, command: BrokerHeartbeat, *, timeout_s: float) -> HeartbeatResponse:
        """BrokerIdNotRegisteredError, StaleBrokerEpochError: register again."""

        def decode(data: bytes) -> HeartbeatResponse:
            return convert.heartbeat_response(_parsed(pb.HeartbeatResponse, data))

        request = convert.to_heartbeat(command).SerializeToString()
        return await self._ask("Heartbeat", request, decode, lambda active: active.heartbeat(command), timeout_s)

    async def alter_partition(
        self, proposals: Sequence[IsrProposal], *, timeout_s: float = TIMEOUT_S
    ) -> tuple[IsrResult, ...]:
        """One result for each, in their order; at most 2,000. StaleBrokerEpochError, InvalidRequestError,
        QuorumUnavailableError: none was carried out; OutcomeUnknownError: they may have been.
        """
        command = AlterPartition(broker_id=self._node_id, broker_epoch=self._registered(), proposals=tuple(proposals))

        def decode(data: bytes) -> tuple[IsrResult, ...]:
            results = convert.isr_results(_parsed(pb.AlterPartitionResponse, data))
            if len(results) != len(proposals):
                reason = f"it has {len(results)} results for {len(proposals)} proposals"
                raise unusable("AlterPartitionResponse", _CONTROLLER, reason)
            return results

        request = convert.to_alter_partition(command).SerializeToString()
        return await self._ask(
            "AlterPartition", request, decode, lambda active: active.submit(command), timeout_s, once=True
        )

    async def report_offline_replicas(
        self, partitions: Sequence[PartitionKey], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """The log directory of these replicas has failed; at most 2,000. StaleBrokerEpochError."""
        command = ReportOfflineReplicas(
            broker_id=self._node_id, broker_epoch=self._registered(), partitions=tuple(partitions)
        )
        request = convert.to_offline_replicas(command).SerializeToString()
        await self._ask("ReportOfflineReplicas", request, _nothing, lambda active: active.submit(command), timeout_s)

    async def resign_leadership(
        self, key: PartitionKey, leader_epoch: LeaderEpoch, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """A new leader epoch of a partition that this node leads. StaleBrokerEpochError, QuorumUnavailableError, also
        where the controller is of an earlier release.
        """
        command = ResignLeadership(
            broker_id=self._node_id, broker_epoch=self._registered(), key=key, leader_epoch=leader_epoch
        )
        request = convert.to_resign_leadership(command).SerializeToString()
        await self._ask("ResignLeadership", request, _nothing, lambda active: active.submit(command), timeout_s)

    async def allocate_producer_ids(self, *, timeout_s: float = TIMEOUT_S) -> tuple[ProducerId, int]:
        """A block of unique ids: the first, and how many. StaleBrokerEpochError."""
        command = AllocateProducerIds(broker_id=self._node_id, broker_epoch=self._registered())

        def decode(data: bytes) -> ProducerIdBlock:
            return convert.producer_ids(_parsed(pb.AllocateProducerIdsResponse, data))

        message = pb.AllocateProducerIdsRequest(node_id=command.broker_id, broker_epoch=command.broker_epoch)
        request = message.SerializeToString()
        ids = await self._ask("AllocateProducerIds", request, decode, lambda active: active.submit(command), timeout_s)
        return ids.first, ids.count

    async def create_internal_topic(self, name: str, *, timeout_s: float = TIMEOUT_S) -> TopicId:
        """The topic's id, also if it exists already. InvalidTopicError, InvalidReplicationFactorError."""

        def decode(data: bytes) -> TopicId:
            return topic_id(_parsed(pb.CreateInternalTopicResponse, data).topic_id)

        request = pb.CreateInternalTopicRequest(name=name).SerializeToString()
        return await self._ask(
            "CreateInternalTopic", request, decode, lambda active: active.create_internal_topic(name), timeout_s
        )

    async def suspect(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, *, timeout_s: float = TIMEOUT_S) -> None:
        """A stream to the node broke and cannot be reopened: have the controller probe it."""
        request = pb.SuspectRequest(node_id=broker_id, broker_epoch=broker_epoch).SerializeToString()
        await self._ask("Suspect", request, _nothing, lambda active: active.suspect(broker_id, broker_epoch), timeout_s)

    async def _ask(
        self,
        method: str,
        request: bytes,
        decode: Callable[[bytes], T],
        local: Callable[[ActiveController], Awaitable[T]],
        timeout_s: float,
        *,
        once: bool = False,
    ) -> T:
        """`once`: not retried if it may have been carried out."""
        search = _Search(self, timeout_s)
        while True:
            try:
                if self._active is not None and self._active.is_active and search.may_try_here():
                    async with timeout(search.attempt_s()):
                        return await local(self._active)
                where = await search.next()
                data = await self._channel(where).unary(SERVICE + method, request, timeout_s=search.attempt_s())
            except TimeoutError:
                failure: StreamlogError | RpcError = OutcomeUnknownError(
                    "the active controller could not commit in time"
                )
            except RpcError as error:
                failure = from_rpc(error)
            except _AGAIN as error:
                failure = error
            else:
                try:
                    answer = decode(data)
                except StreamlogError as error:  # no answer of a controller, as a status that none sends
                    failure = RpcError(Status.UNKNOWN, error.message)
                else:
                    self._found(where)
                    return answer
            if once and _may_be_carried_out(failure):
                raise _unknown(method, failure)
            await search.failed(failure)

    # Calls of clients.

    async def forward(self, method: str, request: bytes, timeout_s: float) -> bytes:
        """Forward a client's call of streamlog.v1.Admin to the active controller; when this returns, the result is
        applied here too.

        The errors of the call; QuorumUnavailableError: not carried out; OutcomeUnknownError. They are raised shortly
        before the timeout, so that they reach the client.
        """
        message = pb.ForwardRequest(method=method, request=request).SerializeToString()
        search = _Search(self, timeout_s - min(ANSWER_S, timeout_s / 10))
        while True:
            where = await search.next()
            try:
                await self._channel(where).unary(IDENTIFY, _WHO, timeout_s=min(REACH_S, search.attempt_s()))
            except RpcError as error:
                await search.failed(from_rpc(error))
                continue
            try:
                data = await self._channel(where).unary(SERVICE + "Forward", message, timeout_s=search.left_s())
                answer = _parsed(pb.ForwardResponse, data)
            except RpcError as error:
                cause = from_rpc(error)
                if isinstance(cause, NotControllerError) or _is_unimplemented(cause):
                    await search.failed(cause)
                    continue
                raise _unknown(method, cause) if _may_be_carried_out(cause) else cause from None
            except BrokerNotAvailableError as error:
                raise _unknown(method, error) from None
            await self._wait_until_applied(RaftIndex(answer.applied_index), search.left_s())
            return answer.response

    async def catch_up(self, timeout_s: float) -> None:
        """Wait until this node's image includes everything acknowledged before the call (a linearizable read). If the
        controller is not reached within ASK_S, or the node lags behind for LAG_S, it returns anyway: a stale answer is
        better than none when an operator needs one.
        """
        ask_s = min(ASK_S, timeout_s)
        deadline = self._clock.monotonic() + timeout_s

        def decode(data: bytes) -> RaftIndex:
            return RaftIndex(_parsed(pb.ReadIndexResponse, data).applied_index)

        request = pb.ReadIndexRequest().SerializeToString()
        try:
            index = await self._ask("ReadIndex", request, decode, lambda active: active.read_index(), ask_s)
        except QuorumUnavailableError:
            return
        await self._wait_until_applied(index, min(LAG_S, max(0.0, deadline - self._clock.monotonic())))

    async def _wait_until_applied(self, index: RaftIndex, timeout_s: float) -> None:
        """A node that lags behind for longer answers anyway: the call was carried out."""
        try:
            async with timeout(timeout_s):
                await self._view.wait_until_applied(index)
        except TimeoutError:
            return

    # Finding it.

    def _candidates(self) -> list[str]:
        """The addresses that may be the controller's, the most likely first."""
        known = (self._view.controller_address, *(voter.address for voter in self._voters_and_hint()))
        return list(dict.fromkeys(where for where in known if where))

    def _voters_and_hint(self) -> list[Voter]:
        return [*([] if self._hint is None else [self._hint]), *self._voters()]

    def _found(self, where: str) -> None:
        """The controller answered at this address."""
        if self._updates_view() and where != self._view.controller_address:
            for voter in self._voters_and_hint():
                if voter.address == where:
                    self._view.set_controller(voter.node_id, where)
                    return

    def _missed(self, where: str | None) -> None:
        """The controller did not answer at this address, or another node did."""
        if self._updates_view() and where == self._view.controller_address:
            self._view.set_controller(None, None)

    def _updates_view(self) -> bool:
        """Whether the link updates the view's controller. A voter learns it from the quorum, but a removed voter is no
        longer notified.
        """
        return self._active is None or not self._active.knows_leader

    def _channel(self, where: str) -> Channel:
        if where not in self._channels:
            self._channels[where] = self._network.connect(where)
        return self._channels[where]

    def _registered(self) -> BrokerEpoch:
        if self.broker_epoch is None:
            raise BrokerIdNotRegisteredError(f"node {self._node_id} is not registered", field="broker_id")
        return self.broker_epoch


class _Search:
    """One call's search for the active controller."""

    def __init__(self, link: ControllerLink, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._deadline = link._clock.monotonic() + timeout_s
        self._tried: list[str] = []  # in this round
        self._current: str | None = None  # the last of them; None: this node's own controller
        self._tried_here = False  # likewise
        self._pause_s = PAUSE_S[0]
        self._last: StreamlogError | RpcError | None = None

    def left_s(self) -> float:
        return max(0.001, self._deadline - self._link._clock.monotonic())

    def attempt_s(self) -> float:
        return min(ATTEMPT_S, self.left_s())

    def may_try_here(self) -> bool:
        """Whether to try this node's own controller: once a round, like any other."""
        first, self._tried_here, self._current = not self._tried_here, True, None
        return first

    async def next(self) -> str:
        """The next address to try; pauses once all have been tried. QuorumUnavailableError on timeout."""
        while True:
            for where in self._link._candidates():
                if where not in self._tried:
                    self._tried.append(where)
                    self._current = where
                    return where
            await self._pause()

    async def failed(self, error: StreamlogError | RpcError) -> None:
        """Raises the error if another attempt would not help."""
        self._last = error
        if isinstance(error, RpcError):
            if error.status not in (Status.DEADLINE_EXCEEDED, Status.CANCELLED):
                self._link._missed(self._current)
            return
        if not isinstance(error, _AGAIN):
            raise error
        if isinstance(error, NotControllerError):
            self._link._missed(self._current)
            self._link._hint = _named(error)
        else:
            await self._pause()

    async def _pause(self) -> None:
        link = self._link
        left_s = self._deadline - link._clock.monotonic()
        if left_s <= 0:
            if isinstance(self._last, QuorumUnavailableError):  # another node has searched for this one, and says so
                raise QuorumUnavailableError(self._last.message) from self._last
            cause = "" if self._last is None else f": {self._last}"
            raise QuorumUnavailableError(
                f"no active controller answered within {self._timeout_s:g} s{cause}"
            ) from self._last
        pause_s = link._random.uniform(0.5, 1.0) * self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S[1])
        try:
            async with timeout(min(pause_s, left_s)):
                await link._view.wait_for_controller_change()
        except TimeoutError:
            pass
        self._tried.clear()
        self._tried_here = False


def _named(error: NotControllerError) -> Voter | None:
    """The details of an error from the wire are text, and any program may have sent it."""
    leader, address = str(error.details.get("leader")), error.details.get("address")
    if _NODE_ID.fullmatch(leader) is None or not isinstance(address, str):
        return None
    try:
        return Voter(node_id=BrokerId(int(leader)), address=address)
    except InvalidRequestError:
        return None


def _nothing(data: bytes) -> None:
    """The response is empty."""


def _parsed(message_type: type[Response], data: bytes) -> Response:
    return parse_response(message_type, data, _CONTROLLER, bytes_max=RESPONSE_BYTES_MAX)


def _is_unimplemented(failure: StreamlogError | RpcError) -> bool:
    """The method is unknown there, so nothing was done."""
    return isinstance(failure, RpcError) and failure.status is Status.UNIMPLEMENTED


def _may_be_carried_out(failure: StreamlogError | RpcError) -> bool:
    if isinstance(failure, RpcError):
        return not _is_unimplemented(failure)
    return isinstance(failure, OutcomeUnknownError)


def _unknown(method: str, failure: StreamlogError | RpcError) -> StreamlogError:
    name = method.rpartition("/")[2]
    if isinstance(failure, StreamlogError):
        why = failure.message
    elif failure.status is Status.DEADLINE_EXCEEDED:
        why = "the controller did not answer in time"
    elif failure.status in (Status.UNAVAILABLE, Status.CANCELLED):
        why = "the controller was lost before it answered"
    else:
        why = f"the controller's answer was {failure}"
    return OutcomeUnknownError(f"{why}: {name} may or may not have been carried out; check before you retry")


_WHO: Final = identification_pb2.IdentifyRequest().SerializeToString()
