"""One leadership of the controller: commands come in, are decided in order, committed, applied, answered.

    asked --decide(command, ahead)--> decided, in a group --submit--> in flight --applied--> timers set, answered

- `ahead` is the image with all decisions in flight applied, so the next command is decided before the last one is
  committed. While as many groups are in flight as may be, decisions gather, and share the next command of the quorum.
- An answer waits for all decisions before it, also where nothing had to be written and where it is a refusal: it was
  decided on an image that does not exist until they are committed.
- A registration is not looked ahead (its epoch is its index), and what takes over sets the sessions that others are
  decided by. After these nothing is decided until they are applied.
- Whatever fails in flight ends the controller term: what was decided after it stood on it. Nothing is decided, either, once the
  quorum has another term, even if this node leads in that one too.

What is in memory only: sessions, the queue, answers not given. Those who wait are told NotControllerError where their
command was not submitted, else OutcomeUnknownError.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from streamlog.controller.horizon import Horizon
from streamlog.controller.timers import ControllerTimers
from streamlog.errors import InvariantError, NotControllerError, OutcomeUnknownError, StreamlogError, ThrottledError
from streamlog.metadata.brokers.registration import RegisterBroker
from streamlog.metadata.cluster import Bootstrap, TakeOver
from streamlog.metadata.controller import Command, command_for, decide
from streamlog.metadata.convert import BATCH_BYTES_MAX, encode_batch
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext, MetadataDecision, Then, Timer
from streamlog.metadata.image.delta import look_ahead
from streamlog.metadata.partitions.settle import Settle
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, RaftTerm
from streamlog.ports import Probe
from streamlog.raft.port import Applied, Quorum

QUEUE_MAX: Final = 4_096
"""Commands that wait to be decided; more are refused."""
IN_FLIGHT_MAX: Final = 4
"""Groups that are submitted and not applied. Two keep the quorum's disks busy, the rest is for the way."""
GROUP_COMMANDS_MAX: Final = 256
"""Decided without letting go of the loop: some milliseconds."""

_ALONE: Final = (Bootstrap, TakeOver, RegisterBroker)
"""Applied before anything else is decided."""


class _Asked(Struct, frozen=True):
    command: Command
    answer: asyncio.Future[Any] | None  # None: nobody waits
    timer: Timer | None = None  # that has asked

    def is_void(self, timers: ControllerTimers) -> bool:
        """Whoever asked has gone; or the timer runs anew, because its node was heard from after all."""
        if self.timer is not None and timers.is_running(self.timer):
            return True
        return self.answer is not None and self.answer.done()

    def tell(self, response: object) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(response)

    def refuse(self, error: StreamlogError) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


class _Group(Struct):
    """Commands whose records make one command of the quorum, in their order."""

    decided: list[tuple[_Asked, MetadataDecision[Any] | StreamlogError]] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)  # encoded batches
    size_bytes: int = 0  # of data; <= BATCH_BYTES_MAX
    record_count: int = 0
    applied: asyncio.Future[Applied] | None = None  # None: there is nothing to commit

    def has_room(self, data: bytes, record_count: int) -> bool:
        return not self.data or (
            self.size_bytes + len(data) <= BATCH_BYTES_MAX and self.record_count + record_count <= BATCH_RECORDS
        )

    def add(self, data: bytes, record_count: int) -> None:
        self.data.append(data)
        self.size_bytes += len(data)
        self.record_count += record_count

    def fail(self, error: StreamlogError) -> None:
        for asked, _ in self.decided:
            asked.refuse(error)


