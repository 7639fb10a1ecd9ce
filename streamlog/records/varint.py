"""Zigzag varints, of which the records of a batch consist: one at a time, by table, and by column.

A varint has 7 bits per byte, lowest first; the top bit means that more follow. Zigzag puts the sign into bit 0, so
that -1 is one byte: 0, -1, 1, -2 ... become 0, 1, 2, 3 ... Lengths, counts and offset deltas have 32 bits and take
at most 5 bytes, timestamp deltas have 64 and take at most 10. An encoding longer than necessary is accepted; one with
too many bits is refused.

By column means numpy: the n-th step of a varint is taken for all records at once that have an n-th byte. The encoder
turns a column of numbers into a list of bytes objects; small numbers come from a table.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from streamlog.errors import InvalidRecordError
from streamlog.records.columns.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Int64Array: TypeAlias = "NDArray[np.int64]"
ByteArray: TypeAlias = "NDArray[np.uint8]"
BoolArray: TypeAlias = "NDArray[np.bool_]"
ObjectArray: TypeAlias = "NDArray[np.object_]"

# Maximum bytes of a number of 32 and of 64 bits, and the largest value of the last one: the remaining bits.
_VARINT: Final = (5, 0x0F)
_VARLONG: Final = (10, 0x01)

# Numbers of at most this many bits take 1, 2, 3 ... bytes; one bit of each seventh is the sign's.
_BITS_A_BYTE: Final = 7
# First number (not negative) that needs 2, 3, 4, 5 bytes.
WIDTH_BOUNDS: Final = tuple(1 << (_BITS_A_BYTE * width - 1) for width in range(1, 5))
# Numbers below this are encoded by table: all of one and two bytes. A table takes half a megabyte and 2 ms to make.
TABLE_SIZE: Final = WIDTH_BOUNDS[1]
_ONE_BYTE: Final = tuple(bytes([number << 1]) for number in range(WIDTH_BOUNDS[0]))


def encode_varint(number: int) -> bytes:
    """Zigzag varint of a number of up to 64 bits, signed."""
    if 0 <= number < WIDTH_BOUNDS[0]:  # most sizes
        return _ONE_BYTE[number]
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The 32-bit number at `position`, and the position after it.

    Raises InvalidRecordError for more than 32 bits, IndexError where the data end.
    """
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read(data, position, *_VARINT)


