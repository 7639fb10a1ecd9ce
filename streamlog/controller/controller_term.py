"""One leadership of the controller: commands are decided in order, committed, applied, answered.

    queued --decide(command, ahead)--> decided, in a group --submit--> in flight --applied--> timers set, answered

- `ahead` is the image with all decisions in flight applied, so a command is decided before the previous one is
  committed. While IN_FLIGHT_MAX groups are in flight, commands queue up and share the next group.
- A response waits for all earlier decisions, even if it is an error or wrote no record: it was decided on an image
  that does not exist until they are committed.
- A registration is not applied ahead (its epoch is its index), and TakeOver starts the sessions that later decisions
  read. After either, nothing is decided until it is applied.
- Any failure in flight ends the controller term, since later decisions depend on the failed one. Nothing is decided
  once the quorum has another term, even if this node leads that one too.
- A heartbeat renews its node's session when it arrives, for it may wait behind other commands or a slow commit until
  its caller has given up. It is decided in its turn, like the others.
- What an earlier controller term of the same Raft term has left in flight is still in the quorum's log. The next one
  decides nothing before all of that is applied: a decision without it would contradict it.

In memory only: sessions, the queue, pending responses. At the end, pending callers get NotControllerError if their
command was not submitted, else OutcomeUnknownError.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from streamlog.aio.group_tasks import unwrapped
from streamlog.controller.horizon import Horizon
from streamlog.controller.timers import ControllerTimers
from streamlog.errors import InvariantError, NotControllerError, OutcomeUnknownError, StreamlogError, ThrottledError
from streamlog.metadata.brokers.liveness import BrokerHeartbeat
from streamlog.metadata.brokers.registration import RegisterBroker
from streamlog.metadata.cluster import Bootstrap, TakeOver
from streamlog.metadata.controller import Command, command_for, decide
from streamlog.metadata.convert import BATCH_BYTES_MAX, encode_batch
from streamlog.metadata.decision import (
    BATCH_RECORDS,
    BrokerSessionTimer,
    ControllerContext,
    MetadataDecision,
    SetControllerTimer,
    Then,
    Timer,
)
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.image.delta import look_ahead
from streamlog.metadata.partitions.settle import Settle
from streamlog.metadata.records import MetadataVersion
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, RaftTerm
from streamlog.ports import Probe
from streamlog.raft.port import Applied, Quorum

QUEUE_MAX: Final = 4_096
"""Commands queued for a decision; more are refused."""
IN_FLIGHT_MAX: Final = 4
"""Groups submitted and not yet applied. Two keep the quorum's disks busy, the others cover the network."""
GROUP_COMMANDS_MAX: Final = 256
"""Decided without yielding to the event loop."""
GROUP_S: Final = 0.005
"""After so long a group is full, too: a command may cost as much as hundreds of others do, and the quorum's heartbeats
are sent by the same event loop.
"""

_ALONE: Final = (Bootstrap, TakeOver, RegisterBroker)
"""Applied before anything else is decided."""


class _Pending(Struct, frozen=True):
    command: Command
    answer: asyncio.Future[Any] | None  # None: the command is the controller's own
    timer: Timer | None = None  # the timer that fired, if it was one

    def is_void(self, timers: ControllerTimers) -> bool:
        """The caller was cancelled; or the timer was restarted, because a heartbeat arrived after all."""
        if self.timer is not None and timers.is_running(self.timer):
            return True
        return self.answer is not None and self.answer.done()

    def respond(self, response: object) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(response)

    def refuse(self, error: StreamlogError) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


class _Group(Struct):
    """Commands whose records are submitted to the quorum as one command, in their order."""

    decided: list[tuple[_Pending, MetadataDecision[Any] | StreamlogError]] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)  # encoded batches
    size_bytes: int = 0  # of data; <= BATCH_BYTES_MAX
    record_count: int = 0
    applied: asyncio.Future[Applied] | None = None  # None: there is nothing to commit

    def fits(self, data: bytes, record_count: int) -> bool:
        return not self.data or (
            self.size_bytes + len(data) <= BATCH_BYTES_MAX and self.record_count + record_count <= BATCH_RECORDS
        )

    def add(self, data: bytes, record_count: int) -> None:
        self.data.append(data)
        self.size_bytes += len(data)
        self.record_count += record_count

    def fail(self, error: StreamlogError) -> None:
        for pending, _ in self.decided:
            pending.refuse(error)


