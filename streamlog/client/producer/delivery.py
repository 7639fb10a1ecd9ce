"""Delivery of a producer's batches to their leaders, and the results.

    queue opened --> lingers --> due --> offered to the link to its leader --> success
                                              ^                                permanent error --> failed
                                              |_____ back-off, new leader ____ retriable error

Owns: which link a queue belongs to, the timers (linger, back-off, delivery.timeout.ms), the producer ids. A queue with
batches is `active`; others cost nothing.

Everything here runs on the producer's loop, and under the guard where another thread may be filling the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from msgspec import Struct

from streamlog.aio.timeouts import timeout
from streamlog.api import calls
from streamlog.api.pb import batches_pb2 as pb
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import MetadataCache
from streamlog.client.producer.batches.identities import identity_in
from streamlog.client.producer.batches.late_records_log import LateRecordsLog
from streamlog.client.producer.batches.partition_queue import TIMER_EARLY_S, PartitionQueue, QueueRules
from streamlog.client.producer.batches.wire_batch import ProducerIdAndEpoch, WireBatch
from streamlog.client.producer.produce_link import ProduceLink, ProduceLinkRules
from streamlog.errors import (
    MessageTooLargeError,
    NotLeaderError,
    OutOfOrderSequenceError,
    RequestTimedOutError,
    StreamlogError,
    UnknownProducerIdError,
)
from streamlog.model import Acks, Offset, TopicPartition
from streamlog.ports import Workers

INIT_PRODUCER_ID: Final = calls.unary("streamlog.v1.Batches/InitProducerId", pb.InitProducerIdResponse)

# delivery.timeout.ms is checked every twentieth of it, within these bounds.
EXPIRY_TICK_S: Final = (0.01, 1.0)


class DeliveryRules(Struct, frozen=True, kw_only=True):
    queue: QueueRules
    link: ProduceLinkRules
    delivery_timeout_s: float
    retries_max: int
    transactional: bool = False


class Delivery:
    def __init__(
        self,
        connections: Connections,
        metadata: MetadataCache,
        backoff: Backoff,
        workers: Workers,
        rules: DeliveryRules,
        guard: AbstractContextManager[object],
    ) -> None:
        self._connections = connections
        self._metadata = metadata
        self._backoff = backoff
        self._workers = workers
        self._rules = rules
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._links: dict[str, ProduceLink] = {}  # by address
        self._active: dict[PartitionQueue, None] = {}
        self._lingering: dict[PartitionQueue, float] = {}  # when its open batch is due; earliest first
        self._linger_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._late_records = LateRecordsLog(rules.queue.linger_s)
        self._spawn: Callable[[ProduceLink], object] | None = None
        self._unnumbered = asyncio.Event()  # a queue needs a producer id
        # For queues that have had none; of a transactional producer, of the open transaction, for all.
        self._identity: ProducerIdAndEpoch | None = None
        self._touch: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Until it is cancelled. An exception in here is a bug, and is raised."""
        async with asyncio.TaskGroup() as tasks:
            self._spawn = lambda link: tasks.create_task(link.run())
            for link in self._links.values():
                link.resume()
                self._spawn(link)
            if self._rules.queue.idempotent and not self._rules.transactional:
                tasks.create_task(self._number_queues())
            await self._loop.create_future()  # links are added at any time: the group stays open

    async def finish(self, timeout_s: float | None) -> None:
        """After the last batch, before `run` is cancelled: with acks=0, where batches have no result, wait until the
        nodes have received what was sent. `timeout_s`: None: request.timeout.ms.
        """
        if self._rules.link.acks is not Acks.NONE:
            return
        try:
            timeout_s = self._rules.link.request_timeout_s if timeout_s is None else timeout_s
            async with timeout(timeout_s), asyncio.TaskGroup() as tasks:
                for link in self._links.values():
                    tasks.create_task(link.finish())
        except TimeoutError:
            return  # a node that does not receive: acks=0 promises nothing

    def stop(self) -> None:
        for timer in (self._linger_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()

    # Queues.

    def begin_transaction(self, identity: ProducerIdAndEpoch, touch: Callable[[], None]) -> None:
        """Batches that are opened from now on belong to it. `touch` is called for each."""
        self._identity, self._touch = identity, touch

    def opened(self, queue: PartitionQueue) -> None:
        """A batch has been opened in it."""
        if self._rules.transactional:
            self._touch()
            if self._identity is not None and queue.latest_identity != self._identity:
                queue.begin(self._identity)
        if queue not in self._active:
            self._active[queue] = None
            if queue.link is None:
                self.route(queue)
            if queue.needs_identity and self._identity is not None:
                queue.begin(self._identity)
            elif queue.needs_identity and not self._rules.transactional:
                self._unnumbered.set()
            if self._expiry_timer is None:
                self._expiry_timer = self._loop.call_later(self._expiry_tick_s, self._expire)
        self._lingering.pop(queue, None)
        self._lingering[queue] = self._loop.time() + self._rules.queue.linger_s
        if self._linger_timer is None:
            self._linger_timer = self._loop.call_later(self._rules.queue.linger_s, self._lingered)

    def due(self, queue: PartitionQueue) -> None:
        """It may have something to send."""
        if queue.link is not None:
            queue.link.offer(queue)

    def active(self) -> list[PartitionQueue]:
        return list(self._active)

    def route(self, queue: PartitionQueue) -> None:
        """To the present leader of the partition."""
        leader = self._metadata.leader(queue.partition)
        if leader == queue.leader:
            return
        queue.leader = leader
        if leader is None:
            return
        if queue.link is None or queue.link.address != leader.address:
            self._move(queue, leader.address)
        queue.not_before = 0.0
        self.due(queue)

    def _move(self, queue: PartitionQueue, address: str) -> None:
        old = queue.link
        if old is not None:
            old.withdraw(queue)
        if old is not None and self._rules.queue.idempotent:
            # The old leader's results are not needed: the new one recognizes by its sequence what it has already.
            # Without sequences the old leader's result, or the end of its stream, is awaited.
            for wire in queue.in_flight:
                old.forget(wire)
            queue.reclaim(NotLeaderError(f"the leader of {queue.partition} has moved to {address}"))
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = ProduceLink(
                address, self._connections, self, self._rules.link, self._backoff, self._workers, self._guard
            )
            if self._spawn is not None:
                self._spawn(link)
        queue.link = link

    def _settled(self, queue: PartitionQueue) -> None:
        if queue.idle:
            self._active.pop(queue, None)
            self._lingering.pop(queue, None)
        else:
            self.due(queue)

    # Timers.

    def _lingered(self) -> None:
        self._linger_timer = None
        now = self._loop.time()
        while self._lingering:
            queue, at = next(iter(self._lingering.items()))
            if at > now + TIMER_EARLY_S:
                self._linger_timer = self._loop.call_at(at, self._lingered)
                return
            del self._lingering[queue]
            self.due(queue)

    @property
    def _expiry_tick_s(self) -> float:
        low, high = EXPIRY_TICK_S
        return min(max(self._rules.delivery_timeout_s / 20, low), high)

    def _expire(self) -> None:
        self._expiry_timer = None
        timeout_s = self._rules.delivery_timeout_s
        for queue in list(self._active):
            with self._guard:
                batches = queue.expire(self._loop.time() - timeout_s)
                why = queue.why_undelivered()
                for batch in batches:
                    batch.fail(
                        RequestTimedOutError(
                            f"{len(batch)} records for {queue.partition} were not acknowledged within {timeout_s:g} s"
                            f" (delivery.timeout.ms): {why}",
                            topic=queue.partition.topic,
                            partition=queue.partition.partition,
                        )
                    )
                queue.drop_done()
            self._settled(queue)
        if self._active:
            self._expiry_timer = self._loop.call_later(self._expiry_tick_s, self._expire)
        with self._guard:
            late = self._late_records.look(self._active, self._loop.time())
        self._late_records.log(late)

    # Outcomes.

    def on_success(self, queue: PartitionQueue, wire: WireBatch, base_offset: Offset, append_time_ms: int) -> None:
        queue.succeeded(wire)
        wire.succeed(base_offset, append_time_ms)
        self._settled(queue)

    def on_error(self, queue: PartitionQueue, wire: WireBatch, error: StreamlogError) -> None:
        if isinstance(error, MessageTooLargeError) and queue.retry_in_halves(wire, error):
            self.due(queue)
            return
        if wire.done or not self._is_retriable(queue, wire, error) or wire.attempts > self._rules.retries_max:
            queue.failed(wire)
            wire.fail(error)
            self._settled(queue)
        elif not isinstance(error, OutOfOrderSequenceError | UnknownProducerIdError):
            queue.retry_later(wire, error)
            self._wait(queue)
            self._learn(queue.partition, error)
        elif queue.is_first(wire):
            queue.retry_later(wire, error)
            queue.begin_epoch()
            if queue.needs_identity:
                self._unnumbered.set()
            self._wait(queue)
        else:
            queue.retry_later(wire, wire.last_error or error)  # it failed because the one before it did
            self.due(queue)

    def _is_retriable(self, queue: PartitionQueue, wire: WireBatch, error: StreamlogError) -> bool:
        if isinstance(error, OutOfOrderSequenceError | UnknownProducerIdError) and self._rules.queue.idempotent:
            if not self._rules.transactional:
                return True
            # A transaction has one epoch for all partitions, so one partition cannot start a new epoch.
            return not queue.is_first(wire) and isinstance(error, OutOfOrderSequenceError)
        return error.retriable or error.details.get("retriable") is True

    def on_stray_error(self, partition: TopicPartition, error: StreamlogError) -> None:
        self._learn(partition, error)

    def _learn(self, partition: TopicPartition, error: StreamlogError) -> None:
        """Of the leader that the error names, if any; and of all that has changed besides."""
        if isinstance(error, NotLeaderError):
            self._metadata.learn_leader(partition, error)
        self._metadata.refresh()

    def on_broken(self, error: StreamlogError) -> None:
        self._metadata.refresh()

    def on_refused(self, link: ProduceLink, error: StreamlogError) -> None:
        for queue in self.active():
            if queue.link is link:
                self.fail_all(queue, error)

    def on_silence(self) -> None:
        self._metadata.refresh()

    def _wait(self, queue: PartitionQueue) -> None:
        """A back-off, unless it gets another leader."""
        now = self._loop.time()
        if queue.not_before <= now:
            queue.failures += 1
            delay_s = self._backoff.delay_s(queue.failures)
            queue.not_before = now + delay_s
        self._loop.call_at(queue.not_before, self.due, queue)

    # Producer ids.

    async def _number_queues(self) -> None:
        """Get producer ids for queues that need one: all share the first; one that ran out of epochs gets another."""
        attempt = 0
        while True:
            await self._unnumbered.wait()
            try:
                response = await self._connections.ask_any(
                    INIT_PRODUCER_ID,
                    pb.InitProducerIdRequest(),
                    timeout_s=self._rules.link.request_timeout_s,
                )
                identity = identity_in(response)
            except StreamlogError as error:
                if not error.retriable:
                    self._unnumbered.clear()
                    self._fail_unnumbered(error)
                attempt += 1
                await self._backoff.wait(attempt)
                continue
            attempt = 0
            self._unnumbered.clear()
            self._identity = identity
            for queue in self.active():
                if queue.needs_identity:
                    queue.begin(identity)
                    self.due(queue)

    def _fail_unnumbered(self, error: StreamlogError) -> None:
        for queue in self.active():
            if queue.needs_identity:
                self.fail_all(queue, error)

    def fail_all(self, queue: PartitionQueue, error: StreamlogError) -> None:
        with self._guard:
            for batch in list(queue.unsettled()):
                batch.fail(error)
            queue.drop_done()
        self._settled(queue)
