"""One member of a group, as the coordinator sees it: joined, heard of, told what it may own (SEMANTICS 9, KIP-848).

    out  --subscribe--> joining --epoch--> member --fenced, stuck--> lost --rejoin (by a poll)--> joining
     ^___________________ leave ______________|       any --refused for good--> failed --subscribe--> joining

A stream to the coordinator for as long as there is something to be a member of. Heartbeats go one at a time, each
answered: by the interval, on a hint of the coordinator, and when there is something to tell. The first of each stream
tells everything, so a coordinator that has moved, or an answer that was lost, changes nothing.

    assignment    what the coordinator says that the member may own
    owned         what the consumer has (`own`): it lags behind until the consumer has given up or begun

What is to be given up is told only by `own`, that is when nobody reads it any more. What an assignment takes away
again before the consumer has begun with it is told at once.

A member that is lost does not join again by itself: the consumer has to forget first what it had, which it does when
its user asks for records. So one that is stuck holds nothing.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from streamlog.api import calls
from streamlog.api.pb import groups_pb2 as pb
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.coordinator import Coordinator
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
_LEAVE_FOR_A_MOMENT: Final = -2
# How long an answer may take before somebody is asked whether the coordinator is still the same one.
_DOUBT_S: Final = 3.0
_LASTED_S: Final = 1.0  # a stream that ends sooner counts as one more failure
_FIND_S: Final = 60.0  # then the search begins anew; there is no end to it
FENCED: Final = (UnknownMemberIdError, IllegalGenerationError)

Assignment = Mapping[TopicPartition, TopicId]


class MembershipState(enum.Enum):
    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    JOINED = "joined"
    LOST = "lost"
    FAILED = "failed"


_ALIVE: Final = (MembershipState.JOINING, MembershipState.JOINED)


class MembershipRules(Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str  # empty: not static
    client_id: str
    assignor: str  # empty: the node's default
    rack: str
    rebalance_timeout_ms: int
    session_timeout_ms: int  # 0: the node's default
    heartbeat_interval_s: float
    serving_epoch: int = 0  # broker epoch of the node that is the member for a client's stream; 0: nobody's


class ConsumerMembership:
    """`run` is a task of the consumer; everything else is called by it."""

    def __init__(
        self,
        coordinator: Coordinator,
        connections: Connections,
        backoff: Backoff,
        rules: MembershipRules,
        on_news: Callable[[], None],
    ) -> None:
        """`on_news`: the assignment has changed, or all is lost, or it failed."""
        self._coordinator = coordinator
        self._connections = connections
        self._backoff = backoff
        self._rules = rules
        self._on_news = on_news
        self.state = MembershipState.UNSUBSCRIBED
        self.epoch = _JOIN
        self.assignment: Assignment = {}
        self.version = 0  # of the assignment: what was found out under another one does not count
        self.owned: Assignment = {}
        self._life = 0  # counts memberships
        self.error: StreamlogError | None = None  # why it is lost or failed
        self._subscription = pb.GroupSubscription()
        self._leaving: asyncio.Future[None] | None = None
        self._tell_owned = False
        self._tell_subscription = False
        self._changed = asyncio.Event()  # the state, for `run`
        self._due = asyncio.Event()  # a heartbeat is wanted before its time
        self._answered = asyncio.Event()
        self._asked_to_join = False  # and was not answered yet
        self._interval_s = rules.heartbeat_interval_s

    # What the consumer says.

    def subscribe(self, topics: Iterable[str], pattern: str) -> None:
        """Join, or change what is subscribed to."""
        rules = self._rules
        self._subscription = pb.GroupSubscription(
            topics=sorted(set(topics)),
            pattern=pattern,
            assignor=rules.assignor,
            rack=rules.rack,
            rebalance_timeout_ms=rules.rebalance_timeout_ms,
            session_timeout_ms=rules.session_timeout_ms,
        )
        self._tell_subscription = True
        self._due.set()
        if self.state in (MembershipState.UNSUBSCRIBED, MembershipState.FAILED):
            self._turn(MembershipState.JOINING)

    def own(self, partitions: Assignment) -> None:
        """All that the consumer has now."""
        if not _within(self.owned, partitions):
            self._tell_owned = True
            self._due.set()
        self.owned = dict(partitions)

    def lose(self, error: StreamlogError) -> None:
        """It is no member any more, or shall be none; whoever waits for its partitions gets them."""
        self._forget()
        self.error = error
        self._turn(MembershipState.LOST)
        self._on_news()

    def rejoin(self) -> None:
        """All that was owned is forgotten."""
        self.owned = {}
        self._turn(MembershipState.JOINING)

    async def leave(self, *, timeout_s: float) -> None:
        """Until the coordinator knows, or the time is over; then the end of the stream tells it."""
        if self.state is MembershipState.JOINED or self._asked_to_join:
            self._leaving = asyncio.get_running_loop().create_future()
            self._due.set()
            await asyncio.wait([self._leaving], timeout=timeout_s)
        self._leaving = None
        self._forget()
        self.owned = {}
        self._turn(MembershipState.UNSUBSCRIBED)

    def who(self) -> pb.GroupMember | None:
        """None: no member now."""
        if self.state is not MembershipState.JOINED:
            return None
        return pb.GroupMember(member_id=self._rules.member_id, member_epoch=self.epoch)

    def committer(self) -> Callable[[], pb.GroupMember | None]:
        """Who commits what is known now, to be asked for each attempt. Nobody's member, if it is subscribed to nothing.

        UnknownMemberIdError once this membership is over: in the next one another member may have read on meanwhile.
        """
        life, out = self._life, self.state is MembershipState.UNSUBSCRIBED

        def who() -> pb.GroupMember | None:
            if out and self.state is MembershipState.UNSUBSCRIBED:
                return None
            member = self.who()
            if member is None or life != self._life:
                raise UnknownMemberIdError(
                    f"the consumer is no member of group {self._coordinator.group!r} now: what it had is another's"
                )
            return member

        return who

    def _forget(self) -> None:
        self._life += 1
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
            if self.state not in _ALIVE:
                await self._changed.wait()
                continue
            began = loop.time()
            error = await self._live_until_out(self._life)
            failures = 1 if loop.time() - began > _LASTED_S else failures + 1
            if error is not None and not (self._on_error(error) and failures == 1):
                await self._backoff.wait(failures)

    async def _live_until_out(self, life: int) -> StreamlogError | None:
        """What ended the stream; None: this membership is over."""
        stream = asyncio.ensure_future(self._live(life))  # sim: awaited below
        out = asyncio.ensure_future(self._until_out(life))  # sim: awaited below
        try:
            await asyncio.wait({stream, out}, return_when=asyncio.FIRST_COMPLETED)
            return None if out.done() or life != self._life else stream.result()
        finally:
            self._asked_to_join = False
            stream.cancel()
            out.cancel()
            await asyncio.gather(stream, out, return_exceptions=True)

    async def _until_out(self, life: int) -> None:
        while self.state in _ALIVE and life == self._life:
            self._changed.clear()
            await self._changed.wait()

    async def _live(self, life: int) -> StreamlogError:
        """One stream, to its end; why it has ended."""
        try:
            address = await self._coordinator.find(timeout_s=_FIND_S)
            channel = self._connections.channel(address)
            async with calls.stream(channel, _METHOD, pb.GroupMembershipResponse) as stream:
                works = (self._receive(stream, life), self._keep_beating(stream, address))
                tasks = [asyncio.ensure_future(work) for work in works]  # sim: awaited below
                try:
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in tasks:
                        if task in done:
                            task.result()
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
        except StreamlogError as error:
            return error
        return NetworkError("the coordinator has ended the stream")

    def _on_error(self, error: StreamlogError) -> bool:
        """True: go on at once."""
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
            self._on_news()
            return True
        return self._coordinator.learn(error)

    def _left(self) -> None:
        if self._leaving is not None and not self._leaving.done():
            self._leaving.set_result(None)
        self._turn(MembershipState.UNSUBSCRIBED)

    async def _receive(self, stream: calls.CallStream[pb.GroupMembershipResponse], life: int) -> None:
        while (response := await stream.recv()) is not None and life == self._life:
            if response.HasField("heartbeat"):
                self._on_answer(response.heartbeat)
                self._answered.set()
            else:
                self._due.set()

    async def _keep_beating(self, stream: calls.CallStream[pb.GroupMembershipResponse], address: str) -> None:
        """Until it has left."""
        first = True
        while True:
            self._due.clear()
            self._answered.clear()
            request = self._heartbeat(first=first)
            first = False
            self._asked_to_join = request.member_epoch == _JOIN
            await stream.send(pb.GroupMembershipRequest(heartbeat=request))
            await self._until_answered(address)
            if request.member_epoch < _JOIN:
                self._left()
                return
            await _wait(self._due, self._interval_s)

    async def _until_answered(self, address: str) -> None:
        """A coordinator on a machine that has gone does not say so; one that is only slow shall not be left."""
        while not await _wait(self._answered, _DOUBT_S):
            try:
                now = await self._coordinator.ask_for_it(timeout_s=_DOUBT_S)
            except StreamlogError:
                continue
            if now != address:
                raise NetworkError(f"{now} coordinates the group now")

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
            request.member_epoch = _LEAVE_FOR_A_MOMENT if rules.instance_id else _LEAVE
            return request
        if first or self._tell_subscription:
            request.subscription.CopyFrom(self._subscription)
        if self.epoch > _JOIN and (first or self._tell_owned):
            # What it has been assigned it may begin to read at any moment, without asking again.
            request.owned.CopyFrom(_message({**self.assignment, **self.owned}))
        self._tell_subscription = self._tell_owned = False
        return request

    def _on_answer(self, answer: pb.GroupHeartbeatResponse) -> None:
        if answer.member_epoch < _JOIN or self.state not in _ALIVE:
            return
        self._asked_to_join = False
        self.epoch = answer.member_epoch
        self.state = MembershipState.JOINED
        self._interval_s = min(answer.heartbeat_interval_ms / 1000, self._rules.heartbeat_interval_s)
        if answer.HasField("assignment"):
            self._on_assignment(_partitions(answer.assignment))

    def _on_assignment(self, assignment: Assignment) -> None:
        before, self.assignment = self.assignment, assignment
        if assignment == before:
            return
        self.version += 1
        if not _within(before, assignment) and _within(self.owned, assignment):
            self._tell_owned = True  # it was asked back before anybody had begun to read it
            self._due.set()
        self._on_news()


async def _wait(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether it came in time."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _within(some: Assignment, others: Assignment) -> bool:
    """A topic that was made anew is another one under its name."""
    return all(others.get(partition) == topic_id for partition, topic_id in some.items())


def _partitions(message: pb.MemberPartitions) -> Assignment:
    """Those of a topic that is being deleted have no name any more, and nobody can read them."""
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
