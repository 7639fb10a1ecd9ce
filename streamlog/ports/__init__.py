"""The ports: everything that node code may know of the world outside it.

Node code imports `asyncio`, `streamlog.ports` and pure modules, and gets clock, randomness, disk, network, workers
and probe through its constructor. The contracts stand one a file here; the real adapters beside them
(`posix_disk`, `grpc_adapter`, `system`); the simulated ones in `streamlog.sim`. One conformance suite per port
(`tests/ports/`) runs against both.

Rules, equal in both worlds:

- asyncio itself is the scheduler port: sleep, timeout, TaskGroup, Event, Queue, Future.
- A call without `await` is page-cache fast and never yields. A call with `await` may yield, be cancelled, or fail.
- An awaited call that raises leaves its effect UNKNOWN: a sync may have reached the disk, a request may have been
  carried out.
"""

from streamlog.ports.bundle import Ports
from streamlog.ports.clock import Clock
from streamlog.ports.disk import Buffer, DirectoryLock, File, FileSystem, Mapping
from streamlog.ports.network import (
    CallInfo,
    Channel,
    Network,
    RpcError,
    Server,
    Stream,
    StreamHandler,
    UnaryHandler,
)
from streamlog.ports.probe import Probe, no_probe
from streamlog.ports.random import Random
from streamlog.ports.workers import Workers

__all__ = [
    "Buffer",
    "CallInfo",
    "Channel",
    "Clock",
    "DirectoryLock",
    "File",
    "FileSystem",
    "Mapping",
    "Network",
    "Ports",
    "Probe",
    "Random",
    "RpcError",
    "Server",
    "Stream",
    "StreamHandler",
    "UnaryHandler",
    "Workers",
    "no_probe",
]
