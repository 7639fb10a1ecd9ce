"""All ports of one node, as its constructor gets them, in production and in simulation."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, field

from streamlog.ports.audit import AuditSink
from streamlog.ports.clock import Clock
from streamlog.ports.disk import FileSystem
from streamlog.ports.log_levels import LogLevels
from streamlog.ports.network import Network
from streamlog.ports.probe import Probe
from streamlog.ports.random import Random
from streamlog.ports.tracing import Tracing
from streamlog.ports.workers import Workers


class Documents(Protocol):
    """Of other programs, by URL: the public keys of a token issuer."""

    def read(self, url: str, bytes_max: int) -> bytes:
        """Blocks. OSError, whose text says what is wrong."""
        ...


class Ports(Struct, frozen=True, kw_only=True):
    fs: FileSystem
    network: Network
    clock: Clock
    random: Random
    workers: Workers
    probe: Probe
    log_levels: LogLevels = field(default_factory=LogLevels)  # of what `probe` logs
    tracing: Tracing | None = None  # None: off
    audit: AuditSink | None = None  # None: off
    documents: Documents | None = None  # None: there are none, as in a simulation
