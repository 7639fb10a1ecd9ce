"""How far the metadata had got some time ago: what a node that follows it has applied by now.

The index is noted at most every STEP_S, when it is asked for; what is older than anybody asks for is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from streamlog.model import RaftIndex

STEP_S: Final = 0.5
NOTES_MAX: Final = 1024
"""With these a session of eight minutes has its steps; of a longer one the first is forgotten."""


class Horizon:
    """Of one leadership; knows nothing of the time before it."""

    def __init__(self, index: Callable[[], RaftIndex]) -> None:
        self._index = index
        self._notes: deque[tuple[float, RaftIndex]] = deque(maxlen=NOTES_MAX)  # (when, where), both rise

    def before(self, now: float, age_s: float) -> RaftIndex:
        """Where the metadata was at the latest note of `age_s` ago or before; 0 where there is none."""
        notes = self._notes
        if not notes or now >= notes[-1][0] + STEP_S:
            notes.append((now, self._index()))
        while len(notes) > 1 and notes[1][0] <= now - age_s:
            notes.popleft()
        when, index = notes[0]
        return index if when <= now - age_s else RaftIndex(0)
