"""ControllerLink: a node's way to the active controller, which may be the node itself.

Who it is, the view tells where the quorum has told it; else whoever is asked names it (NOT_CONTROLLER); else the voters
are asked in turn. While there is none, or none can be reached, the link waits for news of it with a growing pause, and
gives up when the call's time is over: QuorumUnavailableError. At a node without a vote, which the quorum tells nothing,
the link tells the view: whoever answers is the controller until it refuses, or does not answer.

What is repeated, and why it does no harm where the first attempt was carried out and its answer lost:

    Register                one incarnation registers once
    Heartbeat               says the same again
    AlterPartition          is not repeated once it may have got there, but OutcomeUnknownError: whoever leads must tell
                            refused from unknown
    ReportOfflineReplicas   they are offline already
    AllocateProducerIds     a block of ids is never used
    CreateInternalTopic     answered with the topic that is there
    Suspect                 another look
    ReadIndex               another read

    Forward                 only while it surely was not carried out: the controller said that it is none, or could not
                            be reached by a call made just before. Else OutcomeUnknownError: the client must look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from streamlog.api.convert import controller as convert
from streamlog.api.errors import from_rpc
from streamlog.api.pb import controller_pb2 as pb
from streamlog.api.pb import identification_pb2
from streamlog.api.service import parse
from streamlog.controller.active import ActiveController, RegistrationResponse
from streamlog.controller.identity import IDENTIFY
from streamlog.errors import (
    BrokerIdNotRegisteredError,
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
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, ProducerId, RaftIndex, TopicId
from streamlog.ports import Channel, Clock, Network, Random, RpcError
from streamlog.raft.voters import Voter

FORWARDED: Final = "streamlog-forwarded"
"""Key of the call metadata of a client's call that another node has handed on: it is not handed on again."""
SERVICE: Final = "/streamlog.internal.v1.Controller/"
TIMEOUT_S: Final = 10.0
ATTEMPT_S: Final = 1.5
"""Of one attempt: a controller that was cut off must not take all of a call's time. A second look fits in."""
PAUSE_S: Final = (0.02, 0.5)
"""Between two rounds of attempts: the first, doubled up to the longest."""
REACH_S: Final = 0.5
ASK_S: Final = 2.0
LAG_S: Final = 5.0
"""How long a question is held up by a controller that does not answer, and by this node that lags behind it."""
ANSWER_S: Final = 0.5
"""Of a client's time, for the answer's way back."""
RESPONSE_BYTES_MAX: Final = 4 << 20

_GONE: Final = (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.CANCELLED)
_AGAIN: Final = (NotControllerError, OutcomeUnknownError, QuorumUnavailableError, ThrottledError)

T = TypeVar("T")


