"""How many bytes of responses a node holds for all its clients together: `queued.max.response.bytes`.

A reader is the sending side of one call: a client that reads records.

    reader --reserve(wanted)--> granted: min(wanted, a quarter of the free bytes), at least MESSAGE_BYTES_MIN --sent-->
    free
                  |
                  '-- too few bytes are free: waits in a queue; readers whose clients do not read are ended

A reader holds one grant at a time, from before its message is read until the transport has taken all of it. So waiting
readers hold nothing, and are served in order, with equal shares: max-min fairness. A grant is at most a fraction of the
free bytes (Choudhury and Hahne's dynamic thresholds for a shared buffer, 1998), which leaves some for later readers.

Those that have a grant take turns on the event loop (`loop_turns`).

A message is in memory more than once: as the bytes read, as the message, as the transport's copy. A reader counts all.

Readers that hold a grant for STUCK_S while others have waited for PATIENCE_S are ended with ThrottledError, the oldest
grant first, until there are enough free bytes for those that wait. A client that reads is never ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from streamlog.errors import ThrottledError
from streamlog.ports import CallPace
from streamlog.services.common.loop_turns import LoopTurns

MESSAGE_BYTES_MIN: Final = 64 << 10
"""The least that a message gets, however many readers there are."""
FIRST_BYTES: Final = 128 << 10
"""Limit of the first message of a stream, when it is not known yet whether the client reads."""
MESSAGE_BYTES_MAX: Final = 4 << 20
"""Limit to which the messages of a stream grow: larger ones cost memory and gain nothing."""
TURN_BYTES: Final = 1 << 20
"""What is read in a turn of the event loop, some 2 ms for copies and their pages. One message may exceed it."""
READ_BYTES: Final = 32 << 10
"""What a read counts for there beside its bytes: it takes 0.1 ms however small it is."""
SHARED_TURN_BYTES: Final = 256 << 10
"""Limit of a message while several readers take turns."""
PATIENCE_S: Final = 1.0
STUCK_S: Final = 5.0
PROMPT_S: Final = 1.0
"""A message that was taken within this time lets the next one be larger."""
FETCH_COPIES: Final = 2  # of a byte of batches: in the message, and in the transport's buffer
SUBSCRIBE_COPIES: Final = 6  # the fetched message and its view, records, the message, its bytes, the transport's buffer

_SHARE: Final = 4


class OutgoingBytes:
    """Of one node."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used_bytes = 0
        self.turns = LoopTurns(room=TURN_BYTES, least=READ_BYTES)
        self.throttled_count = 0  # readers that were ended, or timed out waiting, since the node's start
        self._granted: dict[Reader, None] = {}  # by the age of their grants; each holds bytes
        self._waiting: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def reader(self, copies: int = FETCH_COPIES) -> Reader:
        return Reader(self, copies)

    def error(self, why: str) -> ThrottledError:
        self.throttled_count += 1
        return ThrottledError(
            f"{why}: this node holds {self.used_bytes} of at most {self.limit} bytes of responses "
            "(queued.max.response.bytes); retry later",
            field="queued.max.response.bytes",
            limit=self.limit,
        )

    # -- called by readers

    def try_grant(self, reader: Reader, wanted: int, least: int) -> int | None:
        """Bytes that `reader` holds now; None if it has to wait."""
        free = self.limit - self.used_bytes
        if self._waiting or (free < least and self.used_bytes):
            return None
        return self._grant(reader, wanted, least)

    async def grant(self, reader: Reader, wanted: int, least: int) -> int:
        """Once enough bytes are free and it is the reader's turn."""
        waiter = _Waiter(reader, wanted, least)
        self._waiting.append(waiter)
        self._arm()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if not waiter.granted.cancelled():
                reader.release()  # granted and cancelled at the same time
            self._serve()
            raise

    def free(self, reader: Reader, size: int) -> None:
        self._granted.pop(reader, None)
        self.used_bytes -= size
        self._serve()

    def resize(self, before: int, now: int) -> None:
        self.used_bytes += now - before
        if now < before:
            self._serve()

    def _grant(self, reader: Reader, wanted: int, least: int) -> int:
        size = min(wanted, max((self.limit - self.used_bytes) // _SHARE, least))
        self.used_bytes += size
        self._granted[reader] = None
        reader.granted_at = asyncio.get_running_loop().time()
        reader.held_bytes = size
        return size

    def _serve(self) -> None:
        while self._waiting:
            waiter = self._waiting[0]
            if waiter.granted.cancelled():
                self._waiting.popleft()
                continue
            if self.limit - self.used_bytes < waiter.least and self.used_bytes:
                return
            self._waiting.popleft()
            waiter.granted.set_result(self._grant(waiter.reader, waiter.wanted, waiter.least))

    # -- clients that do not read

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._end_stuck_readers)

    def _end_stuck_readers(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        missing = sum(waiter.least for waiter in self._waiting) - max(0, self.limit - self.used_bytes)
        for reader in list(self._granted):
            if missing <= 0 or now - reader.granted_at < STUCK_S:
                break
            if reader.end():
                missing -= reader.held_bytes
        self._arm()


class _Waiter:
    __slots__ = ("granted", "least", "reader", "wanted")

    def __init__(self, reader: Reader, wanted: int, least: int) -> None:
        self.reader = reader
        self.wanted = wanted
        self.least = least
        self.granted: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class Reader:
    """Of one call. `async with` around the work that is ended with ThrottledError when the client does not read."""

    __slots__ = (
        "_budget",
        "_cancelling",
        "_copies",
        "_counted_bytes",
        "_ended",
        "_size",
        "_task",
        "granted_at",
        "held_bytes",
        "on_end",
        "pace",
    )

    def __init__(self, budget: OutgoingBytes, copies: int) -> None:
        self._budget = budget
        self._copies = copies
        self._size = FIRST_BYTES  # of the next message
        self._counted_bytes = 0  # of this message, in the turns
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._ended = False
        self.granted_at = 0.0
        self.held_bytes = 0  # with all copies
        self.on_end: Callable[[], object] | None = None  # called instead of cancelling the block
        self.pace: CallPace | None = None  # of a call whose bytes count against a quota

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        self.close()
        if (
            self._ended
            and task is not None
            and task.uncancel() <= self._cancelling
            and isinstance(error, asyncio.CancelledError)
        ):
            raise self._budget.error("the client does not read its responses") from None

    def end(self) -> bool:
        """False if it is ended already, or cannot be."""
        if self._ended:
            return False
        if self._task is not None:
            self._ended = True
            self._task.cancel()
        elif self.on_end is not None:
            self._ended = True
            self.on_end()
        return self._ended

    async def reserve(self, wanted: int, least: int = MESSAGE_BYTES_MIN) -> int:
        """How many bytes the next message may have: at most `wanted`, at least the smaller of `wanted` and `least`.

        0 are not a grant: a reader without bytes is not one that could be ended to free some.
        """
        if self.pace is not None and self.pace.active:
            await self.pace.wait()
            wanted = max(least, min(wanted, self.pace.bytes_max or wanted))
        if not wanted:
            return 0
        least = min(wanted, least) * self._copies
        wanted *= self._copies
        granted = self._budget.try_grant(self, wanted, least)
        if granted is None:
            granted = await self._budget.grant(self, wanted, least)
        self._counted_bytes = 0
        try:
            is_shared = await self._budget.turns.begin()
        except BaseException:
            self.release()
            raise
        smaller = max(least, SHARED_TURN_BYTES * self._copies)
        if is_shared and granted > smaller:
            self._budget.resize(granted, smaller)
            self.held_bytes = granted = smaller
        return granted // self._copies

    async def reserve_next(self, wanted: int, least: int = MESSAGE_BYTES_MIN) -> int:
        """As `reserve`, for a stream: the size grows while its messages are taken promptly."""
        return await self.reserve(min(wanted, max(self._size, least)), least)

    def try_keep(self, size: int) -> bool:
        """Change the grant to `size`, which was read. False if that is more than the grant and not free."""
        if not size:
            self.release()
            return True
        if size > self._counted_bytes:
            self._budget.turns.took(size - self._counted_bytes)
            self._counted_bytes = size
        size *= self._copies
        budget = self._budget
        others = budget.used_bytes - self.held_bytes
        if size > self.held_bytes and others and others + size > budget.limit:
            return False
        budget.resize(self.held_bytes, size)
        self.held_bytes = size
        return True

    def sent(self) -> None:
        """The message was taken."""
        now = asyncio.get_running_loop().time()
        is_prompt = now - self.granted_at < PROMPT_S
        self._size = min(self._size * 2, MESSAGE_BYTES_MAX) if is_prompt else FIRST_BYTES
        self.release()

    def release(self) -> None:
        if self.held_bytes:
            size, self.held_bytes = self.held_bytes, 0
            self._budget.free(self, size)

    def close(self) -> None:
        """The call has ended."""
        self.on_end = None
        self.release()
