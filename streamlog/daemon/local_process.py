"""Processes that outlive their starter, identified so that no other process is ever signalled.

A pid alone is not enough: once the process has ended, the kernel may reuse it. So a process is identified by its pid
and its start time (boot id and clock ticks since boot). On Linux signals go through a pidfd that was opened before the
start time was compared, so the pid cannot be reused in between. On other systems the start time is that of `ps`, and a
short race remains.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from streamlog.daemon.text_file import write_private
from streamlog.model import INT32_MAX

_LINUX: Final = sys.platform == "linux"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# Of the fields of /proc/PID/stat that follow the name, from 0.
_STATE: Final = 0
_NUM_THREADS: Final = 17
_STARTTIME: Final = 19
_LOOK_AGAIN_S: Final = 0.02


class ProcessId(Struct, frozen=True):
    pid: int
    born: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """None if the process has ended."""
        born = _started_at(pid)
        return None if born is None else cls(pid, born)

    @property
    def alive(self) -> bool:
        """False for a zombie too."""
        return _started_at(self.pid) == self.born

    def signal(self, number: signal.Signals) -> bool:
        """False if it has ended. PermissionError."""
        with _pidfd_of(self) as fd:
            if not self.alive:
                return False
            try:
                if fd is None:
                    os.kill(self.pid, number)
                else:
                    signal.pidfd_send_signal(fd, number)
            except ProcessLookupError:
                return False
            return True

    def wait_until_exited(self, timeout_s: float) -> bool:
        """False if it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        with _pidfd_of(self) as fd:
            if fd is not None and self.alive:
                poll = select.poll()  # select() takes no descriptor above 1,023
                poll.register(fd, select.POLLIN)
                poll.poll(min(timeout_s * 1000, INT32_MAX))
        while self.alive and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_S)
        return not self.alive


def save_process_id(process: ProcessId, path: Path) -> None:
    """Atomic."""
    partial = path.with_suffix(".partial")
    write_private(partial, json.dumps(asdict(process)) + "\n")
    partial.replace(path)


def load_process_id(path: Path) -> ProcessId | None:
    """None if there is no such file, or its content is not ours."""
    try:
        document = json.loads(path.read_text())
        return ProcessId(int(document["pid"]), str(document["born"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def _pidfd_of(process: ProcessId) -> Iterator[int | None]:
    """A pidfd of the process that has the pid now; None if there is no process, or no pidfd."""
    if not _LINUX:
        yield None
        return
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _started_at(pid: int) -> str | None:
    return _started_at_linux(pid) if _LINUX else _started_at_ps(pid)


def _started_at_linux(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold anything, parentheses too.
    fields = stat[stat.rindex(")") + 1 :].split()
    # The first thread is a zombie as soon as it has ended; files, ports and locks are released with the last thread,
    # which may be in the middle of an fsync.
    if fields[_STATE] == "X" or (fields[_STATE] == "Z" and int(fields[_NUM_THREADS]) <= 1):
        return None
    return f"{_BOOT_ID.read_text().strip()}/{fields[_STARTTIME]}"


def _started_at_ps(pid: int) -> str | None:
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
    )
    state, _, born = done.stdout.strip().partition(" ")
    return born.strip() if born and not state.startswith("Z") else None
