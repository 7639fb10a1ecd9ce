"""Reads the fields of Kafka's schema-versioned messages, one after another, big-endian.

A *flexible* message has compact lengths (an unsigned varint of length + 1, 0 for null) and ends with tagged fields;
the older ones have an i16 length for strings, an i32 for bytes and arrays, -1 for null. Every length is bounded by
the bytes that are left before anything is read by it.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from streamlog.errors import InvalidRecordError

T = TypeVar("T")

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class MessageReader:
    """A cursor over one message. Raises InvalidRecordError where the bytes end too early or a length is impossible."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.flexible = False  # set once the version is known

    def int8(self) -> int:
        return self._integer(_INT8)

    def int16(self) -> int:
        return self._integer(_INT16)

    def int32(self) -> int:
        return self._integer(_INT32)

    def int64(self) -> int:
        return self._integer(_INT64)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise InvalidRecordError(f"the string at byte {self._position} must not be null")
        return text

    def nullable_string(self) -> str | None:
        length = self._length(_INT16)
        return None if length is None else self._take(length).decode("utf-8", errors="replace")

    def nullable_bytes(self) -> bytes | None:
        length = self._length(_INT32)
        return None if length is None else self._take(length)

    def raw(self, size: int) -> bytes:
        return self._take(size)

    def uuid(self) -> str:
        """As Kafka writes it: base64 for URLs, without padding."""
        return base64.urlsafe_b64encode(self._take(16)).rstrip(b"=").decode()

    def array(self, element: Callable[[], T]) -> list[T]:
        """Null counts as empty. An element has at least one byte, which bounds the count."""
        count = self._length(_INT32) or 0
        if count > len(self._data) - self._position:
            raise InvalidRecordError(f"an array at byte {self._position} announces {count} elements")
        return [element() for _ in range(count)]

    def tagged_fields(self) -> Iterator[tuple[int, MessageReader]]:
        """(tag, its content) of each tagged field; none unless the message is flexible."""
        for _ in range(self._varint() if self.flexible else 0):
            tag = self._varint()
            yield tag, MessageReader(self._take(self._varint()))

    def skip_tagged_fields(self) -> None:
        for _ in self.tagged_fields():
            pass

    def _length(self, plain: struct.Struct) -> int | None:
        length = self._varint() - 1 if self.flexible else self._integer(plain)
        if length < -1:
            raise InvalidRecordError(f"impossible length {length} at byte {self._position}")
        return None if length == -1 else length

    def _integer(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack(self._take(layout.size))
        return int(value)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise InvalidRecordError(f"a varint at byte {self._position} has more than 5 bytes")

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise InvalidRecordError(f"{size} bytes wanted at byte {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken
