"""-daemon: the node runs without a terminal, and writes to a log file what it would write to the terminal.

    streamlogd -daemon --fork--> child --setsid, fork--> the node
          |                                                |
          +---- waits for one line on a pipe <-------------+   "PID": it listens; else the reason why not

So a start in the background reports a port in use or a locked directory as a start in the foreground does; and where it
succeeds, the node's pid and log.

The log (`streamlogd-ID.log`, rotated: `logs.log_file`) and the pid file (`streamlogd-ID.pid`) are in the first log
directory, the one place that the node's user can surely write to; the pid file is removed when the node stops.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from streamlog.daemon.logs.log_file import LogFile
from streamlog.daemon.text_file import write_private

_LINE_BYTES_MAX = 64 << 10


class DaemonFiles(Struct, frozen=True):
    """The files in a node's first log directory that belong to its process."""

    log_dir: str
    node_id: int

    @property
    def log(self) -> Path:
        return Path(self.log_dir) / f"streamlogd-{self.node_id}.log"

    @property
    def pid(self) -> Path:
        return Path(self.log_dir) / f"streamlogd-{self.node_id}.pid"


class StartReport:
    """Sends the outcome of the start to the process that waits for it; without a pipe, in the foreground, to none."""

    def __init__(self, pipe: int | None) -> None:
        self._pipe = pipe

    def send(self, problem: str = "") -> None:
        """`problem`: empty if the node listens. Only the first call has an effect; none where no process waits any more
        (Ctrl-C, a closed terminal), which stops no node.
        """
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            with suppress(OSError), open(pipe, "wb", buffering=0) as opened:
                opened.write((problem or str(os.getpid())).encode(errors="replace")[:_LINE_BYTES_MAX])


def detach(log: Path, *, max_bytes: int, kept: int) -> tuple[StartReport, LogFile]:
    """Continue in the background; the original process exits in here, with the status of the start.

    `max_bytes`, `kept`: of the log file's rotation. OSError if it cannot be written.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    out = LogFile(log, max_bytes=max_bytes, kept=kept)
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        _exit_with_start_status(reading, log)
    os.close(reading)
    os.setsid()
    if os.fork():
        os._exit(0)
    _redirect_stdio(out)
    return StartReport(writing), out


def _exit_with_start_status(reading: int, log: Path) -> None:
    report = b""
    while chunk := os.read(reading, _LINE_BYTES_MAX):
        report += chunk
    started = report.isdigit()
    if started:
        sys.stdout.write(f"streamlogd: started, pid {report.decode()}, log {log}\n")
        sys.stdout.flush()
    else:
        problem = report.decode(errors="replace") or f"ended during its start: see its log, {log}"
        sys.stderr.write(f"streamlogd: {problem}\n")
        sys.stderr.flush()
    os._exit(0 if started else 1)


def _redirect_stdio(out: LogFile) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    out.redirect(1, 2)
    os.close(nothing)


def write_pid(path: Path) -> None:
    write_private(path, f"{os.getpid()}\n")


def remove_pid(path: Path) -> None:
    """Only this process's own: another node may use the directory by now. A file that cannot be removed stays: it may
    be on the disk whose failure stops the node, and is stale once the process has ended.
    """
    try:
        if path.read_text().strip() == str(os.getpid()):
            path.unlink()
    except (OSError, ValueError):
        pass
