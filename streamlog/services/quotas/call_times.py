"""request_percentage: how much of the node's time the calls of one caller may take.

    limit         a hundred is one second of the event loop, or of a worker thread, in each second; of each node by
                  itself, as each has a loop of its own
    unary call    has a place in the limit's queue by what a call of this limit typically takes, and is handled once
                  those before it are paid; at its end the rest is charged, or given back
    stream        what it has used is charged when it would take or send its next message, which waits until it is paid

`aio.call_time` says what is counted. What a call takes is known only afterwards, so each call or stream can be in
debt by one call or message, and all of one limit together by what they have begun: the next ones wait for that.

Heartbeats of groups wait for one window at most, and are never refused, as in Kafka (KIP-124): a member whose
heartbeats are too late is taken for failed, and its group would rebalance, which takes more time than it saves.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, Protocol, TypeVar

from streamlog.access.quotas import REQUEST_PERCENTAGE
from streamlog.aio.call_time import CALL_TIME, CallTime
from streamlog.services.quotas.limits import QuotaCaller, QuotaLimits
from streamlog.services.quotas.rate_bucket import RateBucket

SERVED_WITHIN_A_WINDOW: Final = frozenset(
    {"/streamlog.v1.Groups/GroupHeartbeat", "/streamlog.v1.Groups/GroupMembership"}
)
_PERCENT: Final = 100.0

T = TypeVar("T")


class Turns(Protocol):
    @property
    def limits(self) -> QuotaLimits: ...

    def now(self) -> float: ...

    async def wait(
        self, key: str, caller: QuotaCaller, bucket: RateBucket, place: float, wait_max_s: float | None = None
    ) -> float: ...


async def timed(turns: Turns, bucket: RateBucket, expected: float, work: Awaitable[T]) -> T:
    """A unary call, charged as `expected` before."""
    time = CallTime(turns.limits, turns.now)
    CALL_TIME.set(time)
    try:
        return await time.count(_awaited(work))
    finally:
        bucket.settle(expected, time.take() * _PERCENT, turns.now())


class StreamTime:
    """Of one stream. Its steps are counted from the moment on at which there is a limit."""

    def __init__(self, turns: Turns, caller: QuotaCaller, wait_max_s: float | None) -> None:
        self._turns = turns
        self._limits = turns.limits
        self._caller = caller
        self._wait_max_s = wait_max_s
        self._time = CallTime(turns.limits, turns.now)
        self._bucket: RateBucket | None = None
        self._place = 0.0  # in this bucket, behind what was used last

    async def run(self, work: Awaitable[None]) -> None:
        CALL_TIME.set(self._time)
        try:
            await self._time.count(_awaited(work))
        finally:
            self._charge()

    async def turn(self) -> float:
        """Wait until what the stream has used is paid. Returns for how long, in seconds."""
        if not self._limits.counts_time:
            return 0.0
        bucket = self._charge()
        if bucket is None:
            return 0.0
        return await self._turns.wait(REQUEST_PERCENTAGE, self._caller, bucket, self._place, self._wait_max_s)

    @property
    def is_owed(self) -> bool:
        """Whether `turn` waits now."""
        bucket = self._charge() if self._limits.counts_time else None
        return bucket is not None and bucket.left_s(self._place, self._turns.now()) > 0

    def _charge(self) -> RateBucket | None:
        seconds = self._time.take()
        bucket = self._limits.bucket(REQUEST_PERCENTAGE, self._caller) if self._limits.counts_time else None
        if bucket is None:
            return None
        if bucket is not self._bucket:
            self._bucket, self._place = bucket, bucket.end
        if seconds:
            amount = seconds * _PERCENT
            bucket.used += amount
            self._place = bucket.charge(amount, self._turns.now())
        return bucket


async def _awaited(work: Awaitable[T]) -> T:
    return await work
