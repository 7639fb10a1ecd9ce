"""Items with controls that come, change and go. One that stays keeps its element: what is built again loses the
keyboard's focus, and a click that is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from nicegui import ui

Item = TypeVar("Item")
Show = Callable[[Item], None]


class LiveList(Generic[Item]):
    """`draw` builds the element of an item, and returns what shows a later state of it there."""

    def __init__(self, draw: Callable[[Item], Show[Item]]) -> None:
        self._draw = draw
        self._column = ui.column().classes("w-full gap-4 empty:hidden")
        self._drawn: dict[Any, tuple[ui.element, Show[Item]]] = {}

    def show(self, items: Mapping[Any, Item]) -> None:
        """By their keys, in their order."""
        for key in [key for key in self._drawn if key not in items]:
            self._column.remove(self._drawn.pop(key)[0])
        for place, (key, item) in enumerate(items.items()):
            known = self._drawn.get(key)
            if known is None:
                with self._column, ui.element("div").classes("w-full") as element:
                    self._drawn[key] = element, self._draw(item)
            else:
                element, show = known
                show(item)
            children = self._column.default_slot.children
            if children[place] is not element:
                element.move(self._column, place)
