"""Writes the fields of Kafka's schema-versioned messages, in order, big-endian: the inverse of `message_reader`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class MessageWriter:
    """One message. `flexible`: compact lengths, and tagged fields at the end of every structure."""

    def __init__(self, *, flexible: bool = False) -> None:
        self._out = bytearray()
        self._flexible = flexible

    def content(self) -> bytes:
        return bytes(self._out)

    def int8(self, value: int) -> None:
        self._out += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self._out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self._out += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self._out += _INT64.pack(value)

    def raw(self, content: bytes) -> None:
        self._out += content

    def string(self, text: str) -> None:
        content = text.encode()
        self._length(len(content), _INT16)
        self._out += content

    def nullable_string(self, text: str | None) -> None:
        if text is None:
            self._length(-1, _INT16)
        else:
            self.string(text)

    def array(self, items: Sequence[T], element: Callable[[T], None]) -> None:
        self._length(len(items), _INT32)
        for item in items:
            element(item)

    def tagged_fields(self, fields: Iterable[tuple[int, bytes]] = ()) -> None:
        """(tag, content) of each, by rising tag. Only in a flexible message; there, at the end of every structure."""
        present = list(fields)
        self._varint(len(present))
        for tag, content in present:
            self._varint(tag)
            self._varint(len(content))
            self._out += content

    def _length(self, length: int, plain: struct.Struct) -> None:
        if self._flexible:
            self._varint(length + 1)
        else:
            self._out += plain.pack(length)

    def _varint(self, value: int) -> None:
        while value >= 0x80:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)
