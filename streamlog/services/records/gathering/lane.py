"""A lane: batches of several calls on their way to one partition, sent in groups.

    join --> waiting --end of the loop's turn---------------------------------> in flight --outcomes--> done
                     --a group is in flight: once it is done, or GATHER_S later,
                       or GROUP_BYTES wait------------------------------------->

So a batch that finds the lane idle is not delayed, and those that arrive while a group is being synced and replicated
go with the next one: the busier the node, the larger its groups, as in group commit. What is behind a group in the log
is not acknowledged before it; GATHER_S bounds how long it is not even appended because of one that hangs.

Callers that were answered together come back together. The first of them must not leave alone, with the others behind
it: after a group the next one is sent once as many calls wait as there were in the lane, or after half of the time that
the group took, RETURN_S at most. A single caller is never delayed.

Order: batches leave in the order of their arrival. Fairness: nothing is preferred; a group has at most GROUP_BYTES, or
one batch that is larger. Each batch has its own deadline, and its own outcome.

A group is sent in a task of its own, since the call of its first batch may be cancelled. The task belongs to the calls:
it is cancelled once none of them waits any more, as when the server stops.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from streamlog.errors import OutcomeUnknownError, StreamlogError
from streamlog.services.batches.traced_appends import TracedAppend
from streamlog.services.records.gathering.batch_write import BatchWrite, WriteResult

GATHER_S: Final = 0.05
"""A sync and a round trip to the followers take 2 to 3 ms, on a busy machine 20."""
RETURN_S: Final = 0.005
GROUP_BYTES: Final = 256 << 10
"""As much as a request without keys puts into one batch."""


class WaitingWrite:
    """One batch in a lane."""

    __slots__ = ("deadline", "group", "held_bytes", "is_waiting", "outcome", "trace", "write")

    def __init__(self, write: BatchWrite, deadline: float, held_bytes: int) -> None:
        """`held_bytes`: of the node's `QueuedBytes`."""
        self.write = write
        self.deadline = deadline  # on the monotonic clock
        self.held_bytes = held_bytes
        self.outcome: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        self.group: WriteGroup | None = None  # None: not sent yet
        self.is_waiting = True  # in its lane
        self.trace: TracedAppend | None = None

    def done(self, result: WriteResult) -> None:
        if not self.outcome.done():
            self.outcome.set_result(result)

    def failed(self, error: StreamlogError) -> None:
        """A copy: an exception belongs to one call."""
        if not self.outcome.done():
            copy = error.restored(error.message, error.details)
            copy.retriable = error.retriable
            copy.__cause__ = error.__cause__
            self.outcome.set_exception(copy)


class WriteGroup:
    """Batches that are sent together."""

    __slots__ = ("left", "sent_at", "task", "writes")

    def __init__(self, writes: Sequence[WaitingWrite], sent_at: float) -> None:
        """`sent_at`: on the loop's clock."""
        self.writes = writes
        self.sent_at = sent_at
        self.left = len(writes)  # calls that wait for it
        self.task: asyncio.Task[None] | None = None


Send: TypeAlias = Callable[[Sequence[WaitingWrite]], Coroutine[Any, Any, None]]
"""Sends a group, and gives each of its batches its outcome. Raises nothing."""


class Lane:
    __slots__ = (
        "_expected",
        "_in_flight",
        "_is_due",
        "_loop",
        "_on_idle",
        "_send",
        "_timer",
        "_waiting",
        "_waiting_bytes",
    )

    def __init__(self, send: Send, on_idle: Callable[[], None]) -> None:
        """`on_idle`: nothing waits, and nothing is in flight."""
        self._send = send
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[WaitingWrite] = deque()
        self._waiting_bytes = 0
        self._expected = 0  # batches of the next group, if all callers come back
        self._in_flight = 0  # groups
        self._is_due = False  # `_flush` will be called in the loop's next turn
        self._timer: asyncio.TimerHandle | None = None  # calls it later, else

    def join(self, one: WaitingWrite) -> None:
        self._waiting.append(one)
        self._waiting_bytes += len(one.write.batch)
        is_complete = not self._in_flight and len(self._waiting) >= self._expected
        if is_complete or self._waiting_bytes >= GROUP_BYTES:
            self._flush_soon()
        elif self._timer is None and not self._is_due:
            self._timer = self._loop.call_later(GATHER_S, self._flush)

    def leave(self, one: WaitingWrite) -> None:
        """Its call does not wait any more: it has its outcome, or has given up. What was not sent will not be."""
        group = one.group
        if group is None:
            if one.is_waiting:
                self._waiting.remove(one)
                self._waiting_bytes -= len(one.write.batch)
                self._look_whether_idle()
            return
        one.group = None  # no cycle of references remains
        group.left -= 1
        if not group.left and group.task is not None:
            group.task.cancel()  # without effect where all outcomes are known: it is at its end

    def _flush_soon(self) -> None:
        """After the callbacks that are ready: they may bring further batches."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        self._expected = 0
        self._stop_timer()
        writes: list[WaitingWrite] = []
        size = 0
        while self._waiting and (not writes or size + len(self._waiting[0].write.batch) <= GROUP_BYTES):
            one = self._waiting.popleft()
            one.is_waiting = False
            self._waiting_bytes -= len(one.write.batch)
            if not one.outcome.done():  # else its call has the error that it was not sent, and leaves
                size += len(one.write.batch)
                writes.append(one)
        if not writes:
            self._look_whether_idle()
            return
        group = WriteGroup(writes, self._loop.time())
        for one in writes:
            one.group = group
        self._in_flight += 1
        group.task = self._loop.create_task(self._send(writes))  # sim: `_on_sent` takes its exception
        group.task.add_done_callback(partial(self._on_sent, group))
        if self._waiting:
            self._flush_soon()

    def _on_sent(self, group: WriteGroup, task: asyncio.Task[None]) -> None:
        group.task = None
        bug = None if task.cancelled() else task.exception()
        for one in group.writes:
            if bug is not None and not one.outcome.done():
                one.outcome.set_exception(bug)
            one.failed(OutcomeUnknownError("the node stopped waiting for the acknowledgement"))
        self._in_flight -= 1
        if self._in_flight or self._is_due:
            return
        expected = len(self._waiting) + len(group.writes)
        if expected == 1:
            self._look_whether_idle()
            return
        self._expected = expected
        self._stop_timer()
        self._timer = self._loop.call_later(self._return_s(group), self._flush)

    def _return_s(self, group: WriteGroup) -> float:
        """How long its callers are waited for."""
        return min((self._loop.time() - group.sent_at) / 2, RETURN_S)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_whether_idle(self) -> None:
        if not self._waiting and not self._in_flight and not self._is_due and self._timer is None:
            self._on_idle()
