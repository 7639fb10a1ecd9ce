"""An OTLP collector in the process of a test: receives spans by gRPC, and shows a trace as a tree."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service_grpc
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2


class ReceivedSpan(NamedTuple):
    resource: dict[str, str | int]
    span: trace_pb2.Span

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def trace(self) -> str:
        return self.span.trace_id.hex()

    @property
    def identity(self) -> str:
        return self.span.span_id.hex()

    @property
    def parent(self) -> str:
        return self.span.parent_span_id.hex()

    @property
    def attributes(self) -> dict[str, str | int]:
        return _values(self.span.attributes)

    @property
    def process(self) -> str:
        """A node's id; of other services the name."""
        name = str(self.resource["service.name"])
        return str(self.resource["service.instance.id"]) if name == "streamlog" else name


class OtlpReceiver(service_grpc.TraceServiceServicer):
    """Any thread may read."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._spans: list[ReceivedSpan] = []

    def Export(  # gRPC's name
        self, request: service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> service_pb2.ExportTraceServiceResponse:
        with self._changed:
            for resource in request.resource_spans:
                known = _values(resource.resource.attributes)
                self._spans += [ReceivedSpan(known, span) for scope in resource.scope_spans for span in scope.spans]
            self._changed.notify_all()
        return service_pb2.ExportTraceServiceResponse()

    @property
    def spans(self) -> list[ReceivedSpan]:
        with self._changed:
            return list(self._spans)

    def wait_until(self, condition: Callable[[list[ReceivedSpan]], bool], timeout_s: float) -> list[ReceivedSpan]:
        """The spans that were received when it held."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self._spans), timeout_s), tree(self._spans)
            return list(self._spans)


@contextmanager
def receiving() -> Iterator[tuple[OtlpReceiver, str]]:
    """It, and its endpoint."""
    receiver = OtlpReceiver()
    server = grpc.server(ThreadPoolExecutor(4))
    service_grpc.add_TraceServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield receiver, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def _values(attributes: object) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for pair in attributes:  # type: ignore[attr-defined]
        assert isinstance(pair, KeyValue)
        found[pair.key] = pair.value.int_value if pair.value.HasField("int_value") else pair.value.string_value
    return found


def tree(spans: list[ReceivedSpan]) -> str:
    """Each span below its parent, with its process, and its begin and length in ms from the root's begin."""
    identities = {span.identity for span in spans}
    lines: list[str] = []

    def show(span: ReceivedSpan, depth: int, origin: int) -> None:
        begin = (span.span.start_time_unix_nano - origin) / 1e6
        length = (span.span.end_time_unix_nano - span.span.start_time_unix_nano) / 1e6
        links = f"  {len(span.span.links)} links" if span.span.links else ""
        lines.append(f"{'  ' * depth + span.name:46} {span.process:9} {begin:8.2f} {length:8.2f} ms{links}")
        below = [one for one in spans if one.parent == span.identity]
        for one in sorted(below, key=lambda one: one.span.start_time_unix_nano):
            show(one, depth + 1, origin)

    roots = [span for span in spans if span.parent not in identities]
    for root in sorted(roots, key=lambda one: one.span.start_time_unix_nano):
        show(root, 0, root.span.start_time_unix_nano)
    return "\n".join(lines)
