"""The fork server: a process that imports pyspark and this source and sink, and starts others by forks."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Final

from streamlog.spark.launcher.address import common_digest, is_of_one_process, make_room, own_python, server_address
from streamlog.spark.launcher.fork_client import GO, PRELOAD_S, process_of_ours
from streamlog.spark.launcher.start import SINGLE, THREADS, Start, variables

_GRACE_MS: Final = 2_000
"""How long nothing may happen, when Java has ended, until the processes that are left are ended."""
_ASK_S: Final = 1.0
"""How long a launcher may take to say what it wants."""
_START_BYTES: Final = 1 << 20
_DESCRIPTORS: Final = 3
"""Of a launcher: stdin, stdout, stderr."""
_WAITING: Final = 64
"""Launchers that may wait while one is served."""
# What Spark's processes import, one more or less in its versions, and what they then import of ours. It is imported
# while no launcher waits, so what the next process needs comes first.
_FIRST: Final = "pyspark.daemon"
_PRELOADED: Final = (
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "streamlog.spark.data_source",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "streamlog.spark.source.batch_reader",
    "streamlog.spark.source.stream_reader",
    "streamlog.spark.source.range_reader",
    "streamlog.spark.sink.writers",
    "streamlog.spark.sink.commit",
    "numpy.ma",  # by pyarrow, for its first arrays
    "dateutil.relativedelta",
    "encodings.idna",  # for the first connection
)
# So that importing numpy and pyarrow starts no thread: of OpenBLAS, of pyarrow's jemalloc.
_WITHOUT_THREADS: Final = {THREADS: SINGLE, "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def leave_server(start: Start, parent: int) -> Start | None:
    """Starts the server for this process's parent, unless there was one; it is no child of this process. Returns in
    this process with None, and in each process that the server forks with what that is to run. `start`: of this
    process.
    """
    with contextlib.ExitStack() as held:
        try:
            java = os.pidfd_open(parent)
            held.callback(os.close, java)
            if os.getppid() != parent:
                return None
            address = server_address(start, parent)
            forked = _Forked(start)
            make_room(address, parent)
            listening = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listening.bind(address)
            with contextlib.suppress(ImportError):
                importlib.import_module(_FIRST)  # this process needs it as well
            if not _has_one_thread():  # a profiler's, say: it would be missing in all that the server forks
                return None
            listening.listen(_WAITING)
            child = os.fork()
        except OSError:  # there is one, or was one that could not serve, or there can be none
            return None
        if child == 0:
            return _serve_apart(listening, java, forked)
        os.waitpid(child, 0)
        return None


def _has_one_thread() -> bool:
    return len(os.listdir("/proc/self/task")) == 1


class _Forked:
    """What the server may fork: what would be the same as a process of its own."""

    def __init__(self, first: Start) -> None:
        """`first`: of this process, from whose environment the server's is. OSError."""
        self._python = own_python()
        self._digest = common_digest(first, self._python, "self")
        self._changes, self._digest_before = self._changed(first)

    def _changed(self, first: Start) -> tuple[list[tuple[str, str | None]], str | None]:
        """What Python, or what it has imported, has changed in its environment (LC_CTYPE in the C locale by PEP 538,
        GRPC_ENABLE_FORK_SUPPORT): names and values, None for one that was removed. And the digest of a start before
        that; None: there is none that stands for others, as the changes are this process's own. OSError.
        """
        with open("/proc/self/environ", "rb") as file:
            given = variables(os.fsdecode(one) for one in file.read().split(b"\0") if b"=" in one)
        names = [
            name for name in given.keys() | first.environment.keys() if given.get(name) != first.environment.get(name)
        ]
        changes = [(name, first.environment.get(name)) for name in names]
        if any(map(is_of_one_process, names)):
            return changes, None
        before = Start(first.module, first.arguments, given, programs=first.programs)
        return changes, common_digest(before, self._python, "self")

    def made_of(self, asked: Start, launcher: int) -> Start:
        """`launcher`: its process id. ValueError: the server must not fork it; OSError: the launcher has ended."""
        digest = common_digest(asked, self._python, str(launcher))
        if asked.may_be_forked() and digest == self._digest:
            return asked
        if asked.may_be_forked() and digest == self._digest_before:  # of streamlog-spark-native
            environment = dict(asked.environment)
            for name, value in self._changes:
                environment.pop(name, None)
                if value is not None:
                    environment[name] = value
            return Start(asked.module, asked.arguments, environment, programs=asked.programs)
        raise ValueError("it would be another process")


def _serve_apart(listening: socket.socket, java: int, forked: _Forked) -> Start:
    """In a process that is no child of the launcher; returns in what it forks. If it cannot serve, its socket's file
    remains, so that no other process tries the same.
    """
    start = None
    try:
        os.setsid()
        if os.fork() == 0:
            _detach()
            start = _Server(listening, java, forked).serve()
    finally:
        if start is None:
            os._exit(0)
    return start


