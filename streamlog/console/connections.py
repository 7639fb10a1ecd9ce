"""What a browser's connections may take of the console: how many, and how long they may take to send a request.

    opened        counted, by address: CONNECTIONS_MAX in all, ADDRESS_MAX from one; one more is closed with 503.
                  A proxy in front (--forwarded-from) is one address for all its users, and counts in all alone
    request       HEAD_BYTES_MAX for its head; it must be complete, with its body, REQUEST_S after the connection was
                  opened, or after its first byte on a connection that is used again
    idle          IDLE_S after a response
    websocket     pings find what is dead; the sessions bound how many there are (access/gate.py)

asyncio ends a TLS handshake after 60 s; until it is complete a connection is not counted.

The limits are above what a session may have open (gate.PAGES_MAX), and below the usual 1,024 file descriptors.
"""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 600
ADDRESS_MAX: Final = 250
HEAD_BYTES_MAX: Final = 32 << 10
REQUEST_S: Final = 30.0
IDLE_S: Final = 15
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
)
_REASON: Final = b"Too many connections to the console are open: close some pages.\n"
_IPV6_SITE: Final = 64
"""Bits of an IPv6 address that one user does not choose."""


def networks(addresses: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Of a list with commas. ValueError."""
    return tuple(ip_network(one.strip(), strict=False) for one in addresses.split(",") if one.strip())


def bounded_protocol(
    proxies: str = "", connections_max: int = CONNECTIONS_MAX, address_max: int = ADDRESS_MAX
) -> type[H11Protocol]:
    """For uvicorn. h11 bounds the head of a request, which httptools does not."""
    trusted = networks(proxies)

    class BoundedProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # its own annotation
            super().connection_made(transport)
            if len(self.connections) > connections_max or self._is_one_too_many():
                transport.write(_BUSY % (len(_REASON), _REASON))
                transport.close()
                return
            self._start_deadline()

        def data_received(self, data: bytes) -> None:
            if self._deadline is None and self.conn.their_state is h11.IDLE:
                self._start_deadline()
            super().data_received(data)
            if not self._is_receiving:
                self._end_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_deadline()
            super().connection_lost(exc)

        def handle_websocket_upgrade(self, event: h11.Request) -> None:
            self._end_deadline()
            super().handle_websocket_upgrade(event)

        def _is_one_too_many(self) -> bool:
            if self.client is None or any(ip_address(self.client[0]) in network for network in trusted):
                return False
            own = _site(self.client)
            return sum(_site(getattr(one, "client", None)) == own for one in self.connections) > address_max

        @property
        def _is_receiving(self) -> bool:
            return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

        def _start_deadline(self) -> None:
            self._deadline = self.loop.call_later(REQUEST_S, self._close_if_late)

        def _end_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _close_if_late(self) -> None:
            self._deadline = None
            if not self.transport.is_closing():
                self.transport.close()

    return BoundedProtocol


def _site(client: tuple[str, int] | None) -> str:
    """Whom a connection is counted for."""
    if client is None:
        return ""
    address = ip_address(client[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((int(address), _IPV6_SITE), strict=False))
    return str(address)
