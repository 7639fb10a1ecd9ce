"""ProduceStream: batches appended as they come, results told as they are known.

    reader: message -> append each -> in line of its partition       (stops reading while too much is unanswered)
    confirmation, refusal, time-out -> ready, once all before it in its line are
    writer: all that is ready -> one message

Results of one partition go out in the order in which its batches came, whatever became of them. So each partition has
a line, and a result leaves it from the front alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, TypeAlias

from streamlog.api.convert.produce import not_appended, produce_stream_request
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import PartitionAppend, ProduceRequest
from streamlog.api.service import Call, Requests, Responses
from streamlog.errors import StreamlogError
from streamlog.model import Acks
from streamlog.services.batches.partition_leader import PartitionLeaders
from streamlog.services.batches.produce import append_to, confirmation_error, success, unconfirmed
from streamlog.services.batches.transaction_verification import Openings
from streamlog.services.common.admission import QueuedBytes

# Appends of one stream that have not been answered. A client that has more in flight waits for gRPC's flow control.
UNANSWERED_MAX: Final = 10_000
# Results of one message: below 1 MiB even if each is an error of the longest kind.
RESULTS_MAX: Final = 300


class ProduceStreams:
    def __init__(self, leaders: PartitionLeaders, queued: QueuedBytes, openings: Openings) -> None:
        self._leaders = leaders
        self._queued = queued
        self._openings = openings

    async def produce_stream(
        self,
        requests: Requests[pb.ProduceStreamRequest],
        responses: Responses[pb.ProduceStreamResponse],
        call: Call,
    ) -> None:
        stream = _Stream(self._leaders, self._queued, self._openings)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(stream.write(responses))
                await stream.read(requests)
        finally:
            stream.forget()


_Line: TypeAlias = "deque[_Pending]"
_LineKey: TypeAlias = tuple[str, bytes, int]


class _Pending:
    """One PartitionBatches that has not been answered."""

    __slots__ = ("asked", "confirmed", "deadline", "key", "known", "result")

    def __init__(self, asked: PartitionAppend, key: _LineKey, deadline: float) -> None:
        self.asked = asked
        self.key = key
        self.deadline = deadline  # on the loop's clock
        self.confirmed: asyncio.Future[None] | None = None
        self.result: pb.ProduceResult | None = None  # to be told; None at the end: nothing is
        self.known = False  # what became of it


class _Stream:
    def __init__(self, leaders: PartitionLeaders, queued: QueuedBytes, openings: Openings) -> None:
        self._leaders = leaders
        self._queued = queued
        self._openings = openings
        self._loop = asyncio.get_running_loop()
        # By partition as the client names it: one that it names in two ways has two. None is empty.
        self._lines: dict[_LineKey, _Line] = {}
        self._unanswered = 0
        self._confirming: dict[_Pending, None] = {}  # appended, to be confirmed; in the order of appending
        self._ready: deque[pb.ProduceResult] = deque()
        self._timer: asyncio.TimerHandle | None = None  # fires at the first deadline of those, or before
        self._news = asyncio.Event()  # something is ready, or the client has ended
        self._room = asyncio.Event()  # less than UNANSWERED_MAX are unanswered
        self._room.set()
        self._ended = False  # the client sends no more

    async def read(self, requests: Requests[pb.ProduceStreamRequest]) -> None:
        while (message := await requests.recv()) is not None:
            request = produce_stream_request(message)
            await self._append_all(request)
            if self._unanswered >= UNANSWERED_MAX:
                self._room.clear()
                await self._room.wait()
        self._ended = True
        self._news.set()

    async def write(self, responses: Responses[pb.ProduceStreamResponse]) -> None:
        while not (self._ended and not self._unanswered):
            await self._news.wait()
            self._news.clear()
            while self._ready:
                count = min(len(self._ready), RESULTS_MAX)
                results = [self._ready.popleft() for _ in range(count)]
                await responses.send(pb.ProduceStreamResponse(results=results))
                self._answered(count)

    def forget(self) -> None:
        """The call is over; what is not confirmed nobody waits for."""
        if self._timer is not None:
            self._timer.cancel()
        confirming, self._confirming = self._confirming, {}
        for pending in confirming:
            if pending.confirmed is not None:
                pending.confirmed.cancel()

    async def _append_all(self, request: ProduceRequest) -> None:
        acks, deadline = request.acks, self._loop.time() + request.timeout_ms / 1000
        opening = self._openings.of(request, request.timeout_ms / 1000)
        for asked in request.appends:
            ref = asked.ref
            key = (ref.topic, ref.topic_id or b"", ref.partition)
            pending = _Pending(asked, key, deadline)
            self._lines.setdefault(key, deque()).append(pending)
            self._unanswered += 1
            try:
                replica = self._leaders.writable(ref)
                done = await append_to(replica, asked.batches, acks, self._queued, opening)
            except StreamlogError as error:
                self._know(pending, not_appended(asked, error))
                continue
            if acks is Acks.NONE:
                self._know(pending, None)
                continue
            pending.result = success(asked, replica, done, acks)
            if acks is Acks.ALL:
                self._confirm(pending, replica.wait_for(done))
            else:
                self._know(pending, pending.result)

    def _confirm(self, pending: _Pending, confirmed: asyncio.Future[None]) -> None:
        pending.confirmed = confirmed
        self._confirming[pending] = None
        confirmed.add_done_callback(lambda _: self._on_confirmed(pending))
        if self._timer is None or pending.deadline < self._timer.when():
            self._arm(pending.deadline)

    def _on_confirmed(self, pending: _Pending) -> None:
        if pending not in self._confirming:
            return  # the time was over before, or the call is
        del self._confirming[pending]
        error = confirmation_error(pending.confirmed)
        self._know(pending, pending.result if error is None else not_appended(pending.asked, error))

    def _know(self, pending: _Pending, result: pb.ProduceResult | None) -> None:
        """And let go of all that waited behind it in its line."""
        pending.result, pending.known = result, True
        line = self._lines[pending.key]
        while line and line[0].known:
            first = line.popleft().result
            if first is None:
                self._answered(1)
            else:
                self._ready.append(first)
        if not line:
            del self._lines[pending.key]
        self._news.set()

    def _answered(self, count: int) -> None:
        self._unanswered -= count
        if self._unanswered < UNANSWERED_MAX:
            self._room.set()

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        now = self._loop.time()
        for pending in [one for one in self._confirming if one.deadline <= now]:
            del self._confirming[pending]
            if pending.confirmed is not None:
                pending.confirmed.cancel()
            self._know(pending, not_appended(pending.asked, unconfirmed()))
        if self._confirming:
            self._arm(min(one.deadline for one in self._confirming))
