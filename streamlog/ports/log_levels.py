"""The levels of a node's log, by logger, as operators change them while the node runs. Pure; lost at a restart.

Loggers form a tree by their names: `root`, then `streamlog`, then its packages. A logger without a level of its own has
that of the nearest one above it. An event belongs to the package of the module that reports it; `resolved` finds the
logger of any module. The names are fixed, so that a request cannot create one.

    streamlog.requests   each call, with its method, peer, status and duration: at DEBUG only
    asyncio, grpc, ...   libraries that log by Python's `logging`

ERROR is the highest level: why a node stopped is always logged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final

from msgspec import Struct


class LogLevel(IntEnum):
    """With the numbers of Python's `logging`."""

    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40


ROOT: Final = "root"
REQUESTS: Final = "streamlog.requests"
LIBRARIES: Final = ("asyncio", "concurrent.futures", "grpc", "py.warnings", "uvicorn")
LOGGERS: Final = (
    ROOT,
    *LIBRARIES,
    "streamlog",
    "streamlog.broker",
    "streamlog.client",
    "streamlog.controller",
    "streamlog.coordinator",
    "streamlog.daemon",
    "streamlog.node",
    "streamlog.raft",
    REQUESTS,
    "streamlog.services",
    "streamlog.storage",
)
"""Ascending after the root."""
DEFAULT: Final = LogLevel.INFO


class LoggerState(Struct, frozen=True):
    name: str
    level: LogLevel  # in effect
    is_set: bool  # for this logger; else inherited


def resolved(name: str) -> str:
    """The logger of a module or of a library's logger: the longest known name that is `name` or above it."""
    while name and name not in LOGGERS:
        name = name.rpartition(".")[0]
    return name or ROOT


class LogLevels:
    """Of one node. `requests`: whether single calls are logged, read at each call."""

    def __init__(self) -> None:
        self._own: dict[str, LogLevel] = {}
        self._listeners: list[Callable[[], None]] = []
        self.requests = False

    def listen(self, on_change: Callable[[], None]) -> None:
        self._listeners.append(on_change)

    def level(self, logger: str) -> LogLevel:
        """Of one of LOGGERS."""
        while logger not in self._own:
            if logger == ROOT:
                return DEFAULT
            logger = resolved(logger.rpartition(".")[0])
        return self._own[logger]

    def loggers(self) -> list[LoggerState]:
        return [LoggerState(name, self.level(name), name in self._own) for name in LOGGERS]

    def alter(self, changes: Mapping[str, LogLevel | None]) -> None:
        """None: back to the level of the logger above. Keys are of LOGGERS."""
        for name, level in changes.items():
            if level is None:
                self._own.pop(name, None)
            else:
                self._own[name] = level
        self.requests = self.level(REQUESTS) <= LogLevel.DEBUG
        for on_change in self._listeners:
            on_change()
