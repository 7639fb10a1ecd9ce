"""The stream of batches to one node: everything that is pending for the partitions it leads, 1 MiB a message.

    offer(queue) --> ready --> message of many batches --ProduceStream--> results, each to its batch

A queue that is offered is asked for its batches once; it is offered again when it has new reason to be (a batch is
full or has lingered, an answer came, a wait is over). So nothing is polled. At most
max.in.flight.requests.per.connection messages are unanswered.

A stream that breaks ends all that is in flight on it, with an unknown outcome; the next stream begins after a
back-off, if there is anything to send. A message without its answers after request.timeout.ms breaks the stream too.
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
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.until_one_ends import run_until_one_ends
from streamlog.client.producer.partition_queue import PartitionQueue
from streamlog.client.producer.wire_batch import Encoding, WireBatch
from streamlog.errors import NetworkError, RequestTimedOutError, StreamlogError
from streamlog.model import NO_OFFSET, NO_TIMESTAMP, Acks, Offset, PartitionId, TopicPartition
from streamlog.ports import Workers

_METHOD: Final = "streamlog.v1.Batches/ProduceStream"
_ACKS: Final = {Acks.NONE: common_pb2.ACKS_NONE, Acks.LEADER: common_pb2.ACKS_LEADER, Acks.ALL: common_pb2.ACKS_ALL}

# Compression of a batch from this size on is done beside the loop: the codecs let other threads run meanwhile. Below
# it, handing over costs more than it gains.
WORKER_BYTES_MIN: Final = 65_536
# A node answers within request.timeout.ms, if only that it does not know. This much later its silence is a failure.
ANSWER_GRACE_S: Final = 1.0
# An answer that takes so long makes a client ask another node who leads.
SILENCE_S: Final = 0.5


class Settling(Protocol):
    """What becomes of batches: decided by the producer. Each call takes the batch out of flight."""

    def on_success(self, queue: PartitionQueue, wire: WireBatch, base_offset: Offset, append_time_ms: int) -> None: ...

    def on_error(self, queue: PartitionQueue, wire: WireBatch, error: StreamlogError) -> None: ...

    def on_stray_error(self, partition: TopicPartition, error: StreamlogError) -> None:
        """Of a batch that nobody waits for any more, as with acks=0."""
        ...

    def on_broken(self, error: StreamlogError) -> None:
        """A stream broke; its batches are told one by one."""
        ...

    def on_silence(self) -> None:
        """A node takes long to answer: it may have lost its power, which nobody tells."""
        ...


class ProduceLinkRules(Struct, frozen=True, kw_only=True):
    acks: Acks
    in_flight_max: int  # messages
    message_bytes_max: int  # of batches in one message, unless a single one is larger
    request_timeout_s: float
    encoding: Encoding
    transactional_id: str = ""


class _Message(Struct, eq=False):
    sent_at: float
    left: int = 0  # batches without a result


class _Flight(Struct):
    queue: PartitionQueue
    wire: WireBatch | None  # None: it was taken back, and its result counts no more
    message: _Message


class _Open(Struct):
    """What belongs to one stream and ends with it."""

    flights: dict[int, _Flight] = field(default_factory=dict)  # by correlation id
    messages: dict[_Message, None] = field(default_factory=dict)  # unanswered, oldest first


class ProduceLink:
    def __init__(
        self,
        address: str,
        connections: Connections,
        settling: Settling,
        rules: ProduceLinkRules,
        backoff: Backoff,
        workers: Workers,
        guard: AbstractContextManager[object],
    ) -> None:
        """`guard`: held while queues are asked for batches, which another thread may be filling."""
        self.address = address
        self._connections = connections
        self._settling = settling
        self._rules = rules
        self._backoff = backoff
        self._workers = workers
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._ready: dict[PartitionQueue, None] = {}  # in turn
        self._news = asyncio.Event()  # something became ready, or was answered
        self._sent = asyncio.Event()  # the watchdog has something to watch
        self._open = _Open()
        self._correlations = 0
        self._finishing = False
        self._finished = asyncio.Event()

    def offer(self, queue: PartitionQueue) -> None:
        """It may have something to send."""
        self._ready[queue] = None
        self._news.set()

    def withdraw(self, queue: PartitionQueue) -> None:
        """Its leader is somewhere else."""
        self._ready.pop(queue, None)

    def forget(self, wire: WireBatch) -> None:
        """Its result counts no more: it goes to another leader."""
        flight = None if wire.correlation is None else self._open.flights.get(wire.correlation)
        if flight is not None and flight.wire is wire:
            flight.wire = None

    async def finish(self) -> None:
        """Until the node has read all that was handed to the transport, or the stream is broken. `run` then ends: it is
        called when nothing is pending.

        What ends the stream otherwise, cancels it, and takes back what is on its way: with acks=0 that is lost.
        """
        self._finishing = True
        self._news.set()
        await self._finished.wait()

    async def run(self) -> None:
        """Until it is cancelled, or has finished."""
        failures = 0
        while True:
            await self._until_ready()
            if self._finishing and not self._ready:
                break
            began = self._loop.time()
            try:
                await self._stream()
                error: StreamlogError = NetworkError(f"{self.address} has ended the stream")
            except StreamlogError as broken:
                error = broken
            self._end(error)
            if self._finishing:
                break
            failures = 1 if self._loop.time() - began > 1.0 else failures + 1
            await self._backoff.wait(failures)
        self._finished.set()

    async def _until_ready(self) -> None:
        while not self._ready and not self._finishing:
            self._news.clear()
            await self._news.wait()

    def _end(self, error: StreamlogError) -> None:
        ended, self._open = self._open, _Open()
        self._settling.on_broken(error)
        for flight in ended.flights.values():
            if flight.wire is not None:
                self._settling.on_error(flight.queue, flight.wire, error)

    async def _stream(self) -> None:
        channel = self._connections.channel(self.address)
        async with calls.stream(channel, _METHOD, pb.ProduceStreamResponse) as stream:
            await run_until_one_ends(self._receive(stream), self._send(stream), self._watch())

    # Sending.

    async def _send(self, stream: calls.CallStream[pb.ProduceStreamResponse]) -> None:
        while True:
            self._news.clear()
            if len(self._open.messages) < self._rules.in_flight_max and self._ready:
                with self._guard:
                    flights = self._collect()
                if flights:
                    await self._send_message(stream, flights)
                    continue
            if self._finishing and not self._ready:
                await stream.done_sending()
                await self._finished.wait()  # the node's end ends this task as well
            await self._news.wait()

    def _collect(self) -> list[_Flight]:
        """What is pending, in flight from now on: a partition's batches in order, the partitions in turn."""
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
            message.left = len(flights)
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
            if wire is None:  # taken back meanwhile
                self._answered(flight)
                continue
            part = request.partitions.add()
            part.topic = flight.queue.partition.topic
            part.topic_id = flight.queue.topic_id
            part.partition = flight.queue.partition.partition
            part.correlation_id = wire.correlation or 0
            part.batches = wire.encode(self._rules.encoding)
        if request.partitions:
            await stream.send(request)
            if self._rules.acks is Acks.NONE:
                self._settle_unanswered(flights)

    async def _encode(self, flight: _Flight) -> bool:
        """False where it cannot be; whoever sent its records has been told."""
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
                self._settling.on_error(flight.queue, flight.wire, error)
            return False
        return True

    def _settle_unanswered(self, flights: list[_Flight]) -> None:
        """acks=0: what was handed to the transport counts as sent."""
        for flight in flights:
            wire, flight.wire = flight.wire, None
            self._answered(flight)
            if wire is not None:
                self._settling.on_success(flight.queue, wire, NO_OFFSET, NO_TIMESTAMP)
                if wire.correlation is not None:
                    self._open.flights.pop(wire.correlation, None)

    # Answers.

    async def _receive(self, stream: calls.CallStream[pb.ProduceStreamResponse]) -> None:
        while (response := await stream.recv()) is not None:
            for result in response.results:
                self._on_result(result)

    def _on_result(self, result: pb.ProduceResult) -> None:
        flight = self._open.flights.pop(result.correlation_id, None)
        error = from_message(result.error) if result.HasField("error") else None
        if flight is not None:
            self._answered(flight)
        if flight is None or flight.wire is None:
            if error is not None:
                partition = TopicPartition(result.topic, PartitionId(result.partition))
                self._settling.on_stray_error(partition, error)
        elif error is not None:
            self._settling.on_error(flight.queue, flight.wire, error)
        else:
            self._settling.on_success(flight.queue, flight.wire, Offset(result.base_offset), result.log_append_time_ms)

    def _answered(self, flight: _Flight) -> None:
        flight.message.left -= 1
        if flight.message.left == 0:
            self._open.messages.pop(flight.message, None)
            self._news.set()

    async def _watch(self) -> None:
        """RequestTimedOutError when the oldest message has waited for too long."""
        patience_s = self._rules.request_timeout_s + ANSWER_GRACE_S
        while True:
            oldest = next(iter(self._open.messages), None)
            if oldest is None:
                self._sent.clear()
                await self._sent.wait()
                continue
            left_s = oldest.sent_at + patience_s - self._loop.time()
            if left_s <= 0:
                raise RequestTimedOutError(f"{self.address} did not answer a request within {patience_s:g} s")
            await asyncio.sleep(min(left_s, SILENCE_S))
            if oldest in self._open.messages and left_s > SILENCE_S:
                self._settling.on_silence()
