"""A TCP connection to a host, which may have several addresses: they are tried in turn."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from streamlog.aio.timeouts import timeout, timeout_at

NO_ROUTE: Final = frozenset({errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""This host does not have the address's network at all, such as IPv6: nothing is known about the process."""


async def connected_socket(host: str, port: int, timeout_s: float) -> socket.socket:
    """OSError: ConnectionRefusedError only if each address to which there is a route has refused, since callers take it
    for a process that does not run. TimeoutError: one does not answer. Each gets its share of the time that is left.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    async with timeout_at(end):
        found = await addresses_of(host, port)
    addresses = list(dict.fromkeys((family, target) for family, _, _, _, target in found))
    failures: list[OSError] = []
    for number, (family, target) in enumerate(addresses):
        share_s = (end - loop.time()) / (len(addresses) - number)
        try:
            return await _connect(family, target, share_s)
        except OSError as error:
            failures.append(error)
    if not failures:
        raise socket.gaierror(socket.EAI_NONAME, f"{host} has no address")
    raise _least_conclusive(failures)


def _least_conclusive(failures: Sequence[OSError]) -> OSError:
    """A refusal says most about the process there, so it is chosen last."""
    if any(isinstance(error, TimeoutError) for error in failures):
        return TimeoutError()
    known = [error for error in failures if error.errno not in NO_ROUTE] or failures
    return next((error for error in known if not isinstance(error, ConnectionRefusedError)), known[0])


async def addresses_of(host: str | None, port: int, flags: int = 0) -> list[Any]:
    """As of `getaddrinfo`. An address needs no thread to look it up; a name gets one of Python's: a process that was
    forked from one with a thread of libuv's, which uvloop takes, crashes at its end.
    """
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    with suppress(socket.gaierror):
        return look_up(flags=flags | socket.AI_NUMERICHOST)
    try:
        return await asyncio.to_thread(look_up, flags=flags)
    except RuntimeError:  # threads take no work while the interpreter ends, when producers send what they hold
        return look_up(flags=flags)


async def _connect(family: int, target: tuple[Any, ...], timeout_s: float) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        error = made.connect_ex(target)
        if error == errno.EINPROGRESS:
            async with timeout(timeout_s):
                await _writable(made)
            error = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
    except BaseException:
        made.close()
        raise
    return made


async def _writable(made: socket.socket) -> None:
    """Not by the loop's `sock_connect`: uvloop's looks each address up in a thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def on_writable() -> None:
        if not done.done():
            done.set_result(None)

    loop.add_writer(made, on_writable)
    try:
        await done
    finally:
        loop.remove_writer(made)
