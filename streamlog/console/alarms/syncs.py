"""Sync latency by log directory, from the nodes' /metrics: the admin API does not have it.

The addresses are `metrics` of the file of rules. Each is scraped every SCRAPED_EACH_S; the 99th percentile is that of
the syncs within the last WINDOW_S, from the histogram's buckets. A node that restarted starts at zero: its earlier
scrapes are dropped.

An https:// address is verified by the authorities of the system and of the console's own ssl.truststore, and gets the
console's own certificate if it requires one. Both are loaded again when their files change.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import httpx
from msgspec import Struct, field
from prometheus_client.parser import text_string_to_metric_families

from streamlog.aio.timeouts import timeout
from streamlog.client.settings import loaded
from streamlog.config import load_admin
from streamlog.errors import InvalidConfigError
from streamlog.tls.material import MaterialFiles
from streamlog.tls.openssl import client_context

_log: Final = logging.getLogger(__name__)

SCRAPED_EACH_S: Final = 15.0
WINDOW_S: Final = 120.0
STALE_S: Final = 60.0
PAGE_BYTES_MAX: Final = 64 << 20
TIMEOUT_S: Final = 10.0
_HISTOGRAM: Final = "streamlog_log_sync_duration_seconds_bucket"
_BUILD: Final = "streamlog_build_info"

Buckets = Mapping[str, Mapping[float, float]]
"""By log directory: upper bound -> cumulative count."""


class Scrape(Struct, frozen=True):
    node_id: int
    buckets: Buckets


class _Source(Struct):
    scrapes: deque[tuple[float, Scrape]] = field(default_factory=deque)
    problem: str = "not scraped yet"


class SyncLatencies:
    """One event loop."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """`settings`: of the console as a client. InvalidConfigError."""
        self._files = MaterialFiles.of(loaded(load_admin, settings, {}))
        self._sources: dict[str, _Source] = {}

    @property
    def problems(self) -> Mapping[str, str]:
        """By address: why it has no values."""
        return {url: one.problem for url, one in self._sources.items() if one.problem}

    async def run(self, urls: Sequence[str]) -> None:
        """Until it is cancelled."""
        self._sources = {url: self._sources.get(url, _Source()) for url in urls}
        while urls:
            used = self._files.signature()
            try:
                context = await asyncio.to_thread(lambda: client_context(self._files.load()))
            except (InvalidConfigError, ssl.SSLError, ValueError) as error:
                _log.warning("https:// addresses of `metrics` are scraped without the console's TLS files: %s", error)
                context = ssl.create_default_context()
            async with httpx.AsyncClient(verify=context, timeout=TIMEOUT_S, follow_redirects=False) as client:
                while used == self._files.signature():
                    await asyncio.gather(*(self._scrape(client, url) for url in urls))
                    await asyncio.sleep(SCRAPED_EACH_S)

    async def _scrape(self, client: httpx.AsyncClient, url: str) -> None:
        source = self._sources[url]
        try:
            async with (
                timeout(TIMEOUT_S),
                client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer,
            ):
                answer.raise_for_status()
                page = bytearray()
                async for part in answer.aiter_raw():
                    page += part
                    if len(page) > PAGE_BYTES_MAX:
                        raise ValueError(f"the page has more than {PAGE_BYTES_MAX} bytes")
            self.add(url, time.monotonic(), await asyncio.to_thread(parse, bytes(page)))
        except httpx.HTTPStatusError as error:
            source.problem = f"HTTP status {error.response.status_code}"
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            source.problem = _refused(error) or "does not answer"
        except ValueError as error:
            source.problem = f"not a page of metrics of a node: {error}"

    def add(self, url: str, now_s: float, scrape: Scrape) -> None:
        source = self._sources.setdefault(url, _Source())
        if source.scrapes and _restarted(source.scrapes[-1][1], scrape):
            source.scrapes.clear()
        source.scrapes.append((now_s, scrape))
        while len(source.scrapes) > 2 and source.scrapes[1][0] <= now_s - WINDOW_S:
            source.scrapes.popleft()
        source.problem = ""

    def p99_s(self, now_s: float) -> tuple[dict[tuple[int, str], float], frozenset[int]]:
        """By (node id, log directory); and the nodes that are known."""
        found: dict[tuple[int, str], float] = {}
        known = set()
        for source in self._sources.values():
            if len(source.scrapes) < 2 or now_s - source.scrapes[-1][0] > STALE_S:
                continue
            first, last = source.scrapes[0][1], source.scrapes[-1][1]
            known.add(last.node_id)
            for path, counts in last.buckets.items():
                value = quantile(0.99, first.buckets.get(path, {}), counts)
                if value is not None:
                    found[last.node_id, path] = value
        return found, frozenset(known)


def parse(page: bytes) -> Scrape:
    """Only the lines that are needed are parsed. ValueError."""
    prefixes = (_HISTOGRAM, _BUILD)
    lines = [line for line in page.decode().splitlines() if line.startswith(prefixes)]
    node_id: int | None = None
    buckets: dict[str, dict[float, float]] = {}
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for one in family.samples:
                if one.name == _BUILD:
                    node_id = int(one.labels["node_id"])
                elif one.name == _HISTOGRAM:
                    buckets.setdefault(one.labels["log_dir"], {})[float(one.labels["le"])] = one.value
    except KeyError as error:
        raise ValueError(f"label {error} is missing") from None
    if node_id is None:
        raise ValueError(f"{_BUILD} is missing")
    return Scrape(node_id, buckets)


def _refused(error: BaseException) -> str:
    """Why the node's certificate is not accepted; empty: it failed otherwise."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    return ""


def _restarted(before: Scrape, now: Scrape) -> bool:
    return before.node_id != now.node_id or any(
        now.buckets.get(path, {}).get(float("inf"), 0.0) < counts.get(float("inf"), 0.0)
        for path, counts in before.buckets.items()
    )


def quantile(share: float, before: Mapping[float, float], now: Mapping[float, float]) -> float | None:
    """As Prometheus' histogram_quantile: linear within a bucket; the highest finite bound for the last one. None: no
    observations in between.
    """
    counts = sorted((bound, count - before.get(bound, 0.0)) for bound, count in now.items())
    if not counts or counts[-1][1] <= 0:
        return None
    rank = share * counts[-1][1]
    low, below = 0.0, 0.0
    for bound, count in counts:
        if count >= rank:
            if bound == float("inf"):
                return low
            return low + (bound - low) * ((rank - below) / (count - below) if count > below else 1.0)
        low, below = bound, count
    return low
