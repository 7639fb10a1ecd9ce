"""A connection to the HTTP listener: how long it may take to send a request and to read a response, and its TLS
handshake.

    accepted --http address--> waits for a request --IDLE_S without one, first or next--> closed
        |                      a response fills the buffer, or is left when it is closed --not read in SEND_S--> dropped
        |
        +--https address--> handshake --> as above
                                 |
                                 +--refused, or not complete after HANDSHAKE_S--> closed, and reported with the reason
                                 +--HANDSHAKES_MAX are in progress, or `per_address` from its address--> closed

Of an address kind (HTTP, HTTPS) UNSERVED_MAX more may be open than are served, to get 503; one more is closed at once.

A handshake uses the certificate and authorities of the moment that it begins, so renewed files are used without a
restart and open connections continue. asyncio's own way to serve TLS has one context for the whole time, and does not
bound handshakes. A certificate of the caller opens the connection and is nothing else: who calls the API is known by
its password or token.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from streamlog.config.addresses import Address
from streamlog.daemon.http.absent import absent

with absent("watchfiles"):  # uvicorn imports it where it is installed, to reload programs that change: 0.8 MB
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

IDLE_S: Final = 15
SEND_S: Final = 60.0
"""What a client does not read is kept so long: without a bound, each connection could keep the largest response."""
UNSERVED_MAX: Final = 64
"""Without a bound those that send nothing, IDLE_S each, would take the node's descriptors and its memory."""
HANDSHAKE_S: Final = 10.0
HANDSHAKES_MAX: Final = 64
CLOSE_S: Final = 5.0
"""How long the other end may take to acknowledge the end of TLS."""
REPORT_S: Final = 60.0

_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate, which listener.name.https.ssl.client.auth requires",
    "HTTP_REQUEST": "it does not use TLS: the address is https://",
    "UNSUPPORTED_PROTOCOL": "its version of TLS is below 1.2",
    "NO_SHARED_CIPHER": "it has no cipher suite in common with this node",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust this node's certificate: it needs the authority that signed it",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust this node's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refuses this node's certificate",
}


class Handshakes:
    """What the connections of the HTTPS addresses share. One event loop."""

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        report: Callable[[str], None],
        per_address: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`context`: the one of the moment. `report`: gets lines for the log, one in REPORT_S. `per_address`:
        max.connections.per.ip; as for gRPC, half of all where it is not set.
        """
        self.context = context
        self.per_address = min(per_address or HANDSHAKES_MAX // 2, HANDSHAKES_MAX)
        self._tasks: dict[asyncio.Task[None], str] = {}  # with the address of each
        self._report = report
        self._monotonic = monotonic
        self._reported_at = -REPORT_S
        self._unreported = 0

    def excess(self, address: str) -> str | None:
        """Why no further one from this address may begin; None: it may."""
        if len(self._tasks) >= HANDSHAKES_MAX:
            return f"{HANDSHAKES_MAX} TLS handshakes are in progress"
        if sum(one == address for one in self._tasks.values()) >= self.per_address:
            return f"{self.per_address} TLS handshakes from this address are in progress (max.connections.per.ip)"
        return None

    def begin(self, address: str, task: asyncio.Task[None]) -> None:
        self._tasks[task] = address
        task.add_done_callback(self._tasks.pop)

    def refused(self, peer: str, reason: str) -> None:
        self._unreported += 1
        now = self._monotonic()
        if now - self._reported_at < REPORT_S:
            return
        what = f"the HTTPS connection from {peer} was refused"
        if self._unreported > 1:
            what = f"{self._unreported} HTTPS connections were refused, the last from {peer}"
        self._report(f"{what}: {reason}")
        self._reported_at, self._unreported = now, 0


class Connection(H11Protocol):
    """Also closed if the head of a request is not complete IDLE_S after it was opened, or after the last response:
    uvicorn's own timeout ends with the first byte of a next request. And if what was sent is not read within SEND_S:
    closing a transport waits for its buffer, and so does everything that is sent meanwhile.
    """

    _idle: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # its own annotation
        super().connection_made(transport)
        if len(self.connections) > self.open_max:
            transport.abort()
            return
        self._wait_for_request()

    @property
    def open_max(self) -> int:
        return (self.limit_concurrency or 0) + UNSERVED_MAX

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_idle()
        self._end_sending()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._bound_sending()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():  # otherwise the rest is bounded too
            self._end_sending()

    def on_response_complete(self) -> None:
        self._wait_for_request()
        super().on_response_complete()  # may begin with the next request

    def _wait_for_request(self) -> None:
        self._end_idle()
        self._idle = self.loop.call_later(IDLE_S, self._close_if_idle, self.cycle)

    def _end_idle(self) -> None:
        """A timer keeps the connection, and over TLS its buffers, which are large."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _close_if_idle(self, last: RequestResponseCycle | None) -> None:
        if self.cycle is last and not self.transport.is_closing():
            self.transport.close()
        if self.transport.is_closing():
            self._bound_sending()
        else:  # a request that is invalid in its body closes the transport, and gets no response
            self._idle = self.loop.call_later(IDLE_S, self._close_if_idle, last)

    def _bound_sending(self) -> None:
        if self._sending is None:
            self._sending = self.loop.call_later(SEND_S, self.transport.abort)

    def _end_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None


def secure_protocol(handshakes: Handshakes) -> type[Connection]:
    """For uvicorn."""

    class SecureConnection(Connection):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self._is_open = False  # its handshake has succeeded
            self._early = bytearray()  # decrypted before this has been noticed here: a part of what one read had

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            address = _address(transport)
            excess = handshakes.excess(address)
            if excess is not None:
                handshakes.refused(_peer(transport), excess)
                transport.abort()
                return
            if len(self.connections) >= self.open_max:
                handshakes.refused(_peer(transport), f"{len(self.connections)} connections are open")
                transport.abort()
                return
            transport.pause_reading()  # what comes is for the handshake
            handshakes.begin(address, self.loop.create_task(self._start_tls(transport)))

        async def _start_tls(self, transport: asyncio.Transport) -> None:
            try:
                secured = await self.loop.start_tls(
                    transport,
                    self,
                    handshakes.context(),
                    server_side=True,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=CLOSE_S,
                )
            except (OSError, EOFError) as error:  # ssl.SSLError is an OSError
                transport.abort()
                handshakes.refused(_peer(transport), _reason(error))
                return
            if secured is None or secured.is_closing():
                return
            super().connection_made(secured)
            self._is_open = True
            if self._early and not secured.is_closing():
                super().data_received(bytes(self._early))
                self._early.clear()

        def data_received(self, data: bytes) -> None:
            if self._is_open:
                super().data_received(data)
            else:
                self._early += data

        def eof_received(self) -> None:
            if self._is_open:
                super().eof_received()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._is_open:
                super().connection_lost(exc)

    return SecureConnection


def _peer(transport: asyncio.Transport) -> str:
    found = transport.get_extra_info("peername")
    return str(Address(found[0], found[1])) if found else "a closed connection"


def _address(transport: asyncio.Transport) -> str:
    """Of the peer, without its port; empty: it has disconnected."""
    found = transport.get_extra_info("peername")
    return str(found[0]) if found else ""


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        known = _REASONS.get(error.reason or "")
        return known or f"the TLS handshake failed ({error.reason or 'without a reason'})"
    if isinstance(error, ConnectionAbortedError):
        return f"the TLS handshake was not complete after {HANDSHAKE_S:g} s"
    return "it was closed during the TLS handshake"
