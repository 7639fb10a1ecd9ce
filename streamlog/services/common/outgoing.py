"""How many bytes a node holds for all its readers together: `queued.max.response.bytes`.

    reader --room(wanted)--> granted: min(wanted, a quarter of what is free), at least MESSAGE_BYTES_MIN --sent--> free
                  |
                  '-- too little is free: waits in line; readers that do not take what they were sent are ended

A reader holds one grant at a time, while its message is made and until the transport has taken all of it; so those who
wait hold nothing, and are served in order, each the same: the max-min fair share. A grant is at most a part of what is
still free (Choudhury and Hahne's dynamic thresholds for a shared buffer, 1998), which leaves room for who comes later.

A message is in memory more than once: as what was read, as the message, as gRPC's copy. A reader counts all of that.

Readers that hold a grant for STUCK_S while others have waited for PATIENCE_S are ended with ThrottledError, the oldest
grant first, until those who wait have room. A reader that reads is never among them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from streamlog.errors import ThrottledError

MESSAGE_BYTES_MIN: Final = 64 << 10
"""What a message may have at least, however many readers there are."""
FIRST_BYTES: Final = 128 << 10
"""What the first message of a stream may have: it is not known yet whether anybody reads."""
MESSAGE_BYTES_MAX: Final = 4 << 20
"""What a message of a stream may grow to: a larger one costs memory and saves nothing."""
PATIENCE_S: Final = 1.0
STUCK_S: Final = 5.0
PROMPT_S: Final = 1.0
"""A message that was taken within so long lets the next one be larger."""
FETCH_COPIES: Final = 2  # of a byte of batches: in the message, and in gRPC's buffer
SUBSCRIBE_COPIES: Final = 6  # the fetched message and its view, records, the message, its bytes, gRPC's buffer

_SHARE: Final = 4


class OutgoingBytes:
    """Of one node."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used_bytes = 0
        self.throttled_count = 0  # readers that were ended, or waited in vain, since the node's start
        self._granted: dict[Reader, None] = {}  # by the age of their grants
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
            f"{why}: this node holds {self.used_bytes} bytes for its readers, {self.limit} may be "
            "(queued.max.response.bytes)",
            field="queued.max.response.bytes",
            limit=self.limit,
        )

    # What readers use.

    def try_grant(self, reader: Reader, wanted: int, least: int) -> int | None:
        """Bytes, which `reader` holds now; None where it has to wait."""
        free = self.limit - self.used_bytes
        if self._waiting or (free < least and self.used_bytes):
            return None
        return self._grant(reader, wanted, least)

    async def grant(self, reader: Reader, wanted: int, least: int) -> int:
        """As soon as there is room and it is its turn."""
        waiter = _Waiter(reader, wanted, least)
        self._waiting.append(waiter)
        self._arm()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if not waiter.granted.cancelled():
                self.free(reader, waiter.granted.result())  # it came at the same moment
            self._serve()
            raise

    def free(self, reader: Reader, size: int) -> None:
        self._granted.pop(reader, None)
        self.used_bytes -= size
        self._serve()

    def forget(self, reader: Reader) -> None:
        self._granted.pop(reader, None)

    def resize(self, before: int, now: int) -> None:
        self.used_bytes += now - before
        if now < before:
            self._serve()

    def _grant(self, reader: Reader, wanted: int, least: int) -> int:
        size = min(wanted, max((self.limit - self.used_bytes) // _SHARE, least))
        self.used_bytes += size
        self._granted[reader] = None
        reader.granted_at = asyncio.get_running_loop().time()
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

    # Those who do not read.

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._relieve)

    def _relieve(self) -> None:
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
    """One call's. `async with` around the work that is ended with ThrottledError when its message is not taken."""

    __slots__ = ("_budget", "_cancelling", "_copies", "_ended", "_size", "_task", "granted_at", "held_bytes", "on_end")

    def __init__(self, budget: OutgoingBytes, copies: int) -> None:
        self._budget = budget
        self._copies = copies
        self._size = FIRST_BYTES  # of the next message
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._ended = False
        self.granted_at = 0.0
        self.held_bytes = 0  # with all copies
        self.on_end: Callable[[], object] | None = None  # in the place of the block

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
            raise self._budget.error("what was sent to this reader is not read") from None

    def end(self) -> bool:
        """False where that has been done, or cannot be."""
        if self._ended:
            return False
        if self._task is not None:
            self._ended = True
            self._task.cancel()
        elif self.on_end is not None:
            self._ended = True
            self.on_end()
        return self._ended

    async def room(self, wanted: int, least: int = MESSAGE_BYTES_MIN) -> int:
        """How many bytes the next message may have: `wanted` at most, and `least` at least if that is wanted."""
        least = min(wanted, least) * self._copies
        wanted *= self._copies
        granted = self._budget.try_grant(self, wanted, least)
        if granted is None:
            granted = await self._budget.grant(self, wanted, least)
        self.held_bytes = granted
        return granted // self._copies

    async def next_room(self, wanted: int, least: int = MESSAGE_BYTES_MIN) -> int:
        """As `room`, of a stream: the size grows while its messages are taken promptly."""
        return await self.room(min(wanted, max(self._size, least)), least)

    def try_keep(self, size: int) -> bool:
        """Of what was granted so much is used. False where that is more, and there is no room for it."""
        if not size:
            self.release()
            return True
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
        """The call is over."""
        self.on_end = None
        self.release()
        self._budget.forget(self)
