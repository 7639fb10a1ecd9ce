"""Running streamlogctl against a real cluster."""

from __future__ import annotations

import os
import subprocess
import sys

from streamlog.pytest_plugin.cluster import InProcessCluster

COMMAND = [sys.executable, "-c", "from streamlog.cli.main import main; main()"]


def environment(cluster: InProcessCluster) -> dict[str, str]:
    return {**os.environ, "STREAMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}


def run(cluster: InProcessCluster, *arguments: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[bytes]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    return subprocess.run(
        [*COMMAND, *arguments], input=data, capture_output=True, env=environment(cluster), check=False, timeout=60
    )
