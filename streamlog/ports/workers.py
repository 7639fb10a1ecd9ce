"""Work that would block the event loop: compression, conversion, a scan of a cold log."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Protocol):
    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` off the loop and return its result or raise its error.

        `work` must be a plain function that touches no state of the loop. Real: a thread of a bounded pool;
        cancelling the wait does not stop the thread. Simulated: one atomic step at a seeded moment.
        """
        ...
