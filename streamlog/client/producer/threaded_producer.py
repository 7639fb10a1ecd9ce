"""AsyncProducer as the synchronous producer has it: on a loop in a thread of its own, `send` called in others.

send_here --short way (`short_ways`)--> the open batch
    |________ general way, under the guard --> the open batch, or ThrottledError: wait until the buffer has space
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, cast

from streamlog.client.connection.client_ports import ClientPorts
from streamlog.client.connection.sync_loop import LoopThread
from streamlog.client.connection.unclosed import begin_close, close_at_the_end
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.client.producer.batches.producer_batch import ProducerBatch, RecordFuture
from streamlog.client.producer.batches.topic_table import TopicTable
from streamlog.client.producer.given_records import GivenHeaders, checked_headers
from streamlog.client.producer.partitioner import Partitioner
from streamlog.client.producer.sent_records import SentRecord
from streamlog.client.producer.short_ways import KeyedWay, ValueWay, keyed_way, value_way
from streamlog.errors import ThrottledError
from streamlog.ports.forks import forked_error, note_owner


class ThreadedProducer(AsyncProducer):
    def __init__(
        self,
        config: Mapping[str, object],
        partitioner: Partitioner | None,
        thread: LoopThread | None,
        *,
        ports: ClientPorts | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`thread`: on which it waits; None in a simulation, which does not wait."""
        self._lock = threading.RLock()
        super().__init__(config, partitioner=partitioner, ports=ports, guard=self._lock, future_type=SentRecord)
        self._thread = thread
        self._wall_s = wall_s
        self.value_ways: Final[dict[str, ValueWay]] = {}  # by topic
        self.keyed_ways: Final[dict[str, KeyedWay]] = {}
        self._shortened: dict[str, TopicTable] = {}  # the tables that the ways are of
        self._is_forked = False
        note_owner(self)

    def forked(self) -> None:
        """All records go the general way, which refuses them."""
        self._is_forked = True
        self.value_ways.clear()
        self.keyed_ways.clear()

    def close_with(self, front: object, thread: LoopThread) -> Callable[[], object]:
        """When `front` is collected, or the interpreter exits. To be called when it is closed."""
        return close_at_the_end(front, self._unclosed, thread)

    def begin_close(self, thread: LoopThread, timeout_s: float | None) -> None:
        """Without a wait."""
        begin_close(self._unclosed, thread, timeout_s)

    def send_here(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: GivenHeaders,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> SentRecord:
        """The general way, in the caller's thread."""
        if self._is_forked:  # the guard may be held forever, and no thread sends the records
            raise forked_error()
        if headers:
            headers = checked_headers(headers)  # it may be an iterator, and sent twice
        deadline: float | None = None
        while True:
            try:
                with self._lock:
                    sent = self.send(
                        topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
                    )
                    if partition is None and timestamp_ms is None and not headers:
                        self._shorten(topic, sent, keyed=key is not None)
                return cast(SentRecord, sent)  # as `future_type` says
            except ThrottledError:
                if self._thread is None or self._thread.is_current:  # which cannot wait for itself
                    raise
                now = time.monotonic()
                deadline = now + self._rules.max_block_s if deadline is None else deadline
                size = len(value or b"") + len(key or b"") + 1024
                self._thread.call(self._wait_for_space(size, deadline - now))

    def _shorten(self, topic: str, sent: RecordFuture, *, keyed: bool) -> None:
        """After a record with the present time: the next ones may take the short way."""
        batch = sent.promise
        if not isinstance(batch, ProducerBatch):
            return
        batch.fresh_until_s = (batch.timestamp + 1) / 1000
        table = self._tables.get(topic)
        if table is None or self._transactions is not None or self._traced:
            return
        if self._shortened.get(topic) is not table:  # also where the topic was deleted and created again
            self._shortened[topic] = table
            self.value_ways.pop(topic, None)
            self.keyed_ways.pop(topic, None)
        if keyed and topic not in self.keyed_ways:
            self.keyed_ways[topic] = keyed_way(table, self._lock, self._wall_s)
        elif not keyed and topic not in self.value_ways and not table.asks_without_key:
            self.value_ways[topic] = value_way(table, self._lock, self._wall_s)
