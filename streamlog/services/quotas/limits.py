"""Which limit holds for a caller, and what is used of it on this node.

A limit holds for all nodes together; each has a share of it (`shares`). request_percentage is of each node's own time,
so each node has all of it. Limits come from the image. When its quotas change, callers are looked up again: at their
next use, and those that wait at once (`gate`). A bucket belongs to a key and a holder, and outlives a change of its
rate.

Client ids are what clients say, so what is kept by them is bounded: beyond BUCKETS_MAX the oldest bucket is dropped,
one in which no caller waits before others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from streamlog.access.quotas import (
    CONTROLLER_MUTATION_RATE,
    KEYS,
    REQUEST_PERCENTAGE,
    QuotaHolder,
    limit_of,
)
from streamlog.api.convert.quota_use import QuotaUse
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.view import MetadataView
from streamlog.ports import Clock
from streamlog.services.quotas.rate_bucket import RateBucket

BUCKETS_MAX: Final = 10_000
CALLERS_MAX: Final = 20_000
REPORTED_AFTER_S: Final = 1.5
"""Others that use a limit have reported it by then (`shares.EXCHANGE_S`)."""
_RARE: Final = CONTROLLER_MUTATION_RATE
"""Rare, and many at once: all windows are free, as of KIP-599. The others are used all the time, in small amounts."""
_OF_EACH_NODE: Final = REQUEST_PERCENTAGE


class QuotaCaller(NamedTuple):
    user: str
    client_id: str  # empty: none


class QuotaTotals:
    """Of one key, since the start."""

    __slots__ = ("delayed", "refused", "seconds")

    def __init__(self) -> None:
        self.delayed = 0  # requests and responses
        self.refused = 0
        self.seconds = 0.0  # of delay


class QuotaLimits:
    """Of one node."""

    def __init__(self, view: MetadataView, clock: Clock, *, window_num: int, window_s: float) -> None:
        """`window_num`, `window_s`: quota.window.num, quota.window.size.seconds."""
        self._view = view
        self._clock = clock
        self.window_s = window_s
        self._windows_s = window_num * window_s
        self._quotas = view.image.quotas  # that `_by_caller` is of
        self._by_caller: dict[tuple[str, QuotaCaller], RateBucket | None] = {}
        self._buckets: dict[tuple[str, QuotaHolder], RateBucket] = {}  # by the age of their last look-up
        self.totals = {key: QuotaTotals() for key in KEYS}
        self.active = False  # whether there are quotas of callers; looked at for each message
        self.counts_time = False  # whether there is a request_percentage; looked at for each step of a stream
        self._looked_at: object = None  # quotas of which that is
        view.listen(lambda image, _: self._on_image(image))
        self._on_image(view.image)

    def _on_image(self, image: MetadataImage) -> None:
        if image.quotas is not self._looked_at:
            self._looked_at = image.quotas
            self.active = any(entity.ip is None for entity in image.quotas)
            self.counts_time = any(REQUEST_PERCENTAGE in limits for limits in image.quotas.values())

    @property
    def buckets(self) -> dict[tuple[str, QuotaHolder], RateBucket]:
        return self._buckets

    def bucket(self, key: str, caller: QuotaCaller) -> RateBucket | None:
        """None: the caller has no limit of this key."""
        quotas = self._view.image.quotas
        if quotas is not self._quotas or len(self._by_caller) >= CALLERS_MAX:
            self._quotas = quotas
            self._by_caller.clear()
        known = (key, caller)
        if known not in self._by_caller:
            self._by_caller[known] = self._look_up(key, caller)
        return self._by_caller[known]

    def take_use(self) -> list[QuotaUse]:
        """Of the limits that were in use since the last call."""
        now = self._clock.monotonic()
        found = []
        for (key, holder), bucket in self._buckets.items():
            use = None if key == _OF_EACH_NODE else bucket.take_use(now)
            if use is not None:
                found.append(QuotaUse(key, holder, *use))
        return found

    def divide(self, share: Callable[[tuple[str, QuotaHolder], float], float]) -> None:
        """`share`: this node's of a limit; for limits whose use the nodes have not reported yet, the same for each."""
        now, nodes = self._clock.monotonic(), self._node_count()
        for known, bucket in self._buckets.items():
            if known[0] == _OF_EACH_NODE:
                continue
            is_reported = bucket.used_for_s(now) >= REPORTED_AFTER_S
            bucket.change_rate(share(known, bucket.limit) if is_reported else bucket.limit / nodes, now)

    def _node_count(self) -> int:
        return max(1, sum(not broker.fenced for broker in self._view.image.brokers.values()))

    def _look_up(self, key: str, caller: QuotaCaller) -> RateBucket | None:
        limit = limit_of(self._quotas, key, caller.user, caller.client_id)
        if limit is None:
            return None
        bucket = self._buckets.pop((key, limit.holder), None)
        if bucket is None:
            bucket = RateBucket(
                limit.rate,
                limit.rate if key == _OF_EACH_NODE else limit.rate / self._node_count(),
                self._clock.monotonic(),
                burst_s=self._windows_s if key == _RARE else self.window_s,
                charge_max_s=math.inf if key == _RARE else self._windows_s,
            )
            if len(self._buckets) >= BUCKETS_MAX:
                self._drop_one()
        bucket.change_rate(bucket.rate * limit.rate / bucket.limit, self._clock.monotonic())
        bucket.limit = limit.rate
        self._buckets[key, limit.holder] = bucket
        return bucket

    def _drop_one(self) -> None:
        oldest = next((known for known, bucket in self._buckets.items() if bucket.is_full), next(iter(self._buckets)))
        bucket = self._buckets.pop(oldest)
        self._by_caller = {known: one for known, one in self._by_caller.items() if one is not bucket}
