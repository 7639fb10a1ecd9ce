"""The protobuf wire format, as far as it is written and read by hand: around record batches.

The protobuf library copies a bytes field into a message, out of it again, and once more when the message becomes part
of another one. For messages that are mostly record batches that is most of their cost, so the fields around the batches
are encoded here (`fetched`, `broker.replica_wire`); everything else uses generated code.
"""

from __future__ import annotations

from typing import Final

from streamlog.errors import CorruptMessageError
from streamlog.ports import Buffer

_VARINT_SHIFT_MAX: Final = 7 * 10  # of ten bytes
_ONE_BYTE: Final = tuple(bytes((number,)) for number in range(0x80))
_FIELD_NUMBER_MAX: Final = (1 << 29) - 1
# Wire types: what follows a tag.
VARINT: Final = 0
_FIXED_64: Final = 1
LENGTH_DELIMITED: Final = 2
_FIXED_32: Final = 5
_FIXED_BYTES: Final = {_FIXED_64: 8, _FIXED_32: 4}


def tag(field_number: int, wire_type: int) -> int:
    """The tag of a field."""
    return field_number << 3 | wire_type


def varint(number: int) -> bytes:
    """Of a non-negative number."""
    if number < 0x80:
        return _ONE_BYTE[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """The number at `position`, and the position after it. CorruptMessageError if it does not end before `end`."""
    number, shift, at = 0, 0, position
    while at < end and shift < _VARINT_SHIFT_MAX:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return number | byte << shift, at
        number |= (byte & 0x7F) << shift
        shift += 7
    raise CorruptMessageError("a varint is truncated, or longer than 10 bytes", position=position)


def skip(data: Buffer, position: int, end: int, what: int) -> int:
    """The position after the field whose tag, `what`, was just read. CorruptMessageError."""
    field_number, wire_type = what >> 3, what & 7
    if not 0 < field_number <= _FIELD_NUMBER_MAX:
        raise CorruptMessageError(f"invalid field number {field_number}", position=position)
    if wire_type == VARINT:
        return read_varint(data, position, end)[1]
    if wire_type == LENGTH_DELIMITED:
        size, position = read_varint(data, position, end)
    elif wire_type in _FIXED_BYTES:
        size = _FIXED_BYTES[wire_type]
    else:
        raise CorruptMessageError(f"invalid wire type {wire_type}", position=position)
    if size > end - position:
        raise CorruptMessageError("a field is truncated", position=position)
    return position + size
