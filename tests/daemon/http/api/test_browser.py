"""A real browser reads events, and stops at their end. Skipped by name without playwright or Chromium."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.daemon.http.api.served_api import served, subscribe_path, text

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT_MS: Final = 120_000

# It ends when the browser has given up: after the end event it reconnects once, and gets 204.
READ: Final = """
path => new Promise(resolve => {
  const seen = [];
  const events = new EventSource(path);
  events.onmessage = event => {
    for (const {records} of JSON.parse(event.data).partitions)
      for (const record of records) seen.push(atob(record.value));
    seen.push(event.lastEventId);
  };
  events.addEventListener("end", event => seen.push(event.data));
  events.onerror = () => { if (events.readyState === EventSource.CLOSED) resolve(seen); };
})
"""


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_event_source(tmp_path: Path) -> None:
    with InProcessCluster(tmp_path, nodes=1) as cluster, served(cluster) as api:
        cluster.create_topic("orders")
        api.call("Records/Publish", {"topic": "orders", "records": [{"value": text(one)} for one in ("tea", "coffee")]})
        subscription = {"topic": "orders", "start": {"offset": "0"}, "end": {"offset": "2"}}
        with playwright.sync_playwright() as running:
            browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.set_default_timeout(TIMEOUT_MS)
            page.goto(f"http://127.0.0.1:{api.port}/healthz")
            seen = page.evaluate(READ, subscribe_path({"subscriptions": [subscription]}))
            page.goto(f"http://127.0.0.1:{api.port}/docs")
            assert page.locator("h2").first.inner_text() == "Admin"
            browser.close()
    assert seen == ["tea", "coffee", "orders:0=2", "{}"]
