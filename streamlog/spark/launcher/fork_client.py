"""The launcher's side of the fork server: has a process started, and stands for it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct

from streamlog.spark.launcher.address import server_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from streamlog.spark.launcher.start import Start

GO: Final = b"go"
STARTED_BYTES: Final = 64
"""Maximum length of an answer."""
_ANSWER_S: Final = 2.0
"""How long a server may take, which may still be importing. Java gives a process 10 s to connect."""
PRELOAD_S: Final = 30
"""How long the server may take for one of its imports. Meanwhile it neither says how a process has ended nor ends one
whose launcher was killed.
"""
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CREDENTIALS: Final = struct.Struct("3i")
"""unix(7), ucred: process, user, group."""


def exit_code_of_fork(start: Start, parent: int) -> int | None:
    """Has the fork server start the process, and waits for its end: its exit code, negative for a signal. None: no
    server has started it. `parent`: the process id of Java.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            process, own_group = _started(start, parent, connection)
        except (OSError, ValueError):
            return None
        with _SignalsPassedOn(process) as signals:
            try:
                if own_group and os.getpgrp() != os.getpid():
                    os.setpgid(0, 0)
                connection.send(GO)  # without this, it ends with the connection
            except OSError:
                return None
            return signals.waited(connection)


def _started(start: Start, parent: int, connection: socket.socket) -> tuple[int, bool]:
    """A descriptor (pidfd) of the process, which waits, and whether it will leave this process group, so that signals
    to the group are not for it. OSError, ValueError.
    """
    if connection.fileno() <= 2:  # one of the standard streams is closed
        raise ValueError
    connection.settimeout(_ANSWER_S)
    connection.connect(server_address(start, parent))
    process_of_ours(connection)
    socket.send_fds(connection, [start.encode()], [0, 1, 2])
    process, own_group = map(int, connection.recv(STARTED_BYTES).split())
    return os.pidfd_open(process), bool(own_group)


def process_of_ours(connection: socket.socket) -> int:
    """The other side's process id; 0: in a namespace that is not seen from here. PermissionError: another user's."""
    encoded = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(encoded)
    if user != os.getuid():
        raise PermissionError
    return int(process)


class _SignalsPassedOn:
    """`with`: signals are for the process. Afterwards they are this one's again, and so are those that came for a
    process that was not started.
    """

    def __init__(self, process: int) -> None:
        """`process`: a descriptor (pidfd)."""
        self._process = process
        self._received: list[int] = []
        # A signal just before a read began would otherwise be passed on only after it.
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        handlers = {number: signal.getsignal(number) for number in _PASSED_ON}
        # What is ignored here, the process ignores too.
        self._handlers = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}

    def __enter__(self) -> _SignalsPassedOn:
        signal.set_wakeup_fd(self._wake)
        for number in self._handlers:
            signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for descriptor in (self._woken, self._wake, self._process):
            os.close(descriptor)
        for received in self._received:
            os.kill(os.getpid(), received)

    def _pass_on(self, number: int, _: object) -> None:
        self._received.append(number)
        with contextlib.suppress(ProcessLookupError):  # its exit code is on the way
            signal.pidfd_send_signal(self._process, number)

    def waited(self, connection: socket.socket) -> int:
        """Until the process has ended: its exit code."""
        if connection.fileno() not in self._ready(connection.fileno(), self._process):
            self._ready(connection.fileno(), timeout_ms=1_000 * PRELOAD_S)
        connection.settimeout(0)
        try:
            code = int(connection.recv(STARTED_BYTES))
        except (OSError, ValueError):
            self._ready(self._process)  # the server has failed, the process may go on
            code = 1
        self._received.clear()
        return code

    def _ready(self, *awaited: int, timeout_ms: int | None = None) -> set[int]:
        poll = select.poll()
        for descriptor in (*awaited, self._woken):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(timeout_ms)}
            if self._woken in ready:
                os.read(self._woken, 4096)
                if timeout_ms is not None:  # the signal is for the launcher: its process has ended
                    return ready
            if not ready or ready.intersection(awaited):
                return ready
