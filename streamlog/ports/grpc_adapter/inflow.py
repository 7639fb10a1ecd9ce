"""What callers have sent and no handler has read yet, bounded for a whole server: bytes, and calls.

    less than half of bytes_max is held    each call may send STREAM_WINDOW_BYTES ahead of its handler
    more                                   64 KiB, so that callers wait
    all of it                              a connection keeps an equal share. One that needs more ends the connection
                                           that holds most, if that is more than it would hold itself; else its call
                                           ends with UNAVAILABLE

So messages that never become complete do not keep out those of others, however large these are, and no more is held
than twice the bounds.
"""

from __future__ import annotations

from typing import Final, Protocol

SHARE_BYTES_MIN: Final = 16 << 10
"""Of a connection, however many there are: a request of the usual size gets through."""
SHARE_CALLS_MIN: Final = 4


class Holder(Protocol):
    """A connection."""

    held: int  # bytes that it has sent and that are not read


class Inflow:
    """One for all connections of a server, or of a channel. On one event loop."""

    __slots__ = ("bytes_held", "bytes_max", "calls", "calls_max", "open")

    def __init__(self, bytes_max: int, calls_max: int) -> None:
        self.bytes_max = bytes_max
        self.calls_max = calls_max
        self.bytes_held = 0
        self.calls = 0
        self.open: dict[Holder, None] = {}  # connections

    @property
    def connections(self) -> int:
        return len(self.open)

    @property
    def has_plenty(self) -> bool:
        return self.bytes_held < self.bytes_max // 2

    def has_room(self, size: int, held: int) -> bool:
        """Whether a connection that holds so many bytes may hold `size` more."""
        if self.bytes_held + size <= self.bytes_max:
            return True
        return held + size <= max(SHARE_BYTES_MIN, self.bytes_max // max(1, self.connections))

    def largest(self) -> Holder:
        """The connection that holds most. There is one that is open."""
        return max(self.open, key=lambda one: one.held)

    def has_room_for_call(self, calls: int) -> bool:
        """Whether a connection with so many may begin another one."""
        if self.calls < self.calls_max:
            return True
        return calls < max(SHARE_CALLS_MIN, self.calls_max // max(1, self.connections))
