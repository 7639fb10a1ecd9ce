"""The audit log as a file: one JSON document a line, rotated by size, written by a thread of its own.

    write --> queue, at most QUEUE_MAX --> thread: lines, flushed together --> audit.log.file
                 full: dropped, counted       the disk refuses: dropped, counted, a warning a minute

The file and its earlier ones (FILE.1, FILE.2, ...) have mode 0600. Lines reach the kernel within a moment, so they
survive the end of the process; they are not synced, so a power cut may cost the last seconds.
"""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from streamlog.config import Config
from streamlog.config.settings import security_settings as security
from streamlog.daemon.logs.log_file import LogFile
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.errors import InvalidConfigError
from streamlog.ports import AuditEvent
from streamlog.printable import escaped_json

QUEUE_MAX: Final = 10_000
REPORT_S: Final = 60.0
_ENCODER: Final = msgspec.json.Encoder()


def open_audit(config: Config, lines: LogLines) -> AuditFile | None:
    """None where audit.log.file is not set. InvalidConfigError if the file cannot be written."""
    path = config[security.AUDIT_LOG_FILE]
    if not path:
        return None
    try:
        out = LogFile(
            Path(path),
            max_bytes=config[security.AUDIT_LOG_MAX_BYTES],
            kept=config[security.AUDIT_LOG_COUNT] - 1,
        )
    except OSError as error:
        raise InvalidConfigError(
            f"{security.AUDIT_LOG_FILE.name}={path}: the audit log cannot be written ({error.strerror}): "
            "its directory must exist and be writable for the node's user",
            field=security.AUDIT_LOG_FILE.name,
        ) from None
    return AuditFile(out, path, lines)


class AuditFile:
    """An AuditSink."""

    def __init__(self, out: LogFile, path: str, lines: LogLines) -> None:
        self._out = out
        self._path = path
        self._lines = lines
        self._queue: queue.Queue[AuditEvent | None] = queue.Queue(QUEUE_MAX + 1)
        self._reported_s: float | None = None
        self.written = 0
        self._overflowed = 0  # counted by the loop
        self._failed = 0  # counted by the thread
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._overflowed + self._failed

    def write(self, event: AuditEvent) -> None:
        if self._queue.qsize() >= QUEUE_MAX:
            self._overflowed += 1
            return
        self._queue.put_nowait(event)

    def close(self, timeout_s: float = 5.0) -> None:
        """Writes what is queued. Blocks, as long as the disk does, at most `timeout_s`."""
        self._queue.put_nowait(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            event = self._queue.get()
            if event is None:
                break
            self._put(event)
        self._out.close()

    def _put(self, event: AuditEvent) -> None:
        line = escaped_json(_ENCODER.encode(event).decode()) + "\n"
        try:
            self._out.write(line)
            if self._queue.empty():
                self._out.flush()
        except (OSError, ValueError) as error:
            self._failed += 1
            now_s = time.monotonic()
            if self._reported_s is None or now_s - self._reported_s >= REPORT_S:
                self._reported_s = now_s
                self._lines.write(
                    "WARN",
                    f"{self._failed} events of the audit log were lost: {self._path} cannot be written ({error}): free "
                    "the disk, or set audit.log.file",
                )
        else:
            self.written += 1
