"""One connection of HTTP/2: what both ends do alike. Frames are handled as they arrive, on the event loop.

    frames (`frame_reader`) --> a handler for each kind --> calls
    write                       what is written meanwhile goes out together afterwards

What is held for a peer is bounded:

    bytes of calls that are not read    `Inflow`, and a window for each call
    answers that it does not read       senders wait beyond HIGH_WATER_BYTES; beyond UNSENT_BYTES_MAX nothing is read
                                        from it

The connection's own window is always open: what counts is what is held, and a stream that is not read does not hold up
the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, cast

from streamlog.errors import Status
from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.call import Http2Call
from streamlog.ports.grpc_adapter.frame_reader import (
    FRAME_BYTES_MAX,
    HEADER_BLOCK_BYTES_MAX,
    FrameReader,
    check_priority,
)
from streamlog.ports.grpc_adapter.frames import Code, ConnectionFault, SettingKey
from streamlog.ports.grpc_adapter.header_coding import HeaderDecoder, HeaderEncoder
from streamlog.ports.grpc_adapter.inflow import Inflow
from streamlog.ports.grpc_adapter.metadata import METADATA_BYTES_MAX, HeaderFields, Pairs
from streamlog.ports.network import RpcError

STREAM_WINDOW_BYTES: Final = 1 << 20
"""What the peer may send of a call that is not read, while there is room."""
CONNECTION_WINDOW_BYTES: Final = 1 << 30
CONNECTION_CREDIT_BYTES: Final = 1 << 20
HIGH_WATER_BYTES: Final = 64 << 10
UNSENT_BYTES_MAX: Final = 512 << 10
HELD_MOST: Final = "of all connections it held most of the bytes of requests that wait (queued.max.request.bytes)"
UNWRITTEN_MAX: Final = 32
"""What is written together at the end of a turn: of COPIED_BYTES_MAX at most each."""
LEFT_MAX: Final = 1_000
"""Calls that this end has left and the peer may not know it yet: what still comes for them is dropped."""
CLOSE_S: Final = 1.0
"""How long a connection that ends may take to send what is left."""
SMALL_CREDIT_BYTES: Final = 64
"""A WINDOW_UPDATE of less counts as a frame that carries nothing: it costs more than it allows to send."""
CALLS_A_CHANGE: Final = 8
"""Calls whose window changes, or which are looked at for another reason, count as one frame that carries nothing."""
logging.getLogger("hpack").setLevel(logging.WARNING)  # below that it logs each field, passwords and tokens too


class Http2Connection(FrameReader):
    """Ends with `lose`, for whatever reason."""

    is_client: ClassVar[bool]
    first_window_bytes: ClassVar[int]  # of a new stream

    def __init__(self, *, message_bytes_max: int, inflow: Inflow) -> None:
        super().__init__()
        self.message_bytes_max = message_bytes_max
        self.calls: dict[int, Http2Call] = {}
        self.transport: asyncio.Transport
        self.is_open = False  # it has its transport
        self.is_paused = False  # the transport has as much to send as it should
        self.is_leaving = False  # no new calls: GOAWAY was received or sent
        self.is_ready = False  # the peer has acknowledged our settings
        self.send_window = frames.WINDOW_DEFAULT
        self.frame_bytes_max = frames.FRAME_SIZE_DEFAULT  # that the peer accepts
        self.calls_max = frames.WINDOW_MAX  # likewise
        self.waiting_senders: dict[Http2Call, None] = {}
        self.last_number = 0  # the highest of the calls of the peer
        self._inflow = inflow
        self.held = 0  # bytes of its calls that are not read
        self._initial_window = frames.WINDOW_DEFAULT
        self._uncredited = 0
        self._left: dict[int, None] = {}
        self._encoder = HeaderEncoder()
        self._decoder = HeaderDecoder(HEADER_BLOCK_BYTES_MAX)
        self._unwritten: list[bytes] = []  # while it parses, or until the end of the turn
        self._aborting: asyncio.TimerHandle | None = None  # once it is being closed

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._inflow.open[self] = None
        values = {
            SettingKey.INITIAL_WINDOW_SIZE: self.first_window_bytes,
            SettingKey.MAX_FRAME_SIZE: FRAME_BYTES_MAX,
            SettingKey.MAX_HEADER_LIST_SIZE: METADATA_BYTES_MAX,
        }
        if self.is_client:
            values[SettingKey.ENABLE_PUSH] = 0
        credit = CONNECTION_WINDOW_BYTES - frames.WINDOW_DEFAULT
        begin = frames.PREFACE if self.is_client else b""
        self.write(begin + frames.settings(values) + frames.window_update(0, credit))

    def connection_lost(self, exc: Exception | None) -> None:
        self.read_rest()
        self.lose("the connection broke" if exc is not None else "the peer has closed the connection")
        if self._aborting is not None:
            self._aborting.cancel()

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._read_or_wait()
        self.wake_a_sender()

    def on_turn_end(self) -> None:
        if self.is_resting or self.is_paused or not self.transport.is_reading():
            self._read_or_wait()

    def _read_or_wait(self) -> None:
        if self.is_closed:
            return
        if self.is_resting or (self.is_paused and self.transport.get_write_buffer_size() > UNSENT_BYTES_MAX):
            self.transport.pause_reading()
        elif not self.transport.is_reading():
            self.transport.resume_reading()

    def wake_a_sender(self) -> None:
        """If there is room. When it has sent what it can it calls this: so room for one byte wakes one of thousands."""
        if self.waiting_senders and self.send_window > 0 and not self.is_paused:
            call = next(iter(self.waiting_senders))
            del self.waiting_senders[call]
            call.wake_sender()

    def write(self, data: bytes) -> None:
        if self.is_parsing or self._unwritten:
            self._unwritten.append(data)
        elif not self.is_closed:
            self.transport.write(data)

    def write_soon(self, data: bytes) -> None:
        """Together with what else is written in this turn of the event loop: one write instead of one for each."""
        self._unwritten.append(data)
        if len(self._unwritten) == 1:
            self.loop.call_soon(self.write_out)
        elif len(self._unwritten) >= UNWRITTEN_MAX:
            self.write_out()

    def write_lines(self, data: Iterable[bytes | memoryview]) -> None:
        """Never while it parses."""
        self.write_out()
        if not self.is_closed:
            self.transport.writelines(data)

    def write_out(self) -> None:
        if self._unwritten and not self.is_parsing:
            data = b"".join(self._unwritten)
            self._unwritten.clear()
            self.write(data)

    def lose(self, reason: str) -> None:
        """The connection ends, and all its calls."""
        if self.is_closed:
            return
        self.write_out()
        self.is_closed = self.is_leaving = True
        self.forget_rest()
        del self._inflow.open[self]
        self.transport.close()
        self._aborting = self.loop.call_later(CLOSE_S, self.transport.abort)
        calls, self.calls = list(self.calls.values()), {}
        for call in calls:
            self.on_lost(call, reason)
        self.on_closed(reason)

    def end(self, code: Code, reason: str) -> None:
        """Say why, and end."""
        self.write(frames.go_away(self.last_number, code, reason))
        self.lose(reason)

    # What calls use.

    def hold(self, size: int) -> bool:
        """Count bytes that have arrived; False: there is no room for them."""
        if not self._inflow.has_room(size, self.held) and not self._take_room(size):
            return False
        self.held += size
        self._inflow.bytes_held += size
        return True

    def _take_room(self, size: int) -> bool:
        """From the connection that holds most, which ends, if it holds more than this one would."""
        largest = self._inflow.largest()
        if largest.held <= self.held + size:
            return False
        cast(Http2Connection, largest).end(Code.ENHANCE_YOUR_CALM, HELD_MOST)
        return self._inflow.has_room(size, self.held)

    def stream_window_bytes(self) -> int:
        """What the peer may send of a call that is not read, now."""
        return STREAM_WINDOW_BYTES if self._inflow.has_plenty else frames.WINDOW_DEFAULT

    def let_go(self, size: int) -> None:
        self.held -= size
        self._inflow.bytes_held -= size

    def forget(self, call: Http2Call) -> None:
        """It has ended."""
        if self.calls.pop(call.number, None) is not None and not call.peer_is_done:
            self._leave(call.number)

    def _leave(self, number: int) -> None:
        self._left[number] = None
        if len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    def headers_frame(self, number: int, fields: Pairs, *, last: bool) -> bytes:
        """To be written before the next one is made: the peer decodes them in this order."""
        block = self._encoder.encode(fields)
        flags, size = frames.END_STREAM if last else 0, self.frame_bytes_max
        if len(block) <= size:
            return frames.frame(frames.HEADERS, flags | frames.END_HEADERS, number, block)
        parts = [frames.frame(frames.HEADERS, flags, number, block[:size])]
        for at in range(size, len(block), size):
            end = frames.END_HEADERS if at + size >= len(block) else 0
            parts.append(frames.frame(frames.CONTINUATION, end, number, block[at : at + size]))
        return b"".join(parts)

    # Frames.

    def check_begun(self, number: int) -> None:
        if number == 0 or self._is_idle(number):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a frame of a stream that was not opened")

    def on_data(self, number: int, chunk: bytes, padding: int, is_last: bool) -> None:
        self._uncredited += len(chunk) + padding
        if self._uncredited >= CONNECTION_CREDIT_BYTES:
            self.write(frames.window_update(0, self._uncredited))
            self._uncredited = 0
        call = self.calls.get(number)
        if call is None:
            if number and number not in self._left:
                self.drop_data()
                self.count_reset()
                self.write(frames.reset(number, Code.STREAM_CLOSED))
            return
        if call.peer_is_done:
            self.drop_data()
            self.count_reset()
            self.give_up(call, Code.STREAM_CLOSED, RpcError(Status.INTERNAL, "the peer has sent more after its last"))
            return
        try:
            if chunk or padding:
                call.on_data(chunk, padding)
        except RpcError as error:
            self.count_reset()
            self.refuse(call, error)
            return
        if is_last:
            call.on_done()
            self.on_peer_done(call)

    def on_block(self, number: int, block: bytes, *, is_last: bool) -> None:
        self.on_fields(number, self._decoder.decode(block), is_last=is_last)

    def on_frame(self, kind: int, number: int, flags: int, payload: bytes) -> None:
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, number, flags, payload)
        else:
            self.count_idle(1)

    def _on_priority(self, number: int, flags: int, payload: bytes) -> None:
        if number == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PRIORITY without a stream")
        check_priority(number, payload)
        self.count_idle(1)

    def _on_reset(self, number: int, flags: int, payload: bytes) -> None:
        self.check_begun(number)
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "RST_STREAM has four bytes")
        call = self.calls.get(number)
        if call is None:  # this end has ended it already: the usual end of a call whose caller had not ended its side
            self.count_idle(1)
            return
        self.count_reset()
        del self.calls[number]
        self.on_peer_reset(call, int.from_bytes(payload, "big"))

    def _on_settings(self, number: int, flags: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "SETTINGS of a stream")
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "an acknowledgement with settings")
            self.count_idle(1)
            self.is_ready = True
            return
        if len(payload) % frames.SETTING_BYTES:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a setting has six bytes")
        self.count_idle(1 + len(payload) // frames.SETTING_BYTES)
        for key, value in frames.settings_of(payload):
            self._on_setting(key, value)
        self.has_settings = True
        self.write(frames.SETTINGS_ACK)
        self.on_settings()

    def _on_setting(self, key: int, value: int) -> None:
        if key == SettingKey.INITIAL_WINDOW_SIZE:
            self._change_windows(value)
        elif key == SettingKey.MAX_FRAME_SIZE:
            if not frames.FRAME_SIZE_DEFAULT <= value <= frames.FRAME_SIZE_MAX:
                raise ConnectionFault(Code.PROTOCOL_ERROR, f"MAX_FRAME_SIZE of {value}")
            self.frame_bytes_max = min(value, FRAME_BYTES_MAX)
        elif key == SettingKey.MAX_CONCURRENT_STREAMS:
            self.calls_max = value
        elif key == SettingKey.HEADER_TABLE_SIZE:
            self._encoder.limit_table(value)
        elif key == SettingKey.ENABLE_PUSH and value > 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"ENABLE_PUSH of {value}")

    def _change_windows(self, initial: int) -> None:
        if initial > frames.WINDOW_MAX:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE of {initial}")
        change, self._initial_window = initial - self._initial_window, initial
        if change == 0:
            return
        self._count_calls()
        for call in self.calls.values():
            was_open = call.send_window > 0
            call.send_window += change
            if call.send_window > frames.WINDOW_MAX:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE of {initial}")
            if call.send_window > 0 and not was_open:
                call.wake_sender()

    def _count_calls(self) -> None:
        """All of them are looked at."""
        count = len(self.calls) // CALLS_A_CHANGE
        self.count_idle(count)
        self.turn_left -= count

    def _on_push(self, number: int, flags: int, payload: bytes) -> None:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "PUSH_PROMISE, which is not used here")

    def _on_ping(self, number: int, flags: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PING of a stream")
        if len(payload) != 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "PING has eight bytes")
        self.count_idle(1)
        if not flags & frames.ACK:
            self.write(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _on_go_away(self, number: int, flags: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "GOAWAY of a stream")
        if len(payload) < 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "GOAWAY has eight bytes or more")
        self.count_idle(1)
        self._count_calls()
        self.is_leaving = True
        last = int.from_bytes(payload[:4], "big") & frames.WINDOW_MAX
        self.on_leaving(last, payload[8:].decode("utf-8", "replace"))

    def _on_window_update(self, number: int, flags: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE has four bytes")
        credit = int.from_bytes(payload, "big") & frames.WINDOW_MAX
        if number == 0:
            self._on_credit(credit)
            return
        if self._is_idle(number):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a frame of a stream that was not opened")
        call = self.calls.get(number)
        if call is None:
            self.count_idle(1)
            return
        was_open = call.send_window > 0
        call.send_window += credit
        if credit and call.send_window <= frames.WINDOW_MAX:
            if credit < SMALL_CREDIT_BYTES:
                self.count_idle(1)
            if not was_open:
                call.wake_sender()
            return
        self.count_reset()
        code = Code.FLOW_CONTROL_ERROR if credit else Code.PROTOCOL_ERROR
        self.give_up(call, code, RpcError(Status.INTERNAL, "the peer has sent an invalid WINDOW_UPDATE"))

    def _on_credit(self, credit: int) -> None:
        """For all calls together."""
        self.send_window += credit
        if not credit:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        if self.send_window > frames.WINDOW_MAX:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "WINDOW_UPDATE beyond the largest window")
        if credit < SMALL_CREDIT_BYTES:
            self.count_idle(1)
        self.wake_a_sender()

    # What the two ends do differently.

    def _is_idle(self, number: int) -> bool:
        """No call has had this number yet."""
        raise NotImplementedError

    def on_fields(self, number: int, fields: HeaderFields, *, is_last: bool) -> None:
        raise NotImplementedError

    def on_peer_done(self, call: Http2Call) -> None:
        """It has ended its side with a DATA frame."""
        raise NotImplementedError

    def on_peer_reset(self, call: Http2Call, code: int) -> None:
        raise NotImplementedError

    def refuse(self, call: Http2Call, error: RpcError) -> None:
        """What the peer has sent is not accepted."""
        raise NotImplementedError

    def give_up(self, call: Http2Call, code: Code, error: RpcError) -> None:
        """The call is reset for a fault of the peer."""
        call.reset(code, error)

    def on_lost(self, call: Http2Call, reason: str) -> None:
        raise NotImplementedError

    def on_settings(self) -> None:
        """The peer's settings have come."""

    def on_leaving(self, last: int, reason: str) -> None:
        """The peer handles no calls above `last`."""

    def on_closed(self, reason: str) -> None:
        """The connection has ended."""


_HANDLERS: Final[dict[int, Callable[[Any, int, int, bytes], None]]] = {
    frames.PRIORITY: Http2Connection._on_priority,
    frames.RST_STREAM: Http2Connection._on_reset,
    frames.SETTINGS: Http2Connection._on_settings,
    frames.PUSH_PROMISE: Http2Connection._on_push,
    frames.PING: Http2Connection._on_ping,
    frames.GOAWAY: Http2Connection._on_go_away,
    frames.WINDOW_UPDATE: Http2Connection._on_window_update,
}
