"""Randomness: one seeded instance a node. `random.Random` and `random.SystemRandom` satisfy it."""

from __future__ import annotations

from typing import Protocol


class Random(Protocol):
    def random(self) -> float:
        """In [0, 1)."""
        ...

    def uniform(self, a: float, b: float) -> float: ...

    def randrange(self, start: int, stop: int | None = None) -> int: ...

    def getrandbits(self, k: int, /) -> int:
        """An integer of `k` random bits: ids are made from these, never by uuid or os.urandom."""
        ...
