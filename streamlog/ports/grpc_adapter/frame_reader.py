"""What arrives on one connection of HTTP/2, as frames and header blocks, on the event loop.

    data_received --DATA in pieces----------------------------------> on_data
                  --header blocks, whole, with their continuations--> on_block
                  --other frames, whole-----------------------------> on_frame

Nothing that a peer can send is without a bound:

    a frame other than DATA, and a header block with its continuations    HEADER_BLOCK_BYTES_MAX
    frames that carry nothing (pings, settings, priorities, empty ones)   IDLE_FRAMES_MAX a second
    calls that are reset, by the peer or for its faults                   RESETS_MAX in RESETS_S
    work at a time                                                        TURN_COST_MAX, then others have their turn

Beyond the first three a ConnectionFault says ENHANCE_YOUR_CALM or FRAME_SIZE_ERROR, and the connection ends.
"""

from __future__ import annotations

import asyncio
from typing import Final

from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.frames import Code, ConnectionFault
from streamlog.ports.grpc_adapter.metadata import METADATA_BYTES_MAX

FRAME_BYTES_MAX: Final = 256 << 10
"""Of DATA, which is passed on in pieces, in both directions."""
HEADER_BLOCK_BYTES_MAX: Final = 4 * METADATA_BYTES_MAX
"""What is larger than METADATA_BYTES_MAX is refused by a status, up to this: then the connection ends."""
IDLE_FRAMES_MAX: Final = 10_000
"""A second. Clients of gRPC measure the way with a ping for each answer that they read."""
RESETS_MAX: Final = 2_000
RESETS_S: Final = 10.0
TURN_COST_MAX: Final = 1_000
"""Of what has arrived together: a frame and a message cost 1. It is some milliseconds of the event loop."""
DATA_PIECE_BYTES_MAX: Final = 32 << 10
"""Of a DATA frame at a time: it may hold thousands of messages."""
BLOCK_COST: Final = 20
"""Of a header block, which may begin a call, and 1 more for each BLOCK_COST_BYTES."""
BLOCK_COST_BYTES: Final = 64


