"""An immutable sorted map that is cheap to derive from another one.

The entries are in leaves of at most LEAF_MAX keys in ascending order, and a spine lists the leaves. A derived map
shares every unchanged leaf: one change in 100,000 entries copies one leaf and the spine, some hundreds of references
each; a thousand changes at once copy each changed leaf and the spine once. Two levels are enough for the size of a
cluster's metadata, and simpler than a tree of any depth.

Iteration is in key order and so the same in every process: nothing hashes. Keys must be totally ordered and must
not be None; values may be anything. There is no mutation and no owner: any number of readers may hold any version.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, Generic, Protocol, TypeVar, overload

from streamlog.errors import InvariantError


class Comparable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Comparable)
V = TypeVar("V")
D = TypeVar("D")

# 100,000 keys make a spine of 400 to 800 leaves: a change copies about as much of one as of the other.
LEAF_MAX: Final = 256
# Below this a leaf is merged with its neighbour, so that deletions do not leave a long spine of small leaves.
LEAF_MIN: Final = LEAF_MAX // 4


class Removed(enum.Enum):
    """Among changes, the value of a removed key."""

    REMOVED = 0


REMOVED: Final = Removed.REMOVED


class _Leaf(Generic[K, V]):
    __slots__ = ("keys", "values")

    def __init__(self, keys: tuple[K, ...], values: tuple[V, ...]) -> None:
        self.keys = keys  # ascending, distinct; in a map never empty and at most LEAF_MAX
        self.values = values  # values[i] belongs to keys[i]

    def joined(self, following: _Leaf[K, V]) -> _Leaf[K, V]:
        return _Leaf(self.keys + following.keys, self.values + following.values)

    def split(self) -> list[_Leaf[K, V]]:
        """Leaves of equal size, as few as LEAF_MAX allows; none for no keys."""
        if 0 < len(self.keys) <= LEAF_MAX:
            return [self]
        count = -(-len(self.keys) // LEAF_MAX)
        bounds = [len(self.keys) * i // count for i in range(count + 1)] if count else []
        return [_Leaf(self.keys[low:high], self.values[low:high]) for low, high in pairwise(bounds)]


class SortedMap(Generic[K, V]):
    __slots__ = ("_firsts", "_leaves", "_size")

    def __init__(self) -> None:
        """The empty map. Build others with `SortedMap.of` and `updated`."""
        self._leaves: tuple[_Leaf[K, V], ...] = ()
        self._firsts: tuple[K, ...] = ()  # the first key of each leaf
        self._size = 0

    @classmethod
    def of(cls, items: Mapping[K, V]) -> SortedMap[K, V]:
        return cls().updated(items)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: K) -> bool:
        return self.get(key, REMOVED) is not REMOVED

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: D | None = None) -> V | D | None:
        leaf_index = bisect_right(self._firsts, key) - 1
        if leaf_index < 0:
            return default
        leaf = self._leaves[leaf_index]
        index = bisect_left(leaf.keys, key)
        if index == len(leaf.keys) or leaf.keys[index] != key:
            return default
        return leaf.values[index]

    def __getitem__(self, key: K) -> V:
        """KeyError if it is missing."""
        value = self.get(key, REMOVED)
        if value is REMOVED:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[K]:
        for leaf in self._leaves:
            yield from leaf.keys

    def values(self) -> Iterator[V]:
        for leaf in self._leaves:
            yield from leaf.values

    def items(self, start: K | None = None) -> Iterator[tuple[K, V]]:
        """In key order, from the first key >= `start`, or from the beginning."""
        first = 0 if start is None else max(0, bisect_right(self._firsts, start) - 1)
        for number, leaf in enumerate(self._leaves[first:]):
            skip = 0 if start is None or number else bisect_left(leaf.keys, start)
            yield from zip(leaf.keys[skip:], leaf.values[skip:], strict=True)

    def updated(self, changes: Mapping[K, V | Removed]) -> SortedMap[K, V]:
        """This map with those keys set, or removed if the value is REMOVED (missing ones may be removed too)."""
        if not changes:
            return self
        by_leaf: dict[int, list[K]] = {} if self._leaves else {0: sorted(changes)}
        for key in sorted(changes) if self._leaves else ():
            by_leaf.setdefault(max(0, bisect_right(self._firsts, key) - 1), []).append(key)
        leaves = list(self._leaves)
        firsts = list(self._firsts)
        size = self._size
        for index in reversed(by_leaf):  # from the end, so that the indexes before stay right
            old = leaves[index] if leaves else _Leaf[K, V]((), ())
            leaf = _merged(old, by_leaf[index], changes)
            size += len(leaf.keys) - len(old.keys)
            # Two neighbours that are small together are merged. The left one keeps its index for its own changes,
            # which come next.
            low, high = index, index + 1
            if high < len(leaves) and len(leaf.keys) + len(leaves[high].keys) < LEAF_MIN:
                leaf, high = leaf.joined(leaves[high]), high + 1
            if low > 0 and len(leaf.keys) + len(leaves[low - 1].keys) < LEAF_MIN:
                leaf, low = leaves[low - 1].joined(leaf), low - 1
            pieces = leaf.split()
            leaves[low:high] = pieces
            firsts[low:high] = [piece.keys[0] for piece in pieces]
        derived: SortedMap[K, V] = SortedMap()
        derived._leaves, derived._firsts, derived._size = tuple(leaves), tuple(firsts), size
        return derived

    def check(self) -> None:
        """InvariantError if the structure violates the field comments: for tests."""
        keys = list(self)
        if any(not a < b for a, b in pairwise(keys)) or len(keys) != self._size:
            raise InvariantError("sorted map: keys out of order")
        if any(not 0 < len(leaf.keys) == len(leaf.values) <= LEAF_MAX for leaf in self._leaves):
            raise InvariantError("sorted map: a leaf of the wrong size")
        if any(len(a.keys) + len(b.keys) < LEAF_MIN for a, b in pairwise(self._leaves)):
            raise InvariantError("sorted map: small neighbours were not merged")


def _merged(leaf: _Leaf[K, V], keys: list[K], changes: Mapping[K, V | Removed]) -> _Leaf[K, V]:
    """The leaf with the changes of `keys` (ascending) applied; of any size, also empty."""
    if not leaf.keys:  # a bulk load
        items = [(key, value) for key in keys if not isinstance(value := changes[key], Removed)]
        return _Leaf(tuple(key for key, _ in items), tuple(value for _, value in items))
    new_keys: list[K] = list(leaf.keys)
    new_values: list[V] = list(leaf.values)
    for key in keys:
        value = changes[key]
        index = bisect_left(new_keys, key)
        there = index < len(new_keys) and new_keys[index] == key
        if isinstance(value, Removed):
            if there:
                del new_keys[index], new_values[index]
        elif there:
            new_values[index] = value
        else:
            new_keys.insert(index, key)
            new_values.insert(index, value)
    return _Leaf(tuple(new_keys), tuple(new_values))
