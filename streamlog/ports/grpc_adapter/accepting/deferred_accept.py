"""Connections that have not sent a byte stay in the kernel (TCP_DEFER_ACCEPT of tcp(7), Linux).

    client connects --kernel completes the TCP handshake--> a request of some hundred bytes in the kernel
          its first byte arrives       --> accepted, without a delay
          none within DEFER_S          --> accepted all the same, and ended by the handshake timeout

A client of gRPC sends first, its HTTP/2 preface or its TLS handshake, so it does not notice. A connection that says
nothing (a port scan, a health check over TCP, a flood) then takes no descriptor, no memory and no time of the process.

The kernel holds at most as many requests as the listening socket's backlog (4,096 by default), and beyond it accepts
connections by SYN cookies, silent ones too. Without SYN cookies it would refuse everybody then, so nothing is deferred
there.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

DEFER_S: Final = 120
"""The kernel rounds it up to its retransmissions: 1, 3, 7, 15, 31, 63, 127 s. Longer than a flood is patient, and not
so long that its requests fill the backlog for hours.
"""
_SYN_COOKIES: Final = Path("/proc/sys/net/ipv4/tcp_syncookies")


def defer_accept(listening: Iterable[socket.socket], seconds: int = DEFER_S) -> bool:
    """False where the kernel cannot do it."""
    option = getattr(socket, "TCP_DEFER_ACCEPT", None)
    if option is None or not _has_syn_cookies():
        return False
    for one in listening:
        try:
            one.setsockopt(socket.IPPROTO_TCP, option, seconds)
        except OSError:
            return False
    return True


def _has_syn_cookies() -> bool:
    try:
        return _SYN_COOKIES.read_text().strip() != "0"
    except OSError:
        return False
