"""Byte strings concatenated in Arrow's `binary` layout, copied from the batches that contain them.

    Strings of one batch, of the next ... --join_strings--> BinaryColumn

Each string is copied once, however many batches there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from streamlog.errors import InvariantError
from streamlog.records.columns.lazy_numpy import np
from streamlog.records.columns.ragged import equal_copy, ragged_copy
from streamlog.records.varint import BoolArray, ByteArray, Int64Array

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BYTES_MAX: Final = 2**31 - 1


class Strings(NamedTuple):
    """The i-th is raw[starts[i] : starts[i] + sizes[i]], a range within `raw`; a size of -1 is null."""

    raw: bytes
    starts: Int64Array
    sizes: Int64Array


class BinaryColumn(Struct, frozen=True, kw_only=True):
    """Arrow's `binary` layout.

    The i-th is data[offsets[i] : offsets[i + 1]]; of a null it is empty and valid[i] is False.
    """

    offsets: NDArray[np.int32]  # n + 1 of them, rising from 0
    data: ByteArray
    valid: BoolArray | None  # None: there are no nulls

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def validity_bitmap(self) -> bytes | None:
        """One bit each, lowest first, as Arrow's buffers have it; None where all are valid."""
        return None if self.valid is None else np.packbits(self.valid, bitorder="little").tobytes()


def join_strings(parts: Sequence[Strings]) -> BinaryColumn:
    """The strings of all `parts`, in order. InvariantError beyond 2^31 - 1 bytes: no offset is larger."""
    size = _size_of_all(parts)
    return _join_mixed(parts) if size is None else _join_equal(parts, size)


def _size_of_all(parts: Sequence[Strings]) -> int | None:
    """That of each string, where all have the same."""
    sizes = {int(part.sizes[0]) for part in parts if len(part.sizes)}
    if len(sizes) != 1:
        return None
    (size,) = sizes
    return size if all(bool((part.sizes == size).all()) for part in parts) else None


def _join_equal(parts: Sequence[Strings], size: int) -> BinaryColumn:
    count = sum(len(part.sizes) for part in parts)
    present = max(size, 0)
    _check_bytes(count * present)
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(present)
    data = np.empty(count * present, np.uint8)
    row = 0
    for part in parts if present else ():
        end = row + len(part.sizes)
        _move_equal(part, data, offsets[row : end + 1], present)
        row = end
    return BinaryColumn(offsets=offsets, data=data, valid=np.zeros(count, np.bool_) if size < 0 else None)


def _join_mixed(parts: Sequence[Strings]) -> BinaryColumn:
    sizes = parts[0].sizes if len(parts) == 1 else np.concatenate([part.sizes for part in parts])
    present = np.maximum(sizes, 0)
    _check_bytes(int(present.sum()))
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(present, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    row = 0
    for part in parts:
        end = row + len(part.sizes)
        begins = offsets[row : end + 1]
        if begins[0] < begins[-1]:
            _move(part, data, begins)
        row = end
    valid = sizes >= 0
    return BinaryColumn(offsets=offsets, data=data, valid=None if bool(valid.all()) else valid)


def _move(part: Strings, data: ByteArray, begins: NDArray[np.int32]) -> None:
    """To `begins[:-1]` of `data`, the last one up to `begins[-1]`."""
    size = int(part.sizes[0])
    if size > 0 and bool((part.sizes == size).all()):
        _move_equal(part, data, begins, size)
    else:
        source = np.frombuffer(part.raw, np.uint8)
        ragged_copy(source, part.starts, data, begins[:-1].astype(np.int64), np.maximum(part.sizes, 0))


def _move_equal(part: Strings, data: ByteArray, begins: NDArray[np.int32], size: int) -> None:
    """As `_move`, of strings of one size above 0."""
    source = np.frombuffer(part.raw, np.uint8)
    target = data[int(begins[0]) : int(begins[-1])].reshape(-1, size)
    if len(target) and not equal_copy(source, part.starts, target):
        ragged_copy(source, part.starts, data, begins[:-1].astype(np.int64), part.sizes)


def _check_bytes(size: int) -> None:
    if size > _BYTES_MAX:
        raise InvariantError(f"{size} bytes of strings in one column")
