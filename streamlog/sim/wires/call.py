"""One call over a simulated connection, with its two ends and gRPC's semantics.

Frames to the server: open, messages, half-close, cancel. To the client: messages, status. Both ways: flow-control
credit. An end is closed once it has a status; the client's is raised by `recv`, the server's is only the reason why the
handler was cancelled.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any, Final

from streamlog.errors import InvariantError, Status
from streamlog.ports.network import RpcError
from streamlog.sim.process import Process
from streamlog.sim.wires.fabric import Wire

WINDOW_BYTES: Final = 65_536
"""HTTP/2's initial window: what a sender may have unread, give or take one message."""
FRAME_BYTES: Final = 5
"""gRPC's prefix of a message: an empty one counts too."""

_OK: Final = RpcError(Status.OK)


class CallEnd:
    """Common part of both ends: the Stream port, and the incoming frames."""

    def __init__(self, process: Process, wire: Wire, rng: random.Random, message_bytes_max: int) -> None:
        self.process = process
        self.wire = wire  # to the peer
        self.peer: Any = None  # the other CallEnd; frames are calls of its methods, delivered by the wire
        self.status: RpcError | None = None  # None while the call is open
        self._rng = rng
        self._message_bytes_max = message_bytes_max
        self._inbox: deque[bytes] = deque()
        self._unread_bytes = 0  # sent, no credit received yet
        self._owed_bytes = 0  # received, no credit sent yet
        self._half_closed = False  # the peer sends no more
        self._done_sending = False
        self._waiters: list[asyncio.Future[None]] = []
        self._sending = self._receiving = False

    # The port.

    async def send(self, message: bytes) -> None:
        self.process.enter()
        if self._sending or self._done_sending:
            raise InvariantError("two sends at a time on one stream, or one after the last")
        self._sending = True
        try:
            if self._rng.random() < 0.5:
                await asyncio.sleep(0)
            while self._unread_bytes >= WINDOW_BYTES and self.status is None:
                await self._change()
        except asyncio.CancelledError:
            self.give_up()
            raise
        finally:
            self._sending = False
        if self.status is not None:
            raise self._error()
        size = len(message) + FRAME_BYTES
        self._unread_bytes += size
        self.wire.put(lambda: self.peer.on_message(message, size))

    async def recv(self) -> bytes | None:
        self.process.enter()
        if self._receiving:
            raise InvariantError("two recvs at a time on one stream")
        self._receiving = True
        try:
            while not self._inbox and not self._ended():
                await self._change()
        except asyncio.CancelledError:
            self.give_up()
            raise
        finally:
            self._receiving = False
        if self._inbox:
            message = self._inbox.popleft()
            self._owe(len(message) + FRAME_BYTES)
            return message
        if self.status is not None and self.status.status is not Status.OK:
            raise self._error()
        return None

    def _owe(self, size: int) -> None:
        """Send credit by the half window, as HTTP/2 does, not for each message."""
        self._owed_bytes += size
        if self._owed_bytes >= WINDOW_BYTES // 2:
            owed, self._owed_bytes = self._owed_bytes, 0
            self.wire.put(lambda: self.peer.on_credit(owed))

    async def done_sending(self) -> None:
        """Overridden by the client's end."""

    def give_up(self) -> None:
        """A send or recv was cancelled."""
        raise NotImplementedError

    def _ended(self) -> bool:
        return self.status is not None

    def _error(self) -> RpcError:
        status = self.status or _OK
        if status.status is Status.OK:
            return RpcError(Status.UNAVAILABLE, "the call has ended")
        return RpcError(status.status, status.message, details_bin=status.details_bin)

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Frames from the peer.

    def on_message(self, message: bytes, size: int) -> None:
        if self.status is not None:
            return
        if len(message) > self._message_bytes_max:
            self.too_large(len(message))
            return
        self._inbox.append(message)
        self._wake()

    def too_large(self, size: int) -> None:
        raise NotImplementedError

    def too_large_error(self, size: int) -> RpcError:
        text = f"Received message larger than max ({size} vs. {self._message_bytes_max})"
        return RpcError(Status.RESOURCE_EXHAUSTED, text)

    def on_credit(self, size: int) -> None:
        self._unread_bytes -= size
        self._wake()

    def end(self, status: RpcError) -> None:
        """Close, unless closed. Messages that arrived before can still be received, except after a cancellation."""
        if self.status is not None:
            return
        self.status = status
        if status.status in (Status.CANCELLED, Status.DEADLINE_EXCEEDED):
            self._inbox.clear()
        self._wake()


class ClientEnd(CallEnd):
    async def done_sending(self) -> None:
        self.process.enter()
        if not self._done_sending:
            self._done_sending = True
            self.wire.put(lambda: self.peer.on_half_close())

    def give_up(self) -> None:
        self.hang_up()

    def too_large(self, size: int) -> None:
        self.end(self.too_large_error(size))
        self.wire.put(lambda: self.peer.abandon())

    def hang_up(self) -> None:
        """Cancel the call, if it is open."""
        if self.status is None:
            self.end(RpcError(Status.CANCELLED, "cancelled by the caller"))
            self.wire.put(lambda: self.peer.abandon())


class ServerEnd(CallEnd):
    task: asyncio.Task[None] | None = None  # runs the handler
    _gave_up = False  # the handler no longer uses the stream, but may still answer

    def _ended(self) -> bool:
        return self.status is not None or self._half_closed

    def on_half_close(self) -> None:
        self._half_closed = True
        self._wake()

    def give_up(self) -> None:
        if self.status is None:
            self._gave_up = True
            self.end(RpcError(Status.CANCELLED, "an earlier send or recv was cancelled"))

    def answer(self, status: RpcError | None) -> None:
        """The handler has ended: send its status, unless the client is disconnected."""
        if self.status is None or self._gave_up:
            self._gave_up = False
            self.end(status or _OK)
            self.wire.put(lambda: self.peer.end(status or _OK))

    def too_large(self, size: int) -> None:
        self.answer(self.too_large_error(size))
        self._cancel_handler()

    def shut(self) -> None:
        """The server closes at once."""
        self.answer(RpcError(Status.UNAVAILABLE, "the server is closing"))
        self._cancel_handler()

    def abandon(self) -> None:
        """The client cancelled, its deadline passed, or the connection is closed."""
        self.end(RpcError(Status.CANCELLED, "the caller disconnected"))
        self._cancel_handler()

    def _cancel_handler(self) -> None:
        if self.task is not None and not self.task.done():
            self.task.cancel()
