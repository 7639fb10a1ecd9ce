"""`make demo-console`: lines flow and the console shows them; when it is stopped nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from tests.console.access.running import free_port

pytestmark = [pytest.mark.process]
ROOT = Path(__file__).parent.parent.parent
WAIT_S = 120.0


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_it_is_stopped(end: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo.console", "--port", str(free_port())]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        url = re.search(r"http://\S+/", demo.stdout.readline())
        assert url is not None
        _wait_for_lines(url[0])
        demo.send_signal(end)
        said, _ = demo.communicate(timeout=WAIT_S)
    assert said.endswith("All nodes are stopped.\n")
    assert list(tmp_path.glob("streamlog-demo-*")) == []


def _wait_for_lines(url: str) -> None:
    """The group's lag is of records that were written and read."""
    deadline = time.monotonic() + WAIT_S
    while "indexer" not in _page(f"{url}groups"):
        assert time.monotonic() < deadline, "no group was shown"
        time.sleep(1.0)


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT_S) as response:
        text: str = response.read().decode()
    return text