class ControllerTerm:
    """Created when the leadership is ready; `run` is called once."""

    def __init__(
        self,
        term: RaftTerm,
        cluster_id: str,
        *,
        quorum: Quorum,
        view: MetadataView,
        context_of: Callable[[Collection[BrokerId]], ControllerContext],
        probe: Probe,
        metadata_version_max: MetadataVersion = METADATA_VERSION_MAX,
        resumes: bool = False,
    ) -> None:
        """`metadata_version_max`: the level that a cluster without any gets. `resumes`: this node has had another
        controller term in this Raft term.
        """
        self.term = term
        self._cluster_id = cluster_id
        self._metadata_version_max = metadata_version_max
        self._resumes = resumes
        self._quorum = quorum
        self._view = view
        self._context_of = context_of
        self._probe = probe
        self._timers = ControllerTimers(self._timer_due)
        self._horizon = Horizon(lambda: view.image.index)
        self._queue: deque[_Pending] = deque()  # to be decided
        self._in_flight: deque[_Group] = deque()  # decided, in the order of their commit
        self._alone = False  # what is in flight must be applied before the next decision
        self._ahead = view.image  # with everything in flight applied
        self._queue_changed = asyncio.Event()
        self._in_flight_changed = asyncio.Event()
        self._ended = False

    @property
    def has_ended(self) -> bool:
        return self._ended

    async def ask(self, command: Command) -> Any:
        """The decision's response, once it is committed and applied here.

        The errors of the decision; ThrottledError, NotControllerError: not carried out; OutcomeUnknownError.
        """
        if self._ended:
            raise NotControllerError("the leadership of the quorum has been lost")
        if isinstance(command, BrokerHeartbeat):
            self._renew_session(command)
        if len(self._queue) >= QUEUE_MAX:
            raise ThrottledError(f"{QUEUE_MAX} commands are queued at the controller already", limit=QUEUE_MAX)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_Pending(command, answer))
        self._queue_changed.set()
        return await answer

    def _renew_session(self, command: BrokerHeartbeat) -> None:
        """Restart the node's session timer when its heartbeat arrives, if the timer runs: none does before TakeOver is
        applied, nor one that has expired. Not for a node that lags behind the horizon: its heartbeats must not keep it
        unfenced while none of them is decided.
        """
        broker, context = self._view.image.brokers.get(command.broker_id), self._context()
        session = BrokerSessionTimer(command.broker_id)
        if broker is None or broker.epoch != command.broker_epoch or not self._timers.is_running(session):
            return
        if command.applied_index >= context.horizon:
            self._timers.set(SetControllerTimer(session, context.settings.session_timeout_ms))

    async def run(self) -> None:
        """Run until cancelled, or until a StreamlogError: the leadership was lost, or the quorum refused a command."""
        try:
            if self._resumes:
                await self._quorum.submit(encode_batch(()))  # behind all that is in flight
            self._take_over()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._decide_forever())
                tasks.create_task(self._commit_forever())
        except BaseExceptionGroup as errors:
            raise unwrapped(errors, StreamlogError) from None
        finally:
            self._end()

    def _take_over(self) -> None:
        """Decided before all that was asked meanwhile."""
        self._queue.appendleft(_Pending(TakeOver(), None))
        if not self._view.image.metadata_version:
            first = Bootstrap(cluster_id=self._cluster_id, metadata_version=self._metadata_version_max)
            self._queue.appendleft(_Pending(first, None))
        self._queue_changed.set()

    def _end(self) -> None:
        self._ended = True
        self._timers.stop()
        for group in self._in_flight:
            group.fail(OutcomeUnknownError("the controller lost its leadership before the command was committed"))
            if group.applied is not None:
                group.applied.add_done_callback(_ignore)
        for pending in self._queue:
            pending.refuse(NotControllerError("the leadership of the quorum has been lost"))
        self._in_flight.clear()
        self._queue.clear()

    # Deciding.

    async def _decide_forever(self) -> None:
        while True:
            await self._queue_changed.wait()
            self._queue_changed.clear()
            while self._queue and len(self._in_flight) < IN_FLIGHT_MAX and not self._alone:
                self._check_leadership()
                self._launch(self._decide_group())
                await asyncio.sleep(0)

    def _check_leadership(self) -> None:
        now = self._quorum.leadership()
        if not now.is_ready or now.term != self.term:
            raise NotControllerError("the leadership of the quorum has been lost", leader=now.leader)

    def _decide_group(self) -> _Group:
        """Decide at least one queued command."""
        if not self._in_flight:
            self._ahead = self._view.image
        group = _Group()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GROUP_S
        while self._queue and len(group.decided) < GROUP_COMMANDS_MAX and not self._alone:
            if group.decided and loop.time() >= end_s:
                break
            pending = self._queue[0]
            if not pending.is_void(self._timers) and not self._decide(pending, group):
                break
            self._queue.popleft()
        return group

    def _decide(self, pending: _Pending, group: _Group) -> bool:
        """False: the group is full."""
        try:
            decision = decide(pending.command, self._ahead, self._context())
            data = encode_batch(decision.records) if decision.records else b""
        except StreamlogError as error:
            group.decided.append((pending, error))
            return True
        if not group.fits(data, len(decision.records)):
            return False
        group.decided.append((pending, decision))
        self._alone = isinstance(pending.command, _ALONE)
        if decision.records:
            group.add(data, len(decision.records))
            if not self._alone:
                self._ahead = look_ahead(self._ahead, decision.records)
        else:
            # Nothing to commit: the session of this heartbeat must not expire while the response waits for others.
            self._set_timers(decision)
        return True

    def _context(self) -> ControllerContext:
        context = self._context_of(self._timers.sessions)
        horizon = self._horizon.before(asyncio.get_running_loop().time(), context.settings.session_timeout_ms / 1000)
        return replace(context, horizon=horizon)

    def _set_timers(self, decision: MetadataDecision[Any]) -> None:
        for timer in decision.timers:
            self._timers.set(timer)

    def _launch(self, group: _Group) -> None:
        if group.data:
            # A batch is a message with one repeated field: concatenated, they parse as one batch of all records.
            try:
                group.applied = self._quorum.submit(b"".join(group.data))
            except StreamlogError as error:
                group.fail(error)
                raise
        self._in_flight.append(group)
        self._in_flight_changed.set()

    # Committing.

    async def _commit_forever(self) -> None:
        while True:
            await self._in_flight_changed.wait()
            self._in_flight_changed.clear()
            while self._in_flight:
                await self._commit(self._in_flight[0])
                self._in_flight.popleft()
                self._alone = self._alone and bool(self._in_flight)
                self._queue_changed.set()

    async def _commit(self, group: _Group) -> None:
        if group.applied is not None:
            try:
                applied = await group.applied
            except StreamlogError as error:
                group.fail(error)
                raise
            if self._view.image.index < applied.index:
                raise InvariantError(
                    f"command {applied.index} is applied, but the image is as of index {self._view.image.index}"
                )
        for pending, decision in group.decided:
            if isinstance(decision, StreamlogError):
                self._refused(pending, decision)
            else:
                self._carried_out(pending, decision)

    def _refused(self, pending: _Pending, error: StreamlogError) -> None:
        if pending.answer is None:
            self._probe("decision_refused", command=type(pending.command).__name__, reason=str(error))
        pending.refuse(error)

    def _carried_out(self, pending: _Pending, decision: MetadataDecision[Any]) -> None:
        if decision.records:
            self._set_timers(decision)
        if decision.then is Then.AGAIN:
            self._queue.appendleft(pending)
            return
        pending.respond(decision.response)
        if isinstance(pending.command, TakeOver):
            self._probe("controller_active", term=self.term, brokers=len(self._view.image.brokers))
        if decision.then is Then.SETTLE:
            self._queue.append(_Pending(Settle(), None))

    def _timer_due(self, timer: Timer) -> None:
        """Not limited by QUEUE_MAX: there are at most as many timers as nodes, plus one."""
        self._probe("controller_timer", timer=type(timer).__name__, broker=getattr(timer, "broker_id", None))
        self._queue.append(_Pending(command_for(timer), None, timer))
        self._queue_changed.set()


def _ignore(applied: asyncio.Future[Applied]) -> None:
    """Retrieve the error, or asyncio logs "exception was never retrieved"."""
    if not applied.cancelled():
        applied.exception()
