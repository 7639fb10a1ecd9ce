"""Frees what grpc.aio keeps of a batch of operations whose task has stopped waiting. For a whole process: the daemon's
choice.

Each read, write and status of a call is a batch, and `execute_batch` frees its C memory after it has awaited it:

    start -> await a future of the loop -> gRPC's core completes the batch -> free

When the awaiting task is cancelled, or the batch fails, grpcio 1.85 skips the last step: 80 bytes an operation are
lost, and a message that was received meanwhile with them (https://github.com/grpc/grpc/issues/43360). Any client can
cause it: calls that are reset took 100 bytes each. Worse than their size is their place, between the blocks of a
crowd's calls: each keeps a page of the heap, which `malloc_trim` then cannot return.

Here grpcio's coroutine awaits a `_Completion` in place of a future, which it gets from the loop: a `create_future` that
is set for the time of that one call. So it is suspended until the core has completed the batch, however long its caller
waits, and is never resumed by an exception: it always frees. The core must have completed it before: it writes into
what is freed.

Versions after 1.85 are left as they are; tests/ports/test_grpc_abandoned_batches.py says whether they free it.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeAlias

import grpc

_AFFECTED: Final = "1.85."
ExecuteBatch: TypeAlias = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
"""Of a call and operations, on a loop."""


def free_abandoned_batches() -> bool:
    """False if this version of grpcio is not known to need it. Idempotent."""
    if not grpc.__version__.startswith(_AFFECTED):
        return False
    core: Any = importlib.import_module("grpc._cython.cygrpc")  # which the stubs do not know
    if not isinstance(core.execute_batch, _Freeing):
        core.execute_batch = _Freeing(core.execute_batch)
    return True


class _Freeing:
    """`execute_batch` in the place of grpcio's own."""

    def __init__(self, start: ExecuteBatch) -> None:
        self._start = start

    async def __call__(self, call: Any, operations: Any, loop: Any) -> None:
        future: asyncio.Future[None] = loop.create_future()
        batch = _Completion(future)
        running = self._start(call, operations, loop)
        loop.create_future = batch.itself
        try:
            running.send(None)
        finally:
            del loop.create_future
        try:
            await future
        except BaseException:
            batch.abandon(running)
            raise
        _finish(running)
        failure, batch.failure = batch.failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # else its traceback and this frame are a reference cycle


class _Completion:
    """What grpcio takes for the future of a batch."""

    __slots__ = ("_abandoned", "_completed", "_future", "failure")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future  # which the caller awaits
        self._completed = False
        self._abandoned: Coroutine[Any, Any, None] | None = None
        self.failure: Exception | None = None

    def itself(self) -> _Completion:
        return self

    def __await__(self) -> Generator[object, None, None]:
        yield self

    def abandon(self, running: Coroutine[Any, Any, None]) -> None:
        if self._completed:
            _finish(running)
        else:
            self._abandoned = running

    # Called by grpcio once the core has completed the batch; a cancelled future would not be notified.

    def cancelled(self) -> bool:
        return False

    def set_result(self, result: None) -> None:
        self._completed = True
        if not self._future.done():
            self._future.set_result(result)
        if self._abandoned is not None:
            running, self._abandoned = self._abandoned, None
            _finish(running)

    def set_exception(self, failure: Exception) -> None:
        self.failure = failure
        self.set_result(None)


def _finish(running: Coroutine[Any, Any, None]) -> None:
    try:
        running.send(None)
    except StopIteration:
        return
    running.close()  # it has awaited something else: not the coroutine that this was written for
