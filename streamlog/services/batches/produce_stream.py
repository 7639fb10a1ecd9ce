"""ProduceStream: batches appended as they arrive, results sent as they are known.

    reader: message -> append each -> the queue of its partition     (stops reading while too many are unanswered)
    acknowledged, refused, timed out -> ready, once all before it in its queue are
    writer: all that is ready -> one message

Results of one partition are sent in the order in which its batches arrived, whatever they are. So each partition has a
queue, and a result leaves it from the front only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from streamlog.aio.call_time import counted
from streamlog.api.convert.records.produce import not_appended, produce_stream_request
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import PartitionAppend, ProduceRequest
from streamlog.api.service import Call, Requests, Responses
from streamlog.broker.append.admission import QueuedBytes
from streamlog.errors import StreamlogError
from streamlog.model import Acks
from streamlog.ports import CallInfo, Tracing
from streamlog.services.batches.partition_leader import PartitionLeaders
from streamlog.services.batches.produce_results import acknowledgement_error, success, unacknowledged
from streamlog.services.batches.traced_appends import TracedAppend, begin_append
from streamlog.services.batches.transaction_verification import Openings

# Unanswered appends of one stream. A client that has more in flight waits for gRPC's flow control.
UNANSWERED_MAX: Final = 10_000
# Results in one message: below 1 MiB even if each is an error of the longest kind.
RESULTS_MAX: Final = 300


class ProduceStreams:
    def __init__(
        self, leaders: PartitionLeaders, queued: QueuedBytes, openings: Openings, tracing: Tracing | None = None
    ) -> None:
        self._leaders = leaders
        self._queued = queued
        self._openings = openings
        self._tracing = tracing

    async def produce_stream(
        self,
        requests: Requests[pb.ProduceStreamRequest],
        responses: Responses[pb.ProduceStreamResponse],
        call: Call,
    ) -> None:
        guard = call.info.guard
        leaders = self._leaders if guard is None else self._leaders.guarded(guard, "WRITE")
        stream = _Stream(leaders, self._queued, self._openings, self._tracing, call.info)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(counted(stream.write(responses)))
                # A task, too: each message then resumes this coroutine alone, not all those around the call.
                tasks.create_task(counted(stream.read(requests)))
        finally:
            stream.cancel()


_Queue: TypeAlias = "deque[_Pending]"
_QueueKey: TypeAlias = tuple[str, bytes, int]


class _Pending:
    """One unanswered PartitionBatches."""

    __slots__ = ("acknowledged", "deadline", "is_known", "key", "request", "result", "trace")

    def __init__(self, request: PartitionAppend, key: _QueueKey, deadline: float) -> None:
        self.request = request
        self.key = key
        self.deadline = deadline  # on the loop's clock
        self.acknowledged: asyncio.Future[None] | None = None
        self.result: pb.ProduceResult | None = None  # to be sent; None once known: no result is sent
        self.is_known = False  # the result
        self.trace: TracedAppend | None = None


class _Stream:
    def __init__(
        self,
        leaders: PartitionLeaders,
        queued: QueuedBytes,
        openings: Openings,
        tracing: Tracing | None,
        info: CallInfo,
    ) -> None:
        self._leaders = leaders
        self._queued = queued
        self._openings = openings
        self._tracing = tracing
        self._info = info
        self._loop = asyncio.get_running_loop()
        # By partition as the client names it: one that it names in two ways has two queues. No queue is empty.
        self._queues: dict[_QueueKey, _Queue] = {}
        self._unanswered = 0
        self._waiting: dict[_Pending, None] = {}  # for the high watermark; in the order of their appends
        self._ready: list[pb.ProduceResult] = []
        self._timer: asyncio.TimerHandle | None = None  # fires at the first deadline of those, or earlier
        self._wake = asyncio.Event()  # a result is ready, or the client has half-closed the stream
        self._may_read = asyncio.Event()  # fewer than UNANSWERED_MAX are unanswered
        self._may_read.set()
        self._half_closed = False  # by the client

    async def read(self, requests: Requests[pb.ProduceStreamRequest]) -> None:
        while (message := await requests.recv()) is not None:
            request = produce_stream_request(message)
            await self._append_all(request)
            if self._unanswered >= UNANSWERED_MAX:
                self._may_read.clear()
                await self._may_read.wait()
        self._half_closed = True
        self._wake.set()

    async def write(self, responses: Responses[pb.ProduceStreamResponse]) -> None:
        while not (self._half_closed and not self._unanswered):
            await self._wake.wait()
            self._wake.clear()
            while self._ready:
                results, self._ready = self._ready[:RESULTS_MAX], self._ready[RESULTS_MAX:]
                await responses.send(pb.ProduceStreamResponse(results=results))
                self._answered(len(results))

    def cancel(self) -> None:
        """The call has ended."""
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        for pending in waiting:
            if pending.acknowledged is not None:
                pending.acknowledged.cancel()
        if self._tracing is not None:
            for pending in chain.from_iterable(self._queues.values()):
                if pending.trace is not None:
                    pending.trace.failed(unacknowledged())

    async def _append_all(self, request: ProduceRequest) -> None:
        acks, deadline = request.acks, self._loop.time() + request.timeout_ms / 1000
        opening = self._openings.of(request, self._leaders, request.timeout_ms / 1000)
        for one in request.appends:
            ref = one.ref
            key = (ref.topic, ref.topic_id or b"", ref.partition)
            pending = _Pending(one, key, deadline)
            self._queues.setdefault(key, deque()).append(pending)
            self._unanswered += 1
            if self._tracing is not None:
                pending.trace = begin_append(self._tracing, one, self._info)
            try:
                replica = self._leaders.writable(ref)
                appended = await replica.appends.append(one.batches, acks, self._queued, opening)
            except StreamlogError as error:
                self._fail(pending, error)
                continue
            if pending.trace is not None:
                pending.trace.appended(replica, appended)
            if acks is Acks.NONE:
                self._set_result(pending, None)
                continue
            pending.result = success(one, replica, appended, acks)
            if acks is Acks.ALL:
                self._wait_for(pending, replica.wait_for(appended))
            else:
                self._set_result(pending, pending.result)

    def _wait_for(self, pending: _Pending, acknowledged: asyncio.Future[None]) -> None:
        pending.acknowledged = acknowledged
        self._waiting[pending] = None
        acknowledged.add_done_callback(partial(self._on_acknowledged, pending))
        if self._timer is None or pending.deadline < self._timer.when():
            self._arm(pending.deadline)

    def _on_acknowledged(self, pending: _Pending, acknowledged: asyncio.Future[None]) -> None:
        if pending not in self._waiting:
            return  # timed out before, or the call has ended
        del self._waiting[pending]
        error = acknowledgement_error(acknowledged)
        if error is None:
            self._set_result(pending, pending.result)
        else:
            self._fail(pending, error)

    def _fail(self, pending: _Pending, error: StreamlogError) -> None:
        """Refused, or not known to be acknowledged."""
        if pending.trace is not None:
            pending.trace.failed(error)
        self._set_result(pending, not_appended(pending.request, error))

    def _set_result(self, pending: _Pending, result: pb.ProduceResult | None) -> None:
        """Then all known results at the front of its queue are ready."""
        pending.result, pending.is_known = result, True
        if pending.trace is not None:
            pending.trace.answered()
        queue = self._queues[pending.key]
        while queue and queue[0].is_known:
            first = queue.popleft().result
            if first is None:
                self._answered(1)
            else:
                self._ready.append(first)
        if not queue:
            del self._queues[pending.key]
        self._wake.set()

    def _answered(self, count: int) -> None:
        before = self._unanswered
        self._unanswered = before - count
        if self._unanswered < UNANSWERED_MAX <= before:
            self._may_read.set()

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        now = self._loop.time()
        for pending in [one for one in self._waiting if one.deadline <= now]:
            del self._waiting[pending]
            if pending.acknowledged is not None:
                pending.acknowledged.cancel()
            self._fail(pending, unacknowledged())
        if self._waiting:
            self._arm(min(one.deadline for one in self._waiting))
