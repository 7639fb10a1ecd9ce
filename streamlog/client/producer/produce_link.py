"""The produce stream to one node: the pending batches of all partitions that it leads, 1 MiB a message.

    offer(queue) --> ready --> message of many batches --ProduceStream--> results, each to its batch

A queue that is offered is drained once, and offered again when it may have more to send (a batch is full or has
lingered, a result was received, a back-off has ended), so nothing is polled. At most
max.in.flight.requests.per.connection messages are unanswered.

When the stream breaks, all batches in flight on it end with an unknown outcome; the next stream is opened after a
back-off, if there is anything to send. Where it ends since the client was refused (`authentication`), all batches for
the node fail. A message without all its results after request.timeout.ms breaks the stream; where a quota holds the
stream up, that time begins again with each response that says so.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Final, Protocol

from msgspec import Struct, field

from streamlog.api import calls
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.client.connection.authentication import is_authentication_failure
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.until_one_ends import run_until_one_ends
from streamlog.client.producer.batches.batch_contexts import contexts_of
from streamlog.client.producer.batches.partition_queue import PartitionQueue
from streamlog.client.producer.batches.wire_batch import Encoding, WireBatch
from streamlog.errors import NetworkError, RequestTimedOutError, StreamlogError
from streamlog.model import NO_OFFSET, NO_TIMESTAMP, Acks, Offset, PartitionId, TopicPartition
from streamlog.ports import Workers

_METHOD: Final = "streamlog.v1.Batches/ProduceStream"
_ACKS: Final = {Acks.NONE: common_pb2.ACKS_NONE, Acks.LEADER: common_pb2.ACKS_LEADER, Acks.ALL: common_pb2.ACKS_ALL}

# Batches from this size on are compressed in a worker thread, as the codecs release the GIL. Below it, the thread
# switch costs more than it gains.
WORKER_BYTES_MIN: Final = 65_536
# A node answers within request.timeout.ms, at least with a timeout error. This much later the stream has failed.
ANSWER_GRACE_S: Final = 1.0
# After so long without a result the metadata is refreshed: the leader may have changed.
SILENCE_S: Final = 0.5


class ProduceListener(Protocol):
    """Decides about results: the producer's `Delivery`. Each call removes the batch from those in flight."""

    def on_success(self, queue: PartitionQueue, wire: WireBatch, base_offset: Offset, append_time_ms: int) -> None: ...

    def on_error(self, queue: PartitionQueue, wire: WireBatch, error: StreamlogError) -> None: ...

    def on_stray_error(self, partition: TopicPartition, error: StreamlogError) -> None:
        """Of a batch that is settled already, as with acks=0."""
        ...

    def on_broken(self, error: StreamlogError) -> None:
        """A stream broke; `on_error` follows for each batch."""
        ...

    def on_refused(self, link: ProduceLink, error: StreamlogError) -> None:
        """The node has refused this client, or the client the node: what is left for it is not sent."""
        ...

    def on_silence(self) -> None:
        """A node takes long to answer: its machine may have failed, which closes no connection."""
        ...


class ProduceLinkRules(Struct, frozen=True, kw_only=True):
    acks: Acks
    in_flight_max: int  # messages
    message_bytes_max: int  # of batches in one message, unless a single one is larger
    request_timeout_s: float
    encoding: Encoding
    transactional_id: str = ""
    traced: bool = False  # tracing.enable


class _Message(Struct, eq=False):
    sent_at: float
    unanswered: int = 0  # batches without a result


class _Flight(Struct):
    queue: PartitionQueue
    wire: WireBatch | None  # None: it was reclaimed, and its result is ignored
    message: _Message


class _Open(Struct):
    """The state of one stream."""

    flights: dict[int, _Flight] = field(default_factory=dict)  # by correlation id
    messages: dict[_Message, None] = field(default_factory=dict)  # unanswered, oldest first


