"""Spans that nodes make, recorded in a test: the tracing port of nodes on the simulated ports.

Context ids are numbers in the order of starting, so that a simulation stays deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from streamlog.ports import SpanKind
from streamlog.ports.trace_context import is_sampled, is_traceparent
from streamlog.ports.tracing import Attributes, AttributeValue, SpanCounts


class RecordedSpan:
    def __init__(self, store: SpanStore, node: int, name: str, kind: SpanKind, parent: str) -> None:
        store.count += 1
        self.node = node
        self.name = name
        self.kind = kind
        self.parent = parent
        self.trace = parent[3:35] if parent else f"{store.count:032x}"
        self.traceparent = f"00-{self.trace}-{store.count + (1 << 60):016x}-01"
        self.attributes: dict[str, AttributeValue] = {}
        self.links: list[str] = []
        self.events: list[tuple[str, dict[str, AttributeValue]]] = []
        self.error = ""
        self.ended = 0
        self._now = store.now
        self.began_s = store.now()
        self.ended_s = -1.0

    def set(self, name: str, value: AttributeValue, /) -> None:
        self.attributes[name] = value

    def event(self, name: str, attributes: Attributes, /) -> None:
        assert not self.ended
        self.events.append((name, dict(attributes)))

    def end(self, error_type: str = "", message: str = "", /) -> None:
        self.ended += 1
        if self.ended == 1:
            self.error, self.ended_s = error_type, self._now()


class SpanStore:
    """Of all nodes of a test."""

    def __init__(self, now: Callable[[], float], ratio: float = 0.0) -> None:
        """`ratio`: 0 or 1."""
        self.now = now
        self.ratio = ratio
        self.count = 0
        self.spans: list[RecordedSpan] = []

    def of(self, node: int) -> NodeTracing:
        return NodeTracing(self, node)

    def named(self, name: str, node: int | None = None) -> list[RecordedSpan]:
        return [span for span in self.spans if span.name == name and node in (None, span.node)]

    def only(self, name: str, node: int | None = None) -> RecordedSpan:
        (span,) = self.named(name, node)
        return span

    def below(self, parent: str) -> Iterator[RecordedSpan]:
        return (span for span in self.spans if span.parent == parent)


class NodeTracing:
    """A Tracing."""

    def __init__(self, store: SpanStore, node: int) -> None:
        self._store = store
        self._node = node

    @property
    def counts(self) -> SpanCounts:
        return SpanCounts(ended=sum(span.ended > 0 and span.node == self._node for span in self._store.spans))

    def start(
        self, name: str, kind: SpanKind, attributes: Attributes, /, *, parent: str = "", links: Sequence[str] = ()
    ) -> RecordedSpan | None:
        parent = parent if is_traceparent(parent) else ""
        if not (is_sampled(parent) if parent else self._store.ratio):
            return None
        span = RecordedSpan(self._store, self._node, name, kind, parent)
        span.attributes.update(attributes)
        span.links += [link for link in links if is_traceparent(link)]
        self._store.spans.append(span)
        return span