class FrameReader(asyncio.Protocol):
    """The receiving half of a connection."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        self.heard = True  # something came since the last look
        self.is_parsing = False
        self.is_resting = False  # the rest waits for its turn
        self.turn_left = 0  # of TURN_COST_MAX
        self.has_settings = False  # of the peer, its first frame
        self._rest = b""
        self._data_left = 0  # of the DATA frame that is arriving
        self._data_number = 0
        self._data_flags = 0
        self._padding_left = 0  # that is arriving, behind it
        self._block: bytearray | None = None  # header block that is arriving
        self._block_number = 0
        self._block_flags = 0
        self._idle_frames, self._idle_since = 0, self.loop.time()
        self._resets, self._resets_since = 0, self._idle_since

    def data_received(self, data: bytes) -> None:
        if self.is_closed:
            return
        self.heard = True
        if self.is_resting:  # what came before has its turn first
            self._rest += data
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        self.turn_left = TURN_COST_MAX
        self.is_parsing, self.is_resting = True, False
        fault = None
        try:
            self._parse(data)
        except ConnectionFault as found:
            fault = (found.code, found.reason)  # not itself: it would hold this frame
        finally:
            self.is_parsing = False
        self.write_out()
        if fault is not None:
            self.end(*fault)
            return
        if self.turn_left <= 0 and self._rest and not self.is_closed:
            self.is_resting = True
            self.loop.call_soon(self._go_on)
        self.on_turn_end()

    def _go_on(self) -> None:
        """With what has arrived and was left for another turn."""
        if self.is_resting:
            self._take(b"")

    def _parse(self, data: bytes) -> None:
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, end = 0, len(data)
        while at < end and self.turn_left > 0 and not self.is_closed:
            self.turn_left -= 1
            if self._data_left:
                size = min(self._data_left, end - at, DATA_PIECE_BYTES_MAX)
                self._data_left -= size
                done = not self._data_left and self._data_flags & frames.END_STREAM
                self.on_data(self._data_number, data[at : at + size], 0, bool(done))
                at += size
                continue
            if self._padding_left:
                size = min(self._padding_left, end - at)
                self._padding_left -= size
                at += size
                continue
            if end - at < frames.FRAME_BYTES:
                break
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            kind, flags = data[at + 3], data[at + 4]
            number = int.from_bytes(data[at + 5 : at + 9], "big") & frames.WINDOW_MAX
            self._check_frame(kind, flags, number, size)
            if kind == frames.DATA and flags & frames.PADDED:
                if size and end - at == frames.FRAME_BYTES:
                    break
                padding = data[at + frames.FRAME_BYTES] if size else 0
                self._on_padded_data(number, flags, size, padding)
                at += frames.FRAME_BYTES + 1
                continue
            if kind == frames.DATA and size:
                self.check_begun(number)
                self._data_left, self._data_number, self._data_flags = size, number, flags
                at += frames.FRAME_BYTES
                continue
            if end - at < frames.FRAME_BYTES + size:
                break
            at += frames.FRAME_BYTES
            payload = data[at : at + size]
            at += size
            if kind == frames.HEADERS:
                self._on_headers(number, flags, payload)
            elif kind == frames.CONTINUATION:
                self._on_continuation(number, flags, payload)
            elif kind == frames.DATA:
                self._on_empty_data(number, flags)
            else:
                self.on_frame(kind, number, flags, payload)
        if at < end and not self.is_closed:
            self._rest = data[at:]

    def _check_frame(self, kind: int, flags: int, number: int, size: int) -> None:
        if self._block is not None and (kind != frames.CONTINUATION or number != self._block_number):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a header block is incomplete")
        if not self.has_settings and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "the first frame must be SETTINGS")
        if size > (FRAME_BYTES_MAX if kind == frames.DATA else HEADER_BLOCK_BYTES_MAX):
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes")

    def count_idle(self, count: int) -> None:
        self._idle_frames += count
        if self._idle_frames > IDLE_FRAMES_MAX:
            now = self.loop.time()
            if now - self._idle_since < 1.0:
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many frames that carry nothing")
            self._idle_frames, self._idle_since = count, now

    def count_reset(self) -> None:
        """Of a call, by the peer or for a fault of the peer. ConnectionFault."""
        self._resets += 1
        if self._resets > RESETS_MAX:
            now = self.loop.time()
            if now - self._resets_since < RESETS_S:
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, f"more than {RESETS_MAX} calls reset in {RESETS_S:g} s")
            self._resets, self._resets_since = 1, now

    def _on_empty_data(self, number: int, flags: int) -> None:
        self.check_begun(number)
        self.count_idle(1)
        self.on_data(number, b"", 0, bool(flags & frames.END_STREAM))

    def _on_padded_data(self, number: int, flags: int, size: int, padding: int) -> None:
        """The begin of its frame, which has `size` bytes: one for the size of the padding, data, the padding."""
        self.check_begun(number)
        if padding >= size:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "padding beyond the frame")
        self._data_left, self._data_number, self._data_flags = size - 1 - padding, number, flags
        self._padding_left = padding
        self.on_data(number, b"", padding + 1, False)
        if not self._data_left:
            self._on_empty_data(number, flags)

    def _on_headers(self, number: int, flags: int, payload: bytes) -> None:
        if number == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "HEADERS without a stream")
        padding = 0
        if flags & frames.PADDED:
            if not payload:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "padding beyond the frame")
            padding, payload = payload[0], payload[1:]
        if flags & frames.HAS_PRIORITY:
            check_priority(number, payload[:5])
            payload = payload[5:]
        if padding > len(payload):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "padding beyond the frame")
        block = payload[: len(payload) - padding]
        if flags & frames.END_HEADERS:
            self._end_block(number, flags, block)
        else:
            self._block, self._block_number, self._block_flags = bytearray(block), number, flags

    def _on_continuation(self, number: int, flags: int, payload: bytes) -> None:
        if self._block is None:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        if not payload:
            self.count_idle(1)
        self._block += payload
        if len(self._block) > HEADER_BLOCK_BYTES_MAX:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block is too large")
        if flags & frames.END_HEADERS:
            block, self._block = bytes(self._block), None
            self._end_block(number, self._block_flags, block)

    def _end_block(self, number: int, flags: int, block: bytes) -> None:
        self.turn_left -= BLOCK_COST + len(block) // BLOCK_COST_BYTES
        self.on_block(number, block, is_last=bool(flags & frames.END_STREAM))

    def drop_data(self) -> None:
        """The rest of the DATA frame that is arriving."""
        self._data_number = 0

    def forget_rest(self) -> None:
        """The connection has ended."""
        self._rest, self._block, self.is_resting = b"", None, False

    def read_rest(self) -> None:
        """What has arrived and waits for its turn, now: nothing more will come."""
        while self.is_resting and not self.is_closed:
            self._take(b"")

    # What is done with it. All but the last three may raise ConnectionFault.

    def check_begun(self, number: int) -> None:
        """That a call has this number, or had it."""
        raise NotImplementedError

    def on_data(self, number: int, chunk: bytes, padding: int, is_last: bool) -> None:
        """A piece of a DATA frame, and of its padding."""
        raise NotImplementedError

    def on_block(self, number: int, block: bytes, *, is_last: bool) -> None:
        raise NotImplementedError

    def on_frame(self, kind: int, number: int, flags: int, payload: bytes) -> None:
        """Of any other kind, known or not."""
        raise NotImplementedError

    def write_out(self) -> None:
        """What was written while it parsed."""
        raise NotImplementedError

    def on_turn_end(self) -> None:
        """What has arrived was read, or `is_resting`."""
        raise NotImplementedError

    def end(self, code: Code, reason: str) -> None:
        """For a fault of the peer."""
        raise NotImplementedError


def check_priority(number: int, payload: bytes) -> None:
    """ConnectionFault."""
    if len(payload) != 5:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a priority has five bytes")
    if int.from_bytes(payload[:4], "big") & frames.WINDOW_MAX == number:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "a stream that depends on itself")
