"""Events of a node's parts (`Probe`) as lines of its log: time, level, node, message; or as JSON (`log.format`).

    2026-11-21 18:46:38.123 INFO  node 1: ready at 127.0.0.1:9092, cluster 8tGztbpG8uTo7WvsfDXldw
    {"time":"2026-11-21T17:46:38.123Z","level":"INFO","node":1,"logger":"streamlog.node","event":"node_ready",
     "message":"ready at ...","fields":{"address":"127.0.0.1:9092","cluster":"8tGztbpG8uTo7WvsfDXldw"}}

A JSON line is one object with these keys, always all of them and in this order; `event` is empty for text that is not
an event. Only state changes are events, each reported once by its owner; nothing on the path of a record. Their
messages are in `event_messages`; an event without one is logged by its name and fields. Its logger is the package of
the module that reports it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from streamlog.daemon.logs.event_messages import DEBUG_EVENTS, DETAILS, SENTENCES, WARNINGS
from streamlog.ports.log_levels import LogLevel, LogLevels, resolved
from streamlog.printable import escaped, escaped_json

VALUE_LENGTH_MAX: Final = 500
_OWN: Final = "streamlog.daemon"


class LogOutput(Protocol):
    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class LogLines:
    """A probe. Each line is flushed at once, so that none is lost if the process is killed. Any thread may write."""

    def __init__(self, node_id: int, out: LogOutput, *, levels: LogLevels | None = None, as_json: bool = False) -> None:
        self._node_id = node_id
        self._out = out
        self._levels = levels or LogLevels()
        self._as_json = as_json
        self._lock = threading.RLock()
        self._unwritten: deque[str] = deque()
        self._is_writing = False
        self.lost_lines = 0

    def __call__(self, event: str, /, **fields: object) -> None:
        self.event(event, fields)

    def event(self, event: str, fields: Mapping[str, object], *, module: str = _OWN) -> None:
        """`module`: of the code that reports it."""
        notice = LogLevel.DEBUG if event in DEBUG_EVENTS or event in DETAILS else LogLevel.INFO
        level = LogLevel.WARN if event in WARNINGS else notice
        logger = DEBUG_EVENTS.get(event) or resolved(module)
        if level >= self._levels.level(logger):
            self._put(level.name, _message(event, fields), logger, event, fields)

    def write(self, level: str, text: str, *, logger: str = _OWN) -> None:
        """`text` may contain what others have sent: control characters are escaped, and lines after the first (of a
        traceback) are indented, so that none looks like a line of its own.
        """
        if LogLevel[level] >= self._levels.level(resolved(logger)):
            self._put(level, text, logger, "", {})

    def _put(self, level: str, text: str, logger: str, event: str, fields: Mapping[str, object]) -> None:
        lines = [escaped(line) for line in text.rstrip("\n").split("\n")]
        now_ms = time.time_ns() // 1_000_000
        if self._as_json:
            line = self._json_line(now_ms, level, "\n".join(lines), logger, event, fields)
        else:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms // 1000))
            text = "\n    ".join(lines)
            line = f"{stamp}.{now_ms % 1000:03} {level:5} node {self._node_id}: {text}\n"
        with self._lock:
            self._unwritten.append(line)
            if not self._is_writing:
                self._write_all()

    def _write_all(self) -> None:
        """A write may run the garbage collector, and so what logs a line in this thread: a `__del__` that fails, a task
        whose error was not retrieved. Such a line follows the one that is being written.
        """
        self._is_writing = True
        try:
            while self._unwritten:
                try:
                    self._out.write(self._unwritten.popleft())
                    self._out.flush()
                except OSError:
                    self.lost_lines += 1  # the disk of the log is full or failed, which does not stop the node
        finally:
            self._is_writing = False

    def _json_line(
        self, now_ms: int, level: str, message: str, logger: str, event: str, fields: Mapping[str, object]
    ) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
        document = {
            "time": f"{stamp}.{now_ms % 1000:03}Z",
            "level": level,
            "node": self._node_id,
            "logger": escaped(logger),
            "event": event,
            "message": message,
            "fields": {name: _json_value(value) for name, value in fields.items()},
        }
        return escaped_json(msgspec.json.encode(document).decode()) + "\n"


def _json_value(value: object) -> str | int | float | bool | None:
    """Numbers keep their type; anything else is text, as in the message."""
    if value is None or type(value) in (bool, int, float):
        return value  # type: ignore[return-value]  # one of these
    return _shown(value)


def _message(event: str, fields: Mapping[str, object]) -> str:
    sentence = SENTENCES.get(event)
    if sentence is not None:
        return sentence.format_map(_Shown({name: _shown(value) for name, value in fields.items()}))
    known = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
    return f"{event.replace('_', ' ')} {known}".rstrip()


class _Shown(dict[str, str]):
    """A field that is missing must not stop the node that reports the event."""

    def __missing__(self, name: str) -> str:
        return "?"


def _shown(value: object) -> str:
    """One line of bounded length: reasons quote what others have sent."""
    text = escaped(str(value))
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}…"
