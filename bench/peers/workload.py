"""The records of the cells: made before they are measured, the same for every system."""

from __future__ import annotations

import random
from typing import Final

from msgspec import Struct

_SEED: Final = 7
_KEYS: Final = 1_000
_DISTINCT: Final = 4_096
"""Values are repeated after so many: none can be remembered whole by a codec's window."""


class Workload(Struct, frozen=True, kw_only=True):
    values: list[bytes]
    keys: list[bytes] | None
    count: int

    @property
    def value_bytes(self) -> float:
        """The mean."""
        return sum(map(len, self.values)) / len(self.values)


def equal(size: int, count: int) -> Workload:
    rng = random.Random(_SEED)
    return Workload(values=[rng.randbytes(size) for _ in range(_DISTINCT)], keys=None, count=count)


def mixed(count: int) -> Workload:
    """20 to 400 bytes, one of a thousand keys."""
    rng = random.Random(_SEED)
    values = [rng.randbytes(rng.randint(20, 400)) for _ in range(_DISTINCT)]
    keys = [b"key-%d" % rng.randrange(_KEYS) for _ in range(_DISTINCT)]
    return Workload(values=values, keys=keys, count=count)


def text(count: int) -> Workload:
    """A hundred bytes that a codec halves, as of log lines."""
    rng = random.Random(_SEED)
    lines = [b"2026-01-%02d INFO node=%05d took=%06d ms %s" for _ in range(_DISTINCT)]
    values = [
        (line % (rng.randint(1, 28), rng.randrange(99_999), rng.randrange(999_999), b"x" * 60))[:100] for line in lines
    ]
    return Workload(values=values, keys=None, count=count)
