"""Samples the cluster while the console runs, and keeps the history. The pages read their data from it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.console.guard import guarded
from streamlog.console.history import HistoryError, Point, SampleHistory
from streamlog.console.rates import Rate, Series, consumed_per_s, points_of, topic_rates
from streamlog.console.sample import Sample, sample

T = TypeVar("T")

INTERVAL_S: Final = 5.0
STORED_EACH_S: Final = 10.0
CLEANED_EACH_S: Final = 600.0
RATE_OVER: Final = 3
"""Samples that a rate spans: over a single interval it would vary with the moment at which each node answered."""


class ClusterSampler:
    """One event loop. `run` is a task of the server."""

    def __init__(self, admin: AsyncAdmin, history: SampleHistory) -> None:
        self.admin = guarded(admin)  # for pages: it checks what their users may do
        self._admin = admin
        self._history = history
        self._thread = ThreadPoolExecutor(1, "history")
        self._samples: deque[Sample] = deque(maxlen=RATE_OVER)
        self._stored: Sample | None = None
        self._cleaned_s = time.monotonic()
        self._listeners: dict[object, Callable[[], None]] = {}
        self.history_problem = ""  # why the history cannot be written; empty: it can

    @property
    def latest(self) -> Sample | None:
        """None before the first sample."""
        return self._samples[-1] if self._samples else None

    @property
    def _earlier(self) -> Sample | None:
        """The sample that rates are measured from; None: there is only one with an answer of the cluster."""
        known = [one for one in self._samples if one.state.cluster is not None]
        return known[0] if len(known) > 1 else None

    @property
    def rates(self) -> Mapping[str, Rate]:
        """By topic."""
        return {} if self.latest is None else topic_rates(self._earlier, self.latest)

    def consumed_per_s(self, group: str) -> float:
        return 0.0 if self.latest is None else consumed_per_s(self._earlier, self.latest, group)

    @property
    def history_bytes(self) -> int:
        return self._history.size_bytes()

    async def run(self) -> None:
        while True:
            began_s = time.monotonic()
            await self.refresh()
            await asyncio.sleep(max(0.0, INTERVAL_S - (time.monotonic() - began_s)))

    async def refresh(self) -> None:
        """Samples now; also called after a user's change."""
        now = await sample(self._admin, time.time(), time.monotonic())
        self._samples.append(now)
        if self._stored is None or now.monotonic_s - self._stored.monotonic_s >= STORED_EACH_S - INTERVAL_S / 2:
            await self._store(now)
        for listener in list(self._listeners.values()):
            listener()

    async def _store(self, now: Sample) -> None:
        points = points_of(self._stored, now)
        self._stored = now
        try:
            await self._off_loop(lambda: self._history.write(now.at_s, points))
            if now.monotonic_s - self._cleaned_s >= CLEANED_EACH_S:
                self._cleaned_s = now.monotonic_s
                await self._off_loop(lambda: self._history.clean(now.at_s))
            self.history_problem = ""
        except HistoryError as error:
            self.history_problem = str(error)

    async def history(self, series: Series, span_s: float) -> list[Point]:
        """The last `span_s` seconds."""
        now_s = time.time()
        return await self._off_loop(lambda: self._history.read(series, now_s - span_s, now_s))

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def add_listener(self, key: object, listener: Callable[[], None]) -> None:
        """Call `listener` after each sample, until `remove_listener(key)`."""
        self._listeners[key] = listener

    def remove_listener(self, key: object) -> None:
        self._listeners.pop(key, None)

    async def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._history.close()
        await self._admin.close()
