"""Notices connections to a TLS server that end before their first call, mostly since the handshake failed.

gRPC's core reports a failed handshake to its own log only, without the address. It does request the certificates
for each handshake, before that begins (`credentials`), so that is when the caller's socket is looked for:

    handshake begins --> the peers that are connected now, were not before, and have made no call, are pending
    first call of a peer --> it is not pending
    a pending peer is disconnected --> counted, and reported with its address, once a minute at most

Certain is that the connection has ended without a call. Why is not: an untrusted, expired or missing certificate, no
TLS at all, or a caller that left by itself. Sockets are listed a few times a second at most, so a flood is seen in part
only; `begun` counts all handshakes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from streamlog.ports.grpc_adapter.connections import connections_of

LOOK_S: Final = 0.25
"""Between two lists of the sockets when handshakes begin; listing costs microseconds for each descriptor."""
CHECK_S: Final = 1.0
PENDING_MAX: Final = 1_000
FORGOTTEN_S: Final = 60.0
"""Open for so long without a call: the handshake has succeeded, or gRPC's timeout would have ended it."""
REPORT_S: Final = 60.0

CALLED_MAX: Final = 10_000
"""Peers known to have called. In a flood of short connections the oldest are forgotten."""


class HandshakeWatch:
    """`begins` is called on gRPC's threads, the rest on the loop."""

    def __init__(
        self,
        report: Callable[[str], None],
        peers: Callable[[int], Iterable[str]] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`peers`: those that are connected to a port, as host:port, an IPv6 address in brackets."""
        self.port = 0  # of the server, once it is bound
        self.begun = 0  # handshakes, since the start
        self.ended_without_call = 0  # connections, of those that were seen
        self._report = report
        self._peers = peers or _peers
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._pending: dict[str, float] = {}  # when it was first seen
        self._called: dict[str, None] = {}  # of the open ones, and of some that were never seen open; oldest first
        self._open: frozenset[str] = frozenset()  # at the last look
        self._looked_at = -LOOK_S
        self._reported_at = -REPORT_S
        self._unreported = 0

    def begins(self) -> None:
        """A connection was accepted, and its handshake begins."""
        with self._lock:
            self.begun += 1
            now = self._monotonic()
            if self.port == 0 or now - self._looked_at < LOOK_S:
                return
            self._looked_at = now
            self._look(now)

    def has_called(self, peer: str) -> None:
        """Of any call; as `peers` has it."""
        if peer not in self._called:
            self._called[peer] = None
            self._pending.pop(peer, None)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            if self._pending:
                await asyncio.to_thread(self.check)

    def check(self) -> None:
        with self._lock:
            now = self._monotonic()
            before = dict(self._pending)
            self._look(now)
            ended = [peer for peer in before if peer not in self._open and self._pending.pop(peer, None) is not None]
            for peer, since in before.items():
                if now - since >= FORGOTTEN_S:
                    self._pending.pop(peer, None)
        if ended:
            self.ended_without_call += len(ended)
            self._unreported += len(ended)
            if now - self._reported_at >= REPORT_S:
                self._reported_at = now
                self._report(self._line(ended[-1]))
                self._unreported = 0

    def _look(self, now: float) -> None:
        found = frozenset(self._peers(self.port))
        # Only what was seen open before: a peer that has connected since the list was made may have called already.
        for peer in self._open - found:
            self._called.pop(peer, None)
        for peer in list(self._called)[:-CALLED_MAX]:  # a copy: the loop's thread adds to it meanwhile
            self._called.pop(peer, None)
        for peer in found - self._open:
            if len(self._pending) < PENDING_MAX and peer not in self._called:
                self._pending.setdefault(peer, now)
                if peer in self._called:  # since the line before, on the loop's thread
                    self._pending.pop(peer, None)
        self._open = found

    def _line(self, last: str) -> str:
        what = f"the connection from {last} to port {self.port} was"
        if self._unreported > 1:
            what = f"{self._unreported} connections to port {self.port}, the last from {last}, were"
        return (
            f"{what} closed before a first call: probably the TLS handshake failed (the caller's certificate is "
            "missing, expired or of an untrusted authority, it does not trust this node's, or does not use TLS); "
            "GRPC_VERBOSITY=INFO in the node's environment logs gRPC's reason"
        )


def _peers(port: int) -> Iterable[str]:
    """As gRPC writes them: the listening socket may be of IPv6, with IPv4 addresses in its form."""
    for one in connections_of(port):
        address = one.address.removeprefix("::ffff:")
        yield f"[{address}]:{one.port}" if ":" in address else f"{address}:{one.port}"
