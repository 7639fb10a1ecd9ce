"""The task that evaluates the rules after each sample, and what the page calls. One event loop.

A notice is sent after the states that it follows from were written.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from streamlog.console.alarms.book import AlarmBook
from streamlog.console.alarms.channels import Channel
from streamlog.console.alarms.conditions.assess import assess
from streamlog.console.alarms.conditions.assessments import View
from streamlog.console.alarms.conditions.tracks import SampleTracks
from streamlog.console.alarms.deliveries import DeliveryStatus, NoticeDelivery
from streamlog.console.alarms.evaluation import AlarmState, AlarmStatus, evaluate
from streamlog.console.alarms.messages import Notice, NoticeStatus, notice
from streamlog.console.alarms.notify.notifier import Notifier
from streamlog.console.alarms.notify.senders import DeliveryError, send
from streamlog.console.alarms.rules import AlarmRule
from streamlog.console.alarms.settings.rule_file import AlarmSettings, with_rule, without_rule
from streamlog.console.alarms.settings.rule_storage import RuleStorage
from streamlog.console.alarms.store import AlarmStore
from streamlog.console.alarms.syncs import SyncLatencies
from streamlog.console.collection.sample import Sample
from streamlog.console.collection.sampler import ClusterSampler

T = TypeVar("T")

_log = logging.getLogger(__name__)

CLEANED_EACH_S: Final = 3_600.0


class AlarmEngine:
    def __init__(self, sampler: ClusterSampler, store: AlarmStore, path: Path, settings: Mapping[str, object]) -> None:
        """`settings`: of the console as a client."""
        self.book = AlarmBook(store)
        self._sampler = sampler
        self._rules = RuleStorage(path)
        self._files = ThreadPoolExecutor(1, "rules")  # alarms go on while the database does not answer
        self._tracks = SampleTracks()
        self._syncs = SyncLatencies(settings)
        self._scraping: asyncio.Task[None] | None = None
        self._notifier = Notifier(lambda: self._rules.settings.channels, self.book.record)
        self._evaluated: Sample | None = None
        self._cleaned_s = time.monotonic()
        self._sampled = asyncio.Event()
        self._cluster = ""
        self._defect = ""

    @property
    def path(self) -> Path:
        return self._rules.path

    @property
    def settings(self) -> AlarmSettings:
        return self._rules.settings

    @property
    def rule_problems(self) -> Sequence[str]:
        """Why the file is not used; the last valid rules are."""
        return self._rules.problems

    @property
    def sync_problems(self) -> Mapping[str, str]:
        """By address of metrics."""
        return self._syncs.problems

    @property
    def problem(self) -> str:
        """Of the alarms themselves; empty: none."""
        return self._defect or self.book.problem

    @property
    def queued(self) -> int:
        return self._notifier.queued

    def alarms(self, status: AlarmStatus) -> list[AlarmState]:
        """Critical ones first, then the newest."""
        found = [one for one in self.book.alarms.values() if one.status is status]
        return sorted(found, key=lambda one: (one.severity.value, -(one.fired_at_s or one.began_at_s), one.key))

    def is_silenced(self, alarm: AlarmState) -> bool:
        return any(one.covers(alarm) for one in self.book.silences)

    async def run(self) -> None:
        """Until it is cancelled; `close` then."""
        self._sampler.add_listener(self, self._sampled.set)
        await self.load()
        while True:
            await self._sampled.wait()
            self._sampled.clear()
            latest = self._sampler.latest
            if latest is None or latest is self._evaluated:
                continue
            try:
                await self.step(latest)
                self._defect = ""
            except Exception as error:  # noqa: BLE001  a defect must not stop all alarms without a word
                _log.exception("the alarms were not evaluated")
                self._defect = f"The alarms were not evaluated: {type(error).__name__}; the console's log has details."

    async def load(self) -> None:
        await self._in_files(self._rules.reload)
        self._rescrape()
        await self._notifier.put(await self.book.load())

    async def step(self, sample: Sample) -> None:
        if await self._in_files(self._rules.reload):
            self._rescrape()
        self._tracks.add(sample)
        syncs, known = self._syncs.p99_s(sample.monotonic_s)
        scrapes = bool(self.settings.metrics) or not self._rules.complete
        view = View(sample=sample, tracks=self._tracks, syncs=syncs, syncs_known=known, scrapes=scrapes)
        assessed = []
        for rule in self.settings.rules.values():
            if rule.enabled:
                assessed.append((rule, assess(rule, view)))
                await asyncio.sleep(0)  # a large cluster has a lot to compare; pages are served in between
        last, self._evaluated = self._evaluated, sample
        passed_s = 0.0 if last is None else sample.monotonic_s - last.monotonic_s
        self.book.advance(sample.at_s, 0.0 if last is None else sample.at_s - last.at_s - passed_s)
        outcome = evaluate(
            self.book.alarms,
            assessed,
            self.book.silences,
            at_s=sample.at_s,
            passed_s=passed_s,
            rules_complete=self._rules.complete,
        )
        if sample.state.cluster is not None:
            self._cluster = sample.state.cluster.cluster_id
        deliveries = [
            *self._deliveries(NoticeStatus.FIRING, outcome.announce, sample.at_s),
            *self._deliveries(NoticeStatus.RESOLVED, outcome.resolved, sample.at_s),
        ]
        await self.book.keep(outcome, sample.at_s, deliveries)
        await self._notifier.put(deliveries)
        if sample.monotonic_s - self._cleaned_s >= CLEANED_EACH_S and not self._sampler.clock_problem(sample):
            self._cleaned_s = sample.monotonic_s
            await self.book.clean(sample.at_s)

    def _deliveries(self, status: NoticeStatus, alarms: Sequence[AlarmState], at_s: float) -> list[NoticeDelivery]:
        """One notice for each channel, with all its alarms of this evaluation."""
        found = []
        for name, channel in self.settings.channels.items():
            mine = [one for one in alarms if not one.channels or name in one.channels]
            if mine and (status is not NoticeStatus.RESOLVED or channel.send_resolved):
                found.append(_delivery(name, notice(status, mine, self._cluster, at_s, uuid.uuid4().hex), at_s))
        return found

    def _rescrape(self) -> None:
        if self._scraping is not None:
            self._scraping.cancel()
        self._scraping = asyncio.create_task(self._syncs.run(self.settings.metrics))

    # What a user does. The page has checked that the user may.

    async def set_rule(self, rule: AlarmRule) -> None:
        """RuleFileError, OSError: the file is unchanged."""
        await self._in_files(lambda: self._rules.edit(lambda text: with_rule(text, rule)))

    async def remove_rule(self, name: str) -> None:
        """A default rule of that name is in force again. RuleFileError, OSError."""
        await self._in_files(lambda: self._rules.edit(lambda text: without_rule(text, name)))

    async def test(self, channel: str) -> str:
        """Sends a test at once. Why it was not delivered; empty: it was."""
        found = self.settings.channels.get(channel)
        if found is None:
            return f"there is no channel {channel} any more"
        now_s = time.time()
        delivery = _delivery(channel, trial_notice(self._cluster, now_s), now_s)
        failure = await try_channel(found, delivery.notice)
        await self.book.record(
            msgspec.structs.replace(
                delivery,
                tries=1,
                failure=failure,
                ended_at_s=time.time(),
                status=DeliveryStatus.FAILED if failure else DeliveryStatus.DELIVERED,
            )
        )
        return failure

    async def _in_files(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, work)

    async def close(self) -> None:
        self._sampler.remove_listener(self)
        if self._scraping is not None:
            self._scraping.cancel()
        await self._notifier.close()
        self.book.close()
        self._files.shutdown(wait=False, cancel_futures=True)


async def try_channel(channel: Channel, what: Notice) -> str:
    """Why it was not delivered; empty: it was."""
    try:
        await send(channel, what)
    except DeliveryError as error:
        return str(error)
    return ""


def trial_notice(cluster: str, now_s: float) -> Notice:
    return Notice(notice_id=uuid.uuid4().hex, status=NoticeStatus.TEST, cluster=cluster, at_s=now_s)


def _delivery(channel: str, what: Notice, at_s: float) -> NoticeDelivery:
    return NoticeDelivery(delivery_id=uuid.uuid4().hex, channel=channel, notice=what, created_at_s=at_s)
