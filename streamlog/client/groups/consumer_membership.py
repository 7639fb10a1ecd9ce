"""A consumer's membership of its group: joining, heartbeats, the assignment, leaving (SEMANTICS 9, KIP-848).

    unsubscribed --subscribe--> joining --epoch--> joined --fenced, no poll--> lost --rejoin (by a poll)--> joining
          ^_____________________ leave ______________|      any --permanent error--> failed --subscribe--> joining

A stream to the coordinator is open while the consumer is subscribed. Heartbeats are sent one at a time, each after the
response to the previous one: at the interval, at a hint of the coordinator, and when something has changed. The first
heartbeat of each stream carries everything, so a coordinator that moves, or a lost response, does no harm.

    assignment    what the coordinator has assigned to the member
    owned         what the consumer reads (`own`): follows the assignment when partitions are revoked or added

Revoked partitions are reported by `own`, that is when they are no longer read. Partitions that are revoked before the
consumer has started to read them are reported at once.

A member that is lost does not join again by itself: the consumer has to drop its partitions first, which it does at its
next poll. So a stuck consumer owns nothing.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from streamlog.aio.timeouts import timeout
from streamlog.api import calls
from streamlog.api.pb import groups_pb2 as pb
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.coordinator import Coordinator
from streamlog.client.connection.until_one_ends import run_until_one_ends
from streamlog.errors import (
    IllegalGenerationError,
    NetworkError,
    StreamlogError,
    UnknownMemberIdError,
)
from streamlog.model import PartitionId, TopicId, TopicPartition

_METHOD: Final = "streamlog.v1.Groups/GroupMembership"
_JOIN: Final = 0
_LEAVE: Final = -1
_LEAVE_TEMPORARILY: Final = -2
# After so long without a response any node is queried for the present coordinator.
_SILENCE_S: Final = 3.0
_LASTED_S: Final = 1.0  # a stream that ends sooner counts as one more failure
_FIND_S: Final = 60.0  # timeout of one lookup, which is repeated without limit
FENCED: Final = (UnknownMemberIdError, IllegalGenerationError)

Assignment = Mapping[TopicPartition, TopicId]


class MembershipState(enum.Enum):
    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    JOINED = "joined"
    LOST = "lost"
    FAILED = "failed"


_ACTIVE: Final = (MembershipState.JOINING, MembershipState.JOINED)


class MembershipRules(Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str  # empty: not static
    client_id: str
    assignor: str  # empty: the node's default
    rack: str
    rebalance_timeout_ms: int
    session_timeout_ms: int  # 0: the node's default
    heartbeat_interval_s: float
    serving_epoch: int = 0  # broker epoch of the node that is the member on behalf of a client; 0: the consumer is


class ConsumerMembership:
    """`run` is a background task of the consumer; the other methods are called by the consumer."""

    def __init__(
        self,
        coordinator: Coordinator,
        connections: Connections,
        backoff: Backoff,
        rules: MembershipRules,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change`: the assignment has changed, or the membership is lost or has failed."""
        self._coordinator = coordinator
        self._connections = connections
        self._backoff = backoff
        self._rules = rules
        self._on_change = on_change
        self.state = MembershipState.UNSUBSCRIBED
        self.epoch = _JOIN
        self.assignment: Assignment = {}
        self.version = 0  # of the assignment: results of work for another version are ignored
        self.owned: Assignment = {}
        self._generation = 0  # counts memberships
        self.error: StreamlogError | None = None  # why it is lost or failed
        self.retried_error: StreamlogError | None = None  # after which it tries again; None: it was answered since
        self._subscription = pb.GroupSubscription()
        self._leaving: asyncio.Future[None] | None = None
        self._owned_changed = False  # the next heartbeat reports it
        self._subscription_changed = False
        self._changed = asyncio.Event()  # the state, for `run`
        self._due = asyncio.Event()  # a heartbeat before the interval has elapsed
        self._answered = asyncio.Event()
        self._is_join_pending = False
        self._interval_s = rules.heartbeat_interval_s

    # Called by the consumer.
    def subscribe(self, topics: Iterable[str], pattern: str) -> None:
        """Join, or change the subscription."""
        rules = self._rules
        self._subscription = pb.GroupSubscription(
            topics=sorted(set(topics)),
            pattern=pattern,
            assignor=rules.assignor,
            rack=rules.rack,
            rebalance_timeout_ms=rules.rebalance_timeout_ms,
            session_timeout_ms=rules.session_timeout_ms,
        )
        self._subscription_changed = True
        self._due.set()
        if self.state in (MembershipState.UNSUBSCRIBED, MembershipState.FAILED):
            self._turn(MembershipState.JOINING)

    def own(self, partitions: Assignment) -> None:
        """All partitions that the consumer reads now."""
        if not _within(self.owned, partitions):
            self._owned_changed = True
            self._due.set()
        self.owned = dict(partitions)

    def lose(self, error: StreamlogError) -> None:
        """The member was removed from the group, or is to leave; its partitions go to other members."""
        self._forget()
        self.error = error
        self._turn(MembershipState.LOST)
        self._on_change()

    def rejoin(self) -> None:
        """Join again; the consumer has dropped its partitions."""
        self.owned = {}
        self._turn(MembershipState.JOINING)

    async def leave(self, *, timeout_s: float) -> None:
        """Leave, and wait for the response; after the timeout the end of the stream says the same."""
        if self.state is MembershipState.JOINED or self._is_join_pending:
            self._leaving = asyncio.get_running_loop().create_future()
            self._due.set()
            await asyncio.wait([self._leaving], timeout=timeout_s)
        self._leaving = None
        self._forget()
        self.owned = {}
        self._turn(MembershipState.UNSUBSCRIBED)

    @property
    def member_id(self) -> str:
        return self._rules.member_id

    def who(self) -> pb.GroupMember | None:
        """None: not a member now."""
        if self.state is not MembershipState.JOINED:
            return None
        return pb.GroupMember(member_id=self._rules.member_id, member_epoch=self.epoch)

    def committer(self) -> Callable[[], pb.GroupMember | None]:
        """Names the member for each attempt of a commit; None while nothing is subscribed to.

        UnknownMemberIdError once this membership has ended: another member may have read on meanwhile.
        """
        generation, unsubscribed = self._generation, self.state is MembershipState.UNSUBSCRIBED

        def who() -> pb.GroupMember | None:
            if unsubscribed and self.state is MembershipState.UNSUBSCRIBED:
                return None
            member = self.who()
            if member is None or generation != self._generation:
                raise UnknownMemberIdError(
                    f"the consumer is no longer a member of group {self._coordinator.group!r}, and its partitions may"
                    " be another member's: poll to join again"
                )
            return member

        return who

    @property
    def is_unanswered(self) -> bool:
        """A heartbeat was sent to the coordinator, and its response has not come yet."""
        return not self._answered.is_set()

    def _forget(self) -> None:
        self.retried_error = None
        self._generation += 1
        self.epoch = _JOIN
        self.assignment = {}
        self.version += 1

    def _turn(self, state: MembershipState) -> None:
        self.state = state
        self._changed.set()

    # The stream.

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            self._changed.clear()
            if self.state not in _ACTIVE:
                await self._changed.wait()
                continue
            began = loop.time()
            error = await self._stream_until_left(self._generation)
            failures = 1 if loop.time() - began > _LASTED_S else failures + 1
            if error is not None and not (self._on_error(error) and failures == 1):
                await self._backoff.wait(failures)

    async def _stream_until_left(self, generation: int) -> StreamlogError | None:
        """What ended the stream; None: this membership has ended."""
        stream = asyncio.ensure_future(self._run_stream(generation))  # sim: awaited below
        left = asyncio.ensure_future(self._wait_until_left(generation))  # sim: awaited below
        try:
            await asyncio.wait({stream, left}, return_when=asyncio.FIRST_COMPLETED)
            return None if left.done() or generation != self._generation else stream.result()
        finally:
            self._is_join_pending = False
            stream.cancel()
            left.cancel()
            await asyncio.gather(stream, left, return_exceptions=True)

    async def _wait_until_left(self, generation: int) -> None:
        while self.state in _ACTIVE and generation == self._generation:
            self._changed.clear()
            await self._changed.wait()

    async def _run_stream(self, generation: int) -> StreamlogError:
        """One stream, to its end; returns why it has ended."""
        try:
            address = await self._coordinator.find(timeout_s=_FIND_S)
            channel = self._connections.channel(address)
            async with calls.stream(channel, _METHOD, pb.GroupMembershipResponse) as stream:
                await run_until_one_ends(self._receive(stream, generation), self._send_heartbeats(stream, address))
        except StreamlogError as error:
            return error
        return NetworkError("the coordinator has closed the group stream")

    def _on_error(self, error: StreamlogError) -> bool:
        """Whether to continue without a back-off."""
        if self._leaving is not None and (not error.retriable or self.epoch == _JOIN):
            self._left()
            return True
        if isinstance(error, FENCED):
            if self.owned or self.assignment:
                self.lose(error)
            else:
                self._forget()
            return True
        if not error.retriable:
            self._forget()
            self.error = error
            self._turn(MembershipState.FAILED)
            self._on_change()
            return True
        self.retried_error = error
        return self._coordinator.learn(error)

    def _left(self) -> None:
        if self._leaving is not None and not self._leaving.done():
            self._leaving.set_result(None)
        self._turn(MembershipState.UNSUBSCRIBED)

    async def _receive(self, stream: calls.CallStream[pb.GroupMembershipResponse], generation: int) -> None:
        while (response := await stream.recv()) is not None and generation == self._generation:
            if response.HasField("heartbeat"):
                self._on_response(response.heartbeat)
                self._answered.set()
            else:
                self._due.set()

    async def _send_heartbeats(self, stream: calls.CallStream[pb.GroupMembershipResponse], address: str) -> None:
        """Until it has left."""
        first = True
        while True:
            self._due.clear()
            self._answered.clear()
            request = self._heartbeat(first=first)
            first = False
            self._is_join_pending = request.member_epoch == _JOIN
            await stream.send(pb.GroupMembershipRequest(heartbeat=request))
            await self._wait_until_answered(address)
            if request.member_epoch < _JOIN:
                self._left()
                return
            await _wait(self._due, self._interval_s)

    async def _wait_until_answered(self, address: str) -> None:
        """A coordinator whose machine failed does not close the stream: while it is silent, any node is queried for the
        present coordinator. A slow coordinator is waited for.
        """
        while not await _wait(self._answered, _SILENCE_S):
            try:
                now = await self._coordinator.look_up(timeout_s=_SILENCE_S)
            except StreamlogError:
                continue
            if now != address:
                raise NetworkError(f"{now} is the coordinator of the group now, not {address}")

    def _heartbeat(self, *, first: bool) -> pb.GroupHeartbeatRequest:
        """`first`: of a stream."""
        rules = self._rules
        request = pb.GroupHeartbeatRequest(
            group=self._coordinator.group,
            member_id=rules.member_id,
            member_epoch=self.epoch,
            instance_id=rules.instance_id,
            client_id=rules.client_id,
            serving_epoch=rules.serving_epoch,
        )
        if self._leaving is not None and self.epoch > _JOIN:
            request.member_epoch = _LEAVE_TEMPORARILY if rules.instance_id else _LEAVE
            return request
        if first or self._subscription_changed:
            request.subscription.CopyFrom(self._subscription)
        if self.epoch > _JOIN and (first or self._owned_changed):
            # Assigned partitions count as owned: the consumer may start to read them at any moment.
            request.owned.CopyFrom(_message({**self.assignment, **self.owned}))
        self._subscription_changed = self._owned_changed = False
        return request

    def _on_response(self, response: pb.GroupHeartbeatResponse) -> None:
        if response.member_epoch < _JOIN or self.state not in _ACTIVE:
            return
        self._is_join_pending = False
        self.retried_error = None
        self.epoch = response.member_epoch
        self.state = MembershipState.JOINED
        self._interval_s = min(response.heartbeat_interval_ms / 1000, self._rules.heartbeat_interval_s)
        if response.HasField("assignment"):
            self._on_assignment(_partitions(response.assignment))

    def _on_assignment(self, assignment: Assignment) -> None:
        before, self.assignment = self.assignment, assignment
        if assignment == before:
            return
        self.version += 1
        if not _within(before, assignment) and _within(self.owned, assignment):
            self._owned_changed = True  # revoked before the consumer had started to read it
            self._due.set()
        self._on_change()


async def _wait(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether it was set in time."""
    try:
        async with timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _within(some: Assignment, others: Assignment) -> bool:
    """Compared with topic ids: a topic that was deleted and created again is another one."""
    return all(others.get(partition) == topic_id for partition, topic_id in some.items())


def _partitions(message: pb.MemberPartitions) -> Assignment:
    """Without those of a topic that is being deleted: they have no name any more, and cannot be read."""
    return {
        TopicPartition(topic.topic, PartitionId(number)): TopicId(topic.topic_id)
        for topic in message.topics
        if topic.topic
        for number in topic.partitions
    }


def _message(owned: Assignment) -> pb.MemberPartitions:
    by_topic: dict[TopicId, list[TopicPartition]] = {}
    for partition, topic_id in owned.items():
        by_topic.setdefault(topic_id, []).append(partition)
    message = pb.MemberPartitions()
    for topic_id in sorted(by_topic):
        some = sorted(by_topic[topic_id], key=lambda one: one.partition)
        message.topics.add(topic_id=topic_id, topic=some[0].topic, partitions=[one.partition for one in some])
    return message
