"""The ports: the only way from node code to the world outside it.

Node code imports `asyncio`, `streamlog.ports` and pure modules, and gets clock, randomness, disk, network, workers
and probe through its constructor. Each contract is a file here, next to the real adapters (`posix_disk`,
`grpc_adapter`, `system`); the simulated adapters are in `streamlog.sim`. One conformance suite per port
(`tests/ports/`) runs against both.

Rules, the same for both:

- asyncio itself is the scheduler port: sleep, timeout, TaskGroup, Event, Queue, Future.
- A call without `await` is as fast as the page cache and never yields. A call with `await` may yield, be cancelled, or
  fail.
- The effect of an awaited call that raises is UNKNOWN: a sync may have reached the disk, a request may have been
  executed.

Beside the ports: `threads` (blocking work, and syncs, in threads), `spare_files` (descriptors for the disk), `malloc`,
`forks`, and `trace_context` (the header traceparent).
"""

from streamlog.ports.audit import AuditEvent, AuditResource, AuditSink
from streamlog.ports.bundle import Ports
from streamlog.ports.clock import Clock
from streamlog.ports.disk import Buffer, DirectoryLock, File, FileSystem, Mapping
from streamlog.ports.log_levels import LogLevels
from streamlog.ports.network import (
    ANY_METHOD,
    CLIENT_ID_HEADER,
    NODE_HEADER,
    CallAudit,
    CallGuard,
    CallInfo,
    CallPace,
    Channel,
    HandshakeError,
    Network,
    NoListenerError,
    NotSentError,
    RpcError,
    Server,
    Stream,
    StreamHandler,
    UnaryHandler,
)
from streamlog.ports.probe import Probe, no_probe
from streamlog.ports.random import Random
from streamlog.ports.tracing import Span, SpanKind, Tracing
from streamlog.ports.workers import Workers

__all__ = [
    "ANY_METHOD",
    "CLIENT_ID_HEADER",
    "NODE_HEADER",
    "AuditEvent",
    "AuditResource",
    "AuditSink",
    "Buffer",
    "CallAudit",
    "CallGuard",
    "CallInfo",
    "CallPace",
    "Channel",
    "Clock",
    "DirectoryLock",
    "File",
    "FileSystem",
    "HandshakeError",
    "LogLevels",
    "Mapping",
    "Network",
    "NoListenerError",
    "NotSentError",
    "Ports",
    "Probe",
    "Random",
    "RpcError",
    "Server",
    "Span",
    "SpanKind",
    "Stream",
    "StreamHandler",
    "Tracing",
    "UnaryHandler",
    "Workers",
    "no_probe",
]