def read_varlong(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """As `read_varint`, for 64 bits."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read(data, position, *_VARLONG)


def _read(data: bytes | memoryview, position: int, bytes_max: int, last_byte_max: int) -> tuple[int, int]:
    byte = data[position]
    raw, shift = byte & 0x7F, 7
    last_shift = 7 * (bytes_max - 1)
    while byte > 0x7F:
        position += 1
        byte = data[position]
        if shift == last_shift and byte > last_byte_max:
            raise InvalidRecordError("a number in the records has too many bits")
        raw |= (byte & 0x7F) << shift
        shift += 7
    return (raw >> 1) ^ -(raw & 1), position + 1


def object_array(items: Sequence[bytes]) -> ObjectArray:
    """An array of references to the items; numpy would otherwise make an array of fixed-width strings of them."""
    array = np.empty(len(items), object)
    array[:] = items
    return array


@functools.cache
def _small_varints() -> tuple[bytes, ...]:
    """The extra last entry makes index -1 work: -1, which is "null", is encoded as 01."""
    return (*map(encode_varint, range(TABLE_SIZE)), encode_varint(-1))


class VarintTable:
    """Varints with fixed bytes before and after them: from a table, made at first use, where the numbers are small."""

    def __init__(self, before: bytes = b"", behind: bytes = b"") -> None:
        self._before, self._behind = before, behind

    @functools.cached_property
    def _table(self) -> ObjectArray:
        return object_array([self._before + varint + self._behind for varint in _small_varints()])

    def encode(self, numbers: Int64Array) -> list[bytes]:
        """For a column of numbers from -2^63 to 2^63 - 1, one bytes object each."""
        if len(numbers) == 0:
            return []
        if int(numbers.min()) >= -1 and int(numbers.max()) < TABLE_SIZE:
            small: list[bytes] = self._table[numbers].tolist()
            return small
        varints = _encode_large(numbers)
        if not self._before and not self._behind:
            return varints
        return [b"".join((self._before, varint, self._behind)) for varint in varints]


def _encode_large(numbers: Int64Array) -> list[bytes]:
    raw = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    out = np.empty(len(numbers), object)
    left = np.arange(len(numbers))
    for width in range(1, 11):
        fits = raw[left] >> np.uint64(_BITS_A_BYTE * width) == 0 if width < 10 else np.ones(len(left), np.bool_)
        out[left[fits]] = _encode_width(raw[left[fits]], width)
        left = left[~fits]
    encoded: list[bytes] = out.tolist()
    return encoded


def _encode_width(raw: NDArray[np.uint64], width: int) -> list[bytes]:
    """Numbers that all take `width` bytes, zigzag done."""
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(_BITS_A_BYTE)
    digits = (raw[:, None] >> shifts).astype(np.uint8) & 0x7F
    digits[:, :-1] |= 0x80
    encoded: list[bytes] = digits.view(f"V{width}").ravel().tolist()  # a void's items are bytes objects
    return encoded


def varint_widths(numbers: Int64Array) -> Int64Array:
    """Bytes that each number takes, for numbers from -1 to 2^31 - 1."""
    widths = np.ones(len(numbers), np.int64)
    largest = int(numbers.max(initial=0))
    for bound in WIDTH_BOUNDS:
        if largest < bound:
            break
        widths += numbers >= bound
    return widths


@functools.cache
def _unzigzag() -> Int64Array:
    """The number that one byte below 0x80 encodes."""
    return np.array([(raw >> 1) ^ -(raw & 1) for raw in range(128)])


def read_varints(data: ByteArray, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The 32-bit numbers at the positions (a column), and the positions after them.

    Raises InvalidRecordError for more than 32 bits, IndexError where the data end.
    """
    return _read_column(data, positions, *_VARINT)


def read_varlongs(data: ByteArray, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
    """As `read_varints`, for 64 bits."""
    return _read_column(data, positions, *_VARLONG)


def _read_column(
    data: ByteArray, positions: Int64Array, bytes_max: int, last_byte_max: int
) -> tuple[Int64Array, Int64Array]:
    byte = data[positions]
    after = positions + 1
    if int(byte.max(initial=0)) < 0x80:
        return _unzigzag()[byte], after
    if int(after.max()) == len(data) and int(byte[after == len(data)].max()) > 0x7F:
        raise IndexError("a varint is incomplete")
    more = byte > 0x7F
    # Most varints have one or two bytes, so the second is read for all records and used for those that have it.
    second = data.take(after, mode="clip") * more
    raw = (byte & 0x7F).astype(np.int64) | (second & 0x7F).astype(np.int64) << _BITS_A_BYTE
    after += more
    rest = np.flatnonzero(second > 0x7F)
    if len(rest):
        _read_rest(data, after, raw.view(np.uint64), rest, bytes_max, last_byte_max)
    unsigned = raw.view(np.uint64)
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(raw & 1), after


def _read_rest(
    data: ByteArray, after: Int64Array, raw: NDArray[np.uint64], rows: Int64Array, bytes_max: int, last_byte_max: int
) -> None:
    """The third and later bytes of the rows that have them, into `raw` and `after`."""
    for step in range(2, bytes_max):
        byte = data[after[rows]]
        if step == bytes_max - 1 and bool((byte > last_byte_max).any()):
            raise InvalidRecordError("a number in the records has too many bits")
        raw[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(_BITS_A_BYTE * step)
        after[rows] += 1
        rows = rows[byte > 0x7F]
        if len(rows) == 0:
            return