def _detach() -> None:
    """From Java's pipes, which would not be closed as long as it holds them."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


class _Server:
    def __init__(self, listening: socket.socket, java: int, forked: _Forked) -> None:
        """`java`: a descriptor (pidfd) that becomes readable when the Java process has ended."""
        self._forked = forked
        self._listening = listening
        self._serves = True
        self._unloaded = list(_PRELOADED)
        self._java = java
        self._launchers: dict[int, socket.socket] = {}
        """By the process id of what was started for it."""
        self._ended, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        self._poll = select.poll()
        for readable in (listening.fileno(), java, self._ended):
            self._poll.register(readable, select.POLLIN)

    def serve(self) -> Start:
        """Returns in the processes that it forks; itself, it ends."""
        for name, value in _WITHOUT_THREADS.items():
            os.environ.setdefault(name, value)
        java_runs = True
        while (java_runs and self._serves) or self._launchers:
            wait_ms = 0 if self._unloaded else None if java_runs else _GRACE_MS
            ready = {descriptor for descriptor, _ in self._poll.poll(wait_ms)}
            if self._unloaded and not ready:
                self._preload_next()
                continue
            if self._java in ready:
                java_runs = False
                self._unloaded.clear()
                self._poll.unregister(self._java)
            if self._ended in ready:
                os.read(self._ended, 4096)
                self._report_ended()
            self._end_abandoned(ready)
            if self._serves and self._listening.fileno() in ready:
                start = self._answer_next()
                if start is not None:
                    return start
            if not (java_runs or ready):
                self._end_all()
                break
        if self._serves:
            with contextlib.suppress(OSError):
                os.unlink(self._listening.getsockname())
        os._exit(0)

    def _preload_next(self) -> None:
        """Once one has taken too long, or has started a thread, there are no more forks."""
        may_be_forked = False
        with contextlib.suppress(BaseException):
            # With launchers to report to, an exception; without, it ends the server, also where an import hangs in C.
            signal.signal(signal.SIGALRM, _on_alarm if self._launchers else signal.SIG_DFL)
            try:
                signal.alarm(PRELOAD_S)
                with contextlib.suppress(Exception):  # what needs it will say why
                    importlib.import_module(self._unloaded.pop(0))
            finally:
                signal.alarm(0)
            sys.stdout.flush()  # or each process would write it again
            sys.stderr.flush()
            may_be_forked = _has_one_thread()
        if not may_be_forked:
            self._unloaded.clear()
            self._serves = False
            self._poll.unregister(self._listening)
            self._listening.close()  # its file remains, so that no other process tries the same
        if not self._unloaded:
            gc.collect()
            gc.freeze()  # or the collector of each process would write to the pages that they share

    def _end_all(self) -> None:
        """What is left some time after Java's end: those that do not end upon SIGTERM are killed."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._launchers:
                os.kill(process, number)
            deadline = time.monotonic() + _GRACE_MS / 1000
            while self._launchers and (left := deadline - time.monotonic()) > 0:
                if select.select([self._ended], [], [], left)[0]:
                    os.read(self._ended, 4096)
                    self._report_ended()

    def _answer_next(self) -> Start | None:
        """A Start: in the process that it has forked."""
        launcher, _ = self._listening.accept()
        try:
            start, descriptors = self._asked(launcher)
        except (OSError, ValueError):
            launcher.close()  # then it starts Python itself
            return None
        try:
            process = os.fork()
        except OSError:
            launcher.close()
            _close(descriptors)
            return None
        if process == 0:
            self._become(start, launcher, descriptors)
            return start
        _close(descriptors)
        self._launchers[process] = launcher
        # For its end only: what it sends is for the process, which has the same socket.
        self._poll.register(launcher, 0)
        return None

    def _asked(self, launcher: socket.socket) -> tuple[Start, list[int]]:
        """OSError, ValueError."""
        launcher.settimeout(_ASK_S)
        process = process_of_ours(launcher)
        encoded, descriptors, flags, _ = socket.recv_fds(launcher, _START_BYTES, _DESCRIPTORS)
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(descriptors) != _DESCRIPTORS:
                raise ValueError
            return self._forked.made_of(Start.decode(encoded), process), descriptors
        except (OSError, ValueError):
            _close(descriptors)
            raise

    def _become(self, start: Start, launcher: socket.socket, descriptors: list[int]) -> None:
        """In a forked process: what a process of its own would have, and nothing of the server's."""
        signal.set_wakeup_fd(-1)
        for handled in (signal.SIGCHLD, signal.SIGALRM):
            signal.signal(handled, signal.SIG_DFL)
        for other in self._launchers.values():
            other.close()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        _close((self._ended, self._wake, *descriptors))
        os.environ.clear()
        os.environ.update(start.environment)
        random = sys.modules.get("numpy.random")
        if random is not None:
            random.seed()  # or all would draw the same numbers
        launcher.settimeout(None)
        launcher.send(f"{os.getpid()} {start.is_daemon:d}".encode())
        if launcher.recv(len(GO)) != GO:
            os._exit(0)
        launcher.close()

    def _report_ended(self) -> None:
        while self._launchers:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                break
            launcher = self._launchers.pop(process, None)
            if launcher is None:  # of a program that an imported module has started
                continue
            with contextlib.suppress(KeyError):
                self._poll.unregister(launcher)
            with contextlib.suppress(OSError):
                launcher.send(str(os.waitstatus_to_exitcode(status)).encode())
            launcher.close()

    def _end_abandoned(self, ready: set[int]) -> None:
        """Where Java has killed a launcher, it meant the process."""
        for process, launcher in self._launchers.items():
            if launcher.fileno() in ready:
                self._poll.unregister(launcher)
                os.kill(process, signal.SIGTERM)


class _TakesTooLong(BaseException):
    """Not an error of the operating system, which an import would take for a missing file."""


def _on_alarm(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # ends the server, if the import goes on all the same
    signal.alarm(PRELOAD_S)
    raise _TakesTooLong


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
