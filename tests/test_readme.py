"""The README's walk, command by command, on a cluster of real processes: nothing to guess, nothing out of date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.daemon.free_ports import free_ports
from streamlog.daemon.local_cluster import LocalCluster

ROOT = Path(__file__).parent.parent
MARK = "<!-- walk -->\n"


def walk() -> list[str]:
    """The blocks that follow a mark, without their indentation."""
    parts = (ROOT / "README.md").read_text().split(MARK)[1:]
    blocks = [re.match(r"\n((?:    .*\n|\n(?=    ))+)", part) for part in parts]
    assert all(blocks)
    return [re.sub(r"^ {4}", "", block[1], flags=re.MULTILINE) for block in blocks if block]


def test_every_command_is_in_the_walk_or_described() -> None:
    from streamlog.cli.main import main

    text = (ROOT / "README.md").read_text()
    context = main.make_context("streamlogctl", ["topic"], resilient_parsing=True)
    for name in main.list_commands(context):
        assert f"streamlogctl {name}" in text, name


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    cluster = LocalCluster(tmp_path / "cluster")
    for node in cluster.nodes:
        cluster.kill(node)


@pytest.mark.process
def test_the_walk(directory: Path) -> None:
    """In a port range of its own, as 9092 may be taken where the tests run."""
    [port] = free_ports(1)
    port = min(port, 60_000)
    text = "\n".join(walk())
    assert "--port 9092" in text
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-x", "-c", text.replace("--port 9092", f"--port {port}")],
        cwd=directory,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "STREAMLOG_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "Traceback" not in done.stderr
    assert "Created topic orders.\n" in done.stdout
    assert "Wrote 100 records" in done.stderr
    assert "anna\ttea\n" in done.stdout
    assert "All replicas of 3 partitions are identical." in done.stderr
    assert done.stdout.endswith("Node 1 restarted.\nNodes 1, 2, 3 stopped.\n")
