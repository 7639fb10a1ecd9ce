"""An immutable sequence, cheap to derive: a topic's partitions, indexed from 0.

The items are in pages of PAGE_SIZE. A derived sequence shares every unchanged page, so one change among
100,000 items copies one page and the list of 391 pages. Items are only replaced and appended, never removed:
partition counts only grow (SEMANTICS 12).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, Generic, TypeVar

from streamlog.errors import InvariantError

V = TypeVar("V")

PAGE_SIZE: Final = 256


class PagedSequence(Generic[V]):
    __slots__ = ("_pages", "_size")

    def __init__(self, items: Sequence[V] = ()) -> None:
        # Every page except the last has PAGE_SIZE items; the last one at least one.
        self._pages = tuple(tuple(items[at : at + PAGE_SIZE]) for at in range(0, len(items), PAGE_SIZE))
        self._size = len(items)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(self._pages)

    def __getitem__(self, index: int) -> V:
        """IndexError outside [0, len)."""
        if not 0 <= index < self._size:
            raise IndexError(index)
        return self._pages[index // PAGE_SIZE][index % PAGE_SIZE]

    def get(self, index: int) -> V | None:
        return self[index] if 0 <= index < self._size else None

    def updated(self, changes: Mapping[int, V]) -> PagedSequence[V]:
        """This sequence with those items replaced; indexes from its length on, without a gap, are appended."""
        size = self._size
        touched: dict[int, list[V]] = {}
        for index in sorted(changes):
            if not 0 <= index <= size:
                raise InvariantError(f"item {index} would leave a gap after {size} items")
            number, place = divmod(index, PAGE_SIZE)
            page = touched.get(number)
            if page is None:
                page = touched[number] = list(self._pages[number]) if number < len(self._pages) else []
            page[place : place + 1] = [changes[index]]
            size = max(size, index + 1)
        pages = list(self._pages)
        for number, page in touched.items():
            pages[number : number + 1] = [tuple(page)]
        derived: PagedSequence[V] = PagedSequence()
        derived._pages = tuple(pages)
        derived._size = size
        return derived
