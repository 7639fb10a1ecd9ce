"""`queued.max.request.bytes`: bytes of records that wait to be appended, here or on the way to a leader.

Beyond the bound a request is refused at once and may be retried: a queue without a bound would slow down every client.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamlog.errors import ThrottledError


class QueuedBytes:
    """One a node."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._queued = 0
        self.refused_count = 0

    @property
    def queued(self) -> int:
        return self._queued

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """As `take`, until the end of the block."""
        self.take(size_bytes)
        try:
            yield
        finally:
            self.release(size_bytes)

    def take(self, size_bytes: int) -> None:
        """ThrottledError where they are too many. A request always fits while no other waits. `release` them."""
        if self._queued and self._queued + size_bytes > self.limit:
            self.refused_count += 1
            raise ThrottledError(
                f"{self._queued} bytes of records wait to be appended, {self.limit} may (queued.max.request.bytes)",
                field="queued.max.request.bytes",
                limit=self.limit,
            )
        self._queued += size_bytes

    def release(self, size_bytes: int) -> None:
        self._queued -= size_bytes