class ControllerTerm:
    """Made when the leadership is ready; `run` once, until it ends."""

    def __init__(
        self,
        term: RaftTerm,
        cluster_id: str,
        *,
        quorum: Quorum,
        view: MetadataView,
        context_of: Callable[[Collection[BrokerId]], ControllerContext],
        probe: Probe,
    ) -> None:
        self.term = term
        self._quorum = quorum
        self._view = view
        self._context_of = context_of
        self._probe = probe
        self._timers = ControllerTimers(self._timer_due)
        self._horizon = Horizon(lambda: view.image.index)
        self._queue: deque[_Asked] = deque()  # to be decided
        self._in_flight: deque[_Group] = deque()  # decided, in the order of their commit
        self._alone = False  # what is in flight must be applied before anything is decided
        self._ahead = view.image  # with all that is in flight applied
        self._news = asyncio.Event()  # to decide
        self._flight_news = asyncio.Event()  # to commit
        self._over = False
        if not view.image.metadata_version:
            self._queue.append(_Asked(Bootstrap(cluster_id=cluster_id), None))
        self._queue.append(_Asked(TakeOver(), None))
        self._news.set()

    @property
    def is_over(self) -> bool:
        return self._over

    async def ask(self, command: Command) -> Any:
        """The decision's response, once it is committed and applied here.

        The errors of the decision; ThrottledError, NotControllerError: not carried out; OutcomeUnknownError.
        """
        if self._over:
            raise NotControllerError("the leadership of the quorum has been lost")
        if len(self._queue) >= QUEUE_MAX:
            raise ThrottledError(f"{QUEUE_MAX} commands wait for the controller", limit=QUEUE_MAX)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_Asked(command, answer))
        self._news.set()
        return await answer

    async def run(self) -> None:
        """Until it is cancelled, or ends by a StreamlogError: the leadership was lost, or the quorum refused."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._decide_forever())
                tasks.create_task(self._commit_forever())
        except* StreamlogError as errors:
            raise errors.exceptions[0] from None
        finally:
            self._end()

    def _end(self) -> None:
        self._over = True
        self._timers.stop()
        for group in self._in_flight:
            group.fail(OutcomeUnknownError("the controller lost its leadership before the command was committed"))
            if group.applied is not None:
                group.applied.add_done_callback(_forgotten)
        for asked in self._queue:
            asked.refuse(NotControllerError("the leadership of the quorum has been lost"))
        self._in_flight.clear()
        self._queue.clear()

    # Deciding.

    async def _decide_forever(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._queue and len(self._in_flight) < IN_FLIGHT_MAX and not self._alone:
                self._check_leadership()
                self._launch(self._decide_group())
                await asyncio.sleep(0)

    def _check_leadership(self) -> None:
        now = self._quorum.leadership()
        if not now.is_ready or now.term != self.term:
            raise NotControllerError("the leadership of the quorum has been lost", leader=now.leader)

    def _decide_group(self) -> _Group:
        """At least one command of the queue."""
        if not self._in_flight:
            self._ahead = self._view.image
        group = _Group()
        while self._queue and len(group.decided) < GROUP_COMMANDS_MAX and not self._alone:
            asked = self._queue[0]
            if not asked.is_void(self._timers) and not self._decide(asked, group):
                break
            self._queue.popleft()
        return group

    def _decide(self, asked: _Asked, group: _Group) -> bool:
        """False: the group has no room for it."""
        try:
            decision = decide(asked.command, self._ahead, self._context())
            data = encode_batch(decision.records) if decision.records else b""
        except StreamlogError as error:
            group.decided.append((asked, error))
            return True
        if not group.has_room(data, len(decision.records)):
            return False
        group.decided.append((asked, decision))
        self._alone = isinstance(asked.command, _ALONE)
        if decision.records:
            group.add(data, len(decision.records))
            if not self._alone:
                self._ahead = look_ahead(self._ahead, decision.records)
        else:
            # There is nothing to commit: a node that was heard from must not lapse while its answer waits for others.
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
            # Batches are messages with one repeated field: joined, they are the batch of all their records.
            try:
                group.applied = self._quorum.submit(b"".join(group.data))
            except StreamlogError as error:
                group.fail(error)
                raise
        self._in_flight.append(group)
        self._flight_news.set()

    # Committing.

    async def _commit_forever(self) -> None:
        while True:
            await self._flight_news.wait()
            self._flight_news.clear()
            while self._in_flight:
                await self._commit(self._in_flight[0])
                self._in_flight.popleft()
                self._alone = self._alone and bool(self._in_flight)
                self._news.set()

    async def _commit(self, group: _Group) -> None:
        if group.applied is not None:
            try:
                applied = await group.applied
            except StreamlogError as error:
                group.fail(error)
                raise
            if self._view.image.index < applied.index:
                raise InvariantError(
                    f"command {applied.index} is applied, the image is that of {self._view.image.index}"
                )
        for asked, decision in group.decided:
            if isinstance(decision, StreamlogError):
                self._refused(asked, decision)
            else:
                self._carried_out(asked, decision)

    def _refused(self, asked: _Asked, error: StreamlogError) -> None:
        if asked.answer is None:
            self._probe("decision_refused", command=type(asked.command).__name__, reason=str(error))
        asked.refuse(error)

    def _carried_out(self, asked: _Asked, decision: MetadataDecision[Any]) -> None:
        if decision.records:
            self._set_timers(decision)
        if decision.then is Then.AGAIN:
            self._queue.appendleft(asked)
            return
        asked.tell(decision.response)
        if isinstance(asked.command, TakeOver):
            self._probe("controller_active", term=self.term, brokers=len(self._view.image.brokers))
        if decision.then is Then.SETTLE:
            self._queue.append(_Asked(Settle(), None))

    def _timer_due(self, timer: Timer) -> None:
        """Beyond QUEUE_MAX as well: there are no more of them than nodes."""
        self._probe("controller_timer", timer=type(timer).__name__, broker=getattr(timer, "broker_id", None))
        self._queue.append(_Asked(command_for(timer), None, timer))
        self._news.set()


def _forgotten(applied: asyncio.Future[Applied]) -> None:
    """Nobody waits for it any more, and its error is no news: asyncio would tell it as one that nobody took."""
    if not applied.cancelled():
        applied.exception()
