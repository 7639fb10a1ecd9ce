"""Spans of traced appends to one followed partition, below the `replicate` span of its leader.

    begin --append span--> appended --sync span--> the ackable end has passed it
                           failed: both end with an error

The context comes with the bytes (`replica_wire.AppendTrace`). One message may hold several traced appends, which are
appended and synced as one; each has its spans, in its own trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamlog.broker.replica_wire import AppendTrace
from streamlog.model import Offset, TopicPartition
from streamlog.ports import Span, SpanKind, Tracing
from streamlog.ports.tracing import BYTES, PARTITION, ROLE, SYSTEM, TOPIC, AttributeValue

PENDING_MAX: Final = 1_000


class FollowerTraces:
    """Owned by its partition's link. One event loop."""

    def __init__(self, tracing: Tracing, partition: TopicPartition) -> None:
        self._tracing = tracing
        self._partition = partition
        self._appending: list[tuple[AppendTrace, Span]] = []
        self._syncing: list[tuple[Offset, Span]] = []  # by rising end

    def __len__(self) -> int:
        return len(self._appending) + len(self._syncing)

    def begin(self, traces: Sequence[AppendTrace], size: int) -> None:
        """`size`: bytes of the message that holds them, of this partition."""
        for trace in traces[: max(0, PENDING_MAX - len(self))]:
            span = self._start("append", SpanKind.CONSUMER, trace.traceparent, {BYTES: size})
            if span is not None:
                self._appending.append((trace, span))

    def appended(self, ackable_end: Offset) -> None:
        """`ackable_end`: of the log; where nothing is synced it covers them already."""
        appending, self._appending = self._appending, []
        for trace, span in appending:
            span.end()
            if trace.end_offset <= ackable_end:
                continue
            sync = self._start("sync", SpanKind.INTERNAL, span.traceparent, {})
            if sync is not None:
                self._syncing.append((trace.end_offset, sync))

    def on_ackable_end(self, ackable_end: Offset) -> None:
        for end_offset, span in self._syncing:
            if end_offset <= ackable_end:
                span.end()
        self._syncing = [one for one in self._syncing if one[0] > ackable_end]

    def failed(self, error_type: str, message: str) -> None:
        """`error_type`: empty where following has ended without an error of these batches."""
        ended = [span for _, span in self._appending] + [span for _, span in self._syncing]
        self._appending, self._syncing = [], []
        for span in ended:
            span.end(error_type or "FOLLOWING_ENDED", message)

    def _start(self, name: str, kind: SpanKind, parent: str, more: dict[str, AttributeValue]) -> Span | None:
        known: dict[str, AttributeValue] = {
            SYSTEM: "streamlog",
            TOPIC: self._partition.topic,
            PARTITION: str(self._partition.partition),
            ROLE: "follower",
        }
        return self._tracing.start(f"{name} {self._partition.topic}", kind, known | more, parent=parent)
