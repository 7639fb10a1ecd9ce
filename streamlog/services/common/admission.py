"""How much a node takes on: calls at the same time, and bytes of records that have not been appended yet.

What is beyond a bound is refused at once, by name, and may be tried again: a queue that grows would make everybody
slow, and nobody the wiser. Calls of other nodes are not counted: a flood of clients must not stop replication.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from msgspec.structs import replace

from streamlog.api.service import Call, Method
from streamlog.errors import ThrottledError

Input = TypeVar("Input")
Answer = TypeVar("Answer")


class CallSlots:
    """`max.concurrent.calls`, of all client services of a node together; a stream is one call while it lasts."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running = 0

    @property
    def running(self) -> int:
        return self._running

    def bounded(self, method: Method) -> Method:
        """The same method, refused with ThrottledError while all slots are taken."""
        return replace(
            method,
            on_unary=None if method.on_unary is None else self._counted(method.on_unary),
            on_stream=None if method.on_stream is None else self._counted(method.on_stream),
        )

    def _counted(self, work: Callable[[Input, Call], Awaitable[Answer]]) -> Callable[[Input, Call], Awaitable[Answer]]:
        async def serve(request: Input, call: Call) -> Answer:
            if self._running >= self._limit:
                raise ThrottledError(
                    f"this node serves {self._limit} calls and streams already (max.concurrent.calls)",
                    field="max.concurrent.calls",
                    limit=self._limit,
                )
            self._running += 1
            try:
                return await work(request, call)
            finally:
                self._running -= 1

        return serve


class QueuedBytes:
    """`queued.max.request.bytes`: bytes of records that wait to be appended, here or on the way to a leader."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queued = 0

    @property
    def queued(self) -> int:
        return self._queued

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """ThrottledError where they are too many. A request always fits while nothing else waits."""
        if self._queued and self._queued + size_bytes > self._limit:
            raise ThrottledError(
                f"{self._queued} bytes of records wait to be appended, {self._limit} may (queued.max.request.bytes)",
                field="queued.max.request.bytes",
                limit=self._limit,
            )
        self._queued += size_bytes
        try:
            yield
        finally:
            self._queued -= size_bytes
