"""Samples the cluster while the console runs, and keeps the history. The pages read their data from it.

    sampled --> INTERVAL_S --> sampled again
       +--the login fails--> twice as long each time, up to `login_pause_max_s`, until a login succeeds

A wrong password stays wrong until someone corrects it. Each attempt counts as a guess from the console's address, and
nodes slow down the logins of all users from there (`access.throttle`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.console.collection.figures import Figures, figures_of
from streamlog.console.collection.history import Point, SampleHistory
from streamlog.console.collection.history_database import HistoryError
from streamlog.console.collection.rates import Rate, Series, points_of
from streamlog.console.collection.sample import Sample, sample
from streamlog.console.collection.versions import NodeVersions
from streamlog.console.database_waits import DatabaseThread
from streamlog.console.guard import guarded

_log: Final = logging.getLogger(__name__)

INTERVAL_S: Final = 5.0
STORED_EACH_S: Final = 10.0
CLEANED_EACH_S: Final = 600.0
CLOCK_JUMP_S: Final = 7 * 86_400.0
"""More than a machine sleeps, which looks the same."""
LOGIN_PAUSE_MAX_S: Final = 60.0
PASSWORD_PAUSE_MAX_S: Final = 3_900.0
"""Longer than nodes remember the failed logins of an address, so that these do not add up there."""
RATE_OVER: Final = 3
"""Samples that a rate spans: over a single interval it would vary with the moment at which each node answered."""


class ClusterSampler:
    """One event loop. `run` is a task of the server."""

    def __init__(
        self,
        admin: AsyncAdmin,
        history: SampleHistory,
        versions: NodeVersions | None = None,
        login_pause_max_s: float = LOGIN_PAUSE_MAX_S,
    ) -> None:
        self.admin = guarded(admin)  # for pages: it checks what their users may do
        self._admin = admin
        self.versions = versions or NodeVersions({})
        self._history = history
        self._login_pause_max_s = login_pause_max_s
        self._failed_logins = 0  # since the last answer of the cluster
        self._thread = DatabaseThread("history", "The history", HistoryError)
        self._samples: deque[Sample] = deque(maxlen=RATE_OVER)
        self._one_at_a_time = asyncio.Lock()
        self._figures: tuple[Sample, Figures] | None = None  # of the sample
        self._stored: Sample | None = None
        self._first: Sample | None = None
        self._cleaned_s = time.monotonic()
        self._learning: asyncio.Task[None] | None = None
        self._listeners: dict[object, Callable[[], None]] = {}
        self.history_problem = history.database.notice  # why the history cannot be used, or was lost; empty: neither

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
    def figures(self) -> Figures:
        """Of the latest sample, computed once for all pages."""
        assert self.latest is not None
        if self._figures is None or self._figures[0] is not self.latest:
            self._figures = (self.latest, figures_of(self._earlier, self.latest))
        return self._figures[1]

    @property
    def rates(self) -> Mapping[str, Rate]:
        """By topic."""
        return {} if self.latest is None else self.figures.rates

    @property
    def earlier(self) -> Sample | None:
        """The sample that rates are measured from; None: there is only one with an answer of the cluster."""
        return self._earlier

    @property
    def pause_s(self) -> float:
        """From the begin of the latest sample to the next one."""
        if self.latest is None or not self.latest.state.is_login_refused:
            return INTERVAL_S
        return min(self._login_pause_max_s, INTERVAL_S * 2.0 ** min(self._failed_logins, 20))

    @property
    def history_bytes(self) -> int:
        """Of the SQLite file; 0 for another database."""
        return self._history.database.size_bytes()

    async def run(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                await self._sample(whole=False)
            except Exception as error:  # noqa: BLE001  a defect must not end samples and alarms
                _log.exception("the cluster was not sampled")
                self.history_problem = (
                    f"The cluster was not sampled: {type(error).__name__}; the console's log has details."
                )
            await asyncio.sleep(max(0.0, self.pause_s - (time.monotonic() - began_s)))

    async def refresh(self) -> None:
        """Samples everything now, after a user's change."""
        await self._sample(whole=True)

    async def _sample(self, *, whole: bool) -> None:
        """`whole`: also the parts that change seldom."""
        async with self._one_at_a_time:  # they would end in another order than they began, with older log ends
            now = await sample(self._admin, time.time(), time.monotonic(), None if whole else self.latest)
            self._samples.append(now)
        if now.state.cluster is not None:
            self._failed_logins = 0
        elif now.state.is_login_refused:
            self._failed_logins += 1
        if now.state.cluster is not None and (self._learning is None or self._learning.done()):
            self._learning = asyncio.create_task(self.versions.learn(now.state.cluster.nodes))
        if self._stored is None or now.monotonic_s - self._stored.monotonic_s >= STORED_EACH_S - INTERVAL_S / 2:
            await self._store(now)
        loop = asyncio.get_running_loop()
        for listener in list(self._listeners.values()):
            loop.call_soon(listener)  # an error of one page must not end the sampling

    async def _store(self, now: Sample) -> None:
        points = points_of(self._stored, now)
        try:
            await self._thread.run(lambda: self._history.write(now.at_s, points))
            self._stored = now  # else the next one has the rates since the last that was written
            clock_problem = self.clock_problem(now)
            self.history_problem = clock_problem or self._history.database.notice
            if not clock_problem and now.monotonic_s - self._cleaned_s >= CLEANED_EACH_S:
                self._cleaned_s = now.monotonic_s
                await self._thread.run(lambda: self._history.clean(now.at_s))
        except HistoryError as error:
            self.history_problem = str(error)

    def clock_problem(self, now: Sample) -> str:
        """Empty: none. After a step of days ahead the whole history would be older than it is kept."""
        first = self._first = self._first or now
        ahead_s = (now.at_s - first.at_s) - (now.monotonic_s - first.monotonic_s)
        if ahead_s < CLOCK_JUMP_S:
            return ""
        return (
            f"This machine's clock was set forward by {ahead_s / 86_400:.0f} days: nothing is deleted from the history "
            "until it is set back, or the console is restarted."
        )

    async def history(self, series: Series, span_s: float) -> list[Point]:
        """The last `span_s` seconds; none while the database cannot be read, which `history_problem` reports."""
        now_s = time.time()
        try:
            return await self._thread.run(lambda: self._history.read(series, now_s - span_s, now_s))
        except HistoryError as error:
            self.history_problem = str(error)
            return []

    def add_listener(self, key: object, listener: Callable[[], None]) -> None:
        """Call `listener` after each sample, until `remove_listener(key)`."""
        self._listeners[key] = listener

    def remove_listener(self, key: object) -> None:
        self._listeners.pop(key, None)

    async def close(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
        self._thread.close()
        self._history.close()
        await self._admin.close()
