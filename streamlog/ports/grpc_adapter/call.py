"""One call: a stream of HTTP/2 that carries gRPC's messages, on either side.

    DATA --put together--> inbox --next-->                credit for more once it is read
    send --within the windows--> DATA                     waits while the peer does not read

What the peer may send ahead of the reader is the stream's window. A message larger than that gets credit while it
arrives, up to the limit of a message; all that is held counts against what the connection may hold (`inflow`).
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from streamlog.errors import InvariantError, Status, clear_tracebacks
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.frames import Code
from streamlog.ports.network import RpcError

if TYPE_CHECKING:
    from streamlog.ports.grpc_adapter.connection import Http2Connection

MESSAGE_COST_BYTES: Final = 64
"""What a message that waits takes besides its bytes: counted as held, as messages may be empty."""
PIECE_BYTES_MIN: Final = 4 << 10
"""Smaller pieces of a message that arrives are put together at once: each takes memory of its own."""
COPIED_BYTES_MAX: Final = 16 << 10
"""A message up to this size is copied behind its frame's header; a larger one is written as it is."""
_ENCODINGS: Final = {b"gzip": zlib.MAX_WBITS | 16, b"deflate": zlib.MAX_WBITS}
_DECOMPRESSING: Final = ThreadPoolExecutor(1, "decompress")
"""One thread for all, and of its own: others of the process, such as those that look up names, are not kept waiting."""
NO_ROOM: Final = (
    "more bytes of requests wait to be handled than this node may hold (queued.max.request.bytes): try again"
)


class _Compressed(bytes):
    """A message as it came."""


