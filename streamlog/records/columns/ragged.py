"""Move many byte strings of mixed sizes at once, with numpy and without a Python object for any of them.

numpy moves items of one size; strings have many. Solution: a string of s bytes, 2^k <= s < 2^(k+1), is covered
by two pieces of 2^k bytes, one from its start and one to its end, which may overlap. So all strings with the same k
are moved by two calls, and there are as many k as the longest string has bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamlog.records.columns.lazy_numpy import np
from streamlog.records.varint import ByteArray, Int64Array

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STRIDES_MAX: Final = 8


def ragged_copy(
    source: ByteArray, source_starts: Int64Array, target: ByteArray, target_starts: Int64Array, sizes: Int64Array
) -> None:
    """Copy `sizes[i]` bytes from `source_starts[i]` to `target_starts[i]`, for every i.

    All ranges must be inside their arrays, and those of the target disjoint. A size of 0 or less copies nothing.
    """
    exponents = np.frexp(sizes)[1] - 1
    exponents[sizes <= 0] = -1
    for exponent in np.flatnonzero(np.bincount(exponents + 1)[1:]).tolist():
        rows = np.flatnonzero(exponents == exponent)
        width = 1 << exponent
        to, of = windows(target, width), windows(source, width)
        from_start, to_start = source_starts[rows], target_starts[rows]
        to[to_start] = of[from_start]
        rest = sizes[rows] - width
        to[to_start + rest] = of[from_start + rest]


def equal_copy(source: ByteArray, starts: Int64Array, target: NDArray[np.uint8]) -> bool:
    """Copy from each start as many bytes as a row of `target` has, at least 1; all must be inside the source.

    Where the starts are evenly spaced with few exceptions, as in batches of equal records, numpy copies them row by
    row, several times as fast as `ragged_copy`. Otherwise nothing is copied, and it returns False.
    """
    strides = starts[1:] - starts[:-1]
    changes = np.flatnonzero(strides[1:] != strides[:-1]) + 1
    if len(changes) > _STRIDES_MAX:
        return False
    size = target.shape[1]
    first = 0
    for change in [*changes.tolist(), len(starts)]:
        end = min(change + 1, len(starts))
        if end > first:
            stride = int(strides[first]) if end - first > 1 else 0
            target[first:end] = np.ndarray((end - first, size), np.uint8, source, int(starts[first]), (stride, 1))
        first = end
    return True


def windows(data: ByteArray, width: int) -> NDArray[Any]:
    """A view whose i-th item is the `width` bytes from i on. `width` is at least 1 and at most len(data).

    The items are of a void type, which numpy copies unchanged and returns as bytes objects.
    """
    return np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))


def equal_strings(raw: bytes, starts: Int64Array, size: int) -> list[bytes | None]:
    """A bytes object for each `raw[start : start + size]`; `size` is at least 1, every range is within `raw`."""
    strides = starts[1:] - starts[:-1]
    if len(strides) and bool((strides == strides[0]).all()):
        items = np.ndarray((len(starts),), f"V{size}", raw, int(starts[0]), (int(strides[0]),))
    else:
        items = windows(np.frombuffer(raw, np.uint8), size)[starts]
    strings: list[bytes | None] = items.tolist()
    return strings
