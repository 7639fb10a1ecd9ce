"""The audit log's way out of a node: who did what, on what, and whether it was allowed. `Ports.audit` is None where it
is off.

`write` puts the event in a bounded queue and returns; a queue that is full drops it and counts it. What an event says
comes from names and addresses only: never a value, a record or a secret.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct


class AuditResource(Struct, frozen=True):
    type: str  # topic, group, transactional id, node, config, acl, user, logger
    name: str


class AuditEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    time: str  # ISO 8601, UTC
    node: int
    principal: str
    address: str  # of the caller, without the port
    certificate: str = ""  # serial number of the caller's, hexadecimal
    method: str  # `streamlog.v1.Admin/CreateTopics`
    resources: tuple[AuditResource, ...] = ()
    result: str  # allowed, refused
    operation: str = ""  # the right that was lacking
    error: str = ""  # code of the error that ended the call, or of the refusal
    dry_run: bool = False
    forwarded: bool = False  # another node passed the call on


def utc_text(wall_ms: int) -> str:
    """The time of an event."""
    return datetime.fromtimestamp(wall_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{wall_ms % 1000:03}Z"


class AuditSink(Protocol):
    def write(self, event: AuditEvent, /) -> None:
        """Never blocks, never fails."""
        ...

    @property
    def written(self) -> int: ...

    @property
    def dropped(self) -> int:
        """Events that are not in the log: the queue was full, or writing failed."""
        ...
