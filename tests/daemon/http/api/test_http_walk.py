"""docs/http.md: its commands as they stand, on a real node, with curl."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from streamlog.daemon.free_ports import free_ports

PAGE: Final = Path(__file__).parents[4] / "docs" / "http.md"
MARK: Final = "<!-- walk -->\n"
TIMEOUT_S: Final = 500
SHOWN: Final = (
    '"name":"orders"',  # created
    '"timestampMs":',  # published
    '"value":"dGVh"',  # fetched
    '"offset":"1"',  # committed
    '"group":"billing"',
    '"value":"dGVh"',  # in an event
    "event: end\nid: end\ndata: {}",
)
"""In the order in which the page's commands print it."""

pytestmark = pytest.mark.process


def commands() -> str:
    found = []
    for part in PAGE.read_text().split(MARK)[1:]:
        block = part.lstrip("\n").split("\n\n")[0].splitlines()
        assert all(line.startswith("    ") for line in block), block
        found += [line[4:] for line in block]
    return "\n".join(found)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_walk(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    script = commands().replace("9644", str(port)).replace("local start", "local start --timeout-s 180 --port 0")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", "-euc", f"trap 'streamlogctl local stop --dir http' EXIT\n{script}"]
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    at = 0
    for text in SHOWN:
        at = run.stdout.index(text, at)