class Http2Call:
    """Owned by its connection. `end` is called once, by the connection or by this end."""

    __slots__ = (
        "_held",
        "_inbox",
        "_is_compressed",
        "_is_receiving",
        "_is_sending",
        "_parts",
        "_parts_bytes",
        "_prefix",
        "_queued",
        "_reader",
        "_sender",
        "_wanted",
        "_window",
        "connection",
        "discards",
        "encoding",
        "ended",
        "error",
        "is_broken",
        "is_done",
        "number",
        "peer_is_done",
        "received",
        "send_window",
    )

    def __init__(self, connection: Http2Connection, number: int, send_window: int) -> None:
        self.connection = connection
        self.number = number
        self.send_window = send_window
        self.peer_is_done = False  # it has ended its side
        self.is_done = False  # we have ended ours
        self.is_broken = False  # a message was sent in part: no status can follow
        self.ended = False
        self.error: RpcError | None = None  # how it ended
        self.encoding = b""  # of compressed messages
        self.discards = False  # what comes is not gRPC's
        self.received = 0  # bytes
        self._inbox: deque[bytes] = deque()
        self._queued = 0  # bytes in it, with MESSAGE_COST_BYTES
        self._held = 0  # of the connection's share: the inbox and the message that arrives
        self._window = connection.first_window_bytes  # that the peer may still send
        self._prefix = b""
        self._wanted = -1  # size of the message that arrives; -1: its prefix is incomplete
        self._is_compressed = False
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._sender: asyncio.Future[None] | None = None  # waits for a window
        self._is_sending = False
        self._is_receiving = False

    # From the peer.

    def on_data(self, chunk: bytes, padding: int = 0) -> None:
        """`padding`: bytes of the frame that were no data. RpcError for what is not accepted."""
        size = len(chunk)
        self._window -= size + padding
        self.received += size
        if self._window < 0:
            raise RpcError(Status.INTERNAL, "the peer has sent more than the stream's window allows")
        if self.discards:
            self._credit()
            return
        if (
            self._wanted < 0
            and not self._prefix
            and size >= frames.PREFIX_BYTES
            and not chunk[0]
            and int.from_bytes(chunk[1:5], "big") == size - frames.PREFIX_BYTES <= self.connection.message_bytes_max
        ):
            self.keep(size - frames.PREFIX_BYTES + MESSAGE_COST_BYTES)
            self._put(chunk[5:])
        else:
            self.keep(size)
            self._assemble(chunk)

    def keep(self, size: int) -> None:
        """Counts against the connection's share until the call ends, or it is read. RpcError: there is no room."""
        if not self.connection.hold(size):
            raise RpcError(Status.UNAVAILABLE, NO_ROOM)
        self._held += size

    def _assemble(self, chunk: bytes) -> None:
        at, end = 0, len(chunk)
        while at < end:
            if self._wanted < 0:
                begin, at = at, min(end, at + frames.PREFIX_BYTES - len(self._prefix))
                self._prefix += chunk[begin:at]
                if len(self._prefix) < frames.PREFIX_BYTES:
                    return
                self._begin_message()
            begin, at = at, min(end, at + self._wanted - self._parts_bytes)
            if self._parts and len(self._parts[-1]) + at - begin <= PIECE_BYTES_MIN:
                self._parts[-1] += chunk[begin:at]
            else:
                self._parts.append(chunk[begin:at])
            self._parts_bytes += at - begin
            if self._parts_bytes == self._wanted:
                self._end_message()
        self._credit()

    def _begin_message(self) -> None:
        flag, size = self._prefix[0], int.from_bytes(self._prefix[1:], "big")
        if flag > 1:
            raise RpcError(Status.INTERNAL, f"a message begins with {flag}: 0 or 1 says whether it is compressed")
        if flag and self.encoding not in _ENCODINGS:
            name = self.encoding.decode("ascii", "replace") or "of no name"
            raise RpcError(Status.UNIMPLEMENTED, f"compression {name}: messages may be compressed by gzip or deflate")
        self._check_size(size)
        self._prefix, self._wanted, self._is_compressed = b"", size, bool(flag)

    def _check_size(self, size: int) -> None:
        limit = self.connection.message_bytes_max
        if size > limit:
            where = "CLIENT: " if self.connection.is_client else ""  # as gRPC says it: callers look for it
            raise RpcError(Status.RESOURCE_EXHAUSTED, f"{where}Received message larger than max ({size} vs. {limit})")

    def _end_message(self) -> None:
        message = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._parts_bytes, self._wanted = [], 0, -1
        self.keep(MESSAGE_COST_BYTES - frames.PREFIX_BYTES)
        self.connection.turn_left -= 1
        self._put(_Compressed(message) if self._is_compressed else message)

    def _put(self, message: bytes) -> None:
        self._inbox.append(message)
        self._queued += len(message) + MESSAGE_COST_BYTES
        self._wake_reader()

    def on_done(self) -> None:
        """The peer has ended its side."""
        self.peer_is_done = True
        self._wake_reader()

    def end(self, error: RpcError | None) -> None:
        """The call has ended; messages that have arrived can still be read."""
        if not self.ended:
            if error is not None:
                clear_tracebacks(error)  # it may have come through frames that know this call
            self.ended, self.error = True, error
            self._parts = []
            self._let_go(self._held - self._queued)
            self._wake_reader()
            self.wake_sender()

    def drop(self) -> None:
        """What has arrived will not be read."""
        self._inbox.clear()
        self._queued = 0
        self._let_go(self._held)

    def failure(self) -> RpcError | None:
        """How it ended. A new exception each time: one that is kept and raised would keep its frames, and they it."""
        error = self.error
        return None if error is None else type(error)(error.status, error.message, details_bin=error.details_bin)

    def wake_sender(self) -> None:
        if self._sender is not None and not self._sender.done():
            self._sender.set_result(None)

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _let_go(self, size: int) -> None:
        self._held -= size
        self.connection.let_go(size)

    # To this end.

    @property
    def is_incomplete(self) -> bool:
        """A message has arrived in part."""
        return self._wanted >= 0 or bool(self._prefix)

    @property
    def has_message(self) -> bool:
        return bool(self._inbox)

    async def next(self) -> bytes | None:
        """The next message; None at the end, however it ended. RpcError for one that cannot be decompressed."""
        if self._is_receiving:
            raise InvariantError("two recvs at a time on one stream")
        while not self._inbox:
            if self.ended or self.peer_is_done:
                return None
            self._is_receiving = True
            self._reader = self.connection.loop.create_future()
            try:
                await self._reader
            finally:
                self._is_receiving = False
                self._reader = None
        message = self._inbox.popleft()
        size = len(message) + MESSAGE_COST_BYTES
        self._queued -= size
        self._held -= size
        self.connection.let_go(size)
        self._credit()
        return message if message.__class__ is bytes else await self._decompressed(message)

    def _credit(self) -> None:
        """Let the peer send on, once a quarter of the window can be given back. Parts of a message that is arriving do
        not count: the message may be larger than the window.
        """
        target = self.connection.stream_window_bytes()
        missing = target - self._window - self._queued
        if missing >= target // 4 and not self.peer_is_done and not self.ended:
            self._window += missing
            self.connection.write(frames.window_update(self.number, missing))

    async def _decompressed(self, message: bytes) -> bytes:
        """In a thread: it may take milliseconds."""
        self._is_receiving = True
        try:
            found = await self.connection.loop.run_in_executor(_DECOMPRESSING, self._decompress, message)
        finally:
            self._is_receiving = False
        self._check_size(len(found))
        return found

    def _decompress(self, message: bytes) -> bytes:
        """At most one byte more than a message may have."""
        stream = zlib.decompressobj(_ENCODINGS[self.encoding])
        try:
            found = stream.decompress(message, self.connection.message_bytes_max + 1)
        except zlib.error as error:
            raise RpcError(Status.INTERNAL, f"a message cannot be decompressed: {error}") from None
        if not stream.eof and len(found) <= self.connection.message_bytes_max:
            raise RpcError(Status.INTERNAL, "a compressed message is incomplete")
        return found

    # From this end.

    async def send(self, message: bytes, *, last: bool = False) -> None:
        """Returns once it is on its way. The caller has checked that the call has not ended; a message is dropped if
        the call ends while it waits.
        """
        if self._is_sending or self.is_done:
            raise InvariantError("two sends at a time on one stream, or one after the last")
        connection, size = self.connection, len(message)
        needed = size + frames.PREFIX_BYTES
        if (
            needed > self.send_window
            or needed > connection.frame_bytes_max
            or needed > connection.send_window
            or connection.is_paused
        ):
            await self._send_in_parts(message, last=last)
            return
        self.send_window -= needed
        connection.send_window -= needed
        self.is_done = last
        header = frames.message_header(size, frames.END_STREAM if last else 0, self.number)
        if size <= COPIED_BYTES_MAX:
            connection.write(header + message)
        else:
            connection.write_lines((header, message))

    async def _send_in_parts(self, message: bytes, *, last: bool) -> None:
        await self.send_data(b"".join((frames.prefix(len(message)), message)), last=last)

    async def send_data(self, data: bytes, *, last: bool) -> None:
        """As `send`, without a prefix."""
        self._is_sending = True
        connection, left = self.connection, memoryview(data)
        try:
            while len(left):
                await self._wait_for_room()
                if self.ended or connection.is_closed:
                    return
                size = min(len(left), self.send_window, connection.send_window, connection.frame_bytes_max)
                self.send_window -= size
                connection.send_window -= size
                part, left = left[:size], left[size:]
                self.is_broken = bool(len(left))
                flags = frames.END_STREAM if last and not left else 0
                connection.write_lines((frames.data_header(size, flags, self.number), part))
        finally:
            self._is_sending = False
            connection.wake_a_sender()
        self.is_done = last

    async def _wait_for_room(self) -> None:
        """In the windows and the transport; or until the call has ended."""
        connection = self.connection
        while (self.send_window <= 0 or connection.send_window <= 0 or connection.is_paused) and not self.ended:
            self._sender = connection.loop.create_future()
            if self.send_window > 0:
                connection.waiting_senders[self] = None
            else:
                connection.wake_a_sender()  # what room there is, another one can use
            try:
                await self._sender
            finally:
                self._sender = None
                connection.waiting_senders.pop(self, None)

    def finish_sending(self) -> None:
        if not self.is_done and not self.ended:
            self.is_done = True
            self.connection.write(frames.frame(frames.DATA, frames.END_STREAM, self.number))

    def reset(self, code: Code, error: RpcError | None) -> None:
        """This end gives the call up."""
        if not self.ended:
            self.connection.write(frames.reset(self.number, code))
            self.connection.forget(self)
            self.end(error)
