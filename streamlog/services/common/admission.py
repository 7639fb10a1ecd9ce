"""How many calls of clients a node serves at the same time.

A call beyond the bound is refused at once and may be retried. Calls of other nodes are not counted: a flood of clients
must not stop replication. The bound on queued bytes is `broker.append.admission`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec.structs import replace

from streamlog.api.service import Call, Method
from streamlog.errors import ThrottledError

Input = TypeVar("Input")
Answer = TypeVar("Answer")


class CallSlots:
    """`max.concurrent.calls`, of all client services of a node together; a stream is one call until it ends."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
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
            if self._running >= self.limit:
                raise ThrottledError(
                    f"this node already serves {self.limit} concurrent calls and streams (max.concurrent.calls): "
                    "retry later, or use another node",
                    field="max.concurrent.calls",
                    limit=self.limit,
                )
            self._running += 1
            try:
                return await work(request, call)
            finally:
                self._running -= 1

        return serve
