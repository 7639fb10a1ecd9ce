"""Whether a peer that answers no ping still takes what was written before the ping.

On a slow link a large request is under way for longer than a ping may take, and the ping waits behind it. The kernel
knows how far the peer has acknowledged the bytes, for Linux; elsewhere nothing is known, and only an answer counts.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from typing import Final

_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)
_INFO_BYTES: Final = 128
_ACKED: Final = struct.Struct("=Q")
_ACKED_AT: Final = 120  # tcpi_bytes_acked in struct tcp_info, since Linux 4.1
_INT: Final = struct.Struct("=i")
_CLOSED: Final = (OSError, ValueError)  # a closed socket has no descriptor


class SendProgress:
    """From now on, of what was written so far. To be made before the ping is written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._socket: socket.socket | None = transport.get_extra_info("socket")
        self._acked = self._acknowledged()
        self._end = self._acked + self._unsent(transport)

    def has_advanced(self) -> bool:
        """Since the last look the peer has taken more of it."""
        before, self._acked = self._acked, self._acknowledged()
        return before < min(self._acked, self._end)

    def _acknowledged(self) -> int:
        if self._socket is None or _TCP_INFO is None:
            return 0
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO_BYTES)
        except _CLOSED:
            return 0
        return int(_ACKED.unpack_from(info, _ACKED_AT)[0]) if len(info) == _INFO_BYTES else 0

    def _unsent(self, transport: asyncio.Transport) -> int:
        size = transport.get_write_buffer_size()
        if self._socket is None:
            return size
        try:
            return size + int(_INT.unpack(fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))[0])
        except _CLOSED:
            return size
