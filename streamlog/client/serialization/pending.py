"""A format that has to load something first, as a schema from its registry: it raises Pending, and does not block.

The client calls `load`, where it may block (the synchronous clients) or in a thread (the asynchronous ones), and
repeats the step. `load` raises SerializationError or DeserializationError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# So often a single record may wait for something else; more is a defect of the format.
LOADS_MAX: Final = 16


class Pending(Exception):
    def __init__(self, load: Callable[[], object], what: str) -> None:
        """`what`: for messages."""
        super().__init__(what)
        self.load = load
        self.what = what
        self.field = "value"  # or key: of which it is
