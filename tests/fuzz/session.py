"""Calls for so long, from several threads, with the cluster watched and a well-behaved client beside it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct

from .calls import Caller
from .catalogue import methods
from .cluster import FuzzedCluster
from .known import Known
from .messages import Case, make_case
from .report import Report, save
from .wire import RawPeers

WATCH_S: Final = 2.0
DISK_MB_MAX: Final = 1_500
FAILURES_MAX: Final = 30
RESTARTS_MAX: Final = 10
_RECENT: Final = 60  # calls that are kept as suspects of what is seen later
_QUIET_S: Final = 5.0
_ROOT: Final = Path(__file__).parent.parent.parent


class Limits(Struct, frozen=True, kw_only=True):
    seconds: float
    quiet_s: float = 10.0  # the well-behaved client alone, before: what its latency is compared with
    threads: int = 8
    rss_mb: int = 300  # how much larger a node may be at the end than before
    only: str = ""  # methods whose path holds this

    @property
    def raw_seconds(self) -> float:
        """Of raw frames (`wire`), after the calls."""
        return 0.0 if self.only else self.seconds / 5


class Probed(Protocol):
    """What the cluster is watched under."""

    def save_recent(self) -> str:
        """Where what was done last can be found."""
        ...


class Fuzzer:
    """Makes calls until it is stopped; remembers how they ended."""

    def __init__(
        self,
        seed: int,
        addresses: list[str],
        known: Known,
        report: Report,
        folder: Path,
        *,
        threads: int,
        only: str = "",
        calls: int | None = None,
    ) -> None:
        self._seed = seed
        self._methods = tuple(method for method in methods() if only in method.path)
        self._short = {method.path: method.short for method in self._methods}
        self._caller = Caller(addresses, self._methods)
        self._nodes = len(addresses)
        self._known = known
        self._report = report
        self._folder = folder
        self._numbers: Iterator[int] = iter(itertools.count() if calls is None else range(calls))
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.recent: deque[Case] = deque(maxlen=_RECENT)
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        self._caller.close()

    def save_recent(self) -> str:
        with self._lock:
            recent = list(self.recent)
        paths = [save(case, self._folder) for case in recent]
        return f"one of the {len(paths)} calls before, in {self._folder}"

    def _work(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            case = make_case(self._seed, number, self._methods, self._known, self._nodes)
            with self._lock:
                self.recent.append(case)
            outcome = self._caller.call(case)
            with self._lock:
                self._report.calls += 1
                self._report.outcomes[self._short[case.method], f"{outcome.status} {outcome.reason}".rstrip()] += 1
                if outcome.crashed and len(self._report.failures) < FAILURES_MAX:
                    self._report.failures.append(
                        f"{self._short[case.method]} ended with {outcome.status} {outcome.reason} {outcome.message!r} "
                        f"({case.strategy}, {case.shape}): {save(case, self._folder)}"
                    )


class GoodClient:
    """The process of `good`."""

    def __init__(self, servers: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.good", servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def end(self) -> dict[str, Any]:
        """What it has seen."""
        out, _ = self._process.communicate("end\n", timeout=120)
        found: dict[str, Any] = json.loads(out)
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def run(cluster: FuzzedCluster, seed: int, limits: Limits, folder: Path) -> Report:
    report = Report(seed=seed)
    client = GoodClient(",".join(cluster.addresses))
    try:
        time.sleep(limits.quiet_s)
        before = cluster.rss_mb()
        fuzzer = Fuzzer(
            seed, cluster.addresses, cluster.known(), report, folder, threads=limits.threads, only=limits.only
        )
        began = time.monotonic()
        fuzzer.start()
        highest = _watch(cluster, fuzzer, report, before, began + limits.seconds)
        fuzzer.stop()
        ended = time.monotonic()
        raw = RawPeers(seed, cluster.addresses)
        raw.start()
        highest = _watch(cluster, raw, report, highest, ended + limits.raw_seconds)
        raw.stop()
        raw_ended = time.monotonic()
        report.facts += raw.facts()
        time.sleep(_QUIET_S)
        report.failures += cluster.troubles()
        _judge_nodes(cluster, report, before, highest, limits)
        seen = client.end()
    finally:
        client.kill()
    _judge_client(seen, report, began, ended, raw_ended)
    return report


def _watch(
    cluster: FuzzedCluster, probed: Probed, report: Report, before: dict[int, int], deadline: float
) -> dict[int, int]:
    """Until the end, or until enough has failed. The highest memory of each node."""
    highest = dict(before)
    while time.monotonic() < deadline:
        time.sleep(min(WATCH_S, max(0.0, deadline - time.monotonic())))
        for node, size in cluster.rss_mb().items():
            highest[node] = max(highest.get(node, 0), size)
        troubles = list(dict.fromkeys(cluster.troubles()))
        if troubles and len(report.failures) < FAILURES_MAX:
            suspects = probed.save_recent()
            report.failures += [f"{trouble} ({suspects})" for trouble in troubles]
        if (disk := cluster.disk_mb()) > DISK_MB_MAX:
            report.failures.append(f"{disk} MB on disk, more than {DISK_MB_MAX}")
            break
        if len(report.failures) >= FAILURES_MAX or cluster.restarts > RESTARTS_MAX:
            break
        try:
            cluster.sweep()
        except Exception as error:  # noqa: BLE001  whatever the cluster says to an administrator
            report.facts.append(f"an administrator was refused: {error!r}"[:300])
    return highest


def _judge_nodes(
    cluster: FuzzedCluster, report: Report, before: dict[int, int], highest: dict[int, int], limits: Limits
) -> None:
    report.failures += cluster.not_serving(timeout_s=10)
    after = cluster.rss_mb()
    for node, size in sorted(after.items()):
        grown = size - before.get(node, 0)
        report.facts.append(
            f"node {node}: {before.get(node, 0)} MB before, {highest.get(node, 0)} at most, {size} after"
        )
        if grown > limits.rss_mb:
            report.failures.append(f"node {node} is {grown} MB larger than before, more than {limits.rss_mb}")
    report.facts.append(f"{cluster.disk_mb()} MB on disk, {cluster.restarts} restarts of nodes that died")


def _judge_client(seen: dict[str, Any], report: Report, began: float, ended: float, raw_ended: float) -> None:
    report.failures += [f"the well-behaved client: {one}" for one in seen["changed"][:10]]
    report.failures += [f"the well-behaved client was refused: {one}" for one in seen["errors"][:10]]
    quiet = sorted(took for at, took in seen["latencies"] if at < began)
    beside = sorted(took for at, took in seen["latencies"] if began <= at < ended)
    raw = sorted(took for at, took in seen["latencies"] if ended <= at < raw_ended)
    report.facts.append(f"the well-behaved client: {seen['written']} records acknowledged, {seen['read']} read back")
    for name, some in (("before", quiet), ("during", beside), ("during raw frames", raw)):
        if some:
            p50, p99 = some[len(some) // 2] * 1_000, some[int(len(some) * 0.99)] * 1_000
            report.facts.append(f"its latency {name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {len(some)} records")
