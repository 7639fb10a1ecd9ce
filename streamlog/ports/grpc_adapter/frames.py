"""Frames of HTTP/2 (RFC 9113), and the prefix of gRPC's messages: numbers and bytes.

frame     length u24, type u8, flags u8, stream u31, payload
message   compressed u8, length u32, bytes                     in the payload of DATA frames, cut anywhere
"""

from __future__ import annotations

import enum
import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES: Final = 9
PREFIX_BYTES: Final = 5

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
PADDED: Final = 8
HAS_PRIORITY: Final = 32

WINDOW_MAX: Final = 2**31 - 1
WINDOW_DEFAULT: Final = 65_535
FRAME_SIZE_DEFAULT: Final = 16_384
FRAME_SIZE_MAX: Final = 2**24 - 1
GO_AWAY_TEXT_MAX: Final = 256


class Code(enum.IntEnum):
    """Of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class SettingKey(enum.IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


_HEADER: Final = struct.Struct(">IBI")  # length and type in the first four bytes
_HEADER_AND_PREFIX: Final = struct.Struct(">IBIBI")
_HEADER_AND_NUMBER: Final = struct.Struct(">IBII")
_HEADER_AND_TWO: Final = struct.Struct(">IBIII")
_SETTING: Final = struct.Struct(">HI")
SETTING_BYTES: Final = _SETTING.size


class ConnectionFault(Exception):
    """The peer has broken the protocol, or a limit: the connection ends."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return _HEADER.pack(len(payload) << 8 | kind, flags, stream) + payload


def data_header(size: int, flags: int, stream: int) -> bytes:
    """Of a DATA frame with `size` bytes."""
    return _HEADER.pack(size << 8 | DATA, flags, stream)


def message_header(size: int, flags: int, stream: int) -> bytes:
    """Of a DATA frame with one whole message of `size` bytes, and its prefix."""
    return _HEADER_AND_PREFIX.pack((size + PREFIX_BYTES) << 8 | DATA, flags, stream, 0, size)


def prefix(size: int) -> bytes:
    """Of a message that is not compressed."""
    return b"\0" + size.to_bytes(4, "big")


def window_update(stream: int, credit: int) -> bytes:
    return _HEADER_AND_NUMBER.pack(4 << 8 | WINDOW_UPDATE, 0, stream, credit)


def reset(stream: int, code: Code) -> bytes:
    return _HEADER_AND_NUMBER.pack(4 << 8 | RST_STREAM, 0, stream, code)


def go_away(last_stream: int, code: Code, reason: str = "") -> bytes:
    text = reason.encode()[:GO_AWAY_TEXT_MAX]
    return _HEADER_AND_TWO.pack((8 + len(text)) << 8 | GOAWAY, 0, 0, last_stream, code) + text


def settings(values: dict[SettingKey, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join([_SETTING.pack(key, value) for key, value in values.items()]))


def settings_of(payload: bytes) -> list[tuple[int, int]]:
    """Of a whole number of settings."""
    return list(_SETTING.iter_unpack(payload))


SETTINGS_ACK: Final = frame(SETTINGS, ACK, 0)
PING_OF_OURS: Final = frame(PING, 0, 0, bytes(8))
