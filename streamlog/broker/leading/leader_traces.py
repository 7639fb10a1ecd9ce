"""Traced appends of one leadership that are not yet synced and replicated.

    add --sync span, replicate span--> pending --synced end, high watermark have passed it--> done
                                               --the leadership ends--> ended with its error

Made with the first of them and dropped after the last one, so that a partition whose batches are not traced has none.
Followers get the context of `replicate` with the bytes (`FollowerSlot.update`), and make their spans below it; a
position that covers the append is an event of it. The high watermark may pass later than the producer was acknowledged
(acks=1), never earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streamlog.broker.replica_wire import TRACES_MAX, AppendTrace
from streamlog.errors import StreamlogError
from streamlog.model import Appended, BrokerId, Offset
from streamlog.ports import Span, SpanKind, Tracing
from streamlog.ports.tracing import LEADER_EPOCH, NODE, OFFSET, PARTITION, ROLE, SYSTEM, TOPIC, AttributeValue
from streamlog.replication.leader import PartitionLeader
from streamlog.storage.log.log import Log

PENDING_MAX: Final = 1_000
"""Of one partition; appends beyond have no such spans. A replica that does not respond holds up all of them."""


class _Pending:
    __slots__ = ("acknowledged", "end_offset", "replicate", "sync")

    def __init__(self, end_offset: Offset, sync: Span | None, replicate: Span | None) -> None:
        self.end_offset = end_offset
        self.sync = sync  # None: ended, or there is none
        self.replicate = replicate
        self.acknowledged: set[BrokerId] = set()  # followers


class LeaderTraces:
    """A ReplicaWatcher of its leadership. One event loop."""

    def __init__(self, log: Log, state: PartitionLeader, tracing: Tracing, on_done: Callable[[], None]) -> None:
        """`on_done`: nothing is pending any more."""
        self._log = log
        self._state = state
        self._tracing = tracing
        self._on_done = on_done
        self._pending: list[_Pending] = []  # by rising end

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, appended: Appended, parent: str) -> None:
        """`parent`: context of the request."""
        end = appended.next_offset
        if len(self._pending) < PENDING_MAX:
            pending = _Pending(end, self._sync_span(appended, parent), self._replicate_span(appended, parent))
            if pending.sync is not None or pending.replicate is not None:
                self._pending.append(pending)
        self._drop_done()

    def between(self, start: Offset, end: Offset) -> list[AppendTrace]:
        """Of the appends that end in (start, end]."""
        found = [
            AppendTrace(one.end_offset, one.replicate.traceparent)
            for one in self._pending
            if one.replicate is not None and start < one.end_offset <= end
        ]
        return found[:TRACES_MAX]

    def on_synced(self, synced_end: Offset) -> None:
        for one in self._pending:
            if one.end_offset > synced_end:
                break
            if one.sync is not None:
                one.sync.end()
                one.sync = None
        self._drop_done()

    def on_position(self, follower: BrokerId, ackable_end: Offset) -> None:
        """What this follower has, and may be acknowledged."""
        for one in self._pending:
            if one.end_offset > ackable_end:
                break
            if one.replicate is not None and follower not in one.acknowledged:
                one.acknowledged.add(follower)
                one.replicate.event("acknowledged", {NODE: follower})

    # -- ReplicaWatcher

    def on_appended(self, appended: Appended) -> None:
        """`add` is called for those that are traced."""

    def on_readable(self) -> None:
        high_watermark = self._state.high_watermark
        for one in self._pending:
            if one.end_offset > high_watermark:
                break
            if one.replicate is not None:
                one.replicate.end()
                one.replicate = None
        self._drop_done()

    def on_ended(self, error: StreamlogError) -> None:
        pending, self._pending = self._pending, []
        for one in pending:
            for span in (one.sync, one.replicate):
                if span is not None:
                    span.end(error.code, error.message)
        self._on_done()

    # -- within

    def _sync_span(self, appended: Appended, parent: str) -> Span | None:
        if not self._log.config.syncs_each_append or appended.next_offset <= self._log.durability.synced_end:
            return None
        return self._start("sync", SpanKind.INTERNAL, appended, parent)

    def _replicate_span(self, appended: Appended, parent: str) -> Span | None:
        """None without other replicas: the high watermark follows the sync."""
        if len(self._state.replicas) < 2 or appended.next_offset <= self._state.high_watermark:
            return None
        return self._start("replicate", SpanKind.PRODUCER, appended, parent)

    def _start(self, name: str, kind: SpanKind, appended: Appended, parent: str) -> Span | None:
        partition = self._log.partition
        known: dict[str, AttributeValue] = {
            SYSTEM: "streamlog",
            TOPIC: partition.topic,
            PARTITION: str(partition.partition),
            OFFSET: appended.first_offset,
            ROLE: "leader",
        }
        if kind is SpanKind.PRODUCER:
            known |= {
                LEADER_EPOCH: self._state.leader_epoch,
                "messaging.streamlog.isr": ",".join(map(str, sorted(self._state.in_sync))),
            }
        return self._tracing.start(f"{name} {partition.topic}", kind, known, parent=parent)

    def _drop_done(self) -> None:
        self._pending = [one for one in self._pending if one.sync is not None or one.replicate is not None]
        if not self._pending:
            self._on_done()
