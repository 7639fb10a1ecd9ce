"""Spans that a node makes, as OpenTelemetry defines them. `Ports.tracing` is None where tracing is off.

    start(name, kind, parent) --sampled--> Span --set, event--> end(error) --> exported elsewhere, never on this loop
                              --not-----> None: nothing is recorded, and children are not started

A context is the text of a W3C `traceparent`; "" is none. Contexts come from strangers: one that is not valid counts as
none. A parent that is not sampled gives no span, whatever the node's own ratio: its caller has decided so.

Names of attributes are those of OpenTelemetry's semantic conventions for RPC and messaging; `messaging.streamlog.*`
and `streamlog.*` are ours.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

AttributeValue: TypeAlias = str | int | float | bool
Attributes: TypeAlias = Mapping[str, AttributeValue]

LINKS_MAX: Final = 32
"""Contexts of one batch: the parent of its spans, and those that are linked to. 55 bytes each."""

SYSTEM: Final = "messaging.system"
TOPIC: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
COUNT: Final = "messaging.batch.message_count"
OFFSET: Final = "messaging.streamlog.offset"
BYTES: Final = "messaging.streamlog.bytes"
LEADER_EPOCH: Final = "messaging.streamlog.leader_epoch"
ROLE: Final = "streamlog.replica.role"
NODE: Final = "streamlog.node.id"
RPC_SYSTEM: Final = "rpc.system"
RPC_SERVICE: Final = "rpc.service"
RPC_METHOD: Final = "rpc.method"
RPC_STATUS: Final = "rpc.grpc.status_code"
PEER: Final = "network.peer.address"
PRINCIPAL: Final = "user.name"
TLS_SUBJECT: Final = "tls.client.subject"
ERROR_TYPE: Final = "error.type"


class SpanKind(enum.Enum):
    SERVER = enum.auto()  # a request from another process
    INTERNAL = enum.auto()
    PRODUCER = enum.auto()  # what another process goes on with later
    CONSUMER = enum.auto()


class Span(Protocol):
    """One operation that is being recorded. Its owner ends it, once; later calls change nothing."""

    @property
    def traceparent(self) -> str:
        """For children, also in other processes."""
        ...

    def set(self, name: str, value: AttributeValue, /) -> None: ...

    def event(self, name: str, attributes: Attributes, /) -> None:
        """Something that happened at this moment."""
        ...

    def end(self, error_type: str = "", message: str = "", /) -> None:
        """`error_type`: a short code where the operation failed, or its outcome is unknown."""
        ...


class SpanCounts(Struct):
    """Since the start. Each number has one thread that raises it."""

    ended: int = 0
    taken: int = 0  # by the exporter, whatever its result
    failed: int = 0  # of these, not exported
    overflowed: int = 0  # dropped by a full queue


class Tracing(Protocol):
    """Synchronous and fast; what cannot be kept or exported is dropped, and counted. One event loop."""

    @property
    def counts(self) -> SpanCounts: ...

    def start(
        self, name: str, kind: SpanKind, attributes: Attributes, /, *, parent: str = "", links: Sequence[str] = ()
    ) -> Span | None:
        """`links`: contexts of other traces; those that are not valid are left out."""
        ...
