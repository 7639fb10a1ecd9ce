"""What the console costs with 1,000 topics, 6,000 partitions and 200 groups (docs/console.md, "What it costs")."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

for module in ("nicegui", "sqlalchemy"):
    pytest.importorskip(module, reason="streamlog[console] is not installed")

pytestmark = [pytest.mark.process]
PAGES = (
    "/",
    "/brokers",
    "/topics",
    "/topics/topic-0007",
    "/groups",
    "/groups/group-007",
    "/transactions",
    "/operations",
)
PAGE_CPU_S = 1.0
RSS_MB = 250
ANSWER_S = 60.0
LOADS = 3
"""Of each page; the cheapest counts: a sample of the cluster may fall into one."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Address and process id."""
    data = str(tmp_path_factory.mktemp("console"))
    command = [sys.executable, "-m", "tests.console.fake_cluster", "--data", data]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    yield found[0].rstrip("/"), process.pid
    process.send_signal(signal.SIGINT)
    process.wait(120)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def load(url: str) -> str:
    with urllib.request.urlopen(url, timeout=ANSWER_S) as response:
        return str(response.read().decode())


def wait_for_a_sample(url: str) -> None:
    deadline = time.monotonic() + ANSWER_S
    while "topic-0007" not in load(f"{url}/topics"):
        assert time.monotonic() < deadline, "no sample of the cluster"


def test_pages_of_a_large_cluster_are_cheap(console: tuple[str, int]) -> None:
    url, pid = console
    wait_for_a_sample(url)
    costs: dict[str, float] = {}
    for page in PAGES:
        for _ in range(LOADS):
            before_s = cpu_s(pid)
            text = load(url + page)
            costs[page] = min(costs.get(page, PAGE_CPU_S * 10), cpu_s(pid) - before_s)
        assert len(text) < 200_000, f"{page}: all rows were sent to the browser"
    print({page: round(cost, 2) for page, cost in costs.items()}, f"{rss_mb(pid):.0f} MB")
    assert max(costs.values()) < PAGE_CPU_S, costs
    assert rss_mb(pid) < RSS_MB