class ProduceLink:
    def __init__(
        self,
        address: str,
        connections: Connections,
        listener: ProduceListener,
        rules: ProduceLinkRules,
        backoff: Backoff,
        workers: Workers,
        guard: AbstractContextManager[object],
    ) -> None:
        """`guard`: held while batches are taken from queues, which another thread may be filling."""
        self.address = address
        self._connections = connections
        self._listener = listener
        self._rules = rules
        self._backoff = backoff
        self._workers = workers
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._ready: dict[PartitionQueue, None] = {}  # in turn
        self._changed = asyncio.Event()  # something became ready, or was answered
        self._sent = asyncio.Event()  # for the watchdog
        self._open = _Open()
        self._correlations = 0
        self._finishing = False
        self.broken = ""  # why the last stream ended
        self._finished = asyncio.Event()

    def offer(self, queue: PartitionQueue) -> None:
        """It may have something to send."""
        self._ready[queue] = None
        self._changed.set()

    def withdraw(self, queue: PartitionQueue) -> None:
        """The partition has another leader."""
        self._ready.pop(queue, None)

    def forget(self, wire: WireBatch) -> None:
        """Ignore its result: it is sent to another leader."""
        flight = None if wire.correlation is None else self._open.flights.get(wire.correlation)
        if flight is not None and flight.wire is wire:
            flight.wire = None

    async def finish(self) -> None:
        """Wait until the node has received all that was sent, or the stream is broken; `run` then ends. To be called
        when nothing is pending.

        Cancelling the stream instead would drop what is in transit, which with acks=0 would be lost.
        """
        self._finishing = True
        self._changed.set()
        await self._finished.wait()

    def resume(self) -> None:
        """`run` is called again after it was cancelled: what was in flight has no result."""
        if self._open.flights:
            self._end(NetworkError(f"the produce stream to {self.address} was cancelled"))

    async def run(self) -> None:
        """Until it is cancelled, or has finished."""
        failures = 0
        while True:
            await self._wait_until_ready()
            if self._finishing and not self._ready:
                break
            began = self._loop.time()
            try:
                await self._stream()
                error: StreamlogError = NetworkError(f"{self.address} has closed the produce stream")
            except StreamlogError as broken:
                error = broken
            self._end(error)
            if self._finishing:
                break
            failures = 1 if self._loop.time() - began > 1.0 else failures + 1
            await self._backoff.wait(failures)
        self._finished.set()

    async def _wait_until_ready(self) -> None:
        while not self._ready and not self._finishing:
            self._changed.clear()
            await self._changed.wait()

    def _end(self, error: StreamlogError) -> None:
        ended, self._open = self._open, _Open()
        self.broken = f"{error.code}: {error.message}"
        self._listener.on_broken(error)
        for flight in ended.flights.values():
            if flight.wire is not None:
                self._listener.on_error(flight.queue, flight.wire, error)
        if is_authentication_failure(error):
            self._ready.clear()
            self._listener.on_refused(self, error)

    async def _stream(self) -> None:
        channel = self._connections.channel(self.address)
        async with calls.stream(channel, _METHOD, pb.ProduceStreamResponse) as stream:
            await run_until_one_ends(self._receive(stream), self._send(stream), self._watch())

    # Sending.

    async def _send(self, stream: calls.CallStream[pb.ProduceStreamResponse]) -> None:
        while True:
            self._changed.clear()
            if len(self._open.messages) < self._rules.in_flight_max and self._ready:
                with self._guard:
                    flights = self._collect()
                if flights:
                    await self._send_message(stream, flights)
                    continue
            if self._finishing and not self._ready:
                await stream.done_sending()
                await self._finished.wait()  # the node closes the stream, which ends this task as well
            await self._changed.wait()

    def _collect(self) -> list[_Flight]:
        """Take pending batches, in flight from now on: in order for each partition, the partitions in turn."""
        now = self._loop.time()
        message = _Message(now)
        flights: list[_Flight] = []
        size = 0
        while self._ready and size < self._rules.message_bytes_max:
            queue = next(iter(self._ready))
            wire = queue.take(now) if queue.link is self else None
            if wire is None:
                del self._ready[queue]
                continue
            self._correlations += 1
            wire.correlation = self._correlations
            flights.append(_Flight(queue, wire, message))
            self._open.flights[wire.correlation] = flights[-1]
            size += wire.size
            del self._ready[queue]
            self._ready[queue] = None  # behind the others
        if flights:
            message.unanswered = len(flights)
            self._open.messages[message] = None
            self._sent.set()
        return flights

    async def _send_message(self, stream: calls.CallStream[pb.ProduceStreamResponse], flights: list[_Flight]) -> None:
        request = pb.ProduceStreamRequest(
            acks=_ACKS[self._rules.acks],
            timeout_ms=round(self._rules.request_timeout_s * 1000),
            transactional_id=self._rules.transactional_id,
        )
        for flight in flights:
            if flight.wire is not None and not await self._encode(flight):
                continue
            wire = flight.wire
            if wire is None:  # reclaimed meanwhile
                self._answered(flight)
                continue
            part = request.partitions.add()
            part.topic = flight.queue.partition.topic
            part.topic_id = flight.queue.topic_id
            part.partition = flight.queue.partition.partition
            part.correlation_id = wire.correlation or 0
            part.batches = wire.encode(self._rules.encoding)
            if self._rules.traced:
                part.traceparent, *linked = contexts_of(wire) or [""]
                part.linked_traceparents.extend(linked)
        if request.partitions:
            await stream.send(request)
            if self._rules.acks is Acks.NONE:
                self._settle_unanswered(flights)

    async def _encode(self, flight: _Flight) -> bool:
        """False where it cannot be encoded, which is its outcome."""
        wire, encoding = flight.wire, self._rules.encoding
        assert wire is not None
        correlation = wire.correlation
        try:
            if not wire.encoded and encoding.codec and wire.size >= WORKER_BYTES_MIN:
                await self._workers.run(wire.encode, encoding)
            else:
                wire.encode(encoding)
        except StreamlogError as error:
            self._open.flights.pop(correlation or 0, None)
            self._answered(flight)
            if flight.wire is not None:
                self._listener.on_error(flight.queue, flight.wire, error)
            return False
        return True

    def _settle_unanswered(self, flights: list[_Flight]) -> None:
        """acks=0: what the transport has taken counts as sent."""
        for flight in flights:
            wire, flight.wire = flight.wire, None
            self._answered(flight)
            if wire is not None:
                self._listener.on_success(flight.queue, wire, NO_OFFSET, NO_TIMESTAMP)
                if wire.correlation is not None:
                    self._open.flights.pop(wire.correlation, None)

    # Answers.

    async def _receive(self, stream: calls.CallStream[pb.ProduceStreamResponse]) -> None:
        while (response := await stream.recv()) is not None:
            for result in response.results:
                self._on_result(result)
            if response.throttle_time_ms:
                self._connections.throttle_time.add(response.throttle_time_ms)
                self._was_held_up()

    def _was_held_up(self) -> None:
        """The node handles one message after another, and makes each wait for a quota: their time begins now."""
        for message in self._open.messages:
            message.sent_at = self._loop.time()

    def _on_result(self, result: pb.ProduceResult) -> None:
        flight = self._open.flights.pop(result.correlation_id, None)
        error = from_message(result.error) if result.HasField("error") else None
        if flight is not None:
            self._answered(flight)
        if flight is None or flight.wire is None:
            if error is not None:
                partition = TopicPartition(result.topic, PartitionId(result.partition))
                self._listener.on_stray_error(partition, error)
        elif error is not None:
            self._listener.on_error(flight.queue, flight.wire, error)
        else:
            self._listener.on_success(flight.queue, flight.wire, Offset(result.base_offset), result.log_append_time_ms)

    def _answered(self, flight: _Flight) -> None:
        flight.message.unanswered -= 1
        if flight.message.unanswered == 0:
            self._open.messages.pop(flight.message, None)
            self._changed.set()

    async def _watch(self) -> None:
        """RequestTimedOutError when the oldest message was not answered in time."""
        timeout_s = self._rules.request_timeout_s + ANSWER_GRACE_S
        while True:
            oldest = next(iter(self._open.messages), None)
            if oldest is None:
                self._sent.clear()
                await self._sent.wait()
                continue
            left_s = oldest.sent_at + timeout_s - self._loop.time()
            if left_s <= 0:
                raise RequestTimedOutError(f"{self.address} did not answer a produce request within {timeout_s:g} s")
            await asyncio.sleep(min(left_s, SILENCE_S))
            if oldest in self._open.messages and left_s > SILENCE_S:
                self._listener.on_silence()
