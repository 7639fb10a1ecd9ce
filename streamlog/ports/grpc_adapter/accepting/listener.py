"""Listening sockets: bound to an address, and accepted from.

A wildcard address, 0.0.0.0 or ::, is bound for both versions of IP where the machine has both. A few connections are
accepted in a turn of the event loop, so that a flood of them does not hold up calls. While the process may open no more
files, those that connect wait in the kernel.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from streamlog.ports.grpc_adapter.connecting import addresses_of

BACKLOG: Final = 4096
"""The kernel's own limit is lower on many machines (net.core.somaxconn)."""
ACCEPTED_A_TURN: Final = 8
RETRY_S: Final = 0.2
ATTEMPTS: Final = 10
PORT_MAX: Final = 65_535
REPORT_S: Final = 60.0
_WILDCARDS: Final = frozenset({"0.0.0.0", "::", ""})
_NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_NO_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


async def bind(address: str) -> list[socket.socket]:
    """At `host:port`; all sockets have the same port. OSError."""
    host, _, port_text = address.rpartition(":")
    host = host.strip("[]")
    if not port_text.isdecimal() or int(port_text) > PORT_MAX:
        raise OSError(errno.EINVAL, f"not an address, host:port: {address}")
    port = int(port_text)
    if host in _WILDCARDS and (both := _bind_both(port)) is not None:
        return [both]
    try:
        found = await addresses_of(host or None, port, socket.AI_PASSIVE)
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"not a host name: {host} ({error})") from None
    targets = list(dict.fromkeys((family, target) for family, _, _, _, target in found))
    for attempt in range(ATTEMPTS):
        try:
            return _bind_each(targets)
        except OSError as error:
            # The port that the kernel has chosen at one address may be in use at another.
            if port or error.errno != errno.EADDRINUSE or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _bind_each(targets: Sequence[tuple[int, tuple[Any, ...]]]) -> list[socket.socket]:
    """Passes over those that this machine does not have, unless it has none: a name may have an address of IPv6 too,
    and the machine may not.
    """
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, target in targets:
            port = bound[0].getsockname()[1] if bound else target[1]
            try:
                bound.append(_bind_one(family, (target[0], port, *target[2:])))
            except OSError as error:
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise
                missing = error
    except BaseException:
        for one in bound:
            one.close()
        raise
    if not bound:
        raise missing or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return bound


def _bind_both(port: int) -> socket.socket | None:
    """None: this machine has no IPv6."""
    if not socket.has_dualstack_ipv6():
        return None
    try:
        return _bind_one(socket.AF_INET6, ("::", port), dual=True)
    except OSError as error:
        if error.errno in _NO_SUCH_ADDRESS:
            return None
        raise


def _bind_one(family: int, target: tuple[Any, ...], *, dual: bool = False) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        made.bind(target)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


class Acceptor:
    """Accepts until it is closed. `on_accept` owns what was accepted, which does not block."""

    def __init__(
        self,
        sockets: list[socket.socket],
        on_accept: Callable[[socket.socket, str, int], None],
        report: Callable[[str], None],
    ) -> None:
        """`on_accept`: with the peer's address, an IPv4 address in its usual form, and port."""
        self.sockets = sockets
        self.port: int = sockets[0].getsockname()[1]
        self._on_accept = on_accept
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.TimerHandle | None = None
        self._reported_at = -REPORT_S
        self._is_closed = False
        self._listen()

    def _listen(self) -> None:
        self._waiting = None
        for one in self.sockets:
            self._loop.add_reader(one, self._accept, one)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_A_TURN):
            try:
                made, peer = listening.accept()
            except OSError as error:
                if error.errno in _NO_RESOURCES:
                    self._wait(error)
                return  # none is there, or it has ended already
            made.setblocking(False)
            with suppress(OSError):  # it may have ended already
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._on_accept(made, plain_address(peer[0]), peer[1])

    def _wait(self, error: OSError) -> None:
        if self._waiting is not None:  # another socket has found it in this turn
            return
        self._stop()
        self._waiting = self._loop.call_later(RETRY_S, self._listen)
        now = self._loop.time()
        if now - self._reported_at >= REPORT_S:
            self._reported_at = now
            self._report(
                f"connections to port {self.port} are not accepted for now: {error.strerror}; raise the limit of open "
                "files (ulimit -n), or lower max.connections"
            )

    def _stop(self) -> None:
        for one in self.sockets:
            self._loop.remove_reader(one)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._waiting is not None:
            self._waiting.cancel()
        self._stop()
        for one in self.sockets:
            one.close()


def plain_address(address: str) -> str:
    """The listening socket may be of IPv6, with IPv4 addresses in its form."""
    return address.removeprefix("::ffff:").partition("%")[0]


def peer_text(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
