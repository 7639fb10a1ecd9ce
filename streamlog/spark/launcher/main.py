"""The program streamlog-spark-python: Python, with a faster start for the processes of Spark."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from streamlog.spark.launcher.compiled import prefer_compiled
from streamlog.spark.launcher.start import TASKS, Start, is_of_spark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_FLAG: Final = "-m"
VERSION: Final = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
"""Spark asks for it twice, before it looks for data sources and before it starts them."""


def main() -> None:
    """With Python's arguments."""
    arguments = sys.argv[1:]
    if arguments == VERSION:
        print(f"{sys.version_info[0]}.{sys.version_info[1]}")
        return
    if len(arguments) < 2 or arguments[0] != _FLAG or not is_of_spark(arguments[1]):
        os.execv(sys.executable, [sys.executable, *arguments])
    programs = os.path.dirname(os.path.realpath(sys.argv[0]))
    if not sys.flags.safe_path:
        sys.path[0] = _directory()  # as with -m, instead of this program's
    prefer_compiled(sys.path, sys.path_importer_cache)
    start = Start(arguments[1], arguments[2:], dict(os.environ), programs=programs)
    if hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal"):  # some builds of Python for Linux have not
        start = _forked(start)
    start.run()


def _forked(start: Start) -> Start:
    """What this process is to run: nothing, ending here, where a server starts it; or what is given; or, in a process
    that the server forks from this one, what the server was asked for.
    """
    from streamlog.spark.launcher.fork_client import exit_code_of_fork

    parent = os.getppid()
    if not start.may_be_forked():
        return start
    code = exit_code_of_fork(start, parent)
    if code is not None:
        _end(code)
    # An executor's Java starts its tasks' daemon, and nothing after it.
    first = start.arguments[0] if start.arguments else TASKS
    if start.is_daemon and first == TASKS:
        return start
    from streamlog.spark.launcher.fork_server import leave_server

    return leave_server(start, parent) or start


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # deleted
        return ""


def _end(code: int) -> None:
    """As the process did. `code`: negative for a signal."""
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
