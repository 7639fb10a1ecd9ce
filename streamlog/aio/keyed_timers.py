"""Timers by key: setting one again replaces it; when due, `on_due` is called once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class KeyedTimers(Generic[K]):
    """Their owner stops them."""

    def __init__(self, on_due: Callable[[K], None]) -> None:
        self._on_due = on_due
        self._handles: dict[K, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._handles)

    def __iter__(self) -> Iterator[K]:
        return iter(self._handles)

    def __contains__(self, timer: object) -> bool:
        return timer in self._handles

    def set(self, timer: K, after_ms: int | None) -> None:
        """None: stop it."""
        before = self._handles.pop(timer, None)
        if before is not None:
            before.cancel()
        if after_ms is not None:
            self._handles[timer] = asyncio.get_running_loop().call_later(after_ms / 1000, partial(self._due, timer))

    def stop(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def _due(self, timer: K) -> None:
        self._handles.pop(timer, None)
        self._on_due(timer)