class ControllerLink:
    """One a node. `run` is not needed; `close` it at the end."""

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
        """`active`: this node's own, where it is a voter. `voters`: those in effect."""
        self._node_id = node_id
        self._view = view
        self._active = active
        self._voters = voters
        self._network = network
        self._clock = clock
        self._random = random
        self._channels: dict[str, Channel] = {}
        self._hint: Voter | None = None  # who was named last
        # Of the node's registration; None: it has none. Set by node.registration.
        self.broker_epoch: BrokerEpoch | None = None

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    # What a node asks for itself.

    async def register(self, command: RegisterBroker, *, timeout_s: float = TIMEOUT_S) -> RegistrationResponse:
        """DuplicateBrokerIdError, InconsistentClusterError, UnsupportedVersionError, InvalidRequestError."""

        def decode(data: bytes) -> RegistrationResponse:
            answer = parse(pb.RegisterResponse, data, RESPONSE_BYTES_MAX)
            return RegistrationResponse(
                broker_epoch=BrokerEpoch(answer.broker_epoch), session_timeout_ms=answer.session_timeout_ms
            )

        request = convert.to_register(command).SerializeToString()
        return await self._ask("Register", request, decode, lambda active: active.register(command), timeout_s)

    async def heartbeat(self, command: BrokerHeartbeat, *, timeout_s: float) -> HeartbeatResponse:
        """BrokerIdNotRegisteredError, StaleBrokerEpochError: register again."""

        def decode(data: bytes) -> HeartbeatResponse:
            return convert.heartbeat_response(parse(pb.HeartbeatResponse, data, RESPONSE_BYTES_MAX))

        request = convert.to_heartbeat(command).SerializeToString()
        return await self._ask("Heartbeat", request, decode, lambda active: active.heartbeat(command), timeout_s)

    async def alter_partition(
        self, proposals: Sequence[IsrProposal], *, timeout_s: float = TIMEOUT_S
    ) -> tuple[IsrResult, ...]:
        """One result for each, in their order; at most 2,000. StaleBrokerEpochError, InvalidRequestError,
        QuorumUnavailableError: none was carried out; OutcomeUnknownError: perhaps they were.
        """
        command = AlterPartition(broker_id=self._node_id, broker_epoch=self._registered(), proposals=tuple(proposals))

        def decode(data: bytes) -> tuple[IsrResult, ...]:
            return convert.isr_results(parse(pb.AlterPartitionResponse, data, RESPONSE_BYTES_MAX))

        request = convert.to_alter_partition(command).SerializeToString()
        return await self._ask(
            "AlterPartition", request, decode, lambda active: active.submit(command), timeout_s, once=True
        )

    async def report_offline_replicas(
        self, partitions: Sequence[PartitionKey], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """These replicas are gone with their log directory; at most 2,000. StaleBrokerEpochError."""
        command = ReportOfflineReplicas(
            broker_id=self._node_id, broker_epoch=self._registered(), partitions=tuple(partitions)
        )
        request = convert.to_offline_replicas(command).SerializeToString()
        await self._ask("ReportOfflineReplicas", request, _nothing, lambda active: active.submit(command), timeout_s)

    async def allocate_producer_ids(self, *, timeout_s: float = TIMEOUT_S) -> tuple[ProducerId, int]:
        """Ids that nobody else gets, ever: the first, and how many. StaleBrokerEpochError."""
        command = AllocateProducerIds(broker_id=self._node_id, broker_epoch=self._registered())

        def decode(data: bytes) -> ProducerIdBlock:
            return convert.producer_ids(parse(pb.AllocateProducerIdsResponse, data, RESPONSE_BYTES_MAX))

        message = pb.AllocateProducerIdsRequest(node_id=command.broker_id, broker_epoch=command.broker_epoch)
        request = message.SerializeToString()
        ids = await self._ask("AllocateProducerIds", request, decode, lambda active: active.submit(command), timeout_s)
        return ids.first, ids.count

    async def create_internal_topic(self, name: str, *, timeout_s: float = TIMEOUT_S) -> TopicId:
        """The topic's id; it may be there already. InvalidTopicError, InvalidReplicationFactorError."""

        def decode(data: bytes) -> TopicId:
            return TopicId(parse(pb.CreateInternalTopicResponse, data, RESPONSE_BYTES_MAX).topic_id)

        request = pb.CreateInternalTopicRequest(name=name).SerializeToString()
        return await self._ask(
            "CreateInternalTopic", request, decode, lambda active: active.create_internal_topic(name), timeout_s
        )

    async def suspect(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, *, timeout_s: float = TIMEOUT_S) -> None:
        """A stream to the node broke and cannot be made again: let the controller take a second look at it."""
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
        """`once`: not repeated where it may have been carried out."""
        search = _Search(self, timeout_s)
        while True:
            try:
                if self._active is not None and self._active.is_active and search.may_ask_here():
                    async with asyncio.timeout(search.attempt_s()):
                        return await local(self._active)
                where = await search.next()
                data = await self._channel(where).unary(SERVICE + method, request, timeout_s=search.attempt_s())
                self._met(where)
                return decode(data)
            except TimeoutError:
                failure: StreamlogError | RpcError = OutcomeUnknownError(
                    "the active controller could not commit in time"
                )
            except RpcError as error:
                failure = from_rpc(error)
            except _AGAIN as error:
                failure = error
            if once and _may_have_been_done(failure):
                raise _unknown(method)
            await search.failed(failure)

    # What clients ask.

    async def forward(self, method: str, request: bytes, timeout_s: float) -> bytes:
        """Have the active controller answer a client's call of streamlog.v1.Admin; its answer holds here as well when
        this returns.

        The errors of the call; QuorumUnavailableError: not carried out; OutcomeUnknownError. They come a moment before
        the time is over, when the client still listens.
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
            except RpcError as error:
                cause = from_rpc(error)
                if isinstance(cause, NotControllerError):
                    await search.failed(cause)
                    continue
                raise _unknown(method) if _may_have_been_done(cause) else cause from None
            answer = parse(pb.ForwardResponse, data, RESPONSE_BYTES_MAX)
            await self._wait_until_applied(RaftIndex(answer.applied_index), search.left_s())
            return answer.response

    async def catch_up(self, timeout_s: float) -> None:
        """Until this node's image holds all that anybody had been told before the call, so that what is read from it is
        not the past. Where the controller is not reached within ASK_S, or the node lags behind for LAG_S, it returns
        all the same: better an older answer than none, just when an operator needs one.
        """
        ask_s = min(ASK_S, timeout_s)
        deadline = self._clock.monotonic() + timeout_s

        def decode(data: bytes) -> RaftIndex:
            return RaftIndex(parse(pb.ReadIndexResponse, data, RESPONSE_BYTES_MAX).applied_index)

        request = pb.ReadIndexRequest().SerializeToString()
        try:
            index = await self._ask("ReadIndex", request, decode, lambda active: active.read_index(), ask_s)
        except QuorumUnavailableError:
            return
        await self._wait_until_applied(index, min(LAG_S, max(0.0, deadline - self._clock.monotonic())))

    async def _wait_until_applied(self, index: RaftIndex, timeout_s: float) -> None:
        """A node that lags behind for longer answers all the same: what was asked for is done."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._view.wait_until_applied(index)
        except TimeoutError:
            return

    # Finding it.

    def _candidates(self) -> list[str]:
        """Who may be the controller, the likeliest first."""
        known = (self._view.controller_address, *(voter.address for voter in self._voters_and_hint()))
        return list(dict.fromkeys(where for where in known if where))

    def _voters_and_hint(self) -> list[Voter]:
        return [*([] if self._hint is None else [self._hint]), *self._voters()]

    def _met(self, where: str) -> None:
        """The controller, at this address."""
        if self._finds_out() and where != self._view.controller_address:
            for voter in self._voters_and_hint():
                if voter.address == where:
                    self._view.set_controller(voter.node_id, where)
                    return

    def _missed(self, where: str | None) -> None:
        """The controller, at this address: somebody else is there, or nobody."""
        if self._finds_out() and where == self._view.controller_address:
            self._view.set_controller(None, None)

    def _finds_out(self) -> bool:
        """Whether who the controller is is known from whom this node meets. A voter knows it from the quorum, but one
        that was voted out hears nothing of that any more.
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
        self._asked: str | None = None  # the last of them; None: this node's own controller
        self._tried_here = False  # likewise
        self._pause_s = PAUSE_S[0]
        self._last: StreamlogError | RpcError | None = None

    def left_s(self) -> float:
        return max(0.001, self._deadline - self._link._clock.monotonic())

    def attempt_s(self) -> float:
        return min(ATTEMPT_S, self.left_s())

    def may_ask_here(self) -> bool:
        """This node's own controller: once a round, like any other. It may refuse without a wait."""
        first, self._tried_here, self._asked = not self._tried_here, True, None
        return first

    async def next(self) -> str:
        """Whom to ask; after a pause where all have been. QuorumUnavailableError when the time is over."""
        while True:
            for where in self._link._candidates():
                if where not in self._tried:
                    self._tried.append(where)
                    self._asked = where
                    return where
            await self._pause()

    async def failed(self, error: StreamlogError | RpcError) -> None:
        """Raises the error where another attempt would not help."""
        self._last = error
        if isinstance(error, RpcError):
            if error.status not in _GONE:
                raise error
            if error.status is Status.UNAVAILABLE:
                self._link._missed(self._asked)
            return
        if not isinstance(error, _AGAIN):
            raise error
        if isinstance(error, NotControllerError):
            self._link._missed(self._asked)
            self._link._hint = _named(error)
        else:
            await self._pause()

    async def _pause(self) -> None:
        link = self._link
        left_s = self._deadline - link._clock.monotonic()
        if left_s <= 0:
            raise QuorumUnavailableError(
                f"no active controller answered within {self._timeout_s:g} s"
                + ("" if self._last is None else f": {self._last}")
            ) from self._last
        pause_s = link._random.uniform(0.5, 1.0) * self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S[1])
        try:
            async with asyncio.timeout(min(pause_s, left_s)):
                await link._view.wait_for_controller_change()
        except TimeoutError:
            pass
        self._tried.clear()
        self._tried_here = False


def _named(error: NotControllerError) -> Voter | None:
    """Details of an error that came over the wire are text."""
    leader, address = str(error.details.get("leader")), error.details.get("address")
    if not leader.isdecimal() or not isinstance(address, str):
        return None
    return Voter(node_id=BrokerId(int(leader)), address=address)


def _nothing(data: bytes) -> None:
    """There is nothing in the answer."""


def _may_have_been_done(failure: StreamlogError | RpcError) -> bool:
    return isinstance(failure, OutcomeUnknownError) or (isinstance(failure, RpcError) and failure.status in _GONE)


def _unknown(method: str) -> StreamlogError:
    name = method.rpartition("/")[2]
    return OutcomeUnknownError(
        f"the controller was lost before it answered: {name} may or may not have been carried out; look before you "
        "repeat it"
    )


_WHO: Final = identification_pb2.IdentifyRequest().SerializeToString()
