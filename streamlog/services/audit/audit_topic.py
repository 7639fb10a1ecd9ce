"""Events as records of a topic (audit.log.topic): JSON, written by a producer on this node's own ports.

    write --> queue, at most QUEUE_MAX --> batches of records --> acknowledged by all in-sync replicas
                 full: dropped, counted        failed: dropped, counted, a notice a minute

The topic is created at the first event, with the cluster's defaults. `close` waits for what is queued, a few seconds at
most; a node that fails loses it, so the file is the record, the topic a way to read those of all nodes in one place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import msgspec

from streamlog.aio.timeouts import timeout
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.errors import StreamlogError, TopicAlreadyExistsError
from streamlog.metadata.view import MetadataView
from streamlog.ports import AuditEvent, Ports

QUEUE_MAX: Final = 10_000
CLOSE_S: Final = 3.0
REPORT_S: Final = 60.0
_AT_ONCE: Final = 500
_ENCODER: Final = msgspec.json.Encoder()


class AuditTopic:
    """An AuditSink."""

    def __init__(self, topic: str, view: MetadataView, ports: Ports) -> None:
        self.topic = topic
        self._view = view
        self._ports = ports
        self._queue: deque[AuditEvent] = deque()
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._reported_s: float | None = None
        self.written = 0
        self.dropped = 0

    def write(self, event: AuditEvent) -> None:
        if len(self._queue) >= QUEUE_MAX:
            self.dropped += 1
            return
        self._queue.append(event)
        self._idle.clear()
        self._wanted.set()

    async def run(self, address: str) -> None:
        """Until it is cancelled. `address`: of this node."""
        how = {"bootstrap.servers": address, "client.id": "streamlog-audit"}
        async with AsyncProducer(how, ports=self._ports) as producer:
            while True:
                await self._wanted.wait()
                events = [self._queue.popleft() for _ in range(min(len(self._queue), _AT_ONCE))]
                try:
                    await self._ensure_topic(how)
                except StreamlogError as error:
                    self._lost(len(events), error)
                else:
                    await self._send(producer, events)
                if not self._queue:
                    self._wanted.clear()
                    self._idle.set()

    async def close(self) -> None:
        """Wait for what is queued; `run` goes on."""
        try:
            async with timeout(CLOSE_S):
                await self._idle.wait()
        except TimeoutError:
            pass

    async def _ensure_topic(self, how: dict[str, str]) -> None:
        if self._view.image.topic_named(self.topic) is not None:
            return
        async with AsyncAdmin(how, ports=self._ports) as admin:
            try:
                await admin.create_topic(self.topic, partitions=1)
            except TopicAlreadyExistsError:
                pass

    async def _send(self, producer: AsyncProducer, events: list[AuditEvent]) -> None:
        sent = []
        for event in events:
            try:
                sent.append(await producer.enqueue(self.topic, _ENCODER.encode(event)))
            except StreamlogError as error:
                self._lost(1, error)
        for one in sent:
            try:
                await one
            except StreamlogError as error:
                self._lost(1, error)
            else:
                self.written += 1

    def _lost(self, count: int, error: StreamlogError) -> None:
        self.dropped += count
        now_s = self._ports.clock.monotonic()
        if self._reported_s is None or now_s - self._reported_s >= REPORT_S:
            self._reported_s = now_s
            self._ports.probe("audit_lost", topic=self.topic, dropped=self.dropped, reason=str(error))
